"""The sender: takes batches that may be sent, puts those for one broker into one request, and handles the responses.

The rules: it runs at most once in a turn of the loop, however often it is woken. Whether a batch may be sent depends on
the partition's sequences, its leader, the requests in flight to that broker, and the send permission. After a retriable
error the same bytes are sent again, until the batch's deadline. Then it fails; a late response updates the sequences.
Source: Kafka's Sender; KIP-91.
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.produce import ProduceRequest, ProduceResponse
from ..errors import BrokerUnreachableError, DeliveryTimeoutError, code_of, error_of, is_retriable, refusal
from ..net.cluster import Cluster
from ..net.connection import Connection, broken
from ..net.environment import Environment
from ..settings import ProducerSettings
from .batching import Accumulator, Batch, Partition
from .delivery import wait_until_done
from .failures import ClosedByLoop, Failures, no_leader, timeout_error
from .requests import MAX_BATCHES, Answer, answers, cap_of, produce_request, words_of_answer
from .send_permission import SendPermission
from .sequences import Numbered, PartitionEntry, Sequences, Verdict

_LACKS_ANSWER = "the broker's response does not contain the partition"


class Sender:
    """The sender of one producer. It has no task of its own: it runs in callbacks of the event loop."""

    def __init__(
        self, cluster: Cluster, settings: ProducerSettings, accumulator: Accumulator, environment: Environment
    ) -> None:
        self.permission: SendPermission  # set by the producer
        self.renew: Callable[[], None] | None = None  # requests another producer id, without transactions
        self._cluster = cluster
        self._settings = settings
        self._accumulator = accumulator
        self._clock = environment.clock
        self._rng = environment.rng
        self._transactional = settings.transactional_id is not None
        self.sequences = Sequences(
            idempotent=settings.enable_idempotence, transactional=self._transactional, window=settings.max_in_flight
        )
        self._failures = Failures(accumulator, self._transactional)
        self._last_identity: Any = None  # the identity under which the last request was sent
        self._flying: dict[int, int] = {}  # requests without a response, by node
        self._throttled_until: dict[int, float] = {}  # ms, by node: the broker's throttle time (KIP-219)
        self._opening: dict[int, asyncio.Task[None]] = {}
        self._unreachable: dict[int, KafkaError] = {}  # why there is no connection, by node
        self._is_woken = False
        self._is_closed = False
        self._broken: KafkaError | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")
        self._expiry: asyncio.TimerHandle | None = None
        self._when_sent: Callable[[Collection[int]], object] | None = None
        accumulator.on_batch = self.wake
        cluster.on_metadata.append(self._update_topics)

    @property
    def broken(self) -> KafkaError | None:
        """Return the unexpected error that ended the sender, or None."""
        return self._broken

    @property
    def refused(self) -> KafkaError | None:
        """Return why a broker does not let the producer in, such as a wrong password; None if none refuses it now."""
        found = map(self._why_unreachable, self._unreachable)
        return next((error for error in found if error is not None and not is_retriable(error)), None)

    @property
    def in_flight(self) -> int:
        """Return the number of requests without a response."""
        return sum(self._flying.values())

    @property
    def buffered_bytes(self) -> int:
        """Return the bytes of memory that unacknowledged records take."""
        return self._accumulator.memory_bytes - self._accumulator.free_bytes

    def wake(self) -> None:
        """Run in the next turn of the loop, to send what may be sent then."""
        if not self._is_woken and not self._is_closed:
            self._is_woken = True
            asyncio.get_running_loop().call_soon(self._run)

    def go_on(self, task: "asyncio.Task[None]") -> None:
        """Wake, because this task has ended. If asyncio.run cancelled it, wake only while a flush() waits."""
        if not task.cancelled() or self._accumulator.hurried:
            self.wake()

    def _run(self) -> None:
        """Send what may be sent now; after an unexpected error, fail all batches. `wake` schedules it."""
        self._is_woken = False
        if self._is_closed:
            return
        try:
            if self._broken is None and self._accumulator.active:
                self._send_ready()
            if self._when_sent is not None and self._accumulator.are_all_sent():
                call, self._when_sent = self._when_sent, None
                call([node_id for node_id, count in self._flying.items() if count])
        except Exception as error:
            self._break(error)
        if self._broken is not None:
            left = list(self._accumulator.incomplete)
            self._failures.fail(left, self._broken)
            for batch in left:
                self.permission.failed(batch.partition.topic_partition, self._broken)

    def _break(self, error: Exception) -> None:
        """Fail all batches after an unexpected error; nobody awaits this code, so they would wait until they expire."""
        self._broken = self._broken or broken("sending records failed", error)
        self.wake()

    def _send_ready(self) -> None:
        """Send requests until no batch may be sent, then set a timer for the next one that waits for a time."""
        self._update_identity()
        now = self._clock.monotonic_ms()
        if self._expiry is None:
            self._watch_deadlines(now)
        while True:
            later = float("inf")
            requests: dict[int, list[Batch]] = {}
            sizes: dict[int, int] = {}
            for partition in list(self._accumulator.active):
                again_at = self._consider(partition, now, requests, sizes)
                later = min(later, again_at)
            for node_id, batches in requests.items():
                self._send(node_id, batches)
            if not requests:
                break
        if later < float("inf"):
            self._set_timer(later, now)

    def _update_identity(self) -> None:
        """Take over a new producer id or epoch for batches that have no sequence number yet."""
        sequences = self.sequences
        if sequences.wants_identity and self.renew is not None:
            sequences.wants_identity = False
            self.renew()
            self._last_identity = None
        if not sequences.idempotent:
            return
        identity = self.permission.identity()
        if identity is not None and identity != self._last_identity:
            self._last_identity = identity
            topics = self._accumulator.topics.values()
            entries = [partition.entry for topic in topics for partition in topic.partitions]
            if self._transactional:
                self._forget(entries)
            sequences.begin(identity, entries)

    def _forget(self, entries: Iterable[PartitionEntry]) -> None:
        """Fail the batches of the previous identity that got no response, because their transaction has ended."""
        for entry in entries:
            for batch in entry.window:
                assert isinstance(batch, Batch)
                maybe = batch.maybe_written
                self._accumulator.finish(batch, DeliveryTimeoutError("its transaction has ended", maybe_written=maybe))

    def _update_topics(self) -> None:
        """Apply new metadata: numbers of partitions, topic ids, leaders."""
        metadata = self._cluster.metadata
        for topic in self._accumulator.topics.values():
            count = metadata.partitions(topic.name)
            if count:
                available = self.available(topic.name, count)
                topic.update(count, metadata.topic_id(topic.name), available, self._rng.below(1 << 30))
        self.wake()

    def available(self, topic: str, count: int) -> list[int]:
        """Return the topic's partitions that have a leader now, of partitions 0 to count - 1."""
        leader = self._cluster.metadata.leader
        return [index for index in range(count) if leader((topic, index)) is not None]

    def _set_timer(self, at_ms: float, now_ms: float) -> None:
        if self._timer is not None:
            if self._timer_at <= at_ms and self._timer_at > now_ms:
                return
            self._timer.cancel()
        self._timer_at = at_ms
        delay_s = max(0.0, at_ms - now_ms) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._run_timer)

    def _run_timer(self) -> None:
        self._timer = None
        self.wake()

    def _consider(
        self, partition: Partition, now: int, requests: dict[int, list[Batch]], sizes: dict[int, int]
    ) -> float:
        """Put the partition's next batch into `requests` if it may be sent now. Returns when to try again, in
        monotonic ms.
        """
        entry, accumulator = partition.entry, self._accumulator
        again = self.sequences.again(entry)
        never = float("inf")
        if again is not None:
            assert isinstance(again, Batch)
            due: float | None = again.retry_at_ms
        else:
            due = accumulator.ready_at(partition)
        if due is None or due > now:
            return never if due is None else due
        if again is None and not self.sequences.may_take_new(entry):
            return never
        node_id = self._cluster.metadata.leader(partition.topic_partition)
        if node_id is None:
            self._cluster.request_refresh()
            return now + self._settings.retry_backoff_ms
        if self._cluster.ready(node_id) is None:
            self._open(node_id)
            return never
        if self._flying.get(node_id, 0) >= self._settings.max_in_flight:
            return never
        if self._throttled_until.get(node_id, 0) > now:
            return self._throttled_until[node_id]
        batch = again if again is not None else accumulator.peek(partition)
        size, before = sizes.get(node_id, 0), requests.get(node_id, ())
        if before and (size + batch.size_bytes > self._settings.max_request_size or len(before) == MAX_BATCHES):
            return never  # it goes into the next request, within this turn
        if not self.permission.may_send(partition.topic_partition):
            return never
        if again is None and not self._take(partition, batch):
            return now
        sizes[node_id] = size + batch.size_bytes
        requests.setdefault(node_id, []).append(batch)
        accumulator.served(partition)
        return never

    def _take(self, partition: Partition, batch: Batch) -> bool:
        """Encode a new batch and give it its sequence number. Returns False if it cannot be encoded."""
        try:
            self._accumulator.take(partition)
        except KafkaError as error:  # its timestamps are too far apart: only this batch fails
            self._give_up(batch, error)
            return False
        self.sequences.take(partition.entry, batch)
        return True

    def _open(self, node_id: int) -> None:
        if node_id not in self._opening:
            task = asyncio.get_running_loop().create_task(self._connect(node_id))
            self._opening[node_id] = task
            task.add_done_callback(partial(self._opened, node_id))

    async def _connect(self, node_id: int) -> None:
        """Connect to a broker; after an error, fail the unsent batches, or pause if the error is retriable."""
        try:
            await self._cluster.node(node_id)
            self._unreachable.pop(node_id, None)
        except KafkaError as error:
            self._unreachable[node_id] = error.with_traceback(None)  # which would keep frames alive
            if not is_retriable(error):
                for batch in list(self._accumulator.incomplete):
                    self.permission.failed(batch.partition.topic_partition, error)  # fails their transaction
                self.drop_unsent(error)
            else:
                await asyncio.sleep(self._backoff_ms(0) / 1000)
        except Exception as error:
            self._break(error)

    def _opened(self, node_id: int, task: "asyncio.Task[None]") -> None:
        del self._opening[node_id]
        self.go_on(task)

    def _why_unreachable(self, node_id: int) -> KafkaError | None:
        return None if self._cluster.ready(node_id) is not None else self._unreachable.get(node_id)

    def _send(self, node_id: int, batches: list[Batch]) -> None:
        connection = self._cluster.ready(node_id)
        try:
            if connection is None:
                raise BrokerUnreachableError("the connection ended", sent=False)
            self._send_over(connection, node_id, batches)
        except KafkaError as error:  # nothing was sent
            for batch in batches:
                self._on_lost(batch, error)

    def _send_over(self, connection: Connection, node_id: int, batches: list[Batch]) -> None:
        """Send the batches in one Produce request. Raises KafkaError if nothing was sent."""
        settings, metadata = self._settings, self._cluster.metadata
        version = connection.version_of(ProduceRequest, cap_of(batches, metadata, self.permission.produce_cap()))
        request = produce_request(
            batches,
            metadata,
            version,
            acks=settings.required_acks,
            timeout_ms=settings.request_timeout_ms,
            permission=self.permission,
        )
        for batch in batches:
            batch.leave()
            batch.attempts += 1
            self.permission.sent(batch.partition.topic_partition)
        self._flying[node_id] = self._flying.get(node_id, 0) + 1
        future = connection.send(
            request, version, timeout_ms=settings.request_timeout_ms, expects_reply=settings.required_acks != 0
        )
        future.add_done_callback(partial(self._on_response, node_id, version, request, batches))

    def _on_response(
        self, node_id: int, version: int, request: ProduceRequest, batches: list[Batch], future: "asyncio.Future[Any]"
    ) -> None:
        """Handle the end of a Produce request: a response, a failed connection or a timeout."""
        self._flying[node_id] -= 1
        error = ClosedByLoop() if future.cancelled() else future.exception()
        try:
            if error is not None:
                for batch in batches:
                    self._on_lost(batch, error)
            else:
                response: ProduceResponse | None = future.result()
                if response is not None and response.throttle_time_ms:
                    self._throttled_until[node_id] = self._cluster.throttles.note(node_id, response.throttle_time_ms)
                self._apply(request, response, version, batches)
        except Exception as mistake:
            self._break(mistake)
        self.wake()

    def _apply(
        self, request: ProduceRequest, response: ProduceResponse | None, version: int, batches: list[Batch]
    ) -> None:
        """Apply a Produce response to each batch of its request."""
        if response is None:  # acks=0: there is no response
            for batch in batches:
                self.sequences.judge(batch.partition.entry, batch, ErrorCode.NONE)
                self._accumulator.finish(batch)
            return
        found = answers(request, response, version)
        for batch in batches:
            answer = found.get(batch.partition.topic_partition)
            if answer is None:
                self._on_lost(batch, BrokerUnreachableError(_LACKS_ANSWER, sent=True))
            else:
                self._judge(batch, answer)

    def _on_lost(self, batch: Batch, error: BaseException) -> None:
        """Retry a batch later that got no response or was not sent; fail it if no retry is allowed."""
        if batch.on_the_way:
            batch.come_back(maybe_written=getattr(error, "sent", True))
        if batch.done:
            return
        entry = batch.partition.entry
        follows_gap = self._transactional and entry.gap and not batch.maybe_written  # its transaction is aborted
        if not is_retriable(error) or batch.attempts > self._settings.most_retries or follows_gap:
            self.sequences.dropped(entry, batch)
            self._give_up(batch, error if isinstance(error, KafkaError) else ClosedByLoop())
        else:
            batch.refusal = error.with_traceback(None) if isinstance(error, KafkaError) else None
            self._try_later(batch)

    def _judge(self, batch: Batch, answer: Answer) -> None:
        """Finish, split, retry or fail the batch, as the partition's response requires."""
        entry, code = batch.partition.entry, code_of(answer.error_code)
        verdict = self.sequences.judge(entry, batch, code)
        if batch.done:
            return
        if verdict is Verdict.WRITTEN or verdict is Verdict.DUPLICATE:
            if verdict is Verdict.WRITTEN:
                batch.base_offset = answer.base_offset
                batch.log_append_time_ms = answer.log_append_time_ms
            self._accumulator.finish(batch)
            return
        if verdict is Verdict.SPLIT:
            halves: list[Numbered] = list(self._accumulator.split(batch, self._transactional))
            self.sequences.split(entry, batch, halves)
            return
        if code.retriable:
            self._cluster.stale(code)
        is_hopeless = batch.attempts > self._settings.most_retries or (self._transactional and entry.gap)
        detail = words_of_answer(answer, code)
        if verdict is Verdict.AGAIN and not is_hopeless:
            batch.refusal = refusal(code, detail)
            self._try_later(batch)
            return
        self.sequences.dropped(entry, batch)
        error = error_of(answer.error_code, detail, transactional=self._transactional)
        if batch.maybe_written:
            error.add_note("an earlier attempt got no response: the records may have been written nevertheless")
        self._give_up(batch, error)

    def _try_later(self, batch: Batch) -> None:
        now = self._clock.monotonic_ms()
        batch.retry_at_ms = now + int(self._backoff_ms(max(0, batch.attempts - 1)))

    def _backoff_ms(self, attempt: int) -> float:
        return self._cluster.backoff.delay_ms(attempt, self._rng.random())

    def _give_up(self, batch: Batch, error: KafkaError) -> None:
        """Fail a batch; with transactions or a name, also the later batches of its partition."""
        if batch.done:
            return
        self._failures.fail([batch], error)
        self.permission.failed(batch.partition.topic_partition, error)
        if self._transactional or self.permission.producer is not None:  # those after it would leave a gap
            self._abandon(batch.partition.entry, error)

    def _abandon(self, entry: PartitionEntry, error: KafkaError) -> None:
        """Fail the partition's batches that were sent and are not in flight now."""
        for other in [one for one in entry.window if not one.on_the_way]:
            assert isinstance(other, Batch)
            self.sequences.dropped(entry, other)
            self._give_up(other, error)

    def _watch_deadlines(self, now: int) -> None:
        first = self._accumulator.first_deadline_ms()
        if first is not None:
            delay_s = max(1.0, first - now) / 1000
            self._expiry = asyncio.get_running_loop().call_later(delay_s, self._run_expiry)

    def _run_expiry(self) -> None:
        self._expiry = None
        try:
            self._expire()
        except Exception as error:
            self._break(error)

    def _expire(self) -> None:
        """Fail the batches whose delivery timeout is over."""
        now = self._clock.monotonic_ms()
        for batch in self._accumulator.expired(now):
            self._accumulator.withdraw(batch)
            self.sequences.dropped(batch.partition.entry, batch)
            cause = self._why_late(batch)
            self._give_up(batch, timeout_error(batch, self._settings.delivery_timeout_ms, cause))
        self._watch_deadlines(now)
        self.wake()

    def _why_late(self, batch: Batch) -> KafkaError | None:
        """Return the last known error that keeps the batch from being written; None if there is none."""
        node_id = self._cluster.metadata.leader(batch.partition.topic_partition)
        cause = self._cluster.refresh_error if node_id is None else self._why_unreachable(node_id)
        return cause or batch.refusal or self.permission.refusal() or (no_leader(batch) if node_id is None else None)

    def why_full(self) -> KafkaError | None:
        """Return what keeps the oldest records from being written; None if that is not known."""
        return next((cause for batch in self._accumulator.incomplete if (cause := self._why_late(batch))), None)

    def drop_unsent(self, error: Exception) -> None:
        """Fail the batches that were never sent. Sent ones continue until their result is known."""
        unsent = [
            batch
            for batch in self._accumulator.incomplete
            if not batch.attempts and batch.sequence < 0 and batch not in batch.partition.entry.window
        ]
        for batch in unsent:
            self._accumulator.withdraw(batch)
        self._failures.fail(unsent, error)

    async def flush(self) -> None:
        """Send all current batches, and return when each is acknowledged or failed."""
        accumulator = self._accumulator
        accumulator.hurried += 1
        self.wake()
        try:
            for batch in list(accumulator.incomplete):
                await wait_until_done(batch)
        finally:
            accumulator.hurried -= 1

    def call_when_sent(self, call: Callable[[Collection[int]], object] | None) -> None:
        """Once all current batches are on their way, call this function with the brokers that have not answered all of
        them. What it sends leaves in the same write as the last batch. It is not called while a batch is sent again, or
        may have to be split. None: call nothing any more.
        """
        self._when_sent = call
        self.wake()

    async def settle(self) -> None:
        """Wait until no sent batch waits for a response or a retry."""
        self.wake()
        while sent := [batch for batch in self._accumulator.incomplete if batch in batch.partition.entry.window]:
            for batch in sent:
                await wait_until_done(batch)

    def close(self, error: KafkaError) -> None:
        """Fail all remaining batches now."""
        self._is_closed, self._when_sent = True, None
        with contextlib.suppress(ValueError):  # the cluster may outlive this
            self._cluster.on_metadata.remove(self._update_topics)
        for handle in (self._timer, self._expiry):
            if handle is not None:
                handle.cancel()
        for task in self._opening.values():
            task.cancel()
        self._failures.drop_all(error)

    def lose(self, error: KafkaError) -> None:
        """Like close, from any thread, after the event loop has ended."""
        self._is_closed = True
        self._failures.lose_all(error)
