"""From a frame to its reply: which handler answers which API, and what becomes of what it returns or raises.

An answer is what a handler gives, one of five things:

    a response
    None        no reply at all: Produce with acks=0
    an error    raised, or given late. A KafkaError becomes the error of the response. OlderConnection closes the
                connection without a reply. BrokerHalted, only raised, ends it at once. Anything else is a bug: logged
                with its traceback, counted, and answered UNKNOWN_SERVER_ERROR
    Steps       a generator, for work that may not fit one slice; it returns, or raises, one of the others
    Parked      the answer comes later, when the handler gives one of these five to its answer()

A reply is what comes of it: the buffers of one frame, or NO_REPLY. Bytes that do not parse, versions that have no error
shape, and a refusal that cannot be encoded close the connection instead, once the replies before are sent.

A request is in one of these states:

    put back    only Produce: nothing of it was read, because the turn's allowance is spent. It is the first of its
                connection's requests again, since it may have no reply whose place could be kept
    at hand     it is worked right now: the whole of a Produce, and of others the first slice of their job, which reads
                the request, answers it and encodes the answer. Nearly all are replied to from here
    queued      its job, or what is left of that, takes turns with others (net/turns.py). Its place among the replies is
                kept, and what its connection sent behind it waits until the job is done
    parked      its handler waits for something. Its place is kept; what was sent behind it is served
    replied     its reply leaves after those before it, and when the unit is released that it waits for

So a fast path replies in one step, Produce in one step before which nothing else acts, and all others are jobs. What a
client asked for that has left is given up: parked, always; queued, where it may be long.

Reply barrier: a reply waits for the last unit at the moment it was decided, so nobody learns of what a power cut could
take back; handlers that read released state only say waits=False. Requests of one connection act in order, as Kafka
handles one of them at a time: where what it sent before is not released yet, one that reads released state is queued
until that is (reads_released).
"""

import importlib
import logging
from collections.abc import Callable
from functools import partial
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
from ..metrics import counter_of
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
from .areas import AREAS
from .services import Services
from .throttling import Meter

log = logging.getLogger("fencepost.broker")

PRODUCE, API_VERSIONS = 0, 18
PARTITION_UNITS = 4  # of a Produce

Reply = list[Buffer]
NO_REPLY: Reply = []
AnswerFunction = Callable[[Services, "Call", Any], Any]
"""Returns an answer: a response, None, Steps or a Parked."""
FastPath = Callable[[Connection, Readable], bool]
"""Answers a request that is ordinary and returns True; or changes nothing and returns False."""
F = TypeVar("F", bound=Callable[..., Any])


class Call:
    """One request: who sent it and how, for the handlers, and what the dispatcher needs until it is replied to.

    request: None until it is decoded. meter: measures its cost, if its client has a quota. slot: its place among the
    connection's replies, if the answer comes later. parked_ns: since when it waits.
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
        "slot",
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
        self.slot: Slot | None = None
        self.parked_ns = 0
        self.client_host = connection.client_host
        self.listener_address = connection.listener_address

    @property
    def advertised(self) -> tuple[str, int]:
        """The host and port that the client is to connect to."""
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
    """The function that answers one API, with the options given to handles()."""

    __slots__ = ("answer", "api", "counter", "may_be_long", "reads_released", "waits")

    def __init__(
        self, api: Api, answer: AnswerFunction, waits: bool, reads_released: bool = False, may_be_long: bool = False
    ) -> None:
        self.api = api
        self.counter = counter_of(api.key)
        self.answer = answer
        self.waits = waits
        self.reads_released = reads_released
        self.may_be_long = may_be_long


HANDLERS: dict[int, Handler] = {}
FAST_PATHS: list[tuple[tuple[int, ...], Callable[[Services], FastPath]]] = []


def handles(
    request: type, *, waits: bool = True, reads_released: bool = False, may_be_long: bool = False
) -> Callable[[F], F]:
    """Register a function as the handler of `request`. It is called with (broker, call, request) and returns an answer.

    waits=False: its replies do not wait until all units so far are durable, because they say nothing about them.

    reads_released=True: it reads released state (high watermarks, last stable offsets, log start offsets), so it is
    called only when everything is released that the connection has sent before.

    may_be_long=True: its work grows with the request, or with the broker's data. So its response is encoded in steps,
    as is always done for Steps, and a queued job is dropped once its client has left. Other jobs are completed even
    then, because they are short, and a client may leave right after its last request.
    """
    key = schema_of(request).api
    assert key is not None

    def register(answer: F) -> F:
        """Register the decorated function, and return it."""
        assert key not in HANDLERS, f"two handlers for API {key}"
        HANDLERS[key] = Handler(APIS[key], answer, waits, reads_released, may_be_long)
        return answer

    return register


def register_fast_path(*requests: type, made_by: Callable[[Services], FastPath]) -> None:
    """Register a fast path for these requests: an object that made_by(broker) returns, one for each broker.

    It does in fewer steps what their handlers would do, and only for requests of the ordinary form. It is called for
    all frames with the same lower byte of the API key, so it must check the whole key.
    """
    keys = tuple(key for request in requests if (key := schema_of(request).api) is not None)
    FAST_PATHS.append((keys, made_by))


def load_handlers() -> dict[int, Handler]:
    """Import all modules with handlers, so that they register. Returns the handlers by API key."""
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
        """Answer one request now, or arrange for a later answer. An error never affects other requests."""
        fast = self.fast_paths.get(frame[1]) if len(frame) > 1 else None
        if fast is None or not fast(connection, frame):
            self._serve_generally(connection, frame)

    def _serve_generally(self, connection: Connection, frame: Readable) -> None:
        """Serve a request by its handler. A malformed header closes the connection. An API or version that is not
        served is refused.
        """
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
        self._requests[handler.counter] += 1
        self._add_meter(call, len(frame))
        job = Job(_metered(call, self._work(call, frame, header)))
        if handler.reads_released and connection.newest_unit > self._broker.store.released_unit:
            self._queue(call, job, after_unit=connection.newest_unit)
        elif self._turns.is_spent():
            self._queue(call, job)
        else:
            self._begin(call, job)

    def _serve_produce(self, call: Call, frame: Readable, header: RequestHeader) -> None:
        """Serve a Produce in one step. If this turn of the loop may do no more work, put the frame back for a later
        turn.
        """
        turns = self._turns
        if turns.is_spent():
            call.connection.put_back(frame)
            turns.enqueue(Job(_go_on(call.connection)), long=len(frame) > SMALL_BYTES)
            return
        self._requests[call.handler.counter] += 1
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
            answer = call.handler.answer(self._broker, call, call.request)
        except BrokerHalted:
            call.connection.abort()
            return
        except Exception as error:
            answer = error
        self._finish(call, answer)
        if call.meter is not None:
            call.meter.pause()

    def _add_meter(self, call: Call, size_bytes: int) -> None:
        """If a quota applies to the client, give the call a meter for its time and bytes. size_bytes: of the
        request.
        """
        if self._measures.is_active:
            call.meter = self._throttling.meter(call.connection, call.handler.api.key, call.client_id, size_bytes)

    # ---- the job of a request: from its frame to the reply, or to a Parked -------------------------------------

    def _work(self, call: Call, frame: Readable, header: RequestHeader) -> Steps[Reply | Parked]:
        """Decode the request, call its handler and encode the answer, in steps. Returns a reply or a Parked. Raises
        BrokerHalted.
        """
        try:
            if len(frame) > SMALL_BYTES:
                call.request = yield from read_in_steps(call.handler.api, header, memoryview(frame))
            else:
                call.request = decode_request(call.handler.api, header.api_version, frame, header.position)
                yield REQUEST_UNITS + len(frame) // BYTES_PER_UNIT
        except MalformedFrame as error:
            call.connection.fail(_unreadable(call, error))
            return NO_REPLY
        try:
            answer = call.handler.answer(self._broker, call, call.request)
        except BrokerHalted:
            raise
        except Exception as error:
            answer = error
        if isinstance(answer, Parked):
            return answer
        if answer.__class__ is GeneratorType or call.handler.may_be_long:
            return (yield from self._work_on(call, answer))
        return self._encode(call, answer)

    def _work_on(self, call: Call, answer: Any) -> Steps[Reply | Parked]:
        """Run the steps of an answer to their end, if it has steps, and encode the response. Returns the reply or a
        Parked. Raises BrokerHalted.
        """
        try:
            if answer.__class__ is GeneratorType:
                answer = yield from answer
            if isinstance(answer, Parked):
                return answer
            if answer is not None and not isinstance(answer, Exception):
                if call.meter is not None:
                    answer = self._throttling.judge(call.meter, answer)
                api = call.handler.api
                return (yield from encode_response_in_steps(api, call.version, call.correlation_id, answer))
        except BrokerHalted:
            raise
        except Exception as error:  # rows are made while they are encoded
            answer = error
        return self._encode(call, answer)

    def _encode(self, call: Call, answer: Any) -> Reply:
        """Encode a response, None or an error in one step. Returns the reply. If it cannot be encoded, log that as a
        bug and encode UNKNOWN_SERVER_ERROR instead; if that is impossible too, close the connection.
        """
        api = call.handler.api
        try:
            if isinstance(answer, BaseException):
                if isinstance(answer, OlderConnection):
                    call.connection.close_after_replies()
                    return NO_REPLY
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
                call.connection.close_after_replies()
                return NO_REPLY

    # ---- its states: at hand, queued, parked, replied ----------------------------------------------------------

    def _begin(self, call: Call, job: Job) -> None:
        """Run the job's first slice now, which is enough for nearly every request. If it has more, queue the job."""
        try:
            is_finished = self._turns.begin(job)
        except BrokerHalted:
            call.connection.abort()
            return
        if is_finished:
            self._finish(call, job.result)
        else:
            self._queue(call, job)

    def _queue(self, call: Call, job: Job, after_unit: int = 0) -> None:
        """Run the job, or the rest of it, in turns with other jobs. Later requests of the connection wait for it.

        after_unit: the unit (journal entry) that must be released before the job begins; 0 if it need not wait.
        """
        if call.meter is not None:
            call.meter.pause()
        place = Parked()  # answered by the job
        self._park(call, place)
        call.connection.hold()
        if call.handler.may_be_long:
            job.wanted = lambda: not (place.cancelled or call.connection.has_left())
        job.finish = partial(self._finish_queued, call, place)
        if after_unit:
            begin = partial(self._turns.enqueue, job)
            self._broker.rounds.when_released(after_unit, lambda: None if place.cancelled else begin())
        else:
            self._turns.enqueue(job, long=job.is_long)

    def _finish_queued(self, call: Call, place: Parked, result: Reply | Parked | Exception | None) -> None:
        """Answer a request whose job is done, or was dropped (None); then serve the connection's later requests."""
        if isinstance(result, Parked):
            result.pass_on_to(place)
        else:
            place.answer(NO_REPLY if result is None else result)
        self._turns.enqueue(Job(_go_on(call.connection)))

    def _park(self, call: Call, parked: Parked) -> None:
        """Keep the request's place among the replies until `parked` has its answer; then call _finish()."""
        if call.slot is None:
            call.parked_ns = self._times.now_ns()
            call.slot = call.connection.park(parked)
        else:
            call.slot.wait_for(parked)
        parked.then(partial(self._finish, call))

    def _finish(self, call: Call, answer: Any) -> None:
        """Put the reply in the request's place. answer: what the handler returned (a response, None, an error, Steps or
        a Parked), or the reply that a job has made.

        A Parked, or Steps given later, do not finish it yet: the request waits, or the steps are run in turns with
        other jobs.
        """
        if answer.__class__ is Parked:
            self._park(call, answer)
            return
        if answer.__class__ is GeneratorType:
            job = Job(_metered(call, self._work_on(call, answer)))
            job.wanted = lambda: call.connection.transport is not None
            job.finish = partial(self._finish, call)
            self._turns.enqueue(job)
            return
        reply = answer if answer.__class__ is list else self._encode(call, answer)
        slot, handler = call.slot, call.handler
        if slot is not None:
            late = self._times.note_late_answer
            slot.fill(reply, late(handler.counter, handler.waits, call.parked_ns) if reply else 0)
        elif reply:
            call.connection.reply(reply, self._times.note_answer(handler.counter, handler.waits))

    # ---- refusals ----------------------------------------------------------------------------------------------

    def _refusal(self, call: Call, error: BaseException) -> Any:
        """Count an error and return the response that carries it. Any exception but a KafkaError is logged as a bug."""
        error, name = self._bug_error(call, error), call.handler.api.name
        self._metrics.error(name, error.code)
        self._broker.note_limit(name, call.client_host, call.client_id, error)
        return refusal(call.handler.api.response, call.version, call.request, error)

    def _bug_error(self, call: Call, error: BaseException) -> KafkaError:
        """Return the KafkaError to answer with: UNKNOWN_SERVER_ERROR for any other exception, which is logged as a bug,
        except that DirectoryMoved halts the broker.
        """
        if isinstance(error, KafkaError):
            return error
        if isinstance(error, DirectoryMoved):  # no bug, and not of this request alone
            self._broker.rounds.halt(error)
            return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        self._metrics.failed(error)
        log.error("%s failed", call.handler.api.name, exc_info=error)
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)

    def _refuse_unsupported(self, connection: Connection, key: int, version: int, correlation_id: int) -> None:
        """Refuse an API or version: ApiVersions with an error in version 0 (KIP-511); others close the connection."""
        if key == API_VERSIONS and key in self._handlers:
            api = self._handlers[key].api
            own = ApiVersionsResponse.ApiKey(api_key=key, min_version=api.min, max_version=api.max)
            response = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[own])
            connection.reply(encode_response(api, 0, correlation_id, response), 0)
            return
        self._metrics.closed_unsupported += 1
        connection.fail(self._why_unsupported(key, version))

    def _why_unsupported(self, key: int, version: int) -> str:
        """Return the log text that says which API or version is not served, and which versions are."""
        handler = self._handlers.get(key)
        if handler is None:
            return f"{UNSERVED.get(key, 'an API that Kafka does not know')} (API {key} v{version}) is not served"
        api, newest = handler.api, highest_served(handler.api, self._broker.settings)
        return f"{api.name} (API {key}) v{version} is not served: {api.min} to {newest} are"


def _unreadable(call: Call, error: MalformedFrame) -> str:
    """Return the error text for a request whose body cannot be decoded."""
    return f"a {call.handler.api.name} request v{call.version} that does not parse: {error}"


def _metered(call: Call, steps: Steps[Reply | Parked]) -> Steps[Reply | Parked]:
    """Return the same steps of a request, with their time counted by the call's meter if it has one."""
    return steps if call.meter is None else call.meter.pieces(steps)


def _go_on(connection: Connection) -> Steps[None]:
    """Serve the requests that a connection has sent after a queued one. It is run as a job of its own."""
    connection.go_on_now()
    yield 1


assert schema_of(ApiVersionsRequest).api == API_VERSIONS
