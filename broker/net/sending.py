"""Sending large replies: buffers in memory, and parts of files that go from the page cache to the socket without a
copy.

The rules: bytes leave in order, no matter by which way each goes. A part of a file is always released here, whatever
happens to it. If a part cannot be read, the connection is closed, because the beginning of its frame may have been
sent. If there is no plain socket (with TLS, or in the simulation), or if many clients take their answers slowly, parts
are read and copied, one window at a time: a client that takes nothing then costs the memory of one window.
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
    """The methods of asyncio's transports that a connection uses."""

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
    """The attributes of a connection that sending uses."""

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
    """Write these buffers and parts of files to the sender's transport, in order. What the client does not take now is
    sent later.
    """
    transport = sender.transport
    assert transport is not None
    if isinstance(transport, Overflow) or not any(isinstance(one, FilePart) for one in out):
        transport.writelines(out)  # type: ignore[arg-type]
    else:
        Overflow(sender, transport, out, metrics).begin()


class Overflow(Transport):
    """Stands in for a connection's transport while parts of files are sent. Bytes that are written to it meanwhile are
    sent after them.
    """

    def __init__(
        self, sender: Sender, transport: Transport, out: Sequence[Buffer | Elsewhere], metrics: Metrics
    ) -> None:
        """out: the buffers and parts of files to be sent. transport: the transport that this one stands in for; the
        sender uses it again when all is sent.
        """
        self._sender = sender
        self._transport: Any = transport
        self._metrics = metrics
        self._left: deque[Buffer | Elsewhere] = deque(join_neighbours(out, SMALL_BYTES))
        self._begin = 0  # how many bytes of the first item are sent
        self._writable: Writable | None = None
        self._full = sender.writing_paused  # the transport's buffer is full
        self._closes = False

    def begin(self) -> None:
        """Send to the socket directly. If it does not take everything, stand in for the transport until all is sent:
        continue when the socket is writable, or, if that cannot be watched, write to the transport.
        """
        fd = idle_socket(self._transport)
        if fd >= 0 and self._hand_over(fd):
            if not self._left:
                return
            try:
                self._writable = Writable(fd, self._go_on)
            except OSError:  # too many of them exist, or no descriptor is left
                pass
            else:
                self._sender.transport = self
                self._sender.pause_writing()
                return
        self._sender.transport = self
        self._copy()

    def _hand_over(self, fd: int) -> bool:
        """Send as many bytes directly to the socket as it takes. Returns False if the rest must go through the
        transport instead.

        If the socket is broken, closes the connection and returns True.
        """
        try:
            self._begin, uncopied, may_go_on = send_now(fd, self._left, self._begin)
        except (ConnectionError, TimeoutError):
            self.abort()
            return True
        self._metrics.bytes_uncopied += uncopied
        return may_go_on

    def _go_on(self) -> None:
        """Continue to send. Called by the loop when the socket is writable again, or broken."""
        writable = self._writable
        assert writable is not None
        if self._hand_over(writable.fd) and self._left:
            return
        writable.close()
        self._writable = None
        self._sender.resume_writing()

    def paused(self) -> None:
        """Note that the transport's buffer is full, so that nothing is written to it until resumed() is called."""
        self._full = True

    def resumed(self) -> bool:
        """Continue to send, because the transport's buffer has room again. Returns whether everything is sent."""
        self._full = False
        self._copy()
        return not (self._left or self._full)

    def _copy(self) -> None:
        """Write the unsent bytes to the transport until its buffer is full. When all are written, let the sender use
        the transport again.
        """
        if self._transport.is_closing():
            self.drop()
        while self._left and not self._full:
            try:
                window = self._next_window()
            except KafkaError:  # the log is offline by now
                self.abort()
                return
            self._transport.writelines(window)
        if not self._left:
            self._sender.transport = self._transport
            if self._closes:
                self._transport.close()

    def _next_window(self) -> list[Buffer]:
        """Take the next unsent bytes, WINDOW_BYTES at most, and return them. Raises KafkaError if a file cannot be
        read.
        """
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
        """Append these bytes to those that are to be sent."""
        self._left.append(data)

    def writelines(self, list_of_data: Sequence[Buffer]) -> None:
        """Append these buffers to those that are to be sent."""
        self._left.extend(join_neighbours(list_of_data, SMALL_BYTES))

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def close(self) -> None:
        """Close the transport when all that was written has been sent."""
        self._closes = True

    def get_write_buffer_size(self) -> int:
        """Return the number of unsent bytes, including those in the transport's buffer."""
        return sum(map(len, self._left)) - self._begin + int(self._transport.get_write_buffer_size())

    def get_extra_info(self, name: str) -> Any:
        return self._transport.get_extra_info(name)

    def abort(self) -> None:
        """Close the transport at once, and drop what was not sent."""
        self.drop()
        self._transport.abort()

    def drop(self) -> None:
        """Release all parts of files that were not sent, because the connection has ended."""
        if self._writable is not None:
            self._writable.close()
            self._writable = None
        release(self._left)
        self._left.clear()
        self._begin = 0
