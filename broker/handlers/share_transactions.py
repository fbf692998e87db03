"""TxnShareAcknowledge: records of share groups, acknowledged inside a producer's transaction.

The rules: the whole request succeeds or fails. The member must have acquired each record, which is then pending: nobody
else gets it before the transaction ends. Then it is acknowledged after a commit, or delivered again after an abort. A
repeated request never succeeds, not even in the same transaction, so a client without an answer can only abort.
Everything is checked before anything is logged; the acknowledgements and the transaction's state are written as one
unit. A request of many ranges is decided in steps that change nothing. What others change meanwhile is decided again,
in the same step that logs and applies it (share/portions.py). See docs/apis.md; it follows KIP-1289's draft.
"""

from collections.abc import Mapping

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.share_transactions import TxnShareAcknowledgeRequest, TxnShareAcknowledgeResponse
from ..net.turns import Steps
from ..requests.dispatch import Call, handles
from ..requests.services import Services
from ..security.acls import Operation, ResourceType
from ..share.acknowledging import Acknowledging
from ..share.values import AckRange, SharePartitionKey
from ..topics.names import SHARE_STATE_TOPIC, TopicIdPartition

MAX_RANGES = 10_000
PART_OF_UNIT = 1 / 2  # of the largest unit, for what the end of a transaction archives; the rest is for its markers
_Topic = TxnShareAcknowledgeResponse.Topic
Acks = dict[TopicIdPartition, list[AckRange]]
Wrong = Mapping[TopicIdPartition, KafkaError]


@handles(TxnShareAcknowledgeRequest, may_be_long=True)
def txn_share_acknowledge(
    broker: Services, call: Call, request: TxnShareAcknowledgeRequest
) -> Steps[TxnShareAcknowledgeResponse]:
    """Make these acknowledgements pending in the transaction, all of them or none. The transaction's commit applies
    them, its abort drops them.
    """
    broker.access.check(call.session, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
    broker.access.check(call.session, Operation.READ, ResourceType.GROUP, request.group_id)
    acks = yield from _read(request)
    wrong = _refused(broker, call, request.group_id, acks)
    if acks and not wrong:
        acknowledging = broker.share_partitions.begin_acknowledging_in_transaction(
            request.group_id, request.member_id, request.producer_id, acks
        )
        yield from acknowledging.decide_ahead()
        wrong = _refused(broker, call, request.group_id, acks) or _acknowledge(broker, request, acks, acknowledging)
    return TxnShareAcknowledgeResponse(topics=_answers(broker, request, wrong))


def _read(request: TxnShareAcknowledgeRequest) -> Steps[Acks]:
    """Return the request's acknowledgements by partition. Raises INVALID_REQUEST."""
    acks: Acks = {}
    ranges = 0
    for topic in request.topics:
        for part in topic.partitions:
            place = topic.topic_id, part.partition_index
            if place in acks:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "a partition is named twice")
            acks[place] = read = []
            for each in part.acknowledgement_batches:
                read.append(AckRange(each.first_offset, each.last_offset, each.acknowledge_types))
                ranges += len(each.acknowledge_types)
                if ranges > MAX_RANGES:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, f"{MAX_RANGES} ranges are allowed in one request")
                yield 1
            yield 1
    return acks


def _refused(broker: Services, call: Call, group_id: str, acks: Acks) -> Wrong:
    """Return the partitions that do not exist or that the client may not read, each with its error."""
    wrong: dict[TopicIdPartition, KafkaError] = {}
    for topic_id, index in acks:
        topic = broker.topics.by_id.get(topic_id)
        if topic is None:
            wrong[topic_id, index] = KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        elif not broker.access.allows(call.session, Operation.READ, ResourceType.TOPIC, topic.name):
            wrong[topic_id, index] = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        elif not broker.share_partitions.knows(SharePartitionKey(group_id, topic_id, index)):
            broker.share_partitions.check_online(SharePartitionKey(group_id, topic_id, index))
            wrong[topic_id, index] = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return wrong


def _acknowledge(
    broker: Services, request: TxnShareAcknowledgeRequest, acks: Acks, acknowledging: Acknowledging
) -> Wrong:
    """Write the acknowledgements and make them pending, in one unit. Returns the errors of partitions; if there are
    any, nothing is written.

    Raises KafkaError.
    """
    state_log = broker.share_partitions.state_log
    homes = {state_log.home(SharePartitionKey(request.group_id, *place)) for place in acks}
    joining = broker.admission.admit_acknowledgements(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        {(SHARE_STATE_TOPIC, home): state_log.topic.log(home).log_id for home in homes},
    )
    changes, wrong = acknowledging.finish_in_transaction()
    if wrong or not changes:
        return wrong
    _check_end(broker, request.producer_id, {key: pending.states.number for key, pending in changes})
    unit = state_log.pending_unit(changes, request.producer_id, request.producer_epoch)
    began = [] if joining is None else [broker.store.append_part(joining.log.log_id, joining.batch)]
    state_log.topic.commit([*began, *unit.parts])
    if joining is not None:
        broker.admission.joined(joining)
    unit.apply()
    acknowledging.count(broker.metrics)
    return {}


def _check_end(broker: Services, producer_id: int, ranges: Mapping[SharePartitionKey, int]) -> None:
    """Raise POLICY_VIOLATION if one unit (journal entry) could not log the transaction's end once these ranges are
    pending, too.

    ranges: by share partition, how many ranges of offsets this request acknowledges.
    """
    state_log = broker.share_partitions.state_log
    pending = state_log.pending
    more = sum(pending.more_bytes((state_log.home(key), producer_id), key, count) for key, count in ranges.items())
    check_logged_at_end(broker, "the transaction", pending.bytes_of(producer_id), more)


def check_logged_at_end(broker: Services, ended: str, size: int, more: int) -> None:
    """Raise POLICY_VIOLATION if one unit (journal entry) could not log the end of these transactions.

    An abort archives, in the unit that ends the transactions, all pending records that were delivered for the last
    time. A unit above the journal's limit could never be written. ended: names the transactions, for the error text.
    size, more: how many bytes that takes for the records already pending, and for those of this request.
    """
    most = int(PART_OF_UNIT * broker.store.largest_append_bytes)
    if size + more > most:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"the end of {ended} may log {size} bytes for what is pending, and {more} more with this request; {most} "
            "can be logged at once: end what is there first, or raise journal.max.bytes",
        )


def _answers(broker: Services, request: TxnShareAcknowledgeRequest, wrong: Wrong) -> list[_Topic]:
    """Return the topics of the response. wrong: errors by partition; if there are any, all other partitions get
    OPERATION_NOT_ATTEMPTED.
    """
    answers = []
    for topic in request.topics:
        answer = _Topic(topic_id=topic.topic_id, partitions=[])
        for part in topic.partitions:
            made = _Topic.Partition(partition_index=part.partition_index)
            if wrong:
                error = wrong.get((topic.topic_id, part.partition_index))
                code = ErrorCode.OPERATION_NOT_ATTEMPTED if error is None else error.code
                broker.metrics.error("TxnShareAcknowledge", code)
                made.error_code, made.error_message = code, code.text if error is None else error.text
            answer.partitions.append(made)
        answers.append(answer)
    return answers
