"""A coverage-guided loop of our own, for where atheris does not install; and the measure of one input's work.

The rule: an input that takes a step from one line of fencepost to another which none before it took joins the corpus.
One that runs more lines than its size allows ends in Overwork, at once, whatever the clock says.
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
"""How the file names of what is fuzzed begin; the first is that of generated codecs."""


class Overwork(BaseException):
    """More lines than an input of this size may cost; it passes every `except Exception`."""


class Failed(AssertionError):
    """A target did not return. data: on which input."""

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
        """Watch what the block runs. Raises Overwork."""
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
    """One input. Raises Failed."""
    try:
        if watch is None:
            target.look(data)
        else:
            with watch.input(target.lines + target.lines_per_byte * len(data)):
                target.look(data)
    except (Exception, Overwork) as error:
        raise Failed(target, data, error) from error


def measure(target: Target, data: bytes, watch: Watch) -> None:
    """One input, and whether it stays within the bounds of lines and memory. Raises Failed."""
    look(target, data, watch)
    peak, most = peak_bytes(lambda: target.look(data)), target.memory + target.memory_per_byte * len(data)
    if peak > most:
        raise Failed(target, data, MemoryError(f"{peak} bytes at the peak, more than {most}"))


def grow(
    target: Target, corpus: Iterable[bytes], random: Random, goes_on: Callable[[int], bool]
) -> tuple[list[bytes], int, Watch]:
    """Mutate the corpus, and keep what takes new steps, for as long as goes_on(executions). Raises Failed.

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
