"""From a frame to its handler and back: which function answers which API, and what becomes of what it raises.

The rules: a KafkaError becomes the error of the response; bytes that do not parse, and versions that have no error
shape, close the connection; anything else raised is a bug: logged with its traceback, counted, and answered
UNKNOWN_SERVER_ERROR. Reply barrier: a reply waits for the last unit at the moment it was decided, so nobody learns of
what a power cut could take back; handlers that read released state only say waits=False. Requests of one connection
act in order: where what it sent before is not released yet, one that reads released state waits for that
(reads_released), and what is sent behind it waits too. Kafka handles one request of a connection at a time. How much
of a turn of the loop a request may take is decided in net/turns.py. A Produce that comes when the turn is over is put
back, for the whole of it is one step, and it may have no reply that could be put off.
"""

import importlib
import logging
from collections.abc import Callable
from types import GeneratorType
from typing import Any, TypeVar

from ...protocol.apis import APIS, Api, decode_request, encode_response, encode_response_in_steps
from ...protocol.errors import ErrorCode, KafkaError, MalformedFrame
from ...protocol.headers import RequestHeader, read_request_header
from ...protocol.messages.cluster import ApiVersionsRequest, ApiVersionsResponse
from ...protocol.primitives import Buffer, Readable
from ...protocol.schema import schema_of
from ...storage.store import BrokerHalted
from ..metrics import place_of_count
from ..net.advertised import advertised_address
from ..net.connection import Connection
from ..net.features import highest_served
from ..net.owner import OlderConnection
from ..net.refusals import refusal
from ..net.request_limits import SMALL_BYTES, check_extent, read_in_steps
from ..net.turns import BYTES_PER_UNIT, REQUEST_UNITS, Job, Steps
from ..net.unserved_apis import UNSERVED
from ..net.waiting import Parked, Slot
from ..security.principals import Session
from .services import Services
from .throttling import Meter

log = logging.getLogger("fencepost.broker")

AREAS = (
    "produce",
    "fetch",
    "offsets",
    "commits",
    "topics",
    "configs",
    "cluster",
    "replicas",
    "transactions",
    "transaction_admin",
    "groups",
    "group_admin",
    "consumer_groups",
    "security",
    "acls",
    "quotas",
    "users",
    "ledger",
    "monitoring",
)
PRODUCE, API_VERSIONS = 0, 18
PARTITION_UNITS = 4  # of a Produce

Answer = Callable[[Services, "Call", Any], Any]
FastPath = Callable[[Connection, Readable], bool]
"""Answers a request that is ordinary and returns True; or changes nothing and returns False."""
F = TypeVar("F", bound=Callable[..., Any])


class Call:
    """Who asks, and how: what a handler may know beside the request itself. request: None until it is read.

    meter: what it costs, where its client has a quota.
    """

    __slots__ = (
        "client_host",
        "client_id",
        "connection",
        "correlation_id",
        "listener_address",
        "meter",
        "parked_ns",
        "request",
        "version",
    )

    def __init__(self, connection: Connection, header: RequestHeader) -> None:
        self.connection = connection
        self.version = header.api_version
        self.correlation_id = header.correlation_id
        self.client_id: str | None = header.client_id
        self.request: Any = None
        self.meter: Meter | None = None
        self.parked_ns = 0  # when it was put off
        self.client_host = connection.client_host
        self.listener_address = connection.listener_address

    @property
    def advertised(self) -> tuple[str, int]:
        """Host and port that the client is to connect to."""
        listener = self.connection.listener
        assert listener is not None
        return advertised_address(listener, self.listener_address)

    @property
    def listener_name(self) -> str:
        """Of the listener by which the client came."""
        assert self.connection.listener is not None
        return self.connection.listener.name

    @property
    def session(self) -> Session:
        """On whose behalf it asks."""
        return self.connection.session


class Handler:
    """The function that answers one API."""

    __slots__ = ("answer", "api", "in_steps", "place", "reads_released", "waits")

    def __init__(
        self, api: Api, answer: Answer, waits: bool, reads_released: bool = False, in_steps: bool = False
    ) -> None:
        self.api = api
        self.place = place_of_count(api.key)
        self.answer = answer
        self.waits = waits
        self.reads_released = reads_released
        self.in_steps = in_steps


class Encoded:
    """What a request comes to, as the frame that is to be sent; None closes the connection."""

    __slots__ = ("frame",)

    def __init__(self, frame: list[Buffer] | None) -> None:
        self.frame = frame


NO_REPLY = Encoded([])
NOT_YET = Encoded([])  # the request cannot be handled before something is released


HANDLERS: dict[int, Handler] = {}
FAST_PATHS: list[tuple[tuple[int, ...], Callable[[Services], FastPath]]] = []


def handles(
    request: type, *, waits: bool = True, reads_released: bool = False, in_steps: bool = False
) -> Callable[[F], F]:
    """Register a function as the one that answers `request`.

    It gets (broker, call, request) and returns the response, a Parked that will have it, or None for no reply at all.
    waits=False: its replies need not wait for what is not durable yet, because they tell nothing of it.
    reads_released=True: it looks at what is released (high watermarks, last stable offsets, where logs begin), so it is
        not called before everything is released that its connection sent before.
    in_steps=True: it may be a lot of work. Then it may also return Steps, whose result is one of these, and the
        response is encoded in steps. What does not fit one slice is done in turns with other requests (net/turns.py).
    """
    key = schema_of(request).api
    assert key is not None

    def register(answer: F) -> F:
        assert key not in HANDLERS, f"two handlers for API {key}"
        HANDLERS[key] = Handler(APIS[key], answer, waits, reads_released, in_steps)
        return answer

    return register


def register_fast_path(*requests: type, made_by: Callable[[Services], FastPath]) -> None:
    """These requests are first offered to what made_by(broker) returns, one for each broker.

    A fast path does in fewer steps what the handlers of `requests` would do, and only where nothing is out of the
    ordinary. It reads the frame by itself, whose API key may also be one that differs in its upper byte.
    """
    keys = tuple(key for request in requests if (key := schema_of(request).api) is not None)
    FAST_PATHS.append((keys, made_by))


def load_handlers() -> dict[int, Handler]:
    """Import every area, so that its handlers are registered. Returns them by API key."""
    for area in AREAS:
        importlib.import_module(f"..handlers.{area}", __package__)
    return HANDLERS


class Dispatcher:
    """Serves the requests of all connections of one broker."""

    def __init__(self, broker: Services) -> None:
        self._broker = broker
        self._handlers = load_handlers()
        self._metrics, self._times = broker.metrics, broker.times
        self._requests, self._turns = broker.metrics.general_requests, broker.turns
        self._throttling, self._measures = broker.throttling, broker.throttling.measures
        self.fast_paths: dict[int, FastPath] = {}  # by the lower byte of the API key
        for keys, made_by in FAST_PATHS:
            self.fast_paths |= dict.fromkeys(keys, made_by(broker))

    def serve(self, connection: Connection, frame: Readable) -> None:
        """Answer one request, or see to it that it is answered later; whatever it is, nobody else notices."""
        fast = self.fast_paths.get(frame[1]) if len(frame) > 1 else None
        if fast is None or not fast(connection, frame):
            self._serve_generally(connection, frame)

    def _serve_generally(self, connection: Connection, frame: Readable) -> None:
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
            connection.client_id = header.client_id
            self._refuse_unsupported(connection, header.api_key, header.api_version, header.correlation_id)
            return
        self._requests[place_of_count(header.api_key)] += 1
        connection.client_id = header.client_id
        call, turns = Call(connection, header), self._turns
        if self._measures.is_active:
            call.meter = self._throttling.meter(connection, header.api_key, header.client_id, len(frame))
        if header.api_key == PRODUCE:
            if turns.left <= 0 and turns.is_spent():
                connection.put_back(frame)
                self._requests[PRODUCE] -= 1  # it is counted when it comes again
                turns.enqueue(Job(_go_on(connection)), long=len(frame) > SMALL_BYTES)
                return
        else:
            if turns.left <= 0 and turns.is_spent():
                steps = _meter(call, self._read_and_answer(handler, call, frame, header))
                self._enqueue(handler, call, self._put_off(handler, call), steps)
                return
            turns.left -= REQUEST_UNITS + len(frame) // BYTES_PER_UNIT
            if len(frame) > SMALL_BYTES:
                self._begin(handler, call, self._read_and_answer(handler, call, frame, header))
                return
        try:
            call.request = self._read(handler, frame, header)
        except MalformedFrame as error:
            connection.fail(str(error))
            return
        if handler.reads_released and connection.newest_unit > self._broker.store.released_unit:
            self._answer_when_released(handler, call, self._put_off(handler, call))
            return
        if header.api_key == PRODUCE:
            turns.spend(sum(len(topic.partition_data) for topic in call.request.topic_data) * PARTITION_UNITS)
        self._answer(handler, call)

    def _read(self, handler: Handler, frame: Readable, header: RequestHeader) -> Any:
        """A small request, or a Produce. Raises MalformedFrame."""
        try:
            if len(frame) > SMALL_BYTES:
                check_extent(frame, header)
            return decode_request(handler.api, header.api_version, frame, header.position)
        except MalformedFrame as error:
            raise _unreadable(handler, header, error) from error

    def _answer(self, handler: Handler, call: Call) -> None:
        try:
            if handler.in_steps:
                steps = _meter(call, self._answer_in_steps(handler, call))
                job = Job(steps)
                if not self._turns.begin(job):
                    self._enqueue(handler, call, self._put_off(handler, call), steps)
                    return
                outcome = job.result
                if isinstance(outcome, OlderConnection):
                    raise outcome
            else:
                outcome = handler.answer(self._broker, call, call.request)
                if outcome.__class__ is GeneratorType:
                    self._begin(handler, call, self._encode_in_steps(handler, call, outcome))
                    return
        except BrokerHalted:
            call.connection.abort()
            return
        except OlderConnection:
            call.connection.close_after_replies()
            return
        except Exception as error:
            outcome = self._bug_error(handler, error)
        if outcome is None:
            if call.meter is not None:
                self._throttling.judge(call.meter, None)
            return
        if outcome.__class__ is Parked:
            if call.meter is not None:
                call.meter.pause()
            call.parked_ns = call.parked_ns or self._times.now_ns()
            slot = call.connection.park(outcome)
            outcome.then(lambda answer: self._fill(slot, handler, call, answer))
            return
        reply = self._encode(handler, call, outcome)
        if reply is None:
            call.connection.close_after_replies()
        else:
            call.connection.reply(reply, self._times.note_answer(handler.place, handler.waits))

    # ---- what is not done at once ----------------------------------------------------------------------------

    def _put_off(self, handler: Handler, call: Call) -> Parked:
        """The request keeps its place among the replies; those behind it on its connection are not begun."""
        if call.meter is not None:
            call.meter.pause()
        call.parked_ns = self._times.now_ns()
        parked = Parked()
        slot = call.connection.park(parked)
        parked.then(lambda answer: self._fill(slot, handler, call, answer))
        call.connection.hold()
        return parked

    def _begin(self, handler: Handler, call: Call, steps: Steps[object]) -> None:
        """Do these steps: the first slice of them now."""
        steps = _meter(call, steps)
        parked, job = self._put_off(handler, call), Job(steps)
        try:
            is_done = self._turns.begin(job)
        except BrokerHalted:
            call.connection.abort()
            return
        if is_done:
            self._finish(handler, call, parked, job.result)
        else:
            self._enqueue(handler, call, parked, steps, long=job.is_long)

    def _enqueue(
        self, handler: Handler, call: Call, parked: Parked, steps: Steps[object], *, long: bool = False
    ) -> None:
        """Do the rest of these steps, or all of them, in turns with other requests."""
        job = Job(steps)
        if handler.in_steps:  # else it is little, and what a client sent before it left is done
            job.wanted = lambda: not (parked.cancelled or call.connection.has_left())
        job.finish = lambda: self._finish(handler, call, parked, job.result)
        self._turns.enqueue(job, long=long)

    def _answer_when_released(self, handler: Handler, call: Call, parked: Parked) -> None:
        """Call the handler when what was sent before the request is released, as Kafka would."""

        def released() -> None:
            if not parked.cancelled:
                self._enqueue(handler, call, parked, _meter(call, self._answer_in_steps(handler, call)))

        self._broker.rounds.when_released(call.connection.newest_unit, released)

    def _read_and_answer(self, handler: Handler, call: Call, frame: Readable, header: RequestHeader) -> Steps[object]:
        """A large request, or one that comes when the turn's allowance is spent."""
        if len(frame) > SMALL_BYTES:
            try:
                call.request = yield from read_in_steps(handler.api, header, memoryview(frame))
            except MalformedFrame as error:
                raise _unreadable(handler, header, error) from error
        else:
            call.request = self._read(handler, frame, header)
            yield REQUEST_UNITS + len(frame) // BYTES_PER_UNIT
        if handler.reads_released and call.connection.newest_unit > self._broker.store.released_unit:
            return NOT_YET
        return (yield from self._answer_in_steps(handler, call))

    def _answer_in_steps(self, handler: Handler, call: Call) -> Steps[object]:
        """Returns a Parked, None for no reply, or Encoded. Raises BrokerHalted, OlderConnection."""
        try:
            outcome = handler.answer(self._broker, call, call.request)
        except (BrokerHalted, OlderConnection):
            raise
        except Exception as error:
            outcome = error
        return (yield from self._encode_in_steps(handler, call, outcome))

    def _encode_in_steps(self, handler: Handler, call: Call, outcome: Any) -> Steps[object]:
        """As _answer_in_steps, from what the handler returned."""
        try:
            if outcome.__class__ is GeneratorType:
                outcome = yield from outcome
            if outcome is None or outcome.__class__ is Parked:
                return outcome
            if isinstance(outcome, Exception):
                raise outcome
            api = handler.api
            if call.meter is not None:
                outcome = self._throttling.judge(call.meter, outcome)
            return Encoded((yield from encode_response_in_steps(api, call.version, call.correlation_id, outcome)))
        except (BrokerHalted, OlderConnection):
            raise
        except Exception as error:
            return Encoded(self._encode(handler, call, error))

    def _finish(self, handler: Handler, call: Call, parked: Parked, outcome: object) -> None:
        """The steps are done; what came of them may itself be a reply that comes later."""
        if outcome is NOT_YET:
            self._answer_when_released(handler, call, parked)
            return
        if isinstance(outcome, Parked):
            if parked.cancelled:
                outcome.cancel()
            parked.on_cancel = outcome.cancel
            parked.expect(outcome.expected_bytes)
            outcome.slot = parked.slot
            outcome.then(parked.answer)
        elif isinstance(outcome, OlderConnection | MalformedFrame):
            parked.answer(NO_REPLY)
            if isinstance(outcome, MalformedFrame):
                call.connection.fail(str(outcome))
            call.connection.close_after_replies()
        else:
            parked.answer(NO_REPLY if outcome is None else outcome)
        self._turns.enqueue(Job(_go_on(call.connection)))

    # ---- replies ---------------------------------------------------------------------------------------------

    def _fill(self, slot: Slot, handler: Handler, call: Call, outcome: object) -> None:
        if outcome.__class__ is GeneratorType:
            job = Job(_meter(call, self._encode_in_steps(handler, call, outcome)))
            job.wanted = lambda: call.connection.transport is not None
            job.finish = lambda: self._fill(slot, handler, call, job.result)
            self._turns.enqueue(job)
            return
        reply = self._encode(handler, call, outcome)
        if reply is None:
            slot.close()
        else:
            slot.fill(reply, self._times.note_late_answer(handler.place, handler.waits, call.parked_ns))

    def _encode(self, handler: Handler, call: Call, outcome: Any) -> list[Buffer] | None:
        """The frame of a response, or of the refusal for an error; None if neither can be encoded."""
        if outcome.__class__ is Encoded:
            return outcome.frame
        api = handler.api
        try:
            if isinstance(outcome, BaseException):
                outcome = self._refusal(handler, call, outcome)
            if call.meter is not None:
                outcome = self._throttling.judge(call.meter, outcome)
            return encode_response(api, call.version, call.correlation_id, outcome)
        except Exception as error:
            self._bug_error(handler, error)
            try:
                failure = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
                response = refusal(api.response, call.version, call.request, failure)
                return encode_response(api, call.version, call.correlation_id, response)
            except Exception:
                log.exception("%s cannot be answered, closing the connection", api.name)
                return None

    def _refusal(self, handler: Handler, call: Call, error: BaseException) -> Any:
        error = self._bug_error(handler, error)
        self._metrics.error(handler.api.name, error.code)
        self._broker.note_limit(handler.api.name, call.client_host, call.client_id, error)
        return refusal(handler.api.response, call.version, call.request, error)

    def _bug_error(self, handler: Handler, error: BaseException) -> KafkaError:
        """What is no KafkaError is a bug here: say so loudly, and tell the client that it is not its fault."""
        if isinstance(error, KafkaError):
            return error
        self._metrics.failed(error)
        log.error("%s failed", handler.api.name, exc_info=error)
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)

    def _refuse_unsupported(self, connection: Connection, key: int, version: int, correlation_id: int) -> None:
        """What is not served: only ApiVersions has a way to say so, in the layout of its version 0 (KIP-511)."""
        if key == API_VERSIONS and key in self._handlers:
            api = self._handlers[key].api
            own = ApiVersionsResponse.ApiKey(api_key=key, min_version=api.min, max_version=api.max)
            response = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[own])
            connection.reply(encode_response(api, 0, correlation_id, response), 0)
            return
        self._metrics.closed_unsupported += 1
        connection.fail(self._why_unsupported(key, version))

    def _why_unsupported(self, key: int, version: int) -> str:
        handler = self._handlers.get(key)
        if handler is None:
            return f"{UNSERVED.get(key, 'an API that Kafka does not know')} (API {key} v{version}) is not served"
        api, newest = handler.api, highest_served(handler.api, self._broker.settings)
        return f"{api.name} (API {key}) v{version} is not served: {api.min} to {newest} are"


def _unreadable(handler: Handler, header: RequestHeader, error: MalformedFrame) -> MalformedFrame:
    return MalformedFrame(f"a {handler.api.name} request v{header.api_version} that does not parse: {error}")


def _meter(call: Call, steps: Steps[object]) -> Steps[object]:
    return steps if call.meter is None else call.meter.pieces(steps)


def _go_on(connection: Connection) -> Steps[None]:
    """Handle what came behind a request that took its turns; this too has to wait for its turn."""
    connection.go_on_now()
    yield 1


assert schema_of(ApiVersionsRequest).api == API_VERSIONS
