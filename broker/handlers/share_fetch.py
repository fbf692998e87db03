"""ShareFetch and ShareAcknowledge: deliver records of a share group to a member, and take its acknowledgements.

The rules: the acknowledgements of a request are written as one unit; in each partition they succeed or fail as a whole.
The session's epoch is increased in the same step, even if deciding took several steps before (share/portions.py). A
request that renews locks fetches nothing, so that its answer is not delayed. At the end of a session, its last
acknowledgements are applied first, then the records that its member still has are released.

Source: KIP-932, KIP-1222, Kafka's KafkaApis.handleShareFetchRequest and validateAcknowledgementBatches.
"""

import logging
from collections.abc import Iterable, Sequence

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.share_fetch import (
    AcknowledgementBatch,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from ..net.turns import Steps
from ..net.waiting import Parked, Waiter
from ..requests.dispatch import Call, handles
from ..requests.services import Services
from ..requests.share.answers import share_response
from ..requests.share.fetching import EXACT, WHOLE_BATCHES, ShareFetching
from ..requests.share.session_ends import end_session
from ..requests.share.sessions import FINAL_EPOCH, INITIAL_EPOCH
from ..security.acls import Operation, ResourceType
from ..share.acknowledging import Acknowledging
from ..share.values import AckRange, AckType, SharePartitionKey
from ..topics.names import TopicIdPartition

log = logging.getLogger("fencepost.broker")

LONGEST_MEMBER_ID = 36
RENEW_SINCE = 2

Asked = dict[TopicIdPartition, list[AckRange] | KafkaError]
"""Acknowledgements by partition; an error for those that are wrong in themselves."""
Answers = dict[TopicIdPartition, KafkaError | None]


@handles(ShareFetchRequest, reads_released=True, may_be_long=True)
def share_fetch(broker: Services, call: Call, request: ShareFetchRequest) -> Steps[ShareFetchResponse | Parked]:
    """Apply the request's acknowledgements, then acquire records, unless the request ends the session or renews locks.
    Returns the response, or a Parked while there are no records.
    """
    group, member = _check_who(broker, call, request.group_id, request.member_id)
    _check_fetch(request)
    places = [(topic.topic_id, part.partition_index) for topic in request.topics for part in topic.partitions]
    forgotten = [(topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions]
    yield 1 + len(places) + len(forgotten)
    asked = yield from _read_acks(broker, call, request.topics, request.is_renew_ack)
    acknowledging = yield from _decide_ahead(broker, group, member, asked)
    sessions, epoch = broker.share_sessions, request.share_session_epoch
    if epoch == INITIAL_EPOCH:
        yield from broker.share_partitions.finish_release(group, member)
    try:
        if epoch == FINAL_EPOCH:
            session = sessions.find(group, member)
        elif epoch == INITIAL_EPOCH:
            if asked:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "a session that begins has nothing to acknowledge")
            most = broker.settings.group_share_max_share_sessions
            session = sessions.open(group, member, places, call.connection, most)
        else:
            session = sessions.go_on(group, member, epoch, places, forgotten)
    except KafkaError as error:
        if error.code is not ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            raise
        _log_limit(broker, error)
        return _refuse_later(broker, error, request.max_wait_ms)
    acknowledged = _acknowledge(broker, call, group, asked, acknowledging)
    if epoch == FINAL_EPOCH:
        yield from end_session(broker, session)
    if epoch == FINAL_EPOCH or request.is_renew_ack:
        return share_response(broker, group, {}, acknowledged)
    yield len(acknowledged)
    return (yield from ShareFetching(broker, call, request, session, acknowledged).begin())


@handles(ShareAcknowledgeRequest, may_be_long=True)
def share_acknowledge(
    broker: Services, call: Call, request: ShareAcknowledgeRequest
) -> Steps[ShareAcknowledgeResponse]:
    """Apply acknowledgements. If the request ends the session, release the records that the member still has
    acquired.
    """
    group, member = _check_who(broker, call, request.group_id, request.member_id)
    asked = yield from _read_acks(broker, call, request.topics, request.is_renew_ack)
    acknowledging = yield from _decide_ahead(broker, group, member, asked)
    sessions, epoch = broker.share_sessions, request.share_session_epoch
    if epoch == INITIAL_EPOCH:
        raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH, "a session begins with a ShareFetch")
    if epoch == FINAL_EPOCH:
        session = sessions.find(group, member)
    else:
        session = sessions.go_on(group, member, epoch)
    answers = _acknowledge(broker, call, group, asked, acknowledging)
    if epoch == FINAL_EPOCH:
        yield from end_session(broker, session)
    Topic = ShareAcknowledgeResponse.Topic
    topics: dict[bytes, list[ShareAcknowledgeResponse.Topic.Partition]] = {}
    for (topic_id, index), error in answers.items():
        answer = Topic.Partition(partition_index=index)
        if error is not None:
            answer.error_code, answer.error_message = int(error.code), error.text
        topics.setdefault(topic_id, []).append(answer)
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=broker.share_partitions.lock_timeout_ms(group),
        responses=[Topic(topic_id=topic_id, partitions=parts) for topic_id, parts in topics.items()],
    )


def _check_who(broker: Services, call: Call, group: str | None, member: str | None) -> tuple[str, str]:
    """Return (group id, member id) if they are valid and the client has the right READ on the group. Raises
    INVALID_REQUEST, GROUP_AUTHORIZATION_FAILED.
    """
    if group is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid group id in the request.")
    broker.access.check(call.session, Operation.READ, ResourceType.GROUP, group)
    if not member or len(member) > LONGEST_MEMBER_ID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid member id in the request.")
    return group, member


def _check_fetch(request: ShareFetchRequest) -> None:
    """Raise INVALID_REQUEST for an unknown acquire mode, or a renewal of locks that also asks for records."""
    if request.share_acquire_mode not in (WHOLE_BATCHES, EXACT):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no acquire mode {request.share_acquire_mode}")
    if request.is_renew_ack and (request.max_bytes or request.min_bytes or request.max_records or request.max_wait_ms):
        text = "max_bytes, min_bytes, max_records and max_wait_ms must be 0 where is_renew_ack is true"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)


def _log_limit(broker: Services, error: KafkaError) -> None:
    """Log, once until there is room again, that a session was refused, and which group has the most sessions."""
    sessions = broker.share_sessions
    if not sessions.is_limit_known:
        sessions.is_limit_known = True
        group, count = sessions.largest_group()
        text = "members of share groups that begin now get no records: %s; the group with the most, %d, is %r"
        log.warning(text, error.text, count, group)


def _refuse_later(broker: Services, error: KafkaError, wait_ms: int) -> Parked:
    """Return a Parked that is answered with the error after wait_ms, because clients repeat a refused request at once
    (KAFKA-19231).
    """
    parked = Parked()

    def answer(at_deadline: bool) -> bool:
        """Answer with the error. Returns True, because the wait is over."""
        parked.answer(error)
        return True

    waiter = Waiter([], broker.clock.monotonic_ms() + max(0, wait_ms), answer)
    parked.on_cancel = lambda: broker.waiting.leave(waiter)
    broker.waiting.park(waiter)
    return parked


# ---- acknowledgements ----------------------------------------------------------------------------------------


def _read_acks(
    broker: Services,
    call: Call,
    topics: Iterable[ShareFetchRequest.Topic | ShareAcknowledgeRequest.Topic],
    is_renew: bool,
) -> Steps[Asked]:
    """Return the acknowledgements of each partition that has some, or the error in them. is_renew: whether the type
    RENEW is allowed.
    """
    asked: Asked = {}
    most = AckType.RENEW if call.version >= RENEW_SINCE else AckType.REJECT
    for topic in topics:
        is_known = topic.topic_id in broker.topics.by_id
        for part in topic.partitions:
            if not part.acknowledgement_batches:
                continue
            ranges = yield from _ranges_of(part.acknowledgement_batches, most, is_renew)
            place = topic.topic_id, part.partition_index
            asked[place] = ranges if is_known else KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    return asked


def _ranges_of(
    batches: Sequence[AcknowledgementBatch], most: AckType, is_renew: bool
) -> Steps[list[AckRange] | KafkaError]:
    """Convert a partition's acknowledgements. Returns INVALID_REQUEST for an unknown type, or for RENEW without
    is_renew.

    most: the highest type that this version of the request knows. Everything else is checked by the share partition.
    """
    ranges = []
    for batch in batches:
        types = batch.acknowledge_types
        if types and not 0 <= min(types) <= max(types) <= most:
            return KafkaError(ErrorCode.INVALID_REQUEST, f"there are no types of acknowledgements but 0 to {int(most)}")
        if not is_renew and AckType.RENEW in types:
            return KafkaError(ErrorCode.INVALID_REQUEST, "locks are renewed by requests that say so (is_renew_ack)")
        ranges.append(AckRange(batch.first_offset, batch.last_offset, types))
        yield 1 + len(types) // 100
    return ranges


def _decide_ahead(broker: Services, group: str, member: str, asked: Asked) -> Steps[Acknowledging]:
    """Decide long acknowledgements in steps, before the session's epoch is checked. Nothing is changed yet."""
    acks = {place: ranges for place, ranges in asked.items() if ranges and not isinstance(ranges, KafkaError)}
    acknowledging = broker.share_partitions.begin_acknowledging(group, member, acks)
    yield from acknowledging.decide_ahead()
    return acknowledging


def _acknowledge(broker: Services, call: Call, group: str, asked: Asked, acknowledging: Acknowledging) -> Answers:
    """Apply all acknowledgements in one unit.

    Returns each partition's error (None for success), in the order of the request.
    """
    answers: Answers = dict.fromkeys(asked)
    for place, ranges in asked.items():
        try:
            if isinstance(ranges, KafkaError):
                raise ranges
            _check_place(broker, call, group, place)
        except KafkaError as error:
            answers[place] = error
            acknowledging.refuse(place, error)
    answers |= broker.share_partitions.finish(acknowledging)
    for wrong in answers.values():
        if wrong is not None:
            broker.metrics.error("ShareAcknowledge", wrong.code)
    return answers


def _check_place(broker: Services, call: Call, group: str, place: TopicIdPartition) -> None:
    """Raise KafkaError if the partition is unknown, the client may not read it, or it is not a share partition of the
    group.
    """
    topic_id, index = place
    topic = broker.topics.by_id.get(topic_id)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    broker.access.check(call.session, Operation.READ, ResourceType.TOPIC, topic.name)
    if not broker.share_partitions.knows(SharePartitionKey(group, topic_id, index)):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
