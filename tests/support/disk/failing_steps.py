"""Work done once for each of its steps on a simulated disk, with that step failing: an error of the system everywhere.

A step is one call of the disk: open, read, stat, list, write, truncate, rename, unlink, sync. The suite takes one error
at each step that it takes; `ERROR_STEPS=all` takes all errors at all steps.
"""

import errno
import os
from collections.abc import Callable, Iterator
from typing import Any

from fencepost.effects.simulated.disk import SimulatedDisk

ERRORS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.EACCES, errno.ENOSPC, errno.EINTR)
ALL = os.environ.get("ERROR_STEPS") == "all"


def failures(turn: int, apart: int) -> Iterator[tuple[int, int]]:
    """Yield (step, error) without end: every `apart`-th step, the first of which `turn` chooses, with one error after
    the other of ERRORS. With ERROR_STEPS=all, every step with every error.
    """
    step = 0 if ALL else turn % apart
    while True:
        for number in ERRORS if ALL else (ERRORS[(turn + step // apart) % len(ERRORS)],):
            yield step, number
        step += 1 if ALL else apart


def fail_each_step(
    make: Callable[[], SimulatedDisk],
    work: Callable[[SimulatedDisk], Any],
    judge: Callable[[SimulatedDisk, Any], None],
    *,
    turn: int = 0,
    apart: int = 1,
) -> int:
    """Run `work` once for each of its disk operations, with an error there, until it has no further operation. Returns
    how often the error ended the work.

    judge: called after each run with the disk, without errors again, and what the work returned: None if the error
    ended it. turn, apart: as for failures().
    """
    ended = 0
    for step, number in failures(turn, apart):
        disk = make()
        fault = disk.fail_step(step, error=number)
        try:
            done, error = _end_of(work, disk)
            if not fault.hits:
                assert error is None
                return ended
            if error is not None:
                assert (error.errno, bool(error.filename)) == (number, True)
                ended += 1
            fault.times = fault.hits
            judge(disk, done)
        except BaseException as problem:
            problem.add_note(f"step {step}, {errno.errorcode[number]}")
            raise
    raise AssertionError("the work has no end")


def _end_of(work: Callable[[SimulatedDisk], Any], disk: SimulatedDisk) -> tuple[Any, OSError | None]:
    try:
        return work(disk), None
    except OSError as error:
        return None, error
