"""OpenNamedProducer, DescribeNamedProducers, RemoveNamedProducers: producers that number their records under a name.

The rules are in docs/apis.md. With an authorizer a name is a resource like a transactional id: whoever may write to it
may take the name over from another client. Removing one needs Alter on the cluster, because records that were written
under the name could then be written a second time.
"""

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.named_producers import (
    ANEW,
    DescribeNamedProducersRequest,
    DescribeNamedProducersResponse,
    OpenNamedProducerRequest,
    OpenNamedProducerResponse,
    RemoveNamedProducersRequest,
    RemoveNamedProducersResponse,
)
from ..net.turns import AnswerRoom, Steps, answer_each
from ..producers.names import NOTHING
from ..requests.allowed_names import allowed_names
from ..requests.dispatch import Call, handles
from ..requests.services import Services
from ..security.acls import Operation, ResourceType

REMOVAL_UNITS = 100  # a name is one unit, of all that it has written to
PRODUCER_BYTES, PARTITION_BYTES = 20, 16  # of an answer, without names
LATER = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # clients ask again for names that have this error

_Opened = OpenNamedProducerResponse.Topic
_Described = DescribeNamedProducersResponse.Producer
_Removed = RemoveNamedProducersResponse.Producer


@handles(OpenNamedProducerRequest, may_be_long=True)
def open_named_producer(
    broker: Services, call: Call, request: OpenNamedProducerRequest
) -> Steps[OpenNamedProducerResponse]:
    """Give the name to this client, which fences the producer that had it. With an epoch, open more topics under the
    name instead.

    Returns the epoch and, for each topic, the highest sequences in its partitions, or its error.
    """
    broker.access.check(call.session, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.name)
    producers, epoch = broker.named_producers, request.epoch
    if epoch == ANEW:
        epoch = producers.open(request.name, f"client {call.client_id!r} at {call.client_host}")
    else:
        producers.check_known()
        producers.names.check_epoch(request.name, epoch)
    counts = {topic.name: topic.partition_count for topic in request.topics}
    topics = yield from answer_each(
        counts, lambda topic: _open_topic(broker, call, request.name, epoch, topic, counts[topic])
    )
    return OpenNamedProducerResponse(epoch=epoch, topics=topics)


def _open_topic(broker: Services, call: Call, name: str, epoch: int, topic_name: str, count: int) -> _Opened:
    """Open one topic for the named producer. Returns the highest sequence in each of its partitions, or its error."""
    try:
        broker.access.check(call.session, Operation.WRITE, ResourceType.TOPIC, topic_name)
        topic = broker.topics.by_name.get(topic_name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if topic.internal:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "the topic is internal: only the broker writes to it")
        broker.named_producers.open_topic(name, epoch, topic, count)
    except KafkaError as error:
        broker.metrics.error("OpenNamedProducer", error.code)
        return _Opened(name=topic_name, error_code=error.code, error_message=error.text)
    highest = broker.named_producers.names.highest
    found = [(index, highest(name, (topic.id, index))) for index in range(len(topic.partitions))]
    partitions = [_Opened.Partition(index=index, highest=last) for index, last in found if last != NOTHING]
    return _Opened(name=topic_name, topic_id=topic.id, partitions=partitions)


@handles(DescribeNamedProducersRequest, may_be_long=True)
def describe_named_producers(
    broker: Services, call: Call, request: DescribeNamedProducersRequest
) -> Steps[DescribeNamedProducersResponse]:
    """Answer with named producers, and the topics they write to, as far as the client may describe them. Names for
    which the answer has no room get a retriable error.
    """
    broker.named_producers.check_known()
    names = request.names
    if names is None:
        known, described = broker.named_producers.names.by_name, (Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)
        names = sorted((yield from allowed_names(broker, call, *described, known)))
    found, room = [], AnswerRoom(len(broker.server.connections))
    for name in dict.fromkeys(names):
        found.append((yield from _describe(broker, call, name, room)))
        yield 1
    if request.names is None:
        found = [each for each in found if each.error_code in (ErrorCode.NONE, LATER)]  # others: removed meanwhile
    return DescribeNamedProducersResponse(producers=found)


def _describe(broker: Services, call: Call, name: str, room: AnswerRoom) -> Steps[_Described]:
    """Return one named producer, with its topics and the highest sequence in each partition; or its error. room: how
    many bytes the answer may still have.
    """
    if not broker.access.allows(call.session, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name):
        return _Described(name=name, error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    found = broker.named_producers.names.by_name.get(name)
    if found is None:
        return _Described(name=name, error_code=ErrorCode.RESOURCE_NOT_FOUND)
    if room.is_full:
        broker.metrics.error("DescribeNamedProducers", LATER)
        return _Described(name=name, error_code=LATER)
    room.take(PRODUCER_BYTES + 3 * (len(name) + len(found.owner)))
    topics = {}
    for topic_id in list(found.counts):
        topic = broker.topics.by_id.get(topic_id)
        if topic is not None and broker.access.allows(call.session, Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
            topics[topic_id] = topic.name
        yield 1
    partitions = []
    for (topic_id, index), highest in sorted(found.highest.items()):
        if topic_id in topics:
            partitions.append(_Described.Partition(topic=topics[topic_id], index=index, highest=highest))
            room.take(PARTITION_BYTES + len(topics[topic_id]))
        yield 1
    return _Described(name=name, epoch=found.epoch, owner=found.owner, partitions=partitions)


@handles(RemoveNamedProducersRequest, may_be_long=True)
def remove_named_producers(
    broker: Services, call: Call, request: RemoveNamedProducersRequest
) -> Steps[RemoveNamedProducersResponse]:
    """Remove named producers. Each has its own result."""
    broker.access.check_on_cluster(call.session, Operation.ALTER)
    found = yield from answer_each(request.names, lambda name: _remove(broker, name), REMOVAL_UNITS)
    return RemoveNamedProducersResponse(producers=found)


def _remove(broker: Services, name: str) -> _Removed:
    """Remove one named producer. Returns its result, with the error if it was refused."""
    try:
        broker.named_producers.remove(name)
    except KafkaError as error:
        broker.metrics.error("RemoveNamedProducers", error.code)
        return _Removed(name=name, error_code=error.code, error_message=error.text)
    return _Removed(name=name)
