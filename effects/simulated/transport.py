"""The transport at each end of a simulated connection.

The rule: it behaves as asyncio's TCP transport on Linux does. An end that closes with unread bytes, or gets bytes after
it closed, resets the other. An end notices a reset when it reads or writes. Source: asyncio/selector_events.py, tcp(7).
"""

import asyncio
import errno
from collections.abc import Iterable
from typing import Any

from ..net import HAS_LEFT
from .wire import Signal, Wire

HIGH_WATER_BYTES = 64 * 1024

Address = tuple[str, int]


class SimulatedTransport(asyncio.Transport):
    def __init__(self, loop: asyncio.AbstractEventLoop, out: Wire, inward: Wire, here: Address, there: Address) -> None:
        super().__init__({"sockname": here, "peername": there, "socket": None})
        out.sender = self
        inward.receiver = self
        self._loop = loop
        self._out = out
        self._in = inward
        self._protocol: asyncio.Protocol | None = None
        self._paused = False  # the protocol does not read
        self._ended = False  # the other end sends no more
        self._end_sent = False  # by write_eof()
        self._closing = False  # the protocol may send no more
        self._finishing = False  # _finish() will be called, or the process was killed
        self._finished = False  # the socket is closed
        self._writing_paused = False  # the protocol was told to pause writing
        self._high = HIGH_WATER_BYTES
        self._low = HIGH_WATER_BYTES // 4

    def start(self, protocol: asyncio.Protocol) -> None:
        """Tell the protocol that the connection is made, and deliver bytes to it from now on."""
        self._protocol = protocol
        protocol.connection_made(self)
        self._in.schedule_again()

    # What a protocol calls

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._in.has_ended if name == HAS_LEFT else super().get_extra_info(name, default)

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol)
        self._protocol = protocol

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send the bytes; pause the protocol's writing if too many wait."""
        if self._end_sent:
            raise RuntimeError("write after write_eof")
        if self._closing or not data:
            return
        if self._in.is_reset:
            self.reset_arrived()
            return
        self._out.send(data if data.__class__ is bytes else bytes(data))
        if self._out.waiting_bytes > self._high and not self._writing_paused:
            self._writing_paused = True
            self._call("pause_writing")

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._closing and not self._end_sent:
            self._end_sent = True
            self._out.send(Signal.END)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = HIGH_WATER_BYTES if low is None else 4 * low
        self._high, self._low = high, high // 4 if low is None else low
        if not self._high >= self._low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def get_write_buffer_size(self) -> int:
        return self._out.waiting_bytes

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        if self._paused:
            self._paused = False
            self._in.schedule_again()

    def is_reading(self) -> bool:
        return not self._paused and not self._closing

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        """Close the connection after all waiting bytes are sent."""
        if not self._closing:
            self._closing = True
            if not self._out.waiting_bytes:
                self._finish_soon(None)

    def abort(self) -> None:
        """Close the connection at once, and drop waiting bytes."""
        self._lose(None)

    # What its wires call

    @property
    def may_read(self) -> bool:
        """Whether the protocol may be given bytes now: it reads, and the connection is open."""
        return self._protocol is not None and not (self._paused or self._closing or self._ended)

    @property
    def may_notice_reset(self) -> bool:
        """Whether a reset is noticed even while reading is paused, because there are bytes to send."""
        return self._protocol is not None and self._out.waiting_bytes > 0

    @property
    def is_finished(self) -> bool:
        return self._finished

    def bytes_arrived(self, chunk: bytes) -> None:
        """Give these bytes to the protocol. Called by the wire."""
        try:
            self._protocol.data_received(chunk)  # type: ignore[union-attr]
        except Exception as error:
            self._on_protocol_error("data_received", error)

    def end_arrived(self) -> None:
        """Tell the protocol that the other end sends no more. Called by the wire."""
        self._ended = True
        if not self._call("eof_received"):
            self.close()

    def reset_arrived(self) -> None:
        """Close the connection with the error of a reset, or of a write after the other end had closed."""
        if self._in.ended_before_reset:  # what Linux answers to a write after the other end's FIN
            self._lose(BrokenPipeError(errno.EPIPE, "Broken pipe"))
        else:
            self._lose(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))

    def refuse(self) -> None:
        """Send a reset, because bytes came to a closed socket. Called by the wire."""
        self._out.send(Signal.RESET)

    def drained(self) -> None:
        """Resume the protocol's writing, or finish closing, because bytes were sent. Called by the wire."""
        if self._finished:
            return
        if self._writing_paused and self._out.waiting_bytes <= self._low:
            self._writing_paused = False
            self._call("resume_writing")
        if self._closing and not self._out.waiting_bytes:
            self._finish_soon(None)

    # Ends

    def die(self) -> None:
        """End the connection as the kernel does for a killed process: its protocol is not called."""
        if not self._finished:
            self._closing = self._finishing = True
            self._out.forget_waiting()
            self._close_socket()

    def _lose(self, error: Exception | None) -> None:
        """Close the connection at once because of this error (None: abort). Unsent bytes are dropped."""
        if not self._finished:
            self._closing = True
            self._out.forget_waiting()
            self._finish_soon(error)

    def _finish_soon(self, error: Exception | None) -> None:
        """Close the socket and tell the protocol, in the next turn of the loop."""
        if not self._finishing:
            self._finishing = True
            self._loop.call_soon(self._finish, error)

    def _finish(self, error: Exception | None) -> None:
        """Tell the protocol that the connection is lost, and close the socket."""
        if self._finished:
            return
        try:
            if self._protocol is not None:
                self._protocol.connection_lost(error)
        finally:
            self._close_socket()

    def _close_socket(self) -> None:
        """Close the socket: the other end gets a reset if bytes were not read, else the end of the stream."""
        self._finished = True
        if self._in.has_unread:
            self._out.send(Signal.RESET)
        elif not self._end_sent:
            self._out.send(Signal.END)

    def _call(self, name: str, *arguments: Any) -> Any:
        """Call a method of the protocol, and return its result. If it raises, report the error and end the
        connection, as asyncio does.
        """
        try:
            return getattr(self._protocol, name)(*arguments)
        except Exception as error:
            self._on_protocol_error(name, error)
            return True

    def _on_protocol_error(self, name: str, error: Exception) -> None:
        """Report an exception of the protocol to the loop, and close the connection."""
        message = f"protocol.{name}() failed."
        self._loop.call_exception_handler(
            {"message": message, "exception": error, "transport": self, "protocol": self._protocol}
        )
        self._lose(error)
