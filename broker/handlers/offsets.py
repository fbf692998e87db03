"""ListOffsets and OffsetForLeaderEpoch: find the offset for a timestamp, for an end of the log, or for a leader epoch.

The rules: only released records are found, and under read_committed only those below the last stable offset. "Not
found" is no error: offset and timestamp are -1 then. A search by time reads batches, so a worker thread does it.

Source: Kafka's ReplicaManager.fetchOffset, Partition.fetchOffsetForTimestamp, LeaderEpochFileCache; asked of 4.3.1.
"""

from collections import Counter
from enum import IntEnum
from functools import partial

from ...effects.threads import JobDropped
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.offsets import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from ...storage.log.reads import Gone
from ...storage.log.times import LatestLookup, TimeLookup, Timestamped
from ..net.turns import Steps, answer_each
from ..net.waiting import Parked
from ..requests.dispatch import Call, handles
from ..requests.services import Services
from ..security.acls import Operation, ResourceType
from ..topics.partition import Partition, storage_error

Asked = ListOffsetsRequest.Topic.Partition
Answer = ListOffsetsResponse.Topic.Partition
Job = TimeLookup | LatestLookup

READ_COMMITTED = 1


class Place(IntEnum):
    """The negative timestamps in ListOffsets. They stand for a place in the log instead of a time."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


KNOWN_SINCE = {
    Place.LATEST: 1,
    Place.EARLIEST: 1,
    Place.MAX_TIMESTAMP: 7,
    Place.EARLIEST_LOCAL: 8,
    Place.LATEST_TIERED: 9,
    Place.EARLIEST_PENDING_UPLOAD: 11,
}


@handles(ListOffsetsRequest, waits=False, reads_released=True, may_be_long=True)
def list_offsets(broker: Services, call: Call, request: ListOffsetsRequest) -> Steps[ListOffsetsResponse | Parked]:
    """Answer with offsets: at once if the log knows them, otherwise after worker threads have searched the records."""
    if request.isolation_level not in (0, READ_COMMITTED):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no isolation level {request.isolation_level}")
    listing = _Listing(broker, call, request)
    yield from listing.steps(request)
    return listing.parked if listing.jobs_left else listing.response


class _Listing:
    """One ListOffsets request until it is answered."""

    def __init__(self, broker: Services, call: Call, request: ListOffsetsRequest) -> None:
        self.broker = broker
        self.call = call
        self.connection = call.connection
        self.version = call.version
        self.committed = request.isolation_level == READ_COMMITTED
        self.raw = request.raw
        self.response = ListOffsetsResponse(topics=[])
        self.parked = Parked()
        self.jobs_left = 0
        self._is_whole = False  # every partition was looked at

    def steps(self, request: ListOffsetsRequest) -> Steps[None]:
        """Look up the offset of each partition in the request, in steps, and put it into the response."""
        named = Counter((topic.name, part.partition_index) for topic in request.topics for part in topic.partitions)
        for topic in request.topics:
            answers = []
            for part in topic.partitions:
                times_named = named.pop((topic.name, part.partition_index), 0)
                if times_named:  # one that is named twice is answered once, as in Kafka
                    answers.append(self._answer(topic.name, part, times_named))
                yield 1
            self.response.topics.append(ListOffsetsResponse.Topic(name=topic.name, partitions=answers))
        self._is_whole = True

    def _answer(self, name: str, asked: Asked, times_named: int) -> Answer:
        """Return the offset that was asked for in one partition, or its error."""
        answer = Answer(partition_index=asked.partition_index)
        try:
            self.broker.access.check(self.call.session, Operation.DESCRIBE, ResourceType.TOPIC, name)
            if times_named > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the partition is named twice")
            if asked.timestamp < 0 and self.version < KNOWN_SINCE.get(asked.timestamp, 1 << 15):  # type: ignore[call-overload]
                raise KafkaError(
                    ErrorCode.UNSUPPORTED_VERSION, f"ListOffsets v{self.version} has no timestamp {asked.timestamp}"
                )
            self._look_up(name, asked, answer)
        except KafkaError as error:
            self._refuse(answer, error)
        return answer

    def _look_up(self, name: str, asked: Asked, answer: Answer) -> None:
        """Set the offset in the answer, or make a worker thread search the log for it. The offset stays -1 if there is
        no record to search for, or the timestamp asks about remote storage, which this broker has not. Raises
        KafkaError.
        """
        partition = find_partition(self.broker, name, asked.partition_index)
        partition.check_leader_epoch(asked.current_leader_epoch)
        partition.check_online()
        log, timestamp = partition.log, asked.timestamp
        below = log.last_stable_offset if self._sees_committed_only(partition) else log.high_watermark
        job: Job | None = None
        if timestamp == Place.LATEST:
            answer.offset, answer.leader_epoch = below, partition.leader_epoch
        elif timestamp in (Place.EARLIEST, Place.EARLIEST_LOCAL):
            answer.offset, answer.leader_epoch = log.released_start, partition.leader_epoch
        elif timestamp == Place.MAX_TIMESTAMP:
            job = log.offset_of_latest_time(below)
        elif timestamp >= 0:
            job = log.offset_for_time(timestamp, below)
        if job is not None:
            self.jobs_left += 1
            epoch = partition.leader_epoch
            self.broker.read_executor.submit(
                job.run,
                lambda found: self._take(name, asked, answer, epoch, found),
                owner=self.connection,
                wanted=self._is_wanted,
            )

    def _sees_committed_only(self, partition: Partition) -> bool:
        """Return whether the last stable offset limits what this reader sees, rather than the high watermark."""
        if self.committed or not partition.committed_only:
            return self.committed
        name, access = partition.topic.name, self.broker.access
        return not (self.raw and access.allows(self.call.session, Operation.ALTER, ResourceType.TOPIC, name))

    def _is_wanted(self) -> bool:
        """Return whether the client still waits for the answer."""
        return not (self.parked.cancelled or self.connection.has_left())

    def _take(
        self, name: str, asked: Asked, answer: Answer, epoch: int, found: Timestamped | BaseException | None
    ) -> None:
        """Use a worker's result: an offset, None or an exception. If segments were deleted meanwhile, search again.

        After the last result the request is answered.
        """
        self.jobs_left -= 1
        try:
            if isinstance(found, JobDropped):
                pass  # nobody waits for the answer
            elif isinstance(found, Gone):
                self._look_up(name, asked, answer)
            elif isinstance(found, BaseException):
                raise storage_error(found)
            elif found is not None:
                answer.offset, answer.timestamp = found
                answer.leader_epoch = epoch
        except KafkaError as error:
            self._refuse(answer, error)
        if not self.jobs_left and self._is_whole:
            self.parked.answer(self.response)

    def _refuse(self, answer: Answer, error: KafkaError) -> None:
        """Count an error of ListOffsets, and put its code into the partition's response."""
        self.broker.metrics.error("ListOffsets", error.code)
        answer.error_code = error.code


@handles(OffsetForLeaderEpochRequest, waits=False, reads_released=True, may_be_long=True)
def offset_for_leader_epoch(
    broker: Services, call: Call, request: OffsetForLeaderEpochRequest
) -> Steps[OffsetForLeaderEpochResponse]:
    """Answer with the end offset of a leader epoch, by which clients check for log truncation (KIP-320)."""
    access, session = broker.access, call.session
    sees_all = access.allows_on_cluster(session, Operation.CLUSTER_ACTION)
    response = OffsetForLeaderEpochResponse(topics=[])
    for topic in request.topics:
        is_seen = sees_all or access.allows(session, Operation.DESCRIBE, ResourceType.TOPIC, topic.topic)
        ends = yield from answer_each(topic.partitions, partial(_end_of_epoch, broker, topic.topic, is_seen))
        response.topics.append(OffsetForLeaderEpochResponse.Topic(topic=topic.topic, partitions=ends))
    return response


def _end_of_epoch(
    broker: Services, name: str, is_seen: bool, asked: OffsetForLeaderEpochRequest.Topic.Partition
) -> OffsetForLeaderEpochResponse.Topic.Partition:
    """Return the end offset of a leader epoch in one partition, or its error."""
    answer = OffsetForLeaderEpochResponse.Topic.Partition(partition=asked.partition)
    try:
        if not is_seen:
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        partition = find_partition(broker, name, asked.partition)
        partition.check_leader_epoch(asked.current_leader_epoch)
        partition.check_online()
        answer.leader_epoch, answer.end_offset = partition.end_of_epoch(asked.leader_epoch)
    except KafkaError as error:
        broker.metrics.error("OffsetForLeaderEpoch", error.code)
        answer.error_code = error.code
    return answer


def find_partition(broker: Services, name: str, index: int) -> Partition:
    """Return the partition. Raises UNKNOWN_TOPIC_OR_PARTITION."""
    topic = broker.topics.by_name.get(name)
    if topic is None or not 0 <= index < len(topic.partitions):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return topic.partitions[index]
