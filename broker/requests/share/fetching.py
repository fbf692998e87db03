"""One running ShareFetch: acquires records of each partition for its member, waits if there are none, and answers.

The rules: a batch is read, and what of it is available becomes the member's, in one step; what has to be read from the
disk is read by nobody else meanwhile, and of it the member gets what is available by then. Markers and empty batches,
and for a committed reader aborted ones, are nobody's. Partitions are taken in turn by the session's epoch; bytes are
shared evenly among those that have something, and the first batch comes however large. It waits for the high watermark,
and for what others let go of. Those who wait are served in the order in which they came. A client that is over its
quota acquires nothing; what it has acquired it is given, and waits afterwards.

    in state   what it does                      what happens                       next state
    LOOKING    acquires what its partitions      records, late, all have errors     ANSWERED
               have, in steps of a job           reads from disk are under way      READING
                                                 else: something changed meanwhile  LOOKING, once more
                                                 else                               WAITING
    READING    worker threads read from disk     all read: records, late, error     ANSWERED
                                                 else: something changed meanwhile  LOOKING
                                                 else                               WAITING
    WAITING    nothing                           a log or share partition changes   LOOKING
                                                 max_wait_ms is over                LOOKING, for the last time
    ANSWERED   acquires nothing any more         -                                  -
If the client leaves or its session ends it is ANSWERED, without records. Changes while it is LOOKING or READING are
noted (_has_changed), as is the end of max_wait_ms (_is_late).
Source: KIP-932, Kafka's DelayedShareFetch and ShareFetchUtils; KAFKA-19823, 20425.
"""

from collections.abc import Callable, Iterable, Sequence
from enum import Enum, auto
from itertools import islice
from typing import TYPE_CHECKING

from ....effects.threads import JobDropped
from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.share_fetch import ShareFetchRequest, ShareFetchResponse
from ....storage.log.reads import AbortedLookup, ColdRead, Gone
from ....storage.log.segment import Slice
from ....storage.producers.aborted import AbortedTransaction
from ....storage.store import BrokerHalted
from ...config.settings import COMMITTED
from ...net.turns import Job, Steps
from ...net.waiting import Parked, Waiter
from ...security.acls import Operation, ResourceType
from ...share.values import Found, SharePartitionKey, Wanted
from ...topics.names import TopicIdPartition
from ...topics.partition import Partition, storage_error
from ..aborted_filter import AbortedRanges, headers
from .answers import PartitionAnswer, ShareRead, is_data, pieces_of, refused, share_response
from .sessions import INITIAL_EPOCH, ShareSession

if TYPE_CHECKING:
    from ..dispatch import Call
    from ..services import Services

Read = tuple[Slice, list[AbortedTransaction]]

WHOLE_BATCHES, EXACT = 0, 1  # ShareAcquireMode
READ_BYTES = 1 << 20  # of a partition
LEAST_READ_BYTES = 256 << 10  # of a partition, where an answer may have so much
MAX_BATCHES = 500  # whose headers one step looks at
MAX_BYTES = 8 << 20  # of one answer, unless its first batch is larger
WAITING_BYTES = 64 << 10  # a waiting fetch counts as this many bytes, which limits how many wait on a connection
FEW_PARTITIONS = 50  # of the fetches with more partitions, a connection has one waiting at a time
ANSWER_BYTES, PARTITION_BYTES = 30, 60  # of what goes around records


class State(Enum):
    """What a ShareFetch is doing now; the table above has the transitions."""

    LOOKING = auto()
    READING = auto()
    WAITING = auto()
    ANSWERED = auto()


class ShareFetching:
    """One ShareFetch until it is answered."""

    def __init__(
        self,
        broker: "Services",
        call: "Call",
        request: ShareFetchRequest,
        session: ShareSession,
        acknowledged: dict[TopicIdPartition, KafkaError | None],
    ) -> None:
        """acknowledged: the error of the acknowledgements in the request for each partition; None where they
        succeeded.
        """
        self._broker = broker
        self._connection = call.connection
        self._access_session = call.session
        self._meter = call.meter
        self._partitions = broker.share_partitions
        self._session = session
        self._acknowledged = acknowledged
        self._committed = _reads_committed(broker, session.group)
        self._max_wait_ms = request.max_wait_ms
        self._wanted = Wanted(request.max_records, max(1, request.batch_size), request.share_acquire_mode == EXACT)
        self._max_bytes = min(request.max_bytes, broker.settings.fetch_max_bytes, MAX_BYTES)
        if self._meter is not None:
            self._max_bytes = min(self._max_bytes, broker.throttling.most_fetched_bytes(self._meter))
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._turn = session.epoch
        self._opens = request.share_session_epoch == INITIAL_EPOCH
        self._reads: dict[TopicIdPartition, ShareRead] = {}  # of which something was acquired, or is being read
        self._errors: dict[TopicIdPartition, KafkaError] = {}
        self._records = 0  # that were acquired
        self._size_bytes = 0
        self._reads_left = 0  # that worker threads have not finished
        self._is_over_quota = False  # its client has to wait, and gets nothing
        self._is_late = request.max_wait_ms <= 0  # the time to wait is over
        self._has_changed = False  # there may be more to acquire than when it began to look
        self._state = State.LOOKING
        self._parked = Parked()
        self._waiter: Waiter | None = None

    def begin(self) -> Steps[ShareFetchResponse | Parked]:
        """Acquire the records that there are. Returns the response, or a Parked that will get it later."""
        if not self._wants_records():
            return (yield from self._response())
        try:
            if not self._is_late:
                yield from self._watch()
            is_done = yield from self._work()
        except BaseException:
            self._cancel()
            raise
        if not is_done:
            return self._parked
        self._cancel()
        return (yield from self._response())

    def _wants_records(self) -> bool:
        """Return whether the request asks for records and can get some, because its session has not ended."""
        asks = self._max_bytes > 0 and self._wanted.max_records > 0
        return asks and self._session.is_open and bool(self._session.places)

    # ---- states ----------------------------------------------------------------------------------------------

    def _watch(self) -> Steps[None]:
        """Register for changes of the partitions, before the first look at them, so that no change is missed."""
        broker, waiting, topics = self._broker, self._broker.waiting, self._broker.topics.by_id
        places = list(self._session.places)
        self._waiter = waiter = Waiter([], broker.clock.monotonic_ms() + self._max_wait_ms, self._look)
        self._parked.expect(WAITING_BYTES)
        self._parked.on_cancel = self._cancel
        if len(places) > FEW_PARTITIONS:
            broker.waiting_places.take(self._connection, self)
        waiting.park(waiter)
        self._session.waiting[self] = None
        for topic_id, index in places:
            waiting.watch(waiter, SharePartitionKey(self._session.group, topic_id, index))
            topic = topics.get(topic_id)
            if topic is not None and 0 <= index < len(topic.partitions):
                waiting.watch(waiter, topic.partitions[index].log)
            yield 1

    def _cancel(self) -> None:
        """End the wait. From now on nothing is acquired for this request, and nothing refers to it."""
        self._state = State.ANSWERED
        self._parked.on_cancel = None
        if self._waiter is not None:
            self._broker.waiting.leave(self._waiter)
        self._broker.waiting_places.leave(self._connection, self)
        self._session.waiting.pop(self, None)

    def end_wait(self) -> None:
        """End the wait before max_wait_ms: answer now, or after the reads from disk that are under way. If the session
        has ended, answer now, without records.
        """
        if self._session.is_open and self._reads_left:
            self._is_late = True
        else:
            self._answer()

    def _look(self, at_deadline: bool) -> bool:
        """Try to acquire again; called when a partition has changed or max_wait_ms is over (at_deadline).

        Returns False, because not the caller but _cancel() removes the waiter.
        """
        self._is_late = self._is_late or at_deadline
        self._has_changed = True
        if self._state is State.WAITING:
            self._look_again()
        return False

    def _look_again(self) -> None:
        """Run _work() as a job, which takes turns with others if it needs more than one slice."""
        self._state = State.LOOKING
        job = Job(self._work() if self._meter is None else self._meter.pieces(self._work()))
        job.wanted = lambda: self._state is not State.ANSWERED
        job.finish = self._end_work
        try:
            is_finished = self._broker.turns.begin(job)
        except BrokerHalted:  # nobody is answered any more
            return
        if is_finished:
            self._end_work(job.result)
        else:
            self._broker.turns.enqueue(job)

    def _end_work(self, result: bool | Exception | None) -> None:
        """Answer if the job's result is True or an exception. A result of None means that it was dropped."""
        if isinstance(result, Exception):
            self._answer(result)
        elif result:
            self._answer()

    def _answer(self, error: Exception | None = None) -> None:
        """Send the response, or this error, unless the request is already answered."""
        if self._state is not State.ANSWERED:
            self._cancel()
            self._parked.answer(self._response() if error is None else error)

    def _work(self) -> Steps[bool]:
        """Look at the partitions and acquire records, until there is nothing more to do now. Returns whether to answer;
        False if a worker thread reads from disk, if the request waits for changes, or if it was answered meanwhile.
        """
        while True:
            self._has_changed = False
            is_enough = yield from self._acquire()
            if self._state is State.ANSWERED:
                return False
            if self._reads_left:
                self._state = State.READING
                return False
            if is_enough or self._is_late:
                return True
            if not self._has_changed:
                self._state = State.WAITING
                return False

    # ---- acquiring -------------------------------------------------------------------------------------------

    def _acquire(self) -> Steps[bool]:
        """Acquire records of all partitions, in order. Returns whether to answer without waiting for more."""
        if self._meter is not None and self._broker.throttling.is_over_already(self._meter):
            self._is_over_quota = True
            return True
        candidates = yield from self._candidates()
        if self._errors and len(self._errors) >= len(self._session.places):
            return True
        if not candidates:
            return False
        if not self._is_late and self._min_bytes > 1 and not (yield from self._has_min_bytes(candidates)):
            return False
        share = max(1, self._max_bytes // len(candidates))
        for read in candidates:
            if self._is_full():
                break
            read.max_bytes = min(share, self._read_bytes())
            yield from self._acquire_of(read)
        return self._records > 0

    def _read_bytes(self) -> int:
        """Return how many bytes to read of a partition: twice what the session's last answer had of one.

        The number of records is limited, so that otherwise most of what is read would often not be needed.
        """
        answered = self._session.answered_bytes
        if answered is None:
            return READ_BYTES
        return min(READ_BYTES, max(LEAST_READ_BYTES, self._min_bytes, 2 * answered))

    def _candidates(self) -> Steps[list[ShareRead]]:
        """Return the partitions with records to acquire. Each fetch of a session begins with another partition, so that
        each comes first sometimes.
        """
        self._errors.clear()
        found = []
        places = list(self._session.places)
        begin = self._turn % len(places) if places else 0
        for place in (*places[begin:], *places[:begin]):
            try:
                read = self._find(place)
                offset = self._partitions.next_offset(read.key)
                if offset is not None and offset < self._below(read.partition):
                    found.append(read)
            except KafkaError as error:
                self._refuse(place, error)
            yield 1
        return found

    def _find(self, place: TopicIdPartition) -> ShareRead:
        """Return the partition if the member may read it. Raises KafkaError if not, or if it is unknown or offline."""
        broker, (topic_id, index) = self._broker, place
        topic = broker.topics.by_id.get(topic_id)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        broker.access.check(self._access_session, Operation.READ, ResourceType.TOPIC, topic.name)
        key = SharePartitionKey(self._session.group, topic_id, index)
        if not 0 <= index < len(topic.partitions) or not self._partitions.knows(key):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        partition = topic.partitions[index]
        partition.check_online()
        return ShareRead(key, partition)

    def _below(self, partition: Partition) -> int:
        """Return the offset below which records can be acquired: the last stable offset, or the high watermark."""
        return partition.log.last_stable_offset if self._is_committed(partition) else partition.log.high_watermark

    def _has_min_bytes(self, candidates: Sequence[ShareRead]) -> Steps[bool]:
        """Return whether the candidates have min_bytes together. True also where that cannot be told because of an
        error.
        """
        possible = 0
        for read in candidates:
            try:
                offset = self._partitions.next_offset(read.key)
                if offset is not None:
                    below = self._below(read.partition)
                    found = read.partition.log.read(offset, self._min_bytes, below, at_least_one=True)
                    possible += self._min_bytes if isinstance(found, ColdRead) else found.size_bytes
            except KafkaError:
                return True
            if possible >= self._min_bytes:
                return True
            yield 1
        return False

    def _is_full(self) -> bool:
        """Return whether the answer has max_records or max_bytes already."""
        return self._records >= self._wanted.max_records or self._size_bytes >= self._max_bytes

    def _acquire_of(self, read: ShareRead) -> Steps[None]:
        """Acquire records of one partition, only once, because a record that failed often must be delivered alone.

        Parts of the log without available records are skipped.
        """
        while not read.acquired:
            try:
                more = self._acquire_next(read)
            except KafkaError as error:
                self._refuse(read.place, error)
                return
            yield 1 + more
            if not more:
                return

    def _acquire_next(self, read: ShareRead) -> int:
        """Read and acquire in one step. Returns how many batches were looked at; 0 ends it. Raises KafkaError."""
        if not self._session.is_open or self._state is State.ANSWERED:
            return 0
        offset = self._partitions.next_offset(read.key)
        log, below = read.partition.log, self._below(read.partition)
        if offset is None or offset >= below:
            return 0
        found = log.read(offset, read.max_bytes, below, at_least_one=not self._size_bytes)
        if isinstance(found, ColdRead):
            self._read_from_disk(read, offset, _cold_job(found, [], self._is_committed(read.partition)))
            return 0
        if not found.size_bytes:
            return 0
        aborted = log.aborted_between(offset, found.next_offset) if self._is_committed(read.partition) else []
        if isinstance(aborted, AbortedLookup):
            self._read_from_disk(read, offset, _cold_job(found, aborted, True))
            return 0
        return self._take(read, offset, found, aborted)

    def _is_committed(self, partition: Partition) -> bool:
        """Return whether only committed records of this partition are delivered."""
        return self._committed or partition.committed_only

    def _take(self, read: ShareRead, offset: int, found: Slice, aborted: Iterable[AbortedTransaction]) -> int:
        """Acquire records of what was read from `offset` on.

        Returns how many batches were looked at; 0 if nothing from `offset` on may be acquired now. Raises KafkaError.
        """
        data = memoryview(found.buffers[0] if len(found.buffers) == 1 else b"".join(found.buffers))
        batches = list(islice(headers(data), MAX_BATCHES))
        ranges = AbortedRanges(aborted)
        acquired = self._partitions.acquire(
            read.key,
            self._session.member,
            offset,
            [Found(each.base_offset, each.last_offset, is_data(each) and not ranges.hold(each)) for each in batches],
            self._wanted._replace(max_records=self._wanted.max_records - self._records),
        )
        if acquired:
            pieces = pieces_of(batches, acquired)
            read.buffers = [data[begin:end] for begin, end in pieces]
            size_bytes = sum(end - begin for begin, end in pieces)
            self._session.answered_bytes = size_bytes
            self._size_bytes += size_bytes
            read.acquired = acquired
            self._records += sum(last - first + 1 for first, last, _ in acquired)
            self._reads[read.place] = read
        elif self._partitions.next_offset(read.key) == offset:
            return 0
        return len(batches)

    def _refuse(self, place: TopicIdPartition, error: KafkaError) -> None:
        """Note the partition's error for the answer, unless records of the partition were acquired."""
        if error.code is ErrorCode.COORDINATOR_NOT_AVAILABLE:  # of the state's log; clients know no such code here
            error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, error.text)
        if place not in self._reads:
            self._broker.metrics.error("ShareFetch", error.code)
            self._errors[place] = error

    # ---- from the disk ---------------------------------------------------------------------------------------

    def _read_from_disk(self, read: ShareRead, offset: int, job: Callable[[], Read]) -> None:
        """Let a worker thread read this partition from disk. Until it has, no other request of the group reads it."""
        broker = self._broker
        self._partitions.begin_read(read.key)
        self._reads_left += 1
        broker.metrics.cold_reads += 1
        broker.read_executor.submit(
            job if self._meter is None else self._meter.measure(job),
            lambda result: self._finish_read(read, offset, result),
            owner=self._connection,
            wanted=self._is_wanted,
        )

    def _is_wanted(self) -> bool:
        """Return whether the client still waits for the answer."""
        return not (self._state is State.ANSWERED or self._connection.has_left())

    def _finish_read(self, read: ShareRead, offset: int, result: Read | BaseException) -> None:
        """Use what a worker has read. After the last read, if _work() is not running, answer, look again or wait."""
        self._reads_left -= 1
        self._partitions.end_read(read.key)
        if self._state is State.ANSWERED:
            return
        try:
            self._take_result(read, offset, result)
            if self._state is State.READING and not self._reads_left:
                self._end_reading()
        except BrokerHalted:  # nobody is answered any more
            pass
        except Exception as error:
            self._answer(error)

    def _take_result(self, read: ShareRead, offset: int, result: Read | BaseException) -> None:
        """Acquire those records that a worker has read and that are still available. An error becomes the partition's
        answer, and ends the wait. Sets _has_changed if _work() is to look again, as after the deletion of a segment.
        """
        try:
            if isinstance(result, JobDropped):  # the client has left: nobody waits for the answer
                self._is_late = True
            elif isinstance(result, Gone) or not self._session.is_open:
                self._has_changed = True
            elif isinstance(result, BaseException):
                raise storage_error(result)
            elif not self._is_full() and self._take(read, offset, *result):
                self._has_changed = True
        except KafkaError as error:
            self._refuse(read.place, error)
            self._is_late = True

    def _end_reading(self) -> None:
        """After all reads from disk, answer. If nothing was acquired, look again if something changed, or wait."""
        if self._records or self._is_late or self._errors:
            self._answer()
        elif self._has_changed:
            self._look_again()
        else:
            self._state = State.WAITING

    # ---- the answer ------------------------------------------------------------------------------------------

    def _response(self) -> Steps[ShareFetchResponse]:
        """Return the response: acquired records, errors, and the results of the acknowledgements."""
        if self._meter is not None and not self._is_over_quota:
            size_bytes = ANSWER_BYTES + PARTITION_BYTES * len(self._reads) + self._size_bytes
            self._broker.throttling.charge(self._meter, size_bytes)
        answers: dict[TopicIdPartition, PartitionAnswer] = {}
        if self._session.is_open:
            answers = {place: read.answer() for place, read in self._reads.items()}
            self._broker.metrics.fetched_bytes += self._size_bytes
        for place, error in self._errors.items():
            answers.setdefault(place, refused(place, error))
            yield 1
        if self._opens and not self._is_over_quota and self._wants_records():
            for place in list(self._session.places):
                answers.setdefault(place, PartitionAnswer(partition_index=place[1]))
                yield 1
        gone = [place for place, error in self._errors.items() if error.code is ErrorCode.UNKNOWN_TOPIC_ID]
        self._broker.share_sessions.leave_out(self._session, gone)
        return share_response(self._broker, self._session.group, answers, self._acknowledged)


def _reads_committed(broker: "Services", group: str) -> bool:
    """Return whether the group's share.isolation.level is read_committed now. A fetch asks once, when it begins."""
    return broker.group_configs.obeyed(group).share_isolation_level == COMMITTED


def _cold_job(
    found: Slice | ColdRead, aborted: list[AbortedTransaction] | AbortedLookup, is_committed: bool
) -> Callable[[], Read]:
    """Return a function for a worker thread: it reads the records, or looks up the aborted transactions, whichever is
    not in memory.
    """

    def run() -> Read:
        """Read from disk what is not in memory. Returns the records, and the aborted transactions in them."""
        if isinstance(found, ColdRead):
            return found.run_committed() if is_committed else (found.run(), [])
        return found, aborted.run() if isinstance(aborted, AbortedLookup) else aborted

    return run
