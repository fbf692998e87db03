"""Forwarding of a blocking client to its asyncio client: methods with the same signatures, which wait.

The rule: the asyncio client is used only in the loop's thread.
"""
# pyright: reportPrivateUsage=false
# The functions below belong to Blocking, but are not methods: users would see those in every client.

import functools
import inspect
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from .loop_thread import loop_thread

P = ParamSpec("P")
T = TypeVar("T")
Inner = TypeVar("Inner")


class Blocking(Generic[Inner]):
    """An asyncio client, and the thread in which it runs. `with` starts and closes it."""

    def __init__(self, make: Callable[[], Inner]) -> None:
        self._thread = loop_thread()
        self._inner: Inner = self._thread.call(make)

    def _wait(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return self._thread.run(make)

    def _end(self, make: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run the coroutine that `make` creates, like _wait(); do nothing in a forked child, since the client
        continues in the parent.
        """
        if not self._thread.is_forked:
            self._wait(make)

    def start(self) -> None:
        """Connect. Raises BrokerUnreachableError, AuthenticationError."""
        inner: Any = self._inner
        self._wait(inner.start)

    def close(self) -> None:
        """Close, within a bounded time. Idempotent."""
        inner: Any = self._inner
        self._end(inner.close)

    stop = close

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        inner: Any = self._inner
        self._end(lambda: inner.__aexit__(kind, error, at))

    def __repr__(self) -> str:
        return f"<blocking {self._inner!r}>"


@overload
def forward(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Blocking[Any], P], T]: ...
@overload
def forward(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Blocking[Any], P], T]: ...
def forward(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that calls `method` of the asyncio client in its thread, and waits for the result."""
    is_coroutine = inspect.iscoroutinefunction(method)

    def call(self: Blocking[Any], /, *args: Any, **kwargs: Any) -> Any:
        if is_coroutine:
            return self._wait(lambda: method(self._inner, *args, **kwargs))
        return self._thread.call(lambda: method(self._inner, *args, **kwargs))

    functools.update_wrapper(call, method)
    return call


def inner_of(source: Any) -> Any:
    """Return the asyncio client of a blocking one; any other object unchanged."""
    found: Any = vars(source).get("_inner") if isinstance(source, Blocking) else source
    return found
