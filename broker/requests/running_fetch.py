"""One running Fetch: reads its partitions, waits for more records if there are too few, and makes the answer.

The rules: only released records are seen, under read_committed only those below the last stable offset; limits are
soft, so that the first batch always comes, however large; partitions are read in the order asked. A partition that does
not exist does not end the wait, an error of reading does. What must come from the disk is read in a worker. Of what one
connection has sent, little is read or waited for ahead of its answers (Parked.expect). Source: Kafka's
ReplicaManager.readFromLog, DelayedFetch.
"""

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, cast

from ...effects.threads import JobDropped
from ...protocol.encoding import Rows
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.fetch import FetchRequest, FetchResponse
from ...protocol.primitives import ZERO_UUID
from ...storage.log.file_parts import read_as_file_part, release
from ...storage.log.reads import AbortedLookup, ColdRead, Gone
from ...storage.log.segment import Slice
from ...storage.producers.aborted import AbortedTransaction
from ..net.waiting import Parked, Waiter
from ..security.acls import Operation, ResourceType
from ..topics.partition import Partition, storage_error
from .aborted_filter import Committed
from .committed_reads import READ_ON_BYTES, CommittedRead
from .dispatch import Call
from .fetch_sessions import Fetching, Key, Wanted, has_no_news
from .partition_read import Answer, Found, PartitionRead
from .services import Services

if TYPE_CHECKING:
    from ...storage.log.partition_log import PartitionLog
    from ..topics.topics import Topic

EpochEndOffset = Answer.EpochEndOffset
_named = itemgetter(0, 1)  # of an AbortedTransaction: producer id and first offset, as the answer has them

TOPIC_IDS_SINCE = 13
STORAGE_ERROR_SINCE = 6  # before, clients know NOT_LEADER_OR_FOLLOWER only, and retry it
READ_COMMITTED = 1
FEW_PARTITIONS = 50  # of the fetches with more partitions, a connection has one waiting at a time
WAITING_FETCH_BYTES = 64 << 10  # a waiting fetch counts as this many bytes, which limits how many wait on a connection
ANSWER_BYTES, PARTITION_BYTES = 30, 60  # of what goes around records, with a short name of a topic
READ_AT_ONCE_BYTES = 8 << 20  # an answer is no larger unless that is the least asked for: reading it holds up the loop


def _may_read(broker: Services, call: Call, replica_id: int, topic: str | None) -> bool:
    """Return whether a client may read this topic (True if topic is None), or a broker may read all topics."""
    if replica_id >= 0:
        return broker.access.allows_on_cluster(call.session, Operation.CLUSTER_ACTION)
    return topic is None or broker.access.allows(call.session, Operation.READ, ResourceType.TOPIC, topic)


def _is_missing(read: PartitionRead) -> bool:
    return read.missing


class RunningFetch:
    """One Fetch until it is answered."""

    def __init__(self, broker: Services, call: Call, request: FetchRequest, fetching: Fetching) -> None:
        state = request.replica_state
        self.replica_id = request.replica_id if state is None else state.replica_id
        self.broker = broker
        self.connection = call.connection
        self.version = call.version
        self.by_name = broker.topics.by_name
        self.by_id = broker.topics.by_id if call.version >= TOPIC_IDS_SINCE else None
        self.may_read = partial(_may_read, broker, call, self.replica_id) if broker.access.is_enforced else None
        self.fetching = fetching
        self.committed = request.isolation_level == READ_COMMITTED
        self.session = call.session
        self.raw = request.raw
        self.max_wait_ms = request.max_wait_ms
        self.meter = call.meter
        most = min(request.max_bytes, broker.settings.fetch_max_bytes)
        if self.meter is not None:
            most = min(most, broker.throttling.most_fetched_bytes(self.meter))
        self.min_bytes = min(request.min_bytes, max(0, most))
        self.max_bytes = max(0, min(most, max(READ_AT_ONCE_BYTES, self.min_bytes)))
        self.parts = fetching.partitions()
        self.reads: list[PartitionRead] = []
        self.quiet: list[tuple[Partition, int]] = []  # partitions of which a session has nothing to tell
        self.missing: set[Key] = set()  # partitions that did not exist when they were first looked for
        self.left_bytes = self.max_bytes
        self.at_least_one = True  # the first batch is read, however large
        self.failed = self.existing = self.any_missing = False  # of the partitions that were read
        self.parked: Parked | None = None
        self.waiter: Waiter | None = None
        self.when_read: Callable[[], None] | None = None  # instead of answering, once all is read from the disk
        self.jobs_left = 0
        self.ends_count = self.committed  # the end of a transaction may show more, though nothing was appended
        self.behind = False  # a read ended with a segment, and more can be read: do not wait

    def begin(self) -> FetchResponse | Parked:
        """Read the partitions. Returns the response, or a Parked that will get it later."""
        enough = self._read()
        if not enough and self.max_wait_ms > 0:
            return self._wait()
        if self.jobs_left:
            self.parked = Parked()
            self.read_cold()
            return self.parked
        return self.response()

    # ---- waiting ---------------------------------------------------------------------------------------------

    def _wait(self) -> Parked:
        """Wait until a partition changes or max_wait_ms is over. Returns the Parked that will get the answer."""
        self.release()
        broker = self.broker
        logs: list[Hashable] = [read.partition.log for read in self.reads if read.partition is not None]
        logs += [partition.log for partition, _ in self.quiet]
        waiter = Waiter(logs, broker.clock.monotonic_ms() + self.max_wait_ms, self._look)
        self.parked = Parked()
        self.parked.expect(WAITING_FETCH_BYTES)
        self.parked.on_cancel = self._leave
        self.waiter = waiter
        if len(self.parts) > FEW_PARTITIONS:
            broker.waiting_places.take(self.connection, self)
        broker.metrics.fetch_waits += 1
        broker.waiting.park(waiter)
        return self.parked

    def _leave(self) -> None:
        """Remove the parked fetch from the broker's lists of waiting requests, without answering it."""
        assert self.waiter is not None
        self.broker.waiting.leave(self.waiter)
        self.broker.waiting_places.leave(self.connection, self)

    def end_wait(self) -> None:
        """Answer with what can be read now, before max_wait_ms is over."""
        self._leave()
        self._look(True)

    def _look(self, at_deadline: bool) -> bool:
        """Read again; answer if there is enough, or max_wait_ms is over (at_deadline). Returns whether it answers."""
        assert self.parked is not None
        if self.meter is not None:
            self.meter.begin()
        try:
            done = self._answer_if_enough(at_deadline)
        except Exception as error:  # a bug: only this fetch fails, and the others that are woken with it go on
            self.parked.answer(error)
            done = True
        if self.meter is not None:
            self.meter.pause()
        if done:
            self.broker.waiting_places.leave(self.connection, self)
        return done

    def _answer_if_enough(self, at_deadline: bool) -> bool:
        """Read again. If there is enough, or at_deadline, answer (after reads from disk, if needed) and return True."""
        if not at_deadline and not self._may_be_enough():
            return False
        if not self._read() and not at_deadline:
            self.release()
            return False
        if self.jobs_left:
            self.read_cold()
        else:
            self._answer()
        return True

    def _may_be_enough(self) -> bool:
        """Return whether reading again may reach min_bytes, judged by the bytes appended meanwhile; no more than these
        have become readable. Always true under read_committed, where the end of a transaction makes records readable
        that were appended before, and if a partition is missing or offline.
        """
        if self.ends_count or self.min_bytes <= 1:
            return True
        possible = sum(read.size_bytes for read in self.reads)
        for read in self.reads:
            if read.partition is None or read.partition.log.offline is not None:
                return True
            possible += read.partition.appended_bytes - read.seen_bytes
        for partition, seen_bytes in self.quiet:
            possible += partition.appended_bytes - seen_bytes
        return possible >= self.min_bytes

    # ---- reading ---------------------------------------------------------------------------------------------

    def _read(self) -> bool:
        """Drop what was read, and read all partitions. Returns whether to answer without waiting for more."""
        self.begin_reading()
        self.read_some(self.parts)
        return self.is_enough()

    def begin_reading(self) -> None:
        """Drop what was read before, and reset the limits for reading all partitions again."""
        self.reads, self.quiet, self.jobs_left, self.behind = [], [], 0, False
        self.left_bytes, self.at_least_one = self.max_bytes, True
        self.failed = self.existing = self.any_missing = False

    def read_some(self, parts: Sequence[tuple[Key, Wanted]]) -> None:
        """Read these partitions, within what is left of max_bytes. An error becomes the partition's answer."""
        left_bytes, at_least_one, failed = self.left_bytes, self.at_least_one, self.failed
        may_be_quiet, may_read = self.fetching.is_incremental, self.may_read
        for key, wanted in parts:
            topic = self.by_id.get(wanted.topic_id) if self.by_id is not None else self.by_name.get(wanted.topic or "")
            partition, allowed = None, True
            if may_read is not None:
                allowed = may_read(self._name_of(wanted, topic))
            if allowed and topic is not None and 0 <= wanted.index < len(topic.partitions):
                partition = topic.partitions[wanted.index]
                if partition.committed_only:
                    self.ends_count = True
                if may_be_quiet and has_no_news(wanted, partition):
                    self.quiet.append((partition, partition.appended_bytes))
                    continue  # the answer to an incremental fetch leaves out partitions with nothing new
            read = PartitionRead(key, wanted, partition)
            self.reads.append(read)
            read.max_bytes, read.at_least_one = min(left_bytes, wanted.max_bytes), at_least_one
            try:
                if partition is None:
                    raise self._missing(read, topic is None, allowed)
                self._read_one(read, partition)
            except KafkaError as error:
                self._refuse(read, error)
                failed = failed or not read.missing
            if read.missing:
                self.any_missing = True
            else:
                self.existing = True
            if read.size_bytes or read.cold is not None:
                at_least_one = False
                left_bytes = max(0, left_bytes - read.size_bytes)
            failed = failed or read.answer.diverging_epoch is not None
        self.left_bytes, self.at_least_one, self.failed = left_bytes, at_least_one, failed

    def is_enough(self) -> bool:
        """Return whether not to wait: there are min_bytes, an error, no partition, a disk read or a later segment."""
        if self.any_missing:
            self.missing = {read.key for read in self.reads if read.missing}
            self.reads.sort(key=_is_missing)  # as in Kafka, partitions that do not exist come last
        nothing_there = not self.existing and not self.quiet
        enough = self.max_bytes - self.left_bytes >= self.min_bytes
        return enough or self.failed or nothing_there or self.behind or self.jobs_left > 0

    def _name_of(self, wanted: Wanted, topic: "Topic | None") -> str | None:
        """Return the topic's name; None for an unknown topic id."""
        return topic.name if topic is not None else wanted.topic if self.by_id is None else None

    def _missing(self, read: PartitionRead, topic_too: bool, allowed: bool) -> KafkaError:
        """Return the error of a missing or forbidden partition. topic_too: whether its topic does not exist either."""
        read.missing = self.parked is None or read.key in self.missing  # else it ends the wait, as an error does
        if not allowed:
            return KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        by_id = topic_too and self.by_id is not None
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _read_one(self, read: PartitionRead, partition: Partition) -> None:
        """Read a partition from memory, or note a job that will read it from disk. Raises KafkaError."""
        wanted, answer, log = read.wanted, read.answer, partition.log
        max_bytes, at_least_one = read.max_bytes, read.at_least_one
        if self.replica_id >= 0:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "there are no other replicas")
        if wanted.leader_epoch >= 0:  # in Fetch, any epoch below 0 means none
            partition.check_leader_epoch(wanted.leader_epoch)
        if log.offline is not None:
            partition.check_online()
        high_watermark, stable = log.high_watermark, log.last_stable_offset
        if partition.committed_only and not self._may_read_raw(partition):
            high_watermark, read.leaves_out_aborted = stable, not self.committed
        read.seen_bytes = partition.appended_bytes
        offset = read.offset
        if wanted.last_fetched_epoch >= 0 and self._diverges(read, partition):
            pass
        elif not log.released_start <= offset <= log.end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        else:
            below = stable if self.committed else high_watermark
            if offset < below and (max_bytes > 0 or at_least_one):
                if offset != wanted.fetch_offset:
                    max_bytes = max(max_bytes, READ_ON_BYTES)
                left = read_as_file_part(log, offset, max_bytes, below)
                found = left or log.read(offset, max_bytes, below, at_least_one=at_least_one)
                if isinstance(found, ColdRead):
                    self._needs(read, self._cold_job(read, found))
                    read.size_bytes = max_bytes  # the most that it may return: the partitions after it get what is left
                else:
                    self._take_found(read, log, found)
                    self.behind = self.behind or (offset < log.flushed_offset and found.next_offset < below)
        answer.high_watermark = high_watermark
        answer.last_stable_offset = stable
        answer.log_start_offset = log.released_start
        if self.committed and answer.aborted_transactions is None:
            answer.aborted_transactions = []

    def _may_read_raw(self, partition: Partition) -> bool:
        """Return whether this reader asked for all records, and may alter the topic whose settings hide some."""
        access = self.broker.access
        return self.raw and access.allows(self.session, Operation.ALTER, ResourceType.TOPIC, partition.topic.name)

    @staticmethod
    def _diverges(read: PartitionRead, partition: Partition) -> bool:
        """Return whether the reader's log diverges (KIP-595); if so, answer where. Raises OFFSET_OUT_OF_RANGE."""
        epoch, end_offset = partition.end_of_epoch(read.wanted.last_fetched_epoch)
        if end_offset < 0 or read.wanted.fetch_offset < partition.log.released_start:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if epoch >= read.wanted.last_fetched_epoch and end_offset >= read.wanted.fetch_offset:
            return False
        read.answer.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
        return True

    def _take_found(self, read: PartitionRead, log: "PartitionLog", found: Slice) -> None:
        """Use what was read from memory. List its aborted transactions, or note a job that removes their batches."""
        self._take_slice(read, found)
        if not (self.committed or read.leaves_out_aborted):
            return
        aborted = log.aborted_between(read.offset, found.next_offset)
        if not self.committed:
            if aborted:
                self._needs(read, self._committed_job(read, found, aborted))
        elif isinstance(aborted, AbortedLookup):
            self._needs(read, aborted.run)
        else:
            self._name_aborted(read, aborted)

    def _cold_job(self, read: PartitionRead, found: ColdRead) -> Callable[[], Found]:
        """Return the function with which a worker thread reads this partition from disk."""
        if read.leaves_out_aborted:
            return self._committed_job(read, found, [])
        return found.run_committed if self.committed else found.run

    @staticmethod
    def _committed_job(
        read: PartitionRead, found: Slice | ColdRead, aborted: list[AbortedTransaction] | AbortedLookup
    ) -> Callable[[], Found]:
        """Return a function for a worker thread that reads and removes aborted batches."""
        return CommittedRead(found, aborted, read.max_bytes, at_least_one=read.at_least_one).run

    def _take_committed(self, read: PartitionRead, found: Committed) -> None:
        """Use what a worker has read without aborted batches. If all batches were aborted, read those after them."""
        release(read.answer.records or ())
        read.answer.records, read.size_bytes = found.buffers, found.size_bytes
        if not found.size_bytes and not found.is_full and found.next_offset > read.offset:
            read.offset = found.next_offset
            self._read_again(read)

    @staticmethod
    def _take_slice(read: PartitionRead, found: Slice) -> None:
        read.answer.records = found.buffers
        read.size_bytes = found.size_bytes

    @staticmethod
    def _name_aborted(read: PartitionRead, aborted: list[AbortedTransaction]) -> None:
        """Put the aborted transactions into the answer, so that the client skips their records."""
        read.answer.aborted_transactions = cast(list[Answer.AbortedTransaction], Rows(map(_named, aborted)))

    def _refuse(self, read: PartitionRead, error: KafkaError) -> None:
        """Replace the partition's answer by this error, with a code that the request's version knows."""
        code = error.code
        if code is ErrorCode.KAFKA_STORAGE_ERROR and self.version < STORAGE_ERROR_SINCE:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        self.broker.metrics.error("Fetch", code)
        release(read.answer.records or ())
        aborted: list[Answer.AbortedTransaction] | None = [] if read.missing else None  # as in Kafka
        read.answer = Answer(
            partition_index=read.wanted.index, error_code=code, records=[], aborted_transactions=aborted
        )
        read.size_bytes = 0
        read.cold = None

    def release(self) -> None:
        """Release the buffers of all records that were read, because they will not be sent."""
        for read in self.reads:
            release(read.answer.records or ())
            read.answer.records = []

    def forget_reads(self) -> None:
        """Drop all that was read, so that it takes no memory while the fetch waits."""
        self.release()
        self.reads, self.quiet = [], []

    # ---- from the disk ---------------------------------------------------------------------------------------

    def _needs(self, read: PartitionRead, job: Callable[[], Found]) -> None:
        """Note the job that a worker thread must do for this partition before the fetch can be answered."""
        read.cold = job
        self.jobs_left += 1

    def read_cold(self) -> None:
        """Let worker threads read what is not in memory. The answer is sent when all reads are done."""
        assert self.parked is not None
        self.parked.expect(sum(read.size_bytes for read in self.reads))
        for read in self.reads:
            self._submit(read)

    def _submit(self, read: PartitionRead) -> None:
        """Let a worker thread read this partition from disk if needed. _cold_done() gets the result, in the loop."""
        if read.cold is not None:
            self.broker.metrics.cold_reads += 1
            job = read.cold if self.meter is None else self.meter.measure(read.cold)
            self.broker.read_executor.submit(
                job, lambda result: self._cold_done(read, result), owner=self.connection, wanted=self._is_wanted
            )

    def _is_wanted(self) -> bool:
        """Return whether the client still waits for the answer. Called before a worker thread begins a read."""
        return not (self.parked is None or self.parked.cancelled or self.connection.has_left())

    def _cold_done(self, read: PartitionRead, result: Found | BaseException) -> None:
        """Use the result of a worker thread. If that fails because of a bug, answer the whole fetch with the error."""
        assert self.parked is not None
        try:
            self._take(read, result)
        except Exception as error:
            self.parked.answer(error)

    def _take(self, read: PartitionRead, result: Found | BaseException) -> None:
        """Use a worker's result or exception; after the last one, answer. If segments were deleted, read again."""
        self.jobs_left -= 1
        read.cold = None
        if isinstance(result, JobDropped):
            pass  # nobody waits for the answer
        elif isinstance(result, Gone):
            self._read_again(read)
        elif isinstance(result, BaseException):
            self._refuse(read, storage_error(result))
        elif isinstance(result, Slice):
            self._take_slice(read, result)
        elif isinstance(result, Committed):
            self._take_committed(read, result)
        elif isinstance(result, tuple):  # a Slice and its aborted transactions
            self._take_slice(read, result[0])
            self._name_aborted(read, result[1])
        else:  # aborted transactions only
            self._name_aborted(read, result)
        if not self.jobs_left:
            self._answer()

    def _read_again(self, read: PartitionRead) -> None:
        """Read from the log again, because segments were deleted, or all batches found were aborted."""
        wanted = read.wanted
        release(read.answer.records or ())
        read.answer, read.size_bytes = Answer(partition_index=wanted.index, records=[]), 0
        topic = self.by_id.get(wanted.topic_id) if self.by_id is not None else self.by_name.get(wanted.topic or "")
        try:
            allowed = self.may_read is None or self.may_read(self._name_of(wanted, topic))
            if not allowed or topic is None or wanted.index >= len(topic.partitions):
                raise self._missing(read, topic is None, allowed)
            read.partition = topic.partitions[wanted.index]
            self._read_one(read, read.partition)
        except KafkaError as error:
            self._refuse(read, error)
        self._submit(read)

    # ---- the answer ------------------------------------------------------------------------------------------

    def _answer(self) -> None:
        """Send the answer, now that all reads are done. If the client has left, only release the buffers."""
        assert self.parked is not None
        if self.parked.cancelled:
            self.release()
        elif self.when_read is not None:
            self.when_read()
        else:
            self.parked.answer(self.response())

    def response(self) -> FetchResponse:
        """Make the response from what was read."""
        response, named = self.begin_response()
        self.add_answers(response, self.reads, named)
        return response

    def begin_response(self) -> tuple[FetchResponse, set[Key] | None]:
        """Return the response without partitions, and which to add: None for all; an empty set if over the quota."""
        fetching = self.fetching
        if self.meter is not None and self.broker.throttling.is_fetch_over(self.meter, self._answer_bytes()):
            self.forget_reads()
            return FetchResponse(
                error_code=fetching.put_off() or 0, session_id=fetching.session_id, responses=[]
            ), set()
        answers = [(read.key, read.last_answer()) for read in self.reads] if fetching.remembers else []
        named = fetching.finish(answers, self.broker.clock.monotonic_ms())
        return FetchResponse(error_code=fetching.error or 0, session_id=fetching.session_id, responses=[]), named

    def _answer_bytes(self) -> int:
        """Return the approximate size of the answer in bytes."""
        return ANSWER_BYTES + sum(PARTITION_BYTES + read.size_bytes for read in self.reads)

    def add_answers(self, response: FetchResponse, reads: Sequence[PartitionRead], named: set[Key] | None) -> None:
        """Add the answers for these partitions to the response. named: the partitions to include; None for all."""
        topic = response.responses[-1] if response.responses else None
        size_bytes = 0
        for read in reads:
            if named is not None and read.key not in named:
                continue
            size_bytes += read.size_bytes
            wanted = read.wanted
            name, topic_id = wanted.topic or "", wanted.topic_id or ZERO_UUID
            if topic is None or topic.topic != name or topic.topic_id != topic_id:
                topic = FetchResponse.Topic(topic=name, topic_id=topic_id, partitions=[])
                response.responses.append(topic)
            topic.partitions.append(read.answer)
        self.broker.metrics.fetched_bytes += size_bytes
