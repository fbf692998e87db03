"""Runs commands at the same time, as a program: `side_by_side.py COMMAND ::: COMMAND ...`.

The first one writes as it goes; what each of the others wrote follows it, whole. The exit code
is 1 if one of them failed.
"""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import groupby

BETWEEN = ":::"


def run(first: Sequence[str], *others: Sequence[str]) -> int:
    """Run all of them to their ends, those too that are left when one fails, and return the exit code for them all."""
    with ExitStack() as stack:
        begun = [(subprocess.Popen(first), None)]
        for command in others:
            output = stack.enter_context(tempfile.TemporaryFile())
            begun.append((subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT), output))
        for process, output in begun:
            _wait(process)
            if output:
                output.seek(0)
                sys.stdout.buffer.write(b"\n" + output.read())
                sys.stdout.buffer.flush()
    return int(any(process.returncode for process, _ in begun))


def _wait(process: subprocess.Popen[bytes]) -> None:
    while process.returncode is None:
        try:
            process.wait()
        except KeyboardInterrupt:  # which the command got, too, and ends of
            continue


if __name__ == "__main__":
    parts = [list(part) for is_end, part in groupby(sys.argv[1:], BETWEEN.__eq__) if not is_end]
    sys.exit(run(*parts))
