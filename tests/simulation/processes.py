"""Processes on one simulated loop: each callback belongs to one, and when it is killed nothing of it runs any more.

A process is a value of a context variable, which asyncio hands on from callback to callback. What travels on the
network belongs to nobody: bytes that left a process arrive whatever becomes of it.
"""

import asyncio
import struct
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any

from fencepost.effects.net import Listener, Net
from fencepost.effects.simulated.net import SimulatedNet
from fencepost.effects.simulated.transport import SimulatedTransport
from fencepost.effects.simulated.wire import Wire

DEATHBED_TURNS = 50

_current: ContextVar["Process | None"] = ContextVar("process", default=None)


class Process:
    """One life of a program."""

    def __init__(self, loop: Any, name: str) -> None:
        self.name = name
        self.is_starting = False  # a broker that serves nobody yet
        self.counted: Counted | None = None  # runs what is a step of it, and counts what that takes
        self._held: list[Callable[[], Any]] | None = None  # while it stands still
        self._loop = loop
        self._context = copy_context()
        self._context.run(_current.set, self)
        self.tasks: list[asyncio.Task[Any]] = []  # kept, or their finally blocks would run whenever one is collected

    def start(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Run a coroutine as part of the process."""
        task: asyncio.Task[Any] = self._loop.create_task(work, context=self._context.copy())
        return task

    def run(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function as part of the process."""
        token = _current.set(self)
        try:
            if self.counted is not None:
                return self.counted(self, call, arguments)
            return call(*arguments)
        finally:
            _current.reset(token)

    def kill(self) -> None:
        """SIGKILL: cancel its timers and callbacks; its tasks never go on."""
        self._held = None
        for handle in self._loop.handles():
            if self._is_of(handle._context) and not is_of_the_network(handle._callback):
                handle.cancel()
        for task in self.tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]

    @property
    def stands_still(self) -> bool:
        return self._held is not None

    def stand_still(self) -> None:
        """SIGSTOP: nothing of it runs until go_on(); what would have run does then, in the same order."""
        if self._held is None:
            self._held = []
            for handle in self._loop.handles():
                call = handle._callback
                is_left = handle._cancelled or isinstance(call, _Stoppable) or is_of_the_network(call)
                if self._is_of(handle._context) and not is_left:
                    handle._callback = _Stoppable(self, handle, call)

    def go_on(self) -> None:
        """SIGCONT: call what was held."""
        held, self._held = self._held or [], None
        for call in held:
            self._loop.call_soon(call, context=self._context.copy())

    def hold(self, call: Callable[[], Any]) -> None:
        """Only to be called while the process stands still: call this when it goes on."""
        assert self._held is not None
        self._held.append(call)

    def bury(self) -> None:
        """End the tasks of a killed process, which would else end at any time, by garbage collection. Only to be called
        at the end of a simulation, when its results were looked at.
        """
        for task in self.tasks:
            for _ in range(DEATHBED_TURNS):
                try:
                    task.get_coro().close()  # type: ignore[union-attr]
                    break
                except BaseException:  # it waits for something in a finally block: again
                    continue

    def _is_of(self, context: Context | None) -> bool:
        return context is not None and context.get(_current) is self


class _Stoppable:
    """A callback of a process that was stopped. As long as the process stands still, it is held instead of called."""

    def __init__(self, process: Process, handle: Any, callback: Any) -> None:
        self._process = process
        self._handle = handle
        self._callback = callback

    def __call__(self, *arguments: Any) -> None:
        if self._process.stands_still:
            self._process.hold(lambda: self._go(arguments))
        else:
            self._callback(*arguments)

    def _go(self, arguments: tuple[Any, ...]) -> None:
        if not self._handle._cancelled:
            self._handle._context.run(self._callback, *arguments)


Counted = Callable[[Process, Callable[..., Any], tuple[Any, ...]], Any]


def process_of(context: Context) -> Process | None:
    """Return the process that this context belongs to."""
    return context.get(_current)


def running_process() -> Process | None:
    """Return the process that runs now."""
    return _current.get()


def owned_task(loop: Any, work: Any, context: Context | None = None) -> "asyncio.Task[Any]":
    """Create a task, and note it in its process. A task factory for the loop."""
    task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, context=context)
    owner = _current.get() if context is None else context.get(_current)
    if owner is not None:
        owner.tasks.append(task)
    return task


def is_of_the_network(callback: Any) -> bool:
    return isinstance(getattr(callback, "__self__", None), Wire | SimulatedTransport)


Sent = Callable[[SimulatedTransport, list[int]], None]


class ProcessNet(Net):
    """A process's view of the network: what arrives for it is handled as part of it.

    sent: is shown the API keys of requests before they leave, with the transport that they leave by.
    """

    def __init__(self, net: SimulatedNet, process: Process, sent: Sent | None = None) -> None:
        self._net = net
        self._process = process
        self._sent = sent

    def _within(self, factory: Callable[[], asyncio.Protocol]) -> "_Within":
        return _Within(self._process.run(factory), self._process)

    async def listen(
        self, factory: Callable[[], asyncio.Protocol], host: str, port: int, send_buffer_bytes: int = -1
    ) -> Listener:
        return await self._net.listen(lambda: self._within(factory), host, port)

    async def reserve(self, host: str, port: int, send_buffer_bytes: int = -1) -> None:
        await self._net.reserve(host, port, send_buffer_bytes)

    def release(self) -> None:
        self._net.release()

    async def connect(
        self,
        factory: Callable[[], asyncio.Protocol],
        host: str,
        port: int,
        *,
        tls: Any = None,
        server_hostname: str | None = None,
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        made = await self._net.connect(
            lambda: self._within(factory), host, port, tls=tls, server_hostname=server_hostname
        )
        transport, within = made
        assert isinstance(transport, SimulatedTransport)
        assert isinstance(within, _Within)
        if self._sent is not None:
            transport.write = _Tap(transport, self._sent).write  # type: ignore[method-assign]
        return transport, within.protocol


class _Tap:
    """Reads the requests that a client writes."""

    def __init__(self, transport: SimulatedTransport, sent: Sent) -> None:
        self._transport = transport
        self._write = transport.write
        self._sent = sent
        self._head = b""
        self._skip = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        keys = self._keys(bytes(data))
        if keys:
            self._sent(self._transport, keys)
        self._write(data)

    def _keys(self, data: bytes) -> list[int]:
        found: list[int] = []
        at = min(self._skip, len(data))
        self._skip -= at
        data, at = self._head + data[at:], 0
        while len(data) - at >= _HEAD.size:
            size, key = _HEAD.unpack_from(data, at)
            found.append(key)
            at += 4 + size
        self._skip += max(0, at - len(data))
        self._head = data[at:]
        return found


_HEAD = struct.Struct(">ih")


class _Within(asyncio.Protocol):
    def __init__(self, protocol: asyncio.Protocol, process: Process) -> None:
        self.protocol = protocol
        self._process = process
        self._transport: Any = None

    def _run(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Call it as part of the process; if that stands still, when it goes on."""
        if self._process.stands_still:
            return self._process.hold(lambda: call(*arguments))
        return self._process.run(call, *arguments)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._run(self.protocol.connection_made, transport)

    def connection_lost(self, error: BaseException | None) -> None:
        self._run(self.protocol.connection_lost, error)

    def data_received(self, data: bytes) -> None:
        """Do as _run does, in fewer steps if nothing is counted."""
        if self._process.counted is not None or self._process.stands_still:
            self._run(self.protocol.data_received, bytes(data) if self._process.stands_still else data)
            return
        token = _current.set(self._process)
        try:
            self.protocol.data_received(data)
        finally:
            _current.reset(token)

    def eof_received(self) -> bool | None:
        if self._process.stands_still:
            self._process.hold(self._eof_received)
            return True
        return bool(self._process.run(self.protocol.eof_received))

    def _eof_received(self) -> None:
        """Handle the end of data that arrived while the process stood still."""
        if not self.protocol.eof_received():
            self._transport.close()

    def pause_writing(self) -> None:
        self._run(self.protocol.pause_writing)

    def resume_writing(self) -> None:
        self._run(self.protocol.resume_writing)
