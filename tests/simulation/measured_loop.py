"""A loop that counts what each step of a broker takes: calls of functions, the same on every machine.

One loop serves everybody, so a step that takes long holds everybody up. Work of executors is not counted, which threads
do in a real broker, nor is a start, which serves nobody yet, nor what clients do.
"""

import itertools
from collections.abc import Callable
from cProfile import Profile
from typing import Any

from fencepost.effects.simulated.executors import SimulatedExecutor
from fencepost.effects.simulated.loop import SimulatedLoop
from simulation.processes import Process, is_of_the_network, process_of

MAX_CALLS = 40_000  # a slice of turns.py has 2,000 units, and a unit up to ten calls


class MeasuredLoop(SimulatedLoop):
    """most: the largest step so far, and what ran in it. on_excess: told of each that is too large."""

    def __init__(self, seed: int, on_excess: Callable[[str], None] = lambda text: None) -> None:
        super().__init__(seed)
        self.on_excess = on_excess
        self.most: tuple[int, str] = (0, "")
        # A profiler asks for the time when a function is called and when it ends. Here the time is how often it asked:
        # all of it happens in C, where a callback for each call would take longer than what it counts.
        self._asked = itertools.count()
        self._is_counting = False
        self._profiler = Profile(self._asked.__next__, 1.0, subcalls=False, builtins=False)

    def call_soon(self, *arguments: Any, **more: Any) -> Any:
        return self._measured(super().call_soon(*arguments, **more))

    def call_at(self, *arguments: Any, **more: Any) -> Any:
        return self._measured(super().call_at(*arguments, **more))

    def _measured(self, handle: Any) -> Any:
        """Have the callback counted if it is a step of a broker. One that hands over from the network is not:
        `Process.run` counts what it calls.
        """
        callback, owner = handle._callback, process_of(handle._context)
        if owner is not None and owner.counted is not None and not _is_handed_over(callback):
            handle._callback = _Counted(self, owner, callback)
        return handle

    def count(self, process: Process, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """Call this, and count it as a step of the broker; not during its start, nor within a step that is counted
        already.
        """
        if process.is_starting or self._is_counting:
            return call(*arguments)
        before = next(self._asked)
        self._is_counting = True
        self._profiler.enable()
        try:
            return call(*arguments)
        finally:
            self._profiler.disable()
            self._is_counting = False
            self._took((next(self._asked) - before) // 2, call)  # for each call it is asked at begin and end

    def _took(self, calls: int, call: Callable[..., Any]) -> None:
        if calls > self.most[0]:
            self.most = calls, f"{call!r}"[:200]
        if calls > MAX_CALLS:
            self.on_excess(f"one step took {calls} calls: {call!r}"[:250])


class _Counted:
    """A callback whose calls are counted. It has the `__self__` of the original."""

    __slots__ = ("__self__", "_callback", "_loop", "_process")

    def __init__(self, loop: MeasuredLoop, process: Process, callback: Any) -> None:
        self.__self__ = getattr(callback, "__self__", None)
        self._callback = callback
        self._loop = loop
        self._process = process

    def __call__(self, *arguments: Any) -> None:
        self._loop.count(self._process, self._callback, arguments)


def _is_handed_over(callback: Any) -> bool:
    return is_of_the_network(callback) or isinstance(getattr(callback, "__self__", None), SimulatedExecutor)
