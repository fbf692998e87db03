"""Large replies on their way out: buffers in memory, and parts of files that go from the page cache to the socket.

The rules: bytes leave in order, whichever way each goes; a part is let go of here, whatever becomes of it. If a part
cannot be read its frame has begun to leave, so that the connection is cut. Where there is no plain socket - TLS, a
simulated net - and where enough clients take their answers slowly, parts are read and copied, a window at a time: a
client that takes nothing costs no more memory than one.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

from ...effects.gathering import join_neighbours
from ...effects.net import Elsewhere, Writable, idle_socket, send_now
from ...protocol.errors import KafkaError
from ...protocol.primitives import Buffer
from ...storage.log.file_parts import FilePart, release
from ..metrics import Metrics

WINDOW_BYTES = 256 << 10  # of a part, copied at one time
SMALL_BYTES = 4 << 10  # buffers below it are joined: copying them costs less than a call for each


class Transport(Protocol):
    """What of asyncio's transports a connection uses."""

    def write(self, data: Buffer) -> None:
        """Write the bytes, now or when the socket takes them."""
        ...

    def writelines(self, list_of_data: Sequence[Buffer]) -> None:
        """Write all buffers, one after another."""
        ...

    def pause_reading(self) -> None:
        """Read nothing from the socket until resume_reading()."""
        ...

    def resume_reading(self) -> None:
        """Read from the socket again."""
        ...

    def close(self) -> None:
        """Close the connection once all that was written has been sent."""
        ...

    def abort(self) -> None:
        """Close the connection now, and drop what was not sent."""
        ...

    def get_write_buffer_size(self) -> int:
        """Return the number of bytes that were written and not sent yet."""
        ...

    def get_extra_info(self, name: str) -> Any:
        """Return asyncio's extra info of this name; None if there is none."""
        ...


class Sender(Protocol):
    """What of a connection is needed to send for it."""

    transport: Transport | None

    @property
    def writing_paused(self) -> bool:
        """Whether the transport has paused writing, and not resumed it yet."""
        ...

    def pause_writing(self) -> None:
        """Called by the transport when its buffer is full."""
        ...

    def resume_writing(self) -> None:
        """Called by the transport when its buffer has room again."""
        ...


def send(sender: Sender, out: Sequence[Buffer | Elsewhere], metrics: Metrics) -> None:
    """Write all of it, now or when the client takes it."""
    transport = sender.transport
    assert transport is not None
    if isinstance(transport, Overflow) or not any(isinstance(one, FilePart) for one in out):
        transport.writelines(out)  # type: ignore[arg-type]
    else:
        Overflow(sender, transport, out, metrics).begin()


class Overflow(Transport):
    """Stands in for a transport that takes no more, until it has all; what is written meanwhile waits behind."""

    def __init__(
        self, sender: Sender, transport: Transport, out: Sequence[Buffer | Elsewhere], metrics: Metrics
    ) -> None:
        self._sender = sender
        self._transport: Any = transport
        self._metrics = metrics
        self._left: deque[Buffer | Elsewhere] = deque(join_neighbours(out, SMALL_BYTES))
        self._begin = 0  # of the first of these
        self._writable: Writable | None = None
        self._full = sender.writing_paused  # the transport holds enough
        self._closes = False

    def begin(self) -> None:
        """Send to the socket; if it does not take everything, replace the transport until it has."""
        fd = idle_socket(self._transport)
        if fd >= 0 and self._hand_over(fd):
            if not self._left:
                return
            try:
                self._writable = Writable(fd, self._go_on)
            except OSError:  # too many wait like this, or there are no descriptors left
                pass
            else:
                self._sender.transport = self
                self._sender.pause_writing()
                return
        self._sender.transport = self
        self._copy()

    def _hand_over(self, fd: int) -> bool:
        """Send what the socket takes. Returns False to use the transport instead. A broken socket ends the sending."""
        try:
            self._begin, uncopied, may_go_on = send_now(fd, self._left, self._begin)
        except (ConnectionError, TimeoutError):
            self.abort()
            return True
        self._metrics.bytes_uncopied += uncopied
        return may_go_on

    def _go_on(self) -> None:
        """Continue sending, because the socket is writable again or broken."""
        writable = self._writable
        assert writable is not None
        if self._hand_over(writable.fd) and self._left:
            return
        writable.close()
        self._writable = None
        self._sender.resume_writing()

    def paused(self) -> None:
        """Called when the transport's buffer is full: give it no more until resumed() is called."""
        self._full = True

    def resumed(self) -> bool:
        """Called when the transport has room again. Returns whether all was sent."""
        self._full = False
        self._copy()
        return not (self._left or self._full)

    def _copy(self) -> None:
        """Give the transport what is left, as much as it takes; after that the sender uses the transport again."""
        if self._transport.is_closing():
            self.drop()
        while self._left and not self._full:
            try:
                window = self._next_window()
            except KafkaError:  # the log knows it by now
                self.abort()
                return
            self._transport.writelines(window)
        if not self._left:
            self._sender.transport = self._transport
            if self._closes:
                self._transport.close()

    def _next_window(self) -> list[Buffer]:
        """Return the next unsent bytes, WINDOW_BYTES at most. Raises: KafkaError, as FilePart.read."""
        window: list[Buffer] = []
        room = WINDOW_BYTES
        while self._left and room:
            one, begin = self._left[0], self._begin
            size = min(len(one) - begin, room)
            if isinstance(one, FilePart):
                window.append(one.read(begin, size))
            else:
                window.append(memoryview(one)[begin : begin + size])  # type: ignore[arg-type]
            room -= size
            self._begin += size
            if self._begin == len(one):
                release((self._left.popleft(),))
                self._begin = 0
        return window

    # ---- as a transport --------------------------------------------------------------------------------------

    def write(self, data: Buffer) -> None:
        self._left.append(data)

    def writelines(self, list_of_data: Sequence[Buffer]) -> None:
        self._left.extend(join_neighbours(list_of_data, SMALL_BYTES))

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def close(self) -> None:
        """Close the transport once all that was written has left."""
        self._closes = True

    def get_write_buffer_size(self) -> int:
        return sum(map(len, self._left)) - self._begin + int(self._transport.get_write_buffer_size())

    def get_extra_info(self, name: str) -> Any:
        return self._transport.get_extra_info(name)

    def abort(self) -> None:
        self.drop()
        self._transport.abort()

    def drop(self) -> None:
        """Release all that was not sent, since the connection has ended."""
        if self._writable is not None:
            self._writable.close()
            self._writable = None
        release(self._left)
        self._left.clear()
        self._begin = 0
