"""What a fault does to a request: each effect gets the next handler, the connection and the request.

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
    """A request that the broker received: its bytes, and on demand its decoded form."""

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
        """Return a response to the request with this error code."""
        header, api = self.header, APIS[self.header.api_key]
        response = refusal(
            api.response, header.api_version, self.decoded(), KafkaError(code, "a fault injected by the test")
        )
        return encode_response(api, header.api_version, header.correlation_id, response)


Effect = Callable[[Serve, Connection, ReceivedRequest], None]
Reply = list[Buffer]


def error(code: ErrorCode, after: bool) -> Effect:
    def effect(serve: Serve, connection: Connection, asked: ReceivedRequest) -> None:
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
    def effect(serve: Serve, connection: Connection, asked: ReceivedRequest) -> None:
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
    def effect(serve: Serve, connection: Connection, asked: ReceivedRequest) -> None:
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
    def effect(serve: Serve, connection: Connection, asked: ReceivedRequest) -> None:
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
    """Process the request, and replace its answer: at once, or when a delayed answer is ready."""
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
    frame = bytes(asked.frame)
    connection.hold()

    def now() -> None:
        if connection.transport is not None:
            serve(connection, frame)
            connection.go_on()

    _in(seconds, now)


def _in(seconds: float, call: Callable[..., object], *arguments: Any) -> None:
    """Call the function after a delay of the broker's time, so that moving it ends the delay."""
    asyncio.get_running_loop().call_later(seconds, call, *arguments)
