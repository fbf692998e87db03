"""One connection to a broker: it sends requests, matches responses to them in order, and has one timer for all.

The rules: `send` never waits; all requests of one turn of the loop leave in one write. A malformed frame, or a response
that does not match its request, closes only this connection. So does a request without an answer in time (as in Kafka's
NetworkClient), since a late response could be taken for a later one. Each pending request then fails with an error
whose `sent` says whether it may have reached the broker (`BrokerUnreachableError.sent`).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from typing import Any, Protocol

from ...effects.gathering import join_neighbours
from ...protocol.apis import API_VERSIONS, APIS, Api, decode_response, encode_request
from ...protocol.errors import ErrorCode, KafkaError, MalformedFrame
from ...protocol.framing import LARGEST_FRAME_BYTES, Framer
from ...protocol.primitives import Buffer
from ..errors import BrokerUnreachableError, FatalError, RequestTimedOutError
from .versions import NOTHING, SPOKEN, Offer, choose, common

log = logging.getLogger("fencepost.client")

JOIN_BELOW_BYTES = 64 << 10  # smaller buffers are copied into one write
_API_VERSIONS = APIS[API_VERSIONS]
_UNSUPPORTED = int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big")
_ID_MASK = 0x7FFFFFFF
_FIRST_IDS = 4  # correlation ids up to here are of requests right after the connection was opened
_RESOLUTION_S = 0.001  # a loop may run a timer early by the resolution of its clock

_Pending = tuple[int, Api, int, "asyncio.Future[Any]", float]  # correlation id, api, version, response, deadline


class Transport(Protocol):
    """The methods of asyncio's transports that a connection uses."""

    def write(self, data: Buffer) -> None:
        """Write the bytes, now or when the socket takes them."""
        ...

    def close(self) -> None:
        """Close the connection once all that was written has been sent."""
        ...

    def abort(self) -> None:
        """Close the connection now, and drop what was not sent."""
        ...


class Connection(asyncio.Protocol):
    """One connection to a broker.

    node_id: -1 while the broker's id is not known. features: finalized versions by name. The functions in on_lost are
    called once, when it has ended, with the connection and the error; None if `close` was called without one.
    """

    def __init__(
        self,
        address: tuple[str, int],
        client_id: str,
        *,
        node_id: int = -1,
        max_idle_ms: float = 540_000,
        max_frame_bytes: int = LARGEST_FRAME_BYTES,
    ) -> None:
        self.address = address
        self.node_id = node_id
        self.client_id = client_id
        self.features: dict[str, int] = {}
        self.error: BaseException | None = None  # why it ended
        self.closed = False
        self.writable = True  # False while asyncio's write buffer is full: the broker reads too slowly
        self.on_lost: list[Any] = []
        self.is_retired = False  # the next request opens a new connection instead
        self.hint_if_refused = ""  # of the error if the broker closes it at the first requests
        self._loop = asyncio.get_running_loop()
        self._max_idle_s = max_idle_ms / 1000
        self._framer = Framer(max_frame_bytes)
        self._transport: Transport | None = None
        self._pending: deque[_Pending] = deque()  # requests in the order of their responses
        # Where a new request goes: while requests are held, not among those that await a response.
        self._sending: deque[_Pending] = self._pending
        self._versions: dict[type, tuple[int, int]] = {}
        self._next_id = 1
        self._out: list[Buffer] = []
        self._used_at = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self.offer(NOTHING)

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"<Connection to {self.name}, {state}, {len(self._pending)} in flight>"

    @property
    def name(self) -> str:
        """Return the broker as error messages name it, such as "broker 1 at localhost:9092"."""
        host, port = self.address
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        return f"broker {self.node_id} at {where}" if self.node_id >= 0 else f"broker at {where}"

    @property
    def in_flight(self) -> int:
        """Return the number of requests without a response."""
        return sum(map(len, self._queues()))

    def _queues(self) -> "tuple[deque[_Pending], ...]":
        """Return the queues of unanswered requests: the sent ones and, during `hold`, those that wait."""
        return (self._pending, self._sending) if self.is_held else (self._pending,)

    @property
    def is_held(self) -> bool:
        """Return whether new requests wait until release() sends them."""
        return self._sending is not self._pending

    # ---- versions ----------------------------------------------------------------------------------------------

    def offer(self, offer: Offer) -> None:
        """Set the API versions and features that the broker supports."""
        self.features = dict(offer.features)
        self._versions = common(offer)

    def version_of(self, request_class: type, cap: int | None = None) -> int:
        """Return the highest version of this request that client and broker know, at most `cap`. Raises
        UnsupportedVersionError.
        """
        if cap is None and (found := self._versions.get(request_class)) is not None:
            return found[1]
        return choose(self._versions, request_class, cap, self.name)

    def knows(self, request_class: type, version: int = 0) -> bool:
        """Return whether client and broker both know this version of the request, or a newer one."""
        return self._versions.get(request_class, (0, -1))[1] >= version

    # ---- requests ----------------------------------------------------------------------------------------------

    def send(
        self, request: Any, version: int, *, timeout_ms: float, expects_reply: bool = True
    ) -> "asyncio.Future[Any]":
        """Send a request; the returned future gets the response, or BrokerUnreachableError or RequestTimedOutError.

        Raises at once if the request cannot be encoded. Without expects_reply (acks=0) the future is done at once.
        """
        loop = self._loop
        future: asyncio.Future[Any] = loop.create_future()
        if self.closed:
            future.set_exception(self._unreachable(sent=False))
            return future
        api = SPOKEN[type(request)]
        number = self._next_id
        buffers = encode_request(api, version, number, self.client_id, request)
        self._next_id = (number + 1) & _ID_MASK
        out = self._out
        if not out:
            loop.call_soon(self._flush)
        out += buffers
        now = loop.time()
        self._used_at = now
        if not expects_reply:
            future.set_result(None)
            return future
        deadline = now + timeout_ms / 1000
        self._sending.append((number, api, version, future, deadline))
        if deadline < self._timer_at or self._timer is None:
            self._set_timer(deadline)
        return future

    def hold(self) -> None:
        """Send the earlier requests now, and hold new ones back until release()."""
        self._flush()
        self._sending = deque[_Pending]()

    def release(self) -> None:
        """End `hold`: send the requests that were held back."""
        held, self._sending = self._sending, self._pending
        if held is not self._pending:
            self._pending += held
            self._flush()

    def send_past_hold(self, request: Any, version: int, *, timeout_ms: float) -> "asyncio.Future[Any]":
        """Send a request before all that are held back. For the idle timeout it does not count as a use of the
        connection.

        timeout_ms: counted from the deadline of the last request that was sent before.
        """
        held, out, used_at = self._sending, self._out, self._used_at
        self._sending, self._out = self._pending, []
        latest = max((each[4] for each in self._pending), default=0.0)
        wait_ms = max(0.0, latest - self._loop.time()) * 1000
        try:
            sent = self.send(request, version, timeout_ms=wait_ms + timeout_ms)
            self._flush()
            return sent
        finally:
            self._sending, self._out, self._used_at = held, out, used_at

    def close(self, error: BaseException | None = None) -> None:
        """Close now. Pending requests fail with BrokerUnreachableError. error: the cause; None if it is intended."""
        if not self.closed:
            self._end(error)
            if self._transport is not None:
                # abort() drops unsent bytes: a request whose sender saw it fail must not arrive later.
                self._transport.abort()

    def hand_over(self) -> Any:
        """Return the open transport, for use with another protocol. This object counts as closed afterwards."""
        transport, self._transport = self._transport, None
        self.close()
        return transport

    def _flush(self) -> None:
        """Write the requests that were encoded in this turn of the loop, unless they are held back."""
        out = self._out
        transport = self._transport
        if not out or self.closed or transport is None or self._sending is not self._pending:
            return
        self._out = []
        if len(out) == 1:
            transport.write(out[0])
        elif sum(map(len, out)) < JOIN_BELOW_BYTES:
            transport.write(b"".join(out))
        else:
            for one in join_neighbours(out, JOIN_BELOW_BYTES):
                transport.write(one)

    # ---- called by the transport ---------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        if self.closed:  # while it was being opened
            transport.abort()
        elif self._timer is None:
            self._set_timer(self._loop.time() + self._max_idle_s)

    def data_received(self, data: bytes) -> None:
        """Decode the responses in the received bytes, and complete their requests in order. A malformed response
        closes the connection.
        """
        pending = self._pending
        try:
            for frame in self._framer.feed(data):
                if not pending:
                    raise MalformedFrame("a response arrived, and no request waits for one")
                number, api, version, future, _ = pending[0]
                if api is _API_VERSIONS and frame[4:6] == _UNSUPPORTED:
                    version = 0  # KIP-511: this error always has the layout of version 0
                got, response = decode_response(api, version, frame)
                if got != number:
                    raise MalformedFrame(f"the response has correlation id {got} instead of {number}")
                pending.popleft()
                if not future.done():
                    future.set_result(response)
        except (MalformedFrame, KafkaError) as error:
            log.warning("%s sent a malformed response (%s): the connection is closed", self.name, error)
            self.close(error)

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.closed:
            self._end(exc or ConnectionError("the broker closed the connection"))

    # ---- end ---------------------------------------------------------------------------------------------------

    def _end(self, error: BaseException | None) -> None:
        """Close the connection and fail all requests that are not answered."""
        self.closed = True
        self.error = error
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._out = []
        sent, held = self._pending, self._sending if self.is_held else ()
        self._pending = self._sending = deque[_Pending]()
        self._fail(sent, sent=True)
        self._fail(held, sent=False)
        for call in self.on_lost:
            call(self, error)

    def _fail(self, requests: "Iterable[_Pending]", *, sent: bool) -> None:
        """Set an error on the futures of these requests, because the connection has ended. If it ended because a
        request timed out, those that were overdue get a timeout error; all others get BrokerUnreachableError. sent:
        whether they may have reached the broker.
        """
        now = self._loop.time() + _RESOLUTION_S
        for _, api, _, future, deadline in requests:
            if not future.done():
                late = isinstance(self.error, RequestTimedOutError) and deadline <= now
                future.set_exception(self._timeout_error(api) if late else self._unreachable(sent=sent))
                future.exception()  # marks it as retrieved, so that asyncio does not log it if nobody awaits it

    def _unreachable(self, *, sent: bool) -> BrokerUnreachableError:
        """Return the error for a request that failed because the connection has ended. sent: whether it may have
        reached the broker.
        """
        reason = "it was closed" if self.error is None else _text_of(self.error)
        refused = isinstance(self.error, ConnectionError) and self._next_id <= _FIRST_IDS
        hint = self.hint_if_refused if refused else ""
        error = BrokerUnreachableError(f"the connection to {self.name} ended: {reason}", sent=sent, hint=hint)
        error.__cause__ = self.error
        return error

    def _timeout_error(self, api: Api) -> RequestTimedOutError:
        return RequestTimedOutError(f"{self.name} did not answer {api.name} in time")

    # ---- time --------------------------------------------------------------------------------------------------

    def _set_timer(self, when: float) -> None:
        """Call `_check_time` at `when` (the loop's clock, in seconds), instead of at the time set before."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = when
        self._timer = self._loop.call_at(when, self._check_time)

    def _check_time(self) -> None:
        """Close if a request is overdue or the connection was idle too long; else set the timer again.

        The timer is set to the earliest deadline when it runs, not by each request: that costs less.
        """
        self._timer = None
        now = self._loop.time() + _RESOLUTION_S
        if any(self._queues()):
            api, earliest = min(((one[1], one[4]) for queue in self._queues() for one in queue), key=_second)
            if earliest <= now:
                log.warning("%s did not answer %s in time: the connection is closed", self.name, api.name)
                self.close(self._timeout_error(api))
                return
        else:
            earliest = self._used_at + self._max_idle_s
            if earliest <= now:
                self.close()
                return
        self._set_timer(earliest)


def _second(pair: tuple[Any, float]) -> float:
    return pair[1]


def _text_of(error: BaseException) -> str:
    """Return the error's text, or its class's name if it has none."""
    return str(error) or type(error).__name__


def broken(what: str, error: Exception) -> FatalError:
    """Log an unexpected error of a background task; return the FatalError for calls that depend on the task."""
    log.error("%s", what, exc_info=error)
    failure = FatalError(
        f"{what}: {type(error).__name__}: {error}",
        hint="a bug in the client: its log has the traceback; create a new client",
    )
    failure.__cause__ = error
    return failure
