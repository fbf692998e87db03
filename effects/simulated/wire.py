"""One direction of a simulated connection: bytes on their way from one transport to the other.

They arrive in order, after a delay, whole or in pieces. Up to `capacity_bytes` of them are in the kernels' buffers; the
others wait in the sender's transport. A wire can be held, cut after a number of bytes, or dead: then it takes bytes and
loses them.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Protocol

READ_BYTES = 256 * 1024  # the maximum that one data_received gets, as in asyncio
SOON_S = 1e-6  # an event loop may run a timer this much too early: then bytes that are due so soon are delivered


class Signal(Enum):
    """Events that are sent in order with the bytes: the end of the stream, or a reset."""

    END = "end"  # TCP's FIN
    RESET = "reset"  # TCP's RST


class Sender(Protocol):
    def drained(self) -> None:
        """Called when the receiver has read something."""
        ...


class Receiver(Protocol):
    @property
    def may_read(self) -> bool:
        """Whether the receiver takes bytes now: it is open, and its reading is not paused."""
        ...

    @property
    def may_notice_reset(self) -> bool:
        """Whether the receiver notices a reset even while it does not read: it has bytes to send."""
        ...

    @property
    def is_finished(self) -> bool:
        """Whether the receiver's socket is closed."""
        ...

    def bytes_arrived(self, chunk: bytes) -> None:
        """Give the bytes to the receiver."""
        ...

    def end_arrived(self) -> None:
        """Tell the receiver that the sender will send no more."""
        ...

    def reset_arrived(self) -> None:
        """Tell the receiver that the connection was reset."""
        ...

    def refuse(self) -> None:
        """Answer bytes that arrived at a closed socket by a reset."""
        ...


class Wire:
    """One direction of a connection. `delay` returns seconds; with `fragments` a reader gets pieces of any size.

    Both may be changed at any time.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, rng: random.Random, delay: Callable[[], float], capacity_bytes: int
    ) -> None:
        self.delay = delay
        self.fragments = False
        self.capacity_bytes = capacity_bytes
        self.not_before = loop.time()  # nothing arrives earlier
        self.waiting_bytes = 0  # in the transport's buffer: the kernels' are full
        self.ended_before_reset = False  # the end of the stream arrived first, then a reset
        self.sender: Sender
        self.receiver: Receiver
        self._loop = loop
        self._rng = rng
        self._flying: deque[tuple[float, bytes | Signal]] = deque()  # (time of arrival, item)
        self._arrived = bytearray()  # in the receiver's socket, not read yet
        self._end: Signal | None = None  # the end or reset that has arrived
        self._end_given = False  # the receiver was told of _end
        self._waiting: deque[memoryview | Signal] = deque()  # in the transport's buffer
        self._kernel_bytes = 0  # bytes in the kernels' buffers: on their way, or arrived
        self._held = False
        self._dead = False
        self._cut: tuple[int, Callable[[], None]] | None = None  # (bytes until the cut, what to call then)
        self._scheduled: asyncio.Handle | None = None  # the next delivery

    @property
    def has_unread(self) -> bool:
        """Whether bytes have arrived that the receiver has not read."""
        return bool(self._arrived)

    @property
    def has_ended(self) -> bool:
        """Whether the end of the stream, or a reset, has arrived, read or not."""
        return self._end is not None

    @property
    def is_reset(self) -> bool:
        """Whether a reset has arrived, noticed by the receiver or not."""
        return self._end is Signal.RESET

    def send(self, item: bytes | Signal) -> None:
        """Send bytes or a signal; they wait in the transport's buffer while the kernels' buffers are full."""
        if self._dead or self._waiting or not self._has_room(item):
            self._wait(item)
        else:
            self._fly(item)
        if self._scheduled is None or self._scheduled._cancelled:  # not scheduled yet
            self.schedule()

    def forget_waiting(self) -> None:
        """Drop the bytes in the sending transport's buffer. Those in the kernels' buffers still arrive."""
        self._waiting.clear()
        self.waiting_bytes = 0

    def hold(self) -> None:
        """Delay all bytes until release(). Nothing is lost."""
        self._held = True

    def release(self) -> None:
        """Deliver the bytes that hold() delayed, and later ones."""
        self._held = False
        self.schedule_again()

    def kill(self) -> None:
        """Lose all bytes in flight, and all that are sent later. Neither end is told."""
        self._dead = True
        self._flying.clear()
        self._arrived.clear()

    def cut_after(self, size: int, then: Callable[[], None]) -> None:
        """Let the receiver get `size` more bytes, then a reset. `then` is called when those bytes have arrived."""
        self._cut = (size, then)

    def schedule(self) -> None:
        """Schedule the next delivery to the receiver, if there is anything to deliver and none is scheduled."""
        if self._held or self._dead or (self._scheduled is not None and not self._scheduled._cancelled):
            return
        if (self._arrived or self._end is not None) and self._can_give():
            self._scheduled = self._loop.call_soon(self._deliver)
        elif self._flying:
            self._scheduled = self._loop.call_at(self._flying[0][0], self._deliver)

    def schedule_again(self) -> None:
        """Schedule the next delivery again: the receiver is ready now, and must not wait for the timer of later
        bytes.
        """
        if self._scheduled is not None:
            self._scheduled.cancel()
        self.schedule()

    def _has_room(self, item: bytes | Signal) -> bool:
        """Return whether the kernels' buffers have room for the whole item."""
        return item.__class__ is Signal or len(item) <= self.capacity_bytes - self._kernel_bytes  # type: ignore[arg-type]

    def _wait(self, item: bytes | Signal) -> None:
        """Put an item into the buffer of the sender's transport, and send as much as the kernels' buffers have room
        for.
        """
        if isinstance(item, bytes):
            self.waiting_bytes += len(item)
            self._waiting.append(memoryview(item))
        else:
            self._waiting.append(item)
        if not self._dead:
            self._launch()

    def _fly(self, item: bytes | Signal) -> None:
        """Send an item: it arrives after a delay, and after everything sent before."""
        if item.__class__ is bytes:
            self._kernel_bytes += len(item)
        arrival = self._loop.time() + self.delay()
        if arrival > self.not_before:
            self.not_before = arrival
        self._flying.append((self.not_before, item))

    def _launch(self) -> None:
        """Send as much of the transport's buffer as the kernels' buffers have room for."""
        while self._waiting:
            item = self._waiting.popleft()
            if isinstance(item, memoryview):
                room = self.capacity_bytes - self._kernel_bytes
                if len(item) > room:
                    self._waiting.appendleft(item[room:])
                    if room <= 0:
                        return
                    item = item[:room]
                self.waiting_bytes -= len(item)
            self._fly(bytes(item) if isinstance(item, memoryview) else item)

    def _can_give(self) -> bool:
        """Return whether there is something to give to the receiver that it takes now."""
        if self._arrived:
            return self.receiver.may_read
        if self._end is None or self._end_given:
            return False
        return self.receiver.may_read or (self.is_reset and self.receiver.may_notice_reset)

    def _deliver(self) -> None:
        """Deliver at most one piece of what has arrived, as a loop does for a readable socket; then schedule the
        next delivery.
        """
        self._scheduled = None
        if self._held or self._dead:
            return
        flying, now = self._flying, self._loop.time() + SOON_S
        if self._arrived or self.fragments or self._cut is not None or self._end is not None:
            self._arrive_and_give(now)
        elif flying and flying[0][0] <= now:
            piece = flying[0][1]
            alone = len(flying) == 1 or flying[1][0] > now
            if alone and piece.__class__ is bytes and len(piece) <= READ_BYTES and self.receiver.may_read:
                # The usual case, in fewer steps: one piece has come, and it is read at once.
                flying.popleft()
                self._kernel_bytes -= len(piece)
                if self._waiting:
                    self._launch()
                self.receiver.bytes_arrived(piece)
                self.sender.drained()
            else:
                self._arrive_and_give(now)
        if flying or self._arrived or self._end is not None:
            self.schedule()

    def _arrive_and_give(self, now: float) -> None:
        """Move everything that is due by `now` into the receiver's socket, and give one piece to the receiver if it
        takes it.
        """
        flying = self._flying
        while flying and flying[0][0] <= now:
            self._arrive(flying.popleft()[1])
        if self._can_give():
            self._give()

    def _arrive(self, item: bytes | Signal) -> None:
        """Put an item that has arrived into the receiver's socket: bytes, the end of the stream, or a reset."""
        if self.receiver.is_finished:
            if isinstance(item, bytes):
                self.receiver.refuse()
        elif self.is_reset:
            pass
        elif item is Signal.RESET:
            self._arrived.clear()
            self.ended_before_reset = self._end is Signal.END
            self._end = item
            self._end_given = False
        elif isinstance(item, Signal):
            self._end = item
        elif self._cut is not None and len(item) >= self._cut[0]:
            self._arrived += item[: self._cut[0]]
            self._end = Signal.RESET
            self._cut[1]()
        else:
            self._arrived += item
            if self._cut is not None:
                self._cut = (self._cut[0] - len(item), self._cut[1])

    def _give(self) -> None:
        """Give the receiver one piece of the bytes that have arrived, or the end of the connection."""
        if self._arrived:
            size = min(len(self._arrived), READ_BYTES)
            if self.fragments:
                size = min(size, 1 + int(2 ** self._rng.uniform(0, 16)))
            chunk = bytes(memoryview(self._arrived)[:size])
            del self._arrived[:size]
            self._kernel_bytes -= size
            self._launch()
            self.receiver.bytes_arrived(chunk)
            self.sender.drained()
        elif self._end is not None and not self._end_given:
            self._end_given = True
            if self._end is Signal.END:
                self.receiver.end_arrived()
            else:
                self.receiver.reset_arrived()
