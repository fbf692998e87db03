"""Async writes where the submit call returns only after the whole write: on btrfs, and ext4 with data=journal."""

import time

from fencepost.effects.disk import aio
from fencepost.effects.disk.aio import BLOCK_BYTES, MAX_AT_ONCE, WAITED_FOR
from native_aio import begin, blocks, run_until, wait_for_device, write


def end_in_the_call(writer, pause_s=0.001):
    """Make io_submit return only `pause_s` after its write has ended. Returns the real call."""
    real = writer._call

    def submit(number, *arguments):
        result = real(number, *arguments)
        if number is writer._submit and result == 1:
            wait_for_device(writer, 1)
            time.sleep(pause_s)
        return result

    writer._call = submit
    return real


def test_several_async_writes_that_block_in_the_submit_call_disable_the_writer(loop, writer, file, caplog):
    """The writes themselves succeed, and the log says it once."""
    caplog.set_level("INFO")
    end_in_the_call(writer)
    contents = [blocks(1, salt) for salt in range(WAITED_FOR)]
    for number, content in enumerate(contents):
        assert writer.at_once == MAX_AT_ONCE
        assert write(loop, writer, file, number * BLOCK_BYTES, content) is None
    assert writer.at_once == 0
    assert caplog.text.count("made the loop wait") == 1
    assert not begin(writer, file, 0, blocks(1), told=[])
    assert file.read(WAITED_FOR * BLOCK_BYTES, 0) == b"".join(contents)


def test_one_write_that_does_not_block_in_the_submit_call_keeps_async_writes_enabled(loop, writer, file):
    for _ in range(3):
        real = end_in_the_call(writer)
        for _ in range(WAITED_FOR - 1):
            assert write(loop, writer, file, 0, blocks(1)) is None
        held, told = [], []
        writer._call = lambda *arguments, held=held: held.append(arguments) or 1  # submitted below
        assert begin(writer, file, 0, blocks(1), told=told)
        writer._call = real
        assert real(*held[0]) == 1
        run_until(loop, lambda told=told: told)
    assert writer.at_once == MAX_AT_ONCE


def test_async_writes_that_block_the_submit_call_only_briefly_stay_enabled(loop, writer, file, monkeypatch):
    end_in_the_call(writer, pause_s=0)
    monkeypatch.setattr(aio, "QUICK_NS", 1 << 62)
    for _ in range(2 * WAITED_FOR):
        assert write(loop, writer, file, 0, blocks(1)) is None
    assert writer.at_once == MAX_AT_ONCE


def test_blocking_writes_begun_while_another_is_in_flight_do_not_disable_the_writer(loop, writer, file, monkeypatch):
    """A write whose completion is there right after the submit call is taken to have blocked in the call; here that
    completion may be the other write's.
    """
    for _ in range(2 * WAITED_FOR):
        real, told = writer._call, []
        with monkeypatch.context() as patched:
            patched.setattr(aio, "QUICK_NS", 1 << 62)  # this write must not count as blocking
            assert begin(writer, file, 0, blocks(1), told=told)
        wait_for_device(writer, 1)
        writer._call = lambda *arguments, real=real: (real(*arguments), time.sleep(0.001))[0]
        assert begin(writer, file, BLOCK_BYTES, blocks(1), told=told)
        writer._call = real
        run_until(loop, lambda told=told: len(told) == 2)
    assert writer.at_once == MAX_AT_ONCE
