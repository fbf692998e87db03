"""What a fault does to a request. Each effect is a function that gets the function which serves requests, the
connection and the request.

The rule: answers keep the order of their connection, and other connections are not affected.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from ..broker.broker import Serve
from ..broker.net.connection import Connection
from ..broker.net.refusals import refusal
from ..broker.net.waiting import Parked, Slot
from ..protocol.apis import APIS, decode_request, encode_response
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.headers import RequestHeader
from ..protocol.primitives import Buffer, Readable


class ReceivedRequest:
    """A request that the broker received: its bytes, and its decoded form when it is needed."""

    def __init__(self, frame: Readable, header: RequestHeader) -> None:
        self.frame = frame
        self.header = header
        self._decoded: Any = None

    def decoded(self) -> Any:
        """Return the decoded request. Raises MalformedFrame."""
        if self._decoded is None:
            header = self.header
            self._decoded = decode_request(APIS[header.api_key], header.api_version, self.frame, header.position)
        return self._decoded

    def refused(self, code: ErrorCode) -> list[Buffer]:
        """Return the encoded response to this request with this error code."""
        header, api = self.header, APIS[self.header.api_key]
        response = refusal(
            api.response, header.api_version, self.decoded(), KafkaError(code, "a fault injected by the test")
        )
        return encode_response(api, header.api_version, header.correlation_id, response)


Effect = Callable[[Serve, Connection, ReceivedRequest], None]
Reply = list[Buffer]


def error(code: ErrorCode, after: bool) -> Effect:
    """Return the effect that answers with an error. after: the request is processed first; else it is not processed."""

    def effect(serve: Serve, connection: Connection, asked: ReceivedRequest) -> None:
        """Answer with the error: instead of processing the request, or after it was processed."""
        if not after:
            connection.reply(asked.refused(code), 0)
            return
        _instead_of_answer(
            serve,
            connection,
            asked,
            at_once=lambda unit, reply: connection.reply(asked.refused(code), unit),
            later=lambda slot, on_answer, outcome: on_answer(KafkaError(code, "a fault injected by the test")),
        )

    return effect


def disconnect(after: bool) -> Effect:
    """Return the effect that closes the connection instead of answering. after: the request is processed first, and
    the connection closed when its answer would be sent; else it is not processed.
    """

    def effect(serve: Serve, connection: Connection, asked: ReceivedRequest) -> None:
        """Close the connection: instead of processing the request, or when its answer would be sent."""
        if not after:
            connection.close_after_replies()
            return
        waiting = len(connection.slots)
        _instead_of_answer(
            serve,
            connection,
            asked,
            at_once=lambda unit, reply: connection.close_after_replies(unit),
            later=lambda slot, on_answer, outcome: slot.close(),
        )
        if len(connection.slots) == waiting:  # acks=0: there is no answer to replace
            connection.close_after_writes()

    return effect


def delay(seconds: float, after: bool) -> Effect:
    """Return the effect that delays a request. after: it is processed now and answered after this many seconds; else it
    is processed only then.
    """

    def effect(serve: Serve, connection: Connection, asked: ReceivedRequest) -> None:
        """Process the request after the delay, or process it now and send its answer after the delay."""
        if not after:
            _serve_later(serve, connection, asked, seconds)
            return
        _instead_of_answer(
            serve,
            connection,
            asked,
            at_once=lambda unit, reply: _in(seconds, connection.park(Parked()).fill, reply, unit),
            later=lambda slot, on_answer, outcome: _in(seconds, on_answer, outcome),
        )

    return effect


def blackhole(after: bool) -> Effect:
    """Return the effect that never answers. after: the request is processed; else it is not."""

    def effect(serve: Serve, connection: Connection, asked: ReceivedRequest) -> None:
        """Leave the request without an answer for ever: unprocessed, or after it was processed."""
        if not after:
            connection.park(Parked())
            return
        _instead_of_answer(
            serve,
            connection,
            asked,
            at_once=lambda unit, reply: connection.park(Parked()),
            later=lambda slot, on_answer, outcome: None,
        )

    return effect


def duplicate(serve: Serve, connection: Connection, asked: ReceivedRequest) -> None:
    """Process the request twice. Only the first answer is sent."""
    serve(connection, asked.frame)
    waiting = len(connection.slots)
    serve(connection, asked.frame)
    if len(connection.slots) > waiting:
        _, reply = connection.take_back()
        if isinstance(reply, Slot):
            reply.parked.cancel()


def _instead_of_answer(
    serve: Serve,
    connection: Connection,
    asked: ReceivedRequest,
    at_once: Callable[[int, Reply], object],
    later: Callable[[Slot, Callable[[object], None], object], None],
) -> None:
    """Process the request, and do something in place of sending its answer.

    at_once: called with the journal entry to wait for and the answer, if the answer is ready. later: called with the
    waiting reply, the function that would send the answer, and the answer, when a delayed answer becomes ready.
    """
    waiting = len(connection.slots)
    serve(connection, asked.frame)
    if len(connection.slots) == waiting:
        return
    unit, reply = connection.slots[-1]
    if isinstance(reply, Slot) and reply.reply is None:
        slot = reply
        slot.parked.divert(lambda on_answer, outcome: later(slot, on_answer, outcome))
    elif reply is not None:
        unit, reply = connection.take_back()
        if isinstance(reply, Slot):
            unit, reply = reply.unit, reply.reply or []
        at_once(unit, reply)


def _serve_later(serve: Serve, connection: Connection, asked: ReceivedRequest, seconds: float) -> None:
    """Process the request after this many seconds. Until then no later request of this connection is processed."""
    frame = bytes(asked.frame)
    connection.hold()

    def now() -> None:
        """Process the request and later ones of its connection, unless the connection has ended."""
        if connection.transport is not None:
            serve(connection, frame)
            connection.go_on()

    _in(seconds, now)


def _in(seconds: float, call: Callable[..., object], *arguments: Any) -> None:
    """Call the function after this many seconds of the broker's time: moving that time forward ends the delay."""
    asyncio.get_running_loop().call_later(seconds, call, *arguments)
