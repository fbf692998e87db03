"""Fetch: returns batches as they are in the log: at once if there are enough, otherwise when there are, or when the
maximum wait is over.

A request is combined with its fetch session, and then becomes a RunningFetch. One of many partitions is processed in
steps. Source: Kafka's KafkaApis.handleFetchRequest.
"""

from collections.abc import Iterable

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.fetch import FetchRequest, FetchResponse
from ..net.turns import Steps
from ..net.waiting import Parked
from ..requests.dispatch import Call, handles
from ..requests.fetch_sessions import Key, Wanted, add_wanted
from ..requests.running_fetch import FEW_PARTITIONS, READ_COMMITTED, TOPIC_IDS_SINCE, RunningFetch
from ..requests.services import Services
from ..requests.wide_fetch import WideFetch, chunks

Answer = FetchResponse | Parked | Steps[FetchResponse | Parked]
MANY_PARTITIONS = 500  # more are read in steps


@handles(FetchRequest, waits=False, reads_released=True)
def fetch(broker: Services, call: Call, request: FetchRequest) -> Answer:
    """Handle a Fetch. Returns the response, or a Parked if it waits for more records. With many partitions it returns
    steps, which return one of these.
    """
    if request.isolation_level not in (0, READ_COMMITTED):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no isolation level {request.isolation_level}")
    wanted: dict[Key, Wanted] = {}
    partitions = 0
    for topic in request.topics:
        partitions += len(topic.partitions)
    if partitions > MANY_PARTITIONS:
        return _begin_in_steps(broker, call, request)
    for topic in request.topics:
        add_wanted(wanted, topic, topic.partitions)
    return _begin(broker, call, request, wanted)


def _begin_in_steps(broker: Services, call: Call, request: FetchRequest) -> Steps[FetchResponse | Parked]:
    """Collect the request's many partitions and begin to read them, in steps. Returns the response, or a Parked that
    will get it later.
    """
    wanted: dict[Key, Wanted] = {}
    for topic in request.topics:
        for parts in chunks(topic.partitions):
            add_wanted(wanted, topic, parts)
            yield 1 + len(parts)
    begun = _begin(broker, call, request, wanted)
    return begun if isinstance(begun, FetchResponse | Parked) else (yield from begun)


def _begin(broker: Services, call: Call, request: FetchRequest, wanted: dict[Key, Wanted]) -> Answer:
    """Find the fetch session, and begin to read. Returns the response, a Parked or steps."""
    fetching = broker.fetch_sessions.begin(
        request.session_id,
        request.session_epoch,
        wanted,
        _forgotten_partitions(request, call.version),
        uses_topic_ids=call.version >= TOPIC_IDS_SINCE,
        now_ms=broker.clock.monotonic_ms(),
        owner=call.session.principal,
    )
    if fetching.error is not None:
        broker.metrics.error("Fetch", fetching.error)
        return FetchResponse(error_code=fetching.error, responses=[])
    begun = RunningFetch(broker, call, request, fetching)
    if len(begun.parts) > MANY_PARTITIONS:
        return WideFetch(begun, broker).begin()
    if len(begun.parts) > FEW_PARTITIONS:
        broker.turns.spend(len(begun.parts))
    return begun.begin()


def _forgotten_partitions(request: FetchRequest, version: int) -> Iterable[Key]:
    """Yield the partitions that the request removes from its fetch session."""
    by_id = version >= TOPIC_IDS_SINCE
    for topic in request.forgotten_topics_data:
        for index in topic.partitions:
            yield (topic.topic_id if by_id else topic.topic), index
