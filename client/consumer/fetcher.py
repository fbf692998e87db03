"""Fetching ahead of the application: one request at a time to each broker, into bounded memory.

The rule: a response is used only for the position for which it was requested (`PartitionState.epoch`). Nothing is
skipped silently: if a topic was created again, or a log was truncated, the reader gets an error. A partition is not
requested while max_partition_fetch_bytes of it are in memory, and none while fetch_max_bytes are. Fetched records of
partitions that are not read at the moment (paused, or not named in getone or getmany) are dropped if others need the
room, and fetched again later. There is no task for each fetch.
From version 12 on each request contains the leader epoch of the record before it. The leader compares that with its log
before it responds, so OffsetForLeaderEpoch is not needed after a change of leaders.
Source: Kafka's Fetcher, KIP-227 (sessions), KIP-320 (epochs), KIP-392 (followers), KIP-516 (topic ids).
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Any

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.fetch import FetchRequest, FetchResponse
from ...protocol.primitives import ZERO_UUID
from ..errors import ClosedError, FatalError, OffsetOutOfRangeError, code_of, error_of, is_retriable
from ..group.subscription import EARLIEST, LATEST, Need, PartitionState, Subscription
from ..net.cluster import Cluster
from ..net.connection import Connection, broken
from ..records.fetched import Fetched
from ..serialization import MessageField, deserializer_of
from ..settings import ConsumerSettings
from ..values import TopicPartition
from .fetch_session import Ask, FetchSession, Wanted
from .list_offsets import READ_COMMITTED, READ_UNCOMMITTED

log = logging.getLogger("fencepost.client")
PURPOSE = "fetch"
_BY_ID_FROM = 13
_LEADER_ONLY_MS = 30_000  # how long to read from the leader after a follower has failed
_LEFT_OUT_WAIT_MS = 20  # how long a broker may wait for records while full partitions are left out of its request
_SESSION_GONE = (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH)
_SESSION_TOPICS = (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, ErrorCode.INCONSISTENT_TOPIC_ID)
_Requested = dict[TopicPartition, tuple[PartitionState, int, int]]  # state, its epoch, the offset


class _Node:
    """One broker from which records are fetched."""

    __slots__ = ("attempt", "busy", "node_id", "opening", "retry_at_ms", "session")

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.session = FetchSession()
        self.busy = False
        self.opening: asyncio.Task[None] | None = None
        self.retry_at_ms = 0.0
        self.attempt = 0


class Fetcher:
    """Fetches records for one consumer. arrived: called when there are records to read or an error to raise."""

    def __init__(
        self, cluster: Cluster, settings: ConsumerSettings, subscription: Subscription, arrived: Callable[[], None]
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._subscription = subscription
        self._arrived = arrived
        self._clock = cluster.environment.clock
        self._nodes: dict[int, _Node] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._failure: Exception | None = None
        self._broken: FatalError | None = None
        self.wanted: Collection[TopicPartition] = ()  # the partitions that are read now; empty for all
        self._is_pump_due = False
        self._closed = False
        self._isolation = READ_COMMITTED if settings.isolation_level == "read_committed" else READ_UNCOMMITTED
        self._policy = settings.auto_offset_reset
        self._key = deserializer_of(settings.key_deserializer, MessageField.KEY)
        self._value = deserializer_of(settings.value_deserializer, MessageField.VALUE)
        cluster.on_metadata.append(self.pump)

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for node in self._nodes.values():
            if node.opening is not None:
                node.opening.cancel()

    def check(self) -> None:
        """Raise the error that ended a request or a background task, if there is one. Errors of single partitions are
        not raised here.
        """
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        if self._broken is not None:
            raise self._broken.with_traceback(None)

    def _break(self, error: Exception) -> None:
        """Keep the error that ended a background task, to be raised at the next read: nobody awaits the task."""
        self._broken = self._broken or broken("fetching records failed", error)
        self._arrived()

    # ---- requests ----------------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Send a request to every broker that has partitions to fetch and no request in flight."""
        if self._closed or self._broken is not None:
            return
        now_ms = self._clock.monotonic_ms()
        wanted: dict[int, dict[TopicPartition, PartitionState]] = {}
        full: set[int] = set()
        held = 0
        later_ms: float | None = None
        most_bytes = self._settings.max_partition_fetch_bytes
        for tp, state in self._subscription.assigned.items():
            held += state.fetched_bytes
            if state.paused or not state.is_known or state.refused is not None:
                continue
            if state.fetched and state.fetched[-1].is_failed:
                continue  # after a damaged batch, fetch only after a seek
            if state.retry_at_ms > now_ms:
                later_ms = min(later_ms or state.retry_at_ms, state.retry_at_ms)
                continue
            source = self._source(state, now_ms)
            if source is None:
                self._cluster.request_refresh()
            elif source in self._nodes and self._nodes[source].busy:
                continue  # its response calls pump again
            elif state.fetched_bytes >= most_bytes:
                full.add(source)
            elif not self._refuse_if_recreated(state):
                wanted.setdefault(source, {})[tp] = state
        room = self._settings.fetch_max_bytes - held
        if room <= 0 and wanted:
            room += self._make_room(wanted, most_bytes - room)
        for node_id, states in wanted.items():
            node = self._nodes.setdefault(node_id, _Node(node_id))
            if node.busy or room <= 0:
                continue
            if node.retry_at_ms > now_ms:
                later_ms = min(later_ms or node.retry_at_ms, node.retry_at_ms)
                continue
            connection = self._cluster.ready(node_id, PURPOSE)
            if connection is None:
                self._open(node_id, node)
            else:
                self._send(node_id, node, connection, states, room, hurried=node_id in full)
        if later_ms is not None:
            self._pump_at(now_ms, later_ms)

    def _source(self, state: PartitionState, now_ms: float) -> int | None:
        """Return the broker to fetch from: the preferred follower while the leader is the same, else the leader; None
        if no leader is known.
        """
        metadata = self._cluster.metadata
        if state.replica >= 0:
            is_as_before = metadata.leader_epoch(state.tp) == state.replica_epoch and state.replica in metadata.brokers
            if is_as_before and now_ms < state.replica_until_ms:
                return state.replica
            state.replica, state.replica_until_ms = -1, 0
        return metadata.leader(state.tp)

    def _follow(self, state: PartitionState, replica: int) -> None:
        """Use the follower that the leader named. If it is not in the metadata yet, refresh that first."""
        state.replica = replica
        state.replica_epoch = self._cluster.metadata.leader_epoch(state.tp)
        state.replica_until_ms = int(self._clock.monotonic_ms()) + self._settings.metadata_max_age_ms
        if replica not in self._cluster.metadata.brokers:
            self._cluster.request_refresh()
            self._read_from_leader(state)

    def _read_from_leader(self, state: PartitionState) -> None:
        """Fetch from the leader for a while. The requests leave out our rack, because the leader would name the same
        follower again.
        """
        state.replica = -1
        state.replica_until_ms = int(self._clock.monotonic_ms()) + _LEADER_ONLY_MS

    def _rack_id(self, states: dict[TopicPartition, PartitionState]) -> str:
        """Return our rack; "" while one of these partitions must be fetched from the leader itself."""
        now_ms = self._clock.monotonic_ms()
        leader_only = any(state.replica < 0 and now_ms < state.replica_until_ms for state in states.values())
        return "" if leader_only else self._settings.client_rack

    def _make_room(self, asking: dict[int, dict[TopicPartition, PartitionState]], bytes_needed: int) -> int:
        """If others need the room, drop fetched records of partitions that are paused or not read now. Returns the
        number of freed bytes.
        """
        read_now = self.wanted
        if read_now and not any(tp in read_now for states in asking.values() for tp in states):
            return 0
        freed = 0
        for tp, state in self._subscription.assigned.items():
            if freed < bytes_needed and state.fetched and (state.paused or (read_now and tp not in read_now)):
                freed += state.drop_fetched()
        return freed

    def _pump_at(self, now_ms: float, at_ms: float) -> None:
        """Set the timer so that fetches are sent at at_ms (monotonic clock)."""
        if self._timer is not None:
            self._timer.cancel()
        delay_s = max(1.0, at_ms - now_ms) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._pump_now)

    def pump_soon(self) -> None:
        """Let the due fetches be sent in the next turn of the event loop, once, however often this is called before
        that.
        """
        if not self._is_pump_due:
            self._is_pump_due = True
            asyncio.get_running_loop().call_soon(self._pump_now)

    def _pump_now(self) -> None:
        """Send the fetch requests that are due, as a callback of the loop. An error is kept, and raised at the next
        read.
        """
        self._is_pump_due = False
        try:
            self.pump()
        except Exception as error:
            self._break(error)

    def _refuse_if_recreated(self, state: PartitionState) -> bool:
        """If the topic was deleted and created again since it was first read, set the error (`refused`) that the next
        read raises, once no records of the old topic are left to return. Returns whether it was.
        """
        topic_id = self._cluster.metadata.topic_id(state.tp.topic)
        if topic_id == ZERO_UUID or topic_id == state.topic_id:
            return False
        if state.topic_id is None:
            state.topic_id = topic_id
            return False
        if state.fetched:
            return True  # records of the old topic are returned first
        state.refused = OffsetOutOfRangeError(
            f"topic {state.tp.topic!r} was deleted and created again: offset {state.position} of {state.tp} belongs to"
            " the deleted topic",
            hint="seek to an offset of the new topic; with auto_offset_reset the next read does so",
        )
        state.topic_id = topic_id
        self._arrived()
        return True

    def _open(self, node_id: int, node: _Node) -> None:
        """Start a task that opens the connection for fetches to this broker, unless one is running."""
        if node.opening is None:
            node.opening = asyncio.get_running_loop().create_task(self._open_connection(node_id, node))

    async def _open_connection(self, node_id: int, node: _Node) -> None:
        """Open the connection for fetches to a broker, with a new fetch session; after a Kafka error, back off. Then
        send the fetch requests that are due.
        """
        try:
            await self._cluster.node(node_id, PURPOSE)
        except KafkaError as error:
            self._back_off(node, error)
        except Exception as error:
            self._break(error)
        else:
            node.session.failed(forgotten=True)
        finally:
            node.opening = None
        self._pump_now()

    def _send(
        self,
        node_id: int,
        node: _Node,
        connection: Connection,
        states: dict[TopicPartition, PartitionState],
        room: int,
        *,
        hurried: bool,
    ) -> None:
        """Send a fetch for these partitions to a broker, and take its answer when it comes. room: the most bytes that
        it may bring. hurried: the broker is not to wait for records.
        """
        metadata, settings = self._cluster.metadata, self._settings
        try:
            version = connection.version_of(FetchRequest)
            if version >= _BY_ID_FROM and any(metadata.topic_id(tp.topic) == ZERO_UUID for tp in states):
                version = connection.version_of(FetchRequest, cap=_BY_ID_FROM - 1)
        except KafkaError as error:
            self._back_off(node, error)
            return
        most = settings.max_partition_fetch_bytes
        wanted = {
            tp: Wanted(
                state.fetch_offset, metadata.leader_epoch(tp), state.leader_epoch, metadata.topic_id(tp.topic), most
            )
            for tp, state in states.items()
        }
        requested: _Requested = {tp: (state, state.epoch, state.fetch_offset) for tp, state in states.items()}
        request = _request(
            node.session.ask(wanted, by_id=version >= _BY_ID_FROM),
            max_wait_ms=min(settings.fetch_max_wait_ms, _LEFT_OUT_WAIT_MS) if hurried else settings.fetch_max_wait_ms,
            min_bytes=settings.fetch_min_bytes,
            max_bytes=min(room, settings.fetch_max_bytes),
            isolation_level=self._isolation,
            rack_id=self._rack_id(states) if settings.client_rack else "",
        )
        node.busy = True
        timeout_ms = settings.request_timeout_ms + settings.fetch_max_wait_ms
        future = connection.send(request, version, timeout_ms=timeout_ms)
        future.add_done_callback(lambda done: self._take_answer(node, requested, done))

    # ---- responses ---------------------------------------------------------------------------------------------

    def _take_answer(self, node: _Node, requested: _Requested, future: "asyncio.Future[FetchResponse]") -> None:
        """Handle a response or a failed request. An unexpected error is kept, and raised at the next read."""
        try:
            self._handle_answer(node, requested, future)
        except Exception as error:
            self._break(error)

    def _handle_answer(self, node: _Node, requested: _Requested, future: "asyncio.Future[FetchResponse]") -> None:
        """Apply a Fetch response to its partitions; after a failed request, back off."""
        node.busy = False
        if self._closed or future.cancelled():
            if not future.cancelled():
                future.exception()
            return
        failure = future.exception()
        if failure is not None:
            self._back_off(node, failure)
            self.pump()
            return
        response = future.result()
        code = code_of(response.error_code)
        if code is not ErrorCode.NONE:
            node.session.failed(forgotten=code in _SESSION_GONE)
            if code not in _SESSION_GONE:
                self._back_off(node, error_of(code))
                self._cluster.request_refresh()
            self.pump()
            return
        node.session.answered(response.session_id)
        node.attempt = 0
        if response.throttle_time_ms:  # the broker reads nothing for so long (KIP-219)
            node.retry_at_ms = self._cluster.throttles.note(node.node_id, response.throttle_time_ms)
        names = self._cluster.metadata.topic_name
        news = False
        for topic in response.responses:
            name = topic.topic or names(topic.topic_id)
            for part in topic.partitions:
                found = requested.get(TopicPartition(name, part.partition_index)) if name else None
                if found is not None:
                    state, epoch, offset = found
                    if state.epoch == epoch and state.fetch_offset == offset and self._subscription.is_current(state):
                        news |= self._take(node, state, part)
        if news:
            self._arrived()
        self.pump()

    def _take(self, node: _Node, state: PartitionState, part: FetchResponse.Topic.Partition) -> bool:
        """Store a partition's records, or handle its error. Returns whether to wake the reader."""
        if part.error_code:
            return self._handle_error(node, state, code_of(part.error_code))
        if part.preferred_read_replica >= 0 and part.preferred_read_replica != node.node_id:
            self._follow(state, part.preferred_read_replica)
        if part.diverging_epoch is not None and part.diverging_epoch.end_offset >= 0:
            return self._leave_follower(node, state) and self._handle_truncation(state, part.diverging_epoch.end_offset)
        state.high_watermark = part.high_watermark
        state.last_stable_offset = part.last_stable_offset
        state.log_start_offset = part.log_start_offset
        if not part.records:
            return False
        settings = self._settings
        aborted = part.aborted_transactions if self._isolation == READ_COMMITTED else None
        found = Fetched(
            state.tp,
            state.fetch_offset,
            state.leader_epoch,
            part.records,
            [(each.producer_id, each.first_offset) for each in aborted or ()],
            check_crcs=settings.check_crcs,
            limit=settings.decompressed_limit,
            key=self._key,
            value=self._value,
        )
        if found.is_empty:
            return False
        state.fetched.append(found)
        state.fetched_bytes += found.size
        state.fetch_offset, state.leader_epoch = found.next_offset, found.next_epoch
        return True

    def _handle_error(self, node: _Node, state: PartitionState, code: ErrorCode) -> bool:
        """Handle a partition's error: reset the offset, retry, or set the error that the next read raises. Returns
        whether to wake the reader.
        """
        by_leader = self._leave_follower(node, state)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            return by_leader and self._handle_out_of_range(state)
        error = error_of(code, f"{state.tp}: {code.text}")
        if code in _SESSION_TOPICS:
            node.session.failed(forgotten=True)
        if code is not ErrorCode.CORRUPT_MESSAGE and (is_retriable(error) or code in _SESSION_TOPICS):
            self._cluster.stale(code)
            self._cluster.request_refresh()
            if by_leader:  # after a follower's error, the leader is used at once
                self._retry_later(state)
            return False
        state.refused = error
        return True

    def _leave_follower(self, node: _Node, state: PartitionState) -> bool:
        """If this node was the follower, fetch from the leader next. Returns whether this node is the leader."""
        if state.replica == node.node_id:
            self._read_from_leader(state)
        return self._cluster.metadata.leader(state.tp) == node.node_id

    def _retry_later(self, state: PartitionState) -> None:
        """Let no Fetch ask for this partition until the backoff has passed."""
        pause_ms = self._cluster.backoff.delay_ms(0, self._cluster.environment.rng.random())
        state.retry_at_ms = int(self._clock.monotonic_ms() + pause_ms)

    def _handle_out_of_range(self, state: PartitionState) -> bool:
        """Handle OFFSET_OUT_OF_RANGE of a leader: reset the offset by auto_offset_reset, or set the error that the next
        read raises. Returns False if fetched records must be returned first; the offset is then requested again later.
        """
        if state.fetched:  # fetched records are returned first; then it is requested again
            self._retry_later(state)
            return False
        offset = state.fetch_offset
        policy = {"earliest": EARLIEST, "latest": LATEST}.get(self._policy or "none")
        if policy is None:
            state.refused = OffsetOutOfRangeError(f"{state.tp}: offset {offset} is outside the log")
        else:
            log.warning("%s: offset %d is outside the log; continuing at the %s", state.tp, offset, self._policy)
            state.look_up(Need.OFFSET, policy)
        return True

    def _handle_truncation(self, state: PartitionState, end_offset: int) -> bool:
        """Set the error that the next read raises, because the log was truncated at end_offset, below what was read.
        Returns False if fetched records must be returned first; the offset is then requested again later.
        """
        if state.fetched:
            self._retry_later(state)
            return False
        state.refused = OffsetOutOfRangeError(
            f"{state.tp} was truncated: the records read from offset {end_offset} up to {state.position} are no longer"
            " in the log",
            hint=f"seek to {end_offset} to read what replaced them; with auto_offset_reset the next read does so",
        )
        state.fallback = end_offset
        return True

    def _back_off(self, node: _Node, error: BaseException) -> None:
        """After a failed request, let the next one begin a new fetch session after a pause. An error that is not
        retriable is kept, and raised at the next read.
        """
        node.session.failed()
        for state in self._subscription.assigned.values():
            if state.replica == node.node_id:
                self._read_from_leader(state)
        pause_ms = self._cluster.backoff.delay_ms(node.attempt, self._cluster.environment.rng.random())
        node.attempt += 1
        node.retry_at_ms = self._clock.monotonic_ms() + pause_ms
        if not is_retriable(error) and not isinstance(error, ClosedError):
            self._failure = error if isinstance(error, Exception) else None
            self._arrived()
        self._cluster.request_refresh()


def _request(ask: Ask, **more: Any) -> FetchRequest:
    """Return the FetchRequest for the partitions that the session has to name. more: its other fields."""
    Topic, Forgotten = FetchRequest.Topic, FetchRequest.ForgottenTopic
    topics: dict[str, FetchRequest.Topic] = {}
    for tp, one in ask.wanted.items():
        topic = topics.get(tp.topic)
        if topic is None:
            topic = topics[tp.topic] = Topic(topic=tp.topic, topic_id=one.topic_id, partitions=[])
        topic.partitions.append(
            Topic.Partition(
                partition=tp.partition,
                current_leader_epoch=one.leader_epoch,
                fetch_offset=one.offset,
                last_fetched_epoch=one.last_fetched_epoch,
                partition_max_bytes=one.max_bytes,
            )
        )
    forgotten = [
        Forgotten(topic=tp.topic, topic_id=topic_id, partitions=[tp.partition]) for tp, topic_id in ask.forgotten
    ]
    return FetchRequest(
        session_id=ask.session_id,
        session_epoch=ask.epoch,
        topics=list(topics.values()),
        forgotten_topics_data=forgotten,
        **more,
    )
