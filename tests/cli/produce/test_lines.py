"""Lines of a descriptor, read in a thread beside an event loop."""

import asyncio
import os
import subprocess
import sys
import threading

import pytest
from fencepost.cli.produce.lines import lines
from fencepost.effects.threads import CannotStartThread
from few_threads import threads_left


async def all_lines(written: list[bytes]) -> list[bytes]:
    reader, writer = os.pipe()

    def write() -> None:
        for part in written:
            os.write(writer, part)
        os.close(writer)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        return [line async for some in lines(reader) for line in some]
    finally:
        thread.join()
        os.close(reader)


@pytest.mark.parametrize(
    ("written", "found"),
    [([], []), ([b"a\nb\n"], [b"a", b"b"]), ([b"a\n\nb"], [b"a", b"", b"b"]),
     ([b"x" * 200_000, b"y\nz"], [b"x" * 200_000 + b"y", b"z"])],
)  # fmt: skip
async def test_lines_of_standard_input_are_yielded_whole_however_the_input_is_split(
    written: list[bytes], found: list[bytes]
) -> None:
    assert await all_lines(written) == found


async def test_reading_lines_without_a_free_thread_raises_cannot_start_thread() -> None:
    with threads_left(0), pytest.raises(CannotStartThread):
        await anext(lines(0))


async def test_300000_input_lines_which_exceed_the_read_ahead_are_all_read_in_order() -> None:
    numbers = b"".join(b"%d\n" % number for number in range(300_000))
    assert await all_lines([numbers]) == numbers.splitlines()


async def test_lines_raises_the_os_error_of_an_unreadable_descriptor() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    os.close(writer)
    with pytest.raises(OSError, match="descriptor"):
        await asyncio.wait_for(anext(lines(reader)), 5)


WAITS_FOR_INPUT = """
import asyncio, sys
from fencepost.cli.produce.lines import lines
async def main():
    async with asyncio.timeout(0.2):
        async for _ in lines():
            pass
try:
    asyncio.run(main())
except TimeoutError:
    print("ended")
"""


def test_a_process_that_waits_for_input_ends_at_a_signal() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", WAITS_FOR_INPUT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.wait(20) == 0  # while its input is open
    out, err = process.communicate()
    assert (out, err) == (b"ended\n", b"")
