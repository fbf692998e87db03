"""A coverage-guided fuzzing loop for systems without atheris, and the measurement of one input's cost.

The rule: an input that takes a step from one line of fencepost to another which none before it took joins the corpus.
An input that runs more lines than its size allows raises Overwork at once; no clock is involved.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

import fencepost.broker
import fencepost.client
import fencepost.effects
import fencepost.protocol
import fencepost.storage
from fuzz.mutating import mutated
from fuzz.target import Target
from peak_memory import peak_bytes

_AREAS = (fencepost.effects, fencepost.protocol, fencepost.storage, fencepost.broker, fencepost.client)
OURS = ("<fencepost ", *(str(Path(area.__file__).parent) for area in _AREAS))
"""Prefixes of the file names whose lines count; the first is that of generated codecs."""


class Overwork(BaseException):
    """An input ran more lines than its size allows. A BaseException, so no `except Exception` catches it."""


class Failed(AssertionError):
    """A target raised an error. data: the input."""

    def __init__(self, target: Target, data: bytes, error: BaseException) -> None:
        super().__init__(f"{target.name} {data.hex()}\n{type(error).__name__}: {error}")
        self.data = data


class Watch:
    """Counts the lines of one input, and remembers the steps from line to line over all inputs."""

    def __init__(self) -> None:
        self.steps: set[tuple[str, int, int]] = set()
        self.lines = 0
        self._most = 0

    @contextmanager
    def input(self, most_lines: int) -> Iterator[None]:
        """Count the lines that the block runs. Raises Overwork."""
        self.lines, self._most = 0, most_lines
        before = sys.gettrace()
        sys.settrace(self._begin)
        try:
            yield
        finally:
            sys.settrace(before)

    def _begin(self, frame: FrameType, event: str, argument: Any) -> Any:
        name = frame.f_code.co_filename
        if not name.startswith(OURS):
            return None
        previous = 0

        def trace(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal previous
            if event == "line":
                self.lines += 1
                if self.lines > self._most:
                    raise Overwork(f"more than {self._most} lines")
                self.steps.add((name, previous, frame.f_lineno))
                previous = frame.f_lineno
            return trace

        return trace


def look(target: Target, data: bytes, watch: Watch | None = None) -> None:
    """Run the target on one input. Raises Failed."""
    try:
        if watch is None:
            target.look(data)
        else:
            with watch.input(target.lines + target.lines_per_byte * len(data)):
                target.look(data)
    except (Exception, Overwork) as error:
        raise Failed(target, data, error) from error


def measure(target: Target, data: bytes, watch: Watch) -> None:
    """Run one input and check that it stays within the limits of lines and memory. Raises Failed."""
    look(target, data, watch)
    peak, most = peak_bytes(lambda: target.look(data)), target.memory + target.memory_per_byte * len(data)
    if peak > most:
        raise Failed(target, data, MemoryError(f"{peak} bytes at the peak, more than {most}"))


def grow(
    target: Target, corpus: Iterable[bytes], random: Random, goes_on: Callable[[int], bool]
) -> tuple[list[bytes], int, Watch]:
    """Mutate the corpus, and keep inputs that reach new steps, for as long as goes_on(executions). Raises Failed.

    Returns the grown corpus, the executions, and what was seen.
    """
    watch, kept, executions = Watch(), [], 0
    for data in corpus:
        look(target, data, watch)
        kept.append(data)
        executions += 1
    while goes_on(executions):
        data = mutated(random, kept, target.at_most_bytes)
        seen = len(watch.steps)
        look(target, data, watch)
        executions += 1
        if len(watch.steps) > seen:
            kept.append(data)
    return kept, executions, watch
