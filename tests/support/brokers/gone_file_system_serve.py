"""`fencepost serve` whose file system is gone: python gone_file_system_serve.py STEP ERRNO serve …

From SIGUSR1 on, each call of os.STEP fails with this error; STEP `all` means every call that writes, names or syncs.
"""

import os
import signal
import stat
import sys
from typing import Any, NoReturn

from fencepost.cli import main

STEPS = ("ftruncate", "pwrite", "pwritev", "fsync", "fdatasync", "replace", "unlink", "mkdir", "close")
gone: dict[str, int] = {}


def refuse_on_signal(steps: tuple[str, ...], number: int) -> None:
    for step in steps:
        setattr(os, step, _refusing(step, getattr(os, step)))
    signal.signal(signal.SIGUSR1, lambda *_: gone.update(dict.fromkeys(steps, number)))


def _refusing(step: str, original: Any) -> Any:
    def call(*arguments: Any, **named: Any) -> Any:
        if step not in gone:
            return original(*arguments, **named)
        if step == "close":  # the descriptor is closed whatever is reported; sockets are not on the file system
            mode = os.fstat(arguments[0]).st_mode
            original(*arguments, **named)
            return _refuse(gone[step]) if stat.S_ISREG(mode) or stat.S_ISDIR(mode) else None
        return _refuse(gone[step])

    return call


def _refuse(number: int) -> NoReturn:
    raise OSError(number, os.strerror(number))


if __name__ == "__main__":
    step = sys.argv[1]
    refuse_on_signal(STEPS if step == "all" else (step,), int(sys.argv[2]))
    sys.argv[1:3] = []
    main()
