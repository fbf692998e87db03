"""A loop that counts what each step of a broker takes: calls of its functions, the same on every machine.

One loop serves everybody, so a step that takes long holds everybody up. Work of lanes is not counted, which threads do
in a real broker, nor is a start, which serves nobody yet.
"""

import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from fencepost.effects.simulated.lanes import SimulatedLane
from fencepost.effects.simulated.loop import SimulatedLoop
from simulation.processes import process_now

from fencepost import broker, storage

BROKER, STORAGE = Path(broker.__path__[0]), Path(storage.__path__[0])
MOST_CALLS = 40_000  # a slice of turns.py has 2,000 units, and a unit up to ten calls


class MeasuredLoop(SimulatedLoop):
    """most: the largest step so far, and what ran in it. on_excess: told of each that is too large."""

    def __init__(self, seed: int, on_excess: Callable[[str], None] = lambda text: None) -> None:
        super().__init__(seed)
        self.on_excess = on_excess
        self.most: tuple[int, str] = (0, "")

    def call_soon(self, *arguments: Any, **more: Any) -> Any:
        return self._measured(super().call_soon(*arguments, **more))

    def call_at(self, *arguments: Any, **more: Any) -> Any:
        return self._measured(super().call_at(*arguments, **more))

    def _measured(self, handle: Any) -> Any:
        handle._callback = _Measured(self, handle._callback)
        return handle

    def took(self, calls: int, what: str) -> None:
        self.most = max(self.most, (calls, what))
        if calls > MOST_CALLS:
            self.on_excess(f"one step took {calls} calls: {what}")


class _Measured:
    """A callback. Whose method it is can still be seen."""

    __slots__ = ("__self__", "_callback", "_loop")

    def __init__(self, loop: MeasuredLoop, callback: Any) -> None:
        self.__self__ = getattr(callback, "__self__", None)
        self._callback = callback
        self._loop = loop

    def __call__(self, *arguments: Any) -> None:
        process = process_now()
        if isinstance(self.__self__, SimulatedLane) or (process is not None and process.is_starting):
            self._callback(*arguments)
            return
        calls = 0

        def count(frame: Any, event: str, argument: Any) -> None:
            nonlocal calls
            if event == "call" and _is_of_a_broker(frame.f_code.co_filename):
                calls += 1

        sys.setprofile(count)
        try:
            self._callback(*arguments)
        finally:
            sys.setprofile(None)
            self._loop.took(calls, f"{self._callback!r}"[:200])


@cache
def _is_of_a_broker(path: str) -> bool:
    return Path(path).parent.is_relative_to(BROKER) or Path(path).parent.is_relative_to(STORAGE)
