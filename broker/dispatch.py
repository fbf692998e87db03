"""From a frame to its handler and back: which function answers which API, and what becomes of what it raises.

The rules: a KafkaError becomes the error of the response; bytes that do not parse, and versions that have no error
shape, close the connection; anything else raised is a bug: logged with its traceback, counted, and answered
UNKNOWN_SERVER_ERROR. Reply barrier: a reply waits for the last unit at the moment it was decided, so nobody is told of
what a power cut could take back; handlers that read released state only say waits=False. Requests of one connection
act in order: where what it sent before is not released yet, one that reads released state waits for that
(reads_released), and what is sent behind it waits too. Kafka handles one request of a connection at a time.
"""

import importlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from ..protocol.apis import APIS, Api, decode_request, encode_response
from ..protocol.errors import ErrorCode, KafkaError, MalformedFrame
from ..protocol.headers import read_request_header
from ..protocol.messages.cluster import ApiVersionsRequest, ApiVersionsResponse
from ..protocol.primitives import Buffer, Readable
from ..protocol.schema import schema_of
from ..storage.store import BrokerHalted
from .connection import Connection, OlderConnection, Slot
from .features import highest_served
from .metrics import counted_at
from .refusals import refusal
from .request_limits import COUNTED_FROM_BYTES, check_extent, check_items
from .waiting import Parked

if TYPE_CHECKING:
    from .broker import Broker

log = logging.getLogger("fencepost.broker")

AREAS = (
    "produce",
    "fetch",
    "offsets",
    "commits",
    "topics",
    "configs",
    "cluster",
    "transactions",
    "transaction_admin",
    "groups",
    "group_admin",
    "ledger",
)
API_VERSIONS = 18

Answer = Callable[["Broker", "Call", Any], Any]
F = TypeVar("F", bound=Callable[..., Any])


class Call:
    """Who asks, and how: what a handler may know beside the request itself."""

    __slots__ = ("client_host", "client_id", "connection", "correlation_id", "listener_address", "version")

    def __init__(self, connection: Connection, version: int, correlation_id: int, client_id: str | None) -> None:
        self.connection = connection
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.client_host = connection.client_host
        self.listener_address = connection.listener_address


class Handler:
    """The function that answers one API."""

    __slots__ = ("answer", "api", "reads_released", "waits")

    def __init__(self, api: Api, answer: Answer, waits: bool, reads_released: bool = False) -> None:
        self.api = api
        self.answer = answer
        self.waits = waits
        self.reads_released = reads_released


HANDLERS: dict[int, Handler] = {}


def handles(request: type, *, waits: bool = True, reads_released: bool = False) -> Callable[[F], F]:
    """Register a function as the one that answers `request`.

    It gets (broker, call, request) and returns the response, a Parked that will have it, or None for no reply at all.
    waits=False: its replies need not wait for what is not durable yet, because they tell nothing of it.
    reads_released=True: it looks at what is released (high watermarks, last stable offsets, where logs begin), so it is
    not called before everything is released that its connection sent before.
    """
    key = schema_of(request).api
    assert key is not None

    def register(answer: F) -> F:
        assert key not in HANDLERS, f"two handlers for API {key}"
        HANDLERS[key] = Handler(APIS[key], answer, waits, reads_released)
        return answer

    return register


def load_handlers() -> dict[int, Handler]:
    """Import every area, so that its handlers are registered. Returns them by API key."""
    for area in AREAS:
        importlib.import_module(f"{__package__}.handlers.{area}")
    return HANDLERS


class Dispatcher:
    """Serves the requests of all connections of one broker."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._handlers = load_handlers()
        self._metrics = broker.metrics
        self._requests = broker.metrics.requests

    def serve(self, connection: Connection, frame: Readable) -> None:
        """Answer one request, or see to it that it is answered later; whatever it is, nobody else notices."""
        try:
            header = read_request_header(frame)
        except MalformedFrame as error:
            connection.fail(f"not a request: {error}")
            return
        handler = self._handlers.get(header.api_key)
        if handler is None or (
            not handler.api.serves(header.api_version)
            and header.api_version != highest_served(handler.api, self._broker.settings)
        ):
            self._unsupported(connection, header.api_key, header.api_version, header.correlation_id)
            return
        self._requests[counted_at(header.api_key)] += 1
        connection.client_id = header.client_id
        try:
            is_tiny = len(frame) <= COUNTED_FROM_BYTES  # nothing to check
            if not is_tiny:
                check_extent(frame, header)
            request = decode_request(handler.api, header.api_version, frame, header.position)
            if not is_tiny:
                check_items(request, header.api_key, len(frame))
        except MalformedFrame as error:
            connection.fail(f"a {handler.api.name} request v{header.api_version} that does not parse: {error}")
            return
        call = Call(connection, header.api_version, header.correlation_id, header.client_id)
        if handler.reads_released and connection.newest_unit > self._broker.store.released_unit:
            self._answer_when_released(handler, call, request)
        else:
            self._answer(handler, call, request)

    def _answer_when_released(self, handler: Handler, call: Call, request: Any) -> None:
        """Call the handler when what was sent before the request is released, as Kafka would."""
        connection, parked = call.connection, Parked()
        slot = connection.park(parked)
        parked.then(lambda answer: self._fill(slot, handler, call, request, answer))

        def released() -> None:
            connection.go_on()
            outcome = None if parked.cancelled else self._outcome(handler, call, request)
            if outcome.__class__ is Parked:
                parked.on_cancel = outcome.cancel
                outcome.then(parked.answer)
            elif outcome is not None:
                parked.answer(outcome)

        connection.hold()
        self._broker.rounds.when_released(connection.newest_unit, released)

    def _outcome(self, handler: Handler, call: Call, request: Any) -> Any:
        """What a handler returns, or the error that it raises; None if there is to be no reply."""
        try:
            return handler.answer(self._broker, call, request)
        except BrokerHalted:
            call.connection.abort()
        except OlderConnection:
            call.connection.close_after_replies()
        except Exception as error:
            return self._failed(handler, error)
        return None

    def _answer(self, handler: Handler, call: Call, request: Any) -> None:
        outcome = self._outcome(handler, call, request)
        if outcome is None:
            return
        if outcome.__class__ is Parked:
            slot = call.connection.park(outcome)
            outcome.then(lambda answer: self._fill(slot, handler, call, request, answer))
            return
        reply = self._encoded(handler, call, request, outcome)
        if reply is None:
            call.connection.close_after_replies()
        else:
            call.connection.reply(reply, self._broker.store.last_unit if handler.waits else 0)

    def _fill(self, slot: Slot, handler: Handler, call: Call, request: Any, outcome: object) -> None:
        reply = self._encoded(handler, call, request, outcome)
        if reply is None:
            slot.close()
        else:
            slot.fill(reply, self._broker.store.last_unit if handler.waits else 0)

    def _encoded(self, handler: Handler, call: Call, request: Any, outcome: object) -> list[Buffer] | None:
        """The frame of a response, or of the refusal that an error stands for; None if not even that can be said."""
        api = handler.api
        try:
            if isinstance(outcome, BaseException):
                outcome = self._refused(handler, call, request, outcome)
            return encode_response(api, call.version, call.correlation_id, outcome)
        except Exception as error:
            self._failed(handler, error)
            try:
                failure = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
                response = refusal(api.response, call.version, request, failure)
                return encode_response(api, call.version, call.correlation_id, response)
            except Exception:
                log.exception("%s cannot be answered, closing the connection", api.name)
                return None

    def _refused(self, handler: Handler, call: Call, request: Any, error: BaseException) -> Any:
        if not isinstance(error, KafkaError):
            error = self._failed(handler, error)
        self._metrics.error(error.code)
        return refusal(handler.api.response, call.version, request, error)

    def _failed(self, handler: Handler, error: BaseException) -> KafkaError:
        """What is no KafkaError is a bug here: say so loudly, and tell the client that it is not its fault."""
        if isinstance(error, KafkaError):
            return error
        self._metrics.failed(error)
        log.error("%s failed", handler.api.name, exc_info=error)
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)

    def _unsupported(self, connection: Connection, key: int, version: int, correlation_id: int) -> None:
        """What is not served: only ApiVersions has a way to say so, in the layout of its version 0 (KIP-511)."""
        if key == API_VERSIONS and key in self._handlers:
            api = self._handlers[key].api
            own = ApiVersionsResponse.ApiKey(api_key=key, min_version=api.min, max_version=api.max)
            response = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[own])
            connection.reply(encode_response(api, 0, correlation_id, response), 0)
            return
        self._metrics.closed_unsupported += 1
        connection.fail(f"API {key} v{version} is not served")


assert schema_of(ApiVersionsRequest).api == API_VERSIONS
