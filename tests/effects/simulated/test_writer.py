"""The simulated disk's async writes: each is written, durable and reported after its own latency, or never."""

import asyncio
import errno

import pytest
from disk_files import read
from fencepost.effects.disk.async_writer import WAITED_FOR
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.effects.simulated.loop import run
from fencepost.effects.simulated.operations import Sync, Write

BEFORE = b"." * 40


@pytest.fixture
def disk():
    disk = SimulatedDisk()
    disk.make_directory("/d")
    disk.at_once = 4
    file = disk.open("/d/f", create=True)
    file.write([BEFORE], 0)
    file.sync()
    disk.sync_directory("/d")
    disk.sync_directory("/")
    return disk


def latencies(*pairs):
    """Return a latency function that gives these (seconds until the write, then until its sync), one pair per write."""
    left = list(pairs)
    return lambda: left.pop(0)


def begin(writer, file, position, data, told):
    """Begin a write, whose error or, on success, data is appended to `told`. Returns whether it has begun."""
    return writer.begin(file, position, [data], len(data), lambda error, took_ns: told.append(error or data))


def durable(disk):
    """Return what the file has after a power cut now."""
    return read(disk.after_power_cut(), "/d/f")


def with_bytes(*pairs):
    """Return the file's first content with these (position, bytes) written over it."""
    content = bytearray(BEFORE)
    for position, data in pairs:
        content[position : position + len(data)] = data
    return bytes(content)


def test_async_writer_of_a_simulated_disk_without_async_writes_returns_none(disk):
    disk.at_once = 0
    assert disk.async_writer() is None
    assert SimulatedDisk().async_writer() is None


def test_the_disk_after_a_crash_allows_as_many_async_writes_at_once_as_before(disk):
    disk.at_once = 3
    assert disk.after_process_crash().async_writer().at_once == disk.after_power_cut().async_writer().at_once == 3


def test_a_simulated_async_write_is_first_readable_then_durable_then_calls_back(disk):
    disk.latency = lambda: (0.001, 0.002)

    async def main():
        writer, file, told = disk.async_writer(), disk.open("/d/f"), []
        assert begin(writer, file, 10, b"new", told)
        await asyncio.sleep(0.0005)
        assert (read(disk, "/d/f"), durable(disk), told) == (BEFORE, BEFORE, [])
        await asyncio.sleep(0.001)
        assert (read(disk, "/d/f"), durable(disk), told) == (with_bytes((10, b"new")), BEFORE, [])
        await asyncio.sleep(0.01)
        assert durable(disk) == with_bytes((10, b"new"))
        assert told == [b"new"]

    run(main())


def test_a_simulated_async_write_without_latency_ends_in_a_later_loop_turn(disk):
    async def main():
        writer, file, told = disk.async_writer(), disk.open("/d/f"), []
        data = bytearray(b"new")
        assert writer.begin(file, 0, [data, b"er"], 5, lambda error, took_ns: told.append(error))
        data[:] = b"old"
        assert (read(disk, "/d/f"), told) == (BEFORE, [])
        await asyncio.sleep(0)
        assert (durable(disk), told) == (BEFORE, [])
        await asyncio.sleep(0)
        assert (durable(disk), told) == (with_bytes((0, b"newer")), [None])

    run(main())


def test_simulated_async_writes_begun_together_may_complete_in_any_order(disk):
    disk.latency = latencies((0.001, 0.008), (0.002, 0.004), (0.003, 0.001))

    async def main():
        writer, file, told = disk.async_writer(), disk.open("/d/f"), []
        for number in range(3):
            assert begin(writer, file, 10 * number, b"%d" % number, told)
        await asyncio.sleep(0.005)
        assert (told, durable(disk)) == ([b"2"], with_bytes((20, b"2")))
        await asyncio.sleep(0.002)
        assert (told, durable(disk)) == ([b"2", b"1"], with_bytes((10, b"1"), (20, b"2")))
        assert read(disk, "/d/f") == with_bytes((0, b"0"), (10, b"1"), (20, b"2"))
        await asyncio.sleep(1)
        assert (told, durable(disk)) == ([b"2", b"1", b"0"], with_bytes((0, b"0"), (10, b"1"), (20, b"2")))

    run(main())


def test_overlapping_simulated_async_writes_may_be_applied_in_any_order(disk):
    disk.latency = latencies((0.002, 0.001), (0.001, 0.005))

    async def main():
        writer, file, told = disk.async_writer(), disk.open("/d/f"), []
        assert begin(writer, file, 0, b"first", told)
        assert begin(writer, file, 0, b"second", told)
        await asyncio.sleep(1)
        assert told == [b"first", b"second"]
        assert durable(disk) == with_bytes((0, b"firstd"))

    run(main())
    assert [one.data for one in disk.operations if isinstance(one, Write)] == [BEFORE, b"second", b"first"]


def test_a_power_cut_before_an_async_writes_sync_may_lose_or_keep_its_bytes(disk):
    disk.latency = lambda: (0.001, 0.002)

    async def main():
        begin(disk.async_writer(), disk.open("/d/f"), 0, b"new", [])
        await asyncio.sleep(1)

    run(main())
    writes = [one for one in disk.operations if isinstance(one, Write)]
    after_write = writes[-1].index + 1
    assert read(disk.at(after_write, kept=()), "/d/f") == BEFORE
    assert read(disk.at(after_write), "/d/f") == with_bytes((0, b"new"))
    assert read(disk.at(after_write + 1, kept=()), "/d/f") == with_bytes((0, b"new"))


@pytest.mark.parametrize("history", [True, False])
def test_a_synced_async_write_makes_only_its_own_bytes_durable_and_a_sync_all_bytes(history):
    """All bytes: those of ordinary writes and of async writes that have been applied by then."""
    disk = SimulatedDisk(history=history)
    disk.at_once = 4
    disk.latency = latencies((0.001, 9.0), (0.002, 0.001), (8.0, 1.0))

    async def main():
        writer, file, told = disk.async_writer(), disk.open("/f", create=True), []
        disk.sync_directory("/")
        file.write([BEFORE], 0)
        file.sync()
        file.write([b"ordinary"], 30)
        assert begin(writer, file, 0, b"slow", told)
        assert begin(writer, file, 10, b"quick", told)
        assert begin(writer, file, 20, b"late", told)
        await asyncio.sleep(1)
        assert told == [b"quick"]
        assert read(disk.after_power_cut(), "/f") == with_bytes((10, b"quick"))
        file.sync()
        synced = with_bytes((0, b"slow"), (10, b"quick"), (30, b"ordinary"))
        assert read(disk.after_power_cut(), "/f") == synced
        await asyncio.sleep(100)  # bytes that a sync made durable stay so
        assert told == [b"quick", b"late", b"slow"]
        synced = with_bytes((0, b"slow"), (10, b"quick"), (20, b"late"), (30, b"ordinary"))
        assert read(disk.after_power_cut(), "/f") == synced

    run(main())


def test_a_failed_simulated_async_write_calls_back_its_error_and_is_not_synced(disk):
    fault = disk.fail(lambda one: isinstance(one, Write), error=errno.ENOSPC, after_bytes=2)

    async def main():
        writer, file, told = disk.async_writer(), disk.open("/d/f"), []
        assert begin(writer, file, 0, b"bad", told)
        assert begin(writer, file, 10, b"good", told)
        await asyncio.sleep(1)
        assert [getattr(each, "errno", each) for each in told] == [errno.ENOSPC, b"good"]
        assert told[0].filename == "/d/f"

    run(main())
    assert fault.hits == 1
    assert read(disk, "/d/f") == with_bytes((0, b"ba"), (10, b"good"))
    assert durable(disk) == with_bytes((10, b"good"))


def test_bytes_of_an_async_write_whose_sync_failed_never_become_durable(disk):
    fault = disk.fail_sync(lambda path: path == "/d/f")

    async def main():
        writer, file, told = disk.async_writer(), disk.open("/d/f"), []
        assert begin(writer, file, 0, b"bad", told)
        assert begin(writer, file, 10, b"good", told)
        await asyncio.sleep(1)
        assert [getattr(each, "errno", each) for each in told] == [errno.EIO, b"good"]
        file.sync()

    run(main())
    assert fault.hits == 1
    assert read(disk, "/d/f") == with_bytes((0, b"bad"), (10, b"good"))
    assert durable(disk) == with_bytes((10, b"good"))


def test_a_failed_sync_of_an_async_write_affects_no_other_bytes_of_its_file(disk):
    disk.fail(lambda one: isinstance(one, Sync) and one.only is not None)

    async def main():
        writer, file, told = disk.async_writer(), disk.open("/d/f"), []
        file.write([b"ordinary"], 20)
        assert begin(writer, file, 0, b"bad", told)
        await asyncio.sleep(1)
        assert [each.errno for each in told] == [errno.EIO]
        file.sync()

    run(main())
    assert durable(disk) == with_bytes((20, b"ordinary"))


def test_an_async_write_to_a_file_closed_meanwhile_fails_with_ebadf(disk):
    async def main():
        writer, file, told = disk.async_writer(), disk.open("/d/f"), []
        assert begin(writer, file, 0, b"new", told)
        file.close()
        await asyncio.sleep(1)
        assert [each.errno for each in told] == [errno.EBADF]

    run(main())
    assert read(disk, "/d/f") == BEFORE


def test_a_simulated_writer_begins_no_write_beyond_its_limit_even_from_a_callback(disk):
    """The limit, at_once, is the number that the disk had when the writer was made."""
    disk.latency = lambda: (0.001, 0.001)
    disk.at_once = 2

    async def main():
        writer, file, told = disk.async_writer(), disk.open("/d/f"), []
        disk.at_once = 4  # for the next writer
        assert writer.at_once == 2
        assert begin(writer, file, 0, b"0", told)
        assert writer.begin(file, 1, [b"1"], 1, lambda error, took_ns: told.append(begin(writer, file, 2, b"2", told)))
        assert not begin(writer, file, 3, b"3", told)
        await asyncio.sleep(1)
        assert told == [b"0", True, b"2"]
        assert begin(writer, file, 4, b"4", told)

    run(main())
    assert durable(disk) == with_bytes((0, b"012"))


def test_closing_a_simulated_writer_completes_begun_writes_without_a_callback(disk):
    disk.latency = latencies((0.001, 0.002), (0.005, 0.002), (0.001, 0.0))

    async def main():
        writer, file, told = disk.async_writer(), disk.open("/d/f"), []
        assert begin(writer, file, 0, b"written", told)
        assert begin(writer, file, 10, b"begun", told)
        await asyncio.sleep(0.002)
        assert durable(disk) == BEFORE
        writer.close()
        assert durable(disk) == with_bytes((0, b"written"), (10, b"begun"))
        assert not begin(writer, file, 0, b"late", told)
        operations = len(disk.operations)
        writer.close()
        await asyncio.sleep(1)
        assert (told, len(disk.operations)) == ([], operations)

    run(main())


def test_closing_a_simulated_writer_completes_other_writes_if_one_fails(disk):
    disk.fail_sync(lambda path: True)
    disk.fail(lambda one: isinstance(one, Write) and one.data == b"failing")

    async def main():
        writer, file, told = disk.async_writer(), disk.open("/d/f"), []
        for number, data in enumerate([b"unsynced", b"failing", b"good"]):
            assert begin(writer, file, 10 * number, data, told)
        writer.close()
        await asyncio.sleep(1)
        assert told == []

    run(main())
    assert durable(disk) == with_bytes((20, b"good"))


def test_the_writers_of_a_killed_process_do_nothing_more(disk):
    disk.latency = latencies((0.001, 0.002), (0.005, 0.002))

    async def main():
        writer, file, told = disk.async_writer(), disk.open("/d/f"), []
        assert begin(writer, file, 0, b"written", told)
        assert begin(writer, file, 10, b"begun", told)
        await asyncio.sleep(0.002)
        operations = len(disk.operations)
        disk.halt()
        assert not begin(writer, file, 20, b"late", told)
        await asyncio.sleep(1)
        writer.close()
        assert (told, len(disk.operations)) == ([], operations)

    run(main())
    assert read(disk, "/d/f") == with_bytes((0, b"written"))
    assert durable(disk) == BEFORE


def test_a_simulated_writer_whose_begin_blocks_is_disabled_after_a_few_writes(disk):
    disk.begins_in_call = True
    disk.latency = lambda: (0.001, 0.002)

    async def main():
        writer, file, told = disk.async_writer(), disk.open("/d/f"), []
        for number in range(WAITED_FOR):
            assert begin(writer, file, number, b"%d" % number, told)
            assert durable(disk)[: number + 1] == b"0123456789"[: number + 1]
        assert told == []
        assert not begin(writer, file, 9, b"x", told)
        assert writer.at_once == 0
        await asyncio.sleep(0.01)
        assert told == [b"%d" % number for number in range(WAITED_FOR)]
        writer.close()

    run(main())
