"""From a frame to its handler and back: which function answers which API, and what becomes of what it raises.

The rules: a KafkaError becomes the error of the response; bytes that do not parse, and versions that have no error
shape, close the connection; anything else raised is a bug: logged with its traceback, counted, and answered
UNKNOWN_SERVER_ERROR. Reply barrier: a reply waits for the last unit at the moment it was decided, so nobody learns of
what a power cut could take back; handlers that read released state only say waits=False. Requests of one connection
act in order: where what it sent before is not released yet, one that reads released state waits for that
(reads_released), and what is sent behind it waits too. Kafka handles one request of a connection at a time.

The way of a request: one job reads it, answers it and encodes the answer, in steps. Its first slice is worked at once,
which nearly always is all; what is left keeps the request's place among the replies and takes turns with other
requests (net/turns.py). What comes of a job is an Outcome: a frame, the end of the connection, or a Parked, which the
handler answers later. A Produce is no job: the whole of it is one step, before which nothing else acts. One that comes
when the turn is over is put back, since it may have no reply that could be put off.
"""

import importlib
import logging
from collections.abc import Callable
from types import GeneratorType
from typing import Any, TypeVar

from ...effects.disk import DirectoryMoved
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
    "share_groups",
    "share_offsets",
    "share_fetch",
    "share_transactions",
    "security",
    "acls",
    "quotas",
    "users",
    "ledger",
    "monitoring",
    "named_producers",
)
PRODUCE, API_VERSIONS = 0, 18
PARTITION_UNITS = 4  # of a Produce

Answer = Callable[[Services, "Call", Any], Any]
FastPath = Callable[[Connection, Readable], bool]
"""Answers a request that is ordinary and returns True; or changes nothing and returns False."""
F = TypeVar("F", bound=Callable[..., Any])


class Call:
    """Who asks, and how: what a handler may know beside the request itself. request: None until it is read.

    handler: who answers. meter: what it costs, where its client has a quota.
    """

    __slots__ = (
        "client_host",
        "client_id",
        "connection",
        "correlation_id",
        "handler",
        "listener_address",
        "meter",
        "parked_ns",
        "request",
        "version",
    )

    def __init__(self, connection: Connection, handler: "Handler", header: RequestHeader) -> None:
        self.connection = connection
        self.handler = handler
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
        """The name of the listener that the client connected to."""
        assert self.connection.listener is not None
        return self.connection.listener.name

    @property
    def session(self) -> Session:
        """The session of the connection: the principal and address that rights are checked for."""
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


class _Close:
    """A request without a reply: the connection is closed once the replies before it are sent."""


CLOSE = _Close()
NO_REPLY: list[Buffer] = []

Outcome = list[Buffer] | Parked | _Close
"""What a request comes to: the frame of its reply, or NO_REPLY; what will have its answer; or the connection's end."""


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
        connection.client_id = header.client_id
        if handler is None or (
            not handler.api.serves(header.api_version)
            and header.api_version != highest_served(handler.api, self._broker.settings)
        ):
            self._refuse_unsupported(connection, header.api_key, header.api_version, header.correlation_id)
            return
        call = Call(connection, handler, header)
        if header.api_key == PRODUCE:
            self._serve_produce(call, frame, header)
            return
        self._requests[handler.place] += 1
        self._add_meter(call, len(frame))
        job = Job(_metered(call, self._answer_frame(call, frame, header)))
        if handler.reads_released and connection.newest_unit > self._broker.store.released_unit:
            self._enqueue_when_released(call, job)
        elif self._turns.is_spent():
            self._enqueue(call, job)
        else:
            self._begin(call, job)

    def _serve_produce(self, call: Call, frame: Readable, header: RequestHeader) -> None:
        """All of it is one step, which acts before anything else can: a Produce has no slices."""
        turns = self._turns
        if turns.is_spent():
            call.connection.put_back(frame)
            turns.enqueue(Job(_go_on(call.connection)), long=len(frame) > SMALL_BYTES)
            return
        self._requests[call.handler.place] += 1
        self._add_meter(call, len(frame))
        try:
            if len(frame) > SMALL_BYTES:
                check_extent(frame, header)
            call.request = decode_request(call.handler.api, header.api_version, frame, header.position)
        except MalformedFrame as error:
            call.connection.fail(_unreadable(call, error))
            return
        turns.spend(sum(len(topic.partition_data) for topic in call.request.topic_data) * PARTITION_UNITS)
        try:
            outcome = self._outcome(call, call.handler.answer(self._broker, call, call.request))
        except BrokerHalted:
            call.connection.abort()
            return
        except OlderConnection:
            outcome = CLOSE
        except Exception as error:
            outcome = self._outcome(call, error)
        if call.meter is not None:
            call.meter.pause()
        self._reply(call, outcome)

    def _add_meter(self, call: Call, size_bytes: int) -> None:
        if self._measures.is_active:
            call.meter = self._throttling.meter(call.connection, call.handler.api.key, call.client_id, size_bytes)

    # ---- the work of a request -------------------------------------------------------------------------------

    def _answer_frame(self, call: Call, frame: Readable, header: RequestHeader) -> Steps[Outcome]:
        """Read the request, answer it, and encode the answer. Raises BrokerHalted."""
        try:
            if len(frame) > SMALL_BYTES:
                call.request = yield from read_in_steps(call.handler.api, header, memoryview(frame))
            else:
                call.request = decode_request(call.handler.api, header.api_version, frame, header.position)
                yield REQUEST_UNITS + len(frame) // BYTES_PER_UNIT
        except MalformedFrame as error:
            call.connection.fail(_unreadable(call, error))
            return CLOSE
        try:
            answer = call.handler.answer(self._broker, call, call.request)
        except BrokerHalted:
            raise
        except OlderConnection:
            return CLOSE
        except Exception as error:
            answer = error
        if answer.__class__ is GeneratorType or call.handler.in_steps:
            return (yield from self._outcome_in_steps(call, answer))
        return self._outcome(call, answer)

    def _outcome_in_steps(self, call: Call, answer: Any) -> Steps[Outcome]:
        """Like _outcome(), but the answer may be a generator of steps, and is encoded in steps. Raises BrokerHalted."""
        try:
            if answer.__class__ is GeneratorType:
                answer = yield from answer
            if answer.__class__ is Parked or isinstance(answer, Exception):
                return self._outcome(call, answer)
            if call.meter is not None:
                answer = self._throttling.judge(call.meter, answer)
            return (yield from encode_response_in_steps(call.handler.api, call.version, call.correlation_id, answer))
        except BrokerHalted:
            raise
        except OlderConnection:
            return CLOSE
        except Exception as error:  # rows are made while they are encoded
            return self._outcome(call, error)

    def _outcome(self, call: Call, answer: Any) -> Outcome:
        """What a handler returned or raised, encoded: a response, None for no reply, an error, or a Parked as it is."""
        if answer.__class__ is Parked:
            return answer
        api = call.handler.api
        try:
            if isinstance(answer, BaseException):
                answer = self._refusal(call, answer)
            if call.meter is not None:
                answer = self._throttling.judge(call.meter, answer)
            return NO_REPLY if answer is None else encode_response(api, call.version, call.correlation_id, answer)
        except Exception as error:
            self._bug_error(call, error)
            try:
                failure = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
                response = refusal(api.response, call.version, call.request, failure)
                return encode_response(api, call.version, call.correlation_id, response)
            except Exception:
                log.exception("%s cannot be answered, closing the connection", api.name)
                return CLOSE

    # ---- its turns -------------------------------------------------------------------------------------------

    def _begin(self, call: Call, job: Job) -> None:
        """Work the first slice now, which nearly always is all."""
        try:
            is_finished = self._turns.begin(job)
        except BrokerHalted:
            call.connection.abort()
            return
        if is_finished:
            self._reply(call, job.result)
        else:
            self._enqueue(call, job)

    def _enqueue(self, call: Call, job: Job) -> None:
        """Work the job, or what is left of it, in turns with other requests."""
        self._hold_place(call, job)
        self._turns.enqueue(job, long=job.is_long)

    def _enqueue_when_released(self, call: Call, job: Job) -> None:
        """Call _enqueue() once everything that its connection wrote before is released, as Kafka does."""
        place = self._hold_place(call, job)
        self._broker.rounds.when_released(
            call.connection.newest_unit, lambda: None if place.cancelled else self._turns.enqueue(job)
        )

    def _hold_place(self, call: Call, job: Job) -> Parked:
        """Keep the request's place among the replies; those behind it on its connection are begun when it is done."""
        if call.meter is not None:
            call.meter.pause()
        place = self._park(call, Parked())
        call.connection.hold()
        if call.handler.in_steps:  # else it is little, and what a client sent before it left is done
            job.wanted = lambda: not (place.cancelled or call.connection.has_left())
        job.finish = lambda: self._finish(call, place, job.result)
        return place

    def _finish(self, call: Call, place: Parked, outcome: Outcome | Exception | None) -> None:
        """A job that held a place is done; None: nobody wanted it any more."""
        if isinstance(outcome, Parked):
            outcome.take_place_of(place)
        else:
            place.answer(outcome if outcome is not None else NO_REPLY)
        self._turns.enqueue(Job(_go_on(call.connection)))

    # ---- replies ---------------------------------------------------------------------------------------------

    def _reply(self, call: Call, outcome: Outcome | Exception) -> None:
        """The outcome of a request that needed no other turn."""
        if isinstance(outcome, Exception):
            outcome = self._outcome(call, outcome)
        if isinstance(outcome, Parked):
            self._park(call, outcome)
        elif isinstance(outcome, _Close):
            call.connection.close_after_replies()
        elif outcome:
            call.connection.reply(outcome, self._times.note_answer(call.handler.place, call.handler.waits))

    def _park(self, call: Call, parked: Parked) -> Parked:
        """Give what will have the answer its place among the replies. Returns it."""
        call.parked_ns = call.parked_ns or self._times.now_ns()
        slot = call.connection.park(parked)
        parked.then(lambda answer: self._fill(slot, call, answer))
        return parked

    def _fill(self, slot: Slot, call: Call, answer: Any) -> None:
        """The answer has come: an outcome if a job has worked on it, else as a handler returns it."""
        if answer.__class__ is GeneratorType:
            job = Job(_metered(call, self._outcome_in_steps(call, answer)))
            job.wanted = lambda: call.connection.transport is not None
            job.finish = lambda: self._fill(slot, call, job.result)
            self._turns.enqueue(job)
            return
        if answer.__class__ is Parked:  # steps that came as a late answer have ended in another wait
            slot.wait_for(answer)
            answer.then(lambda later: self._fill(slot, call, later))
            return
        outcome = answer if answer.__class__ in (list, _Close) else self._outcome(call, answer)
        if isinstance(outcome, list):
            slot.fill(outcome, self._times.note_late_answer(call.handler.place, call.handler.waits, call.parked_ns))
        else:
            slot.fill(NO_REPLY, 0)
            call.connection.close_after_replies()

    def _refusal(self, call: Call, error: BaseException) -> Any:
        error, name = self._bug_error(call, error), call.handler.api.name
        self._metrics.error(name, error.code)
        self._broker.note_limit(name, call.client_host, call.client_id, error)
        return refusal(call.handler.api.response, call.version, call.request, error)

    def _bug_error(self, call: Call, error: BaseException) -> KafkaError:
        """The error to answer. Any exception except a KafkaError is a bug: log it, and answer UNKNOWN_SERVER_ERROR."""
        if isinstance(error, KafkaError):
            return error
        if isinstance(error, DirectoryMoved):  # no bug, and not of this request alone
            self._broker.rounds.halt(error)
            return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        self._metrics.failed(error)
        log.error("%s failed", call.handler.api.name, exc_info=error)
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


def _unreadable(call: Call, error: MalformedFrame) -> str:
    return f"a {call.handler.api.name} request v{call.version} that does not parse: {error}"


def _metered(call: Call, steps: Steps[Outcome]) -> Steps[Outcome]:
    return steps if call.meter is None else call.meter.pieces(steps)


def _go_on(connection: Connection) -> Steps[None]:
    """Handle what came behind a request that took its turns; this too has to wait for its turn."""
    connection.go_on_now()
    yield 1


assert schema_of(ApiVersionsRequest).api == API_VERSIONS
