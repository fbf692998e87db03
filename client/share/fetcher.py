"""Fetches records of a share group and sends acknowledgements: one request at a time to each broker.

The rules: records are fetched only while the application waits for some, as fetched ones are kept from all other
consumers. Acknowledgements go with the next fetch, or alone after ACK_LINGER_MS, or at once with `flush`; what is not
assigned any more is acknowledged alone. All requests to a broker go over one connection, since the session ends with
it. A request without an answer, and an answer that there is no such session, end both: what was acquired in it is not
ours any more, and others have it at once.
Source: Kafka's ShareConsumeRequestManager; KIP-932, KIP-1222 (renewals).
"""

import asyncio
import logging
from collections.abc import Callable

from ...protocol.errors import ErrorCode
from ...protocol.messages.share_fetch import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from ..errors import (
    BrokerUnreachableError,
    FatalError,
    KafkaError,
    RecordNotHeldError,
    UnsupportedVersionError,
    code_of,
    error_of,
    is_retriable,
)
from ..net.cluster import Cluster
from ..net.connection import Connection, broken
from ..settings import ShareConsumerSettings
from ..values import TopicPartition
from .arrivals import Arrivals
from .held import NEVER_MS, Acks, Held, Renewal, Session
from .membership import Place, ShareMembership
from .session import GONE, ShareSession, codes_of

log = logging.getLogger("fencepost.client")
PURPOSE = "share"
ACK_LINGER_MS = 100
"""How long an acknowledgement waits for others, unless a fetch takes it along."""
STRICT_SINCE = RENEW_SINCE = 2
_EXACT = 1  # share_acquire_mode: never more than max_records
_USUAL_LOCK_MS = 30_000

_Answer = ShareFetchResponse | ShareAcknowledgeResponse


class _Node:
    """The share session and the connection with one broker."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.share = ShareSession()
        self.connection: Connection | None = None
        self.opening: asyncio.Task[None] | None = None
        self.busy = False  # a request is in flight
        self.fetching = False  # it is a fetch without acknowledgements
        self.retry_at_ms = 0.0
        self.attempt = 0

    @property
    def acknowledging(self) -> bool:
        """Return whether a request with acknowledgements is in flight."""
        return self.busy and not self.fetching

    @property
    def session(self) -> Session:
        """Return the key of the current share session: the broker and the session's number."""
        return Session(self.node_id, self.share.stamp)


class ShareFetcher:
    """Fetches records for one share consumer.

    arrived: called when there are records or an error for the application. hungry_until_ms: until when it waits, or
    None.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: ShareConsumerSettings,
        membership: ShareMembership,
        held: Held,
        arrivals: Arrivals,
        arrived: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._member = membership
        self._held = held
        self._arrivals = arrivals
        self._arrived = arrived
        self._clock = cluster.environment.clock
        self._nodes: dict[int, _Node] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._flush_at_ms = NEVER_MS
        self._failure: KafkaError | None = None
        self._broken: FatalError | None = None
        self._changed: asyncio.Future[None] | None = None
        self._closed = False
        self.hungry_until_ms: float | None = None
        cluster.on_metadata.append(self._pump_now)

    def check(self) -> None:
        """Raise the error of a request (only once) or of a background task, if there is one."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        if self._broken is not None:
            raise self._broken.with_traceback(None)

    @property
    def error(self) -> KafkaError | None:
        """Return the error that `check` would raise; None without one."""
        return self._failure or self._broken

    def send_soon(self) -> None:
        """Send new acknowledgements with the next fetch, or after ACK_LINGER_MS."""
        if self._flush_at_ms == NEVER_MS:
            self._flush_at_ms = self._clock.monotonic_ms() + ACK_LINGER_MS
            self._set_timer()

    def pump(self) -> None:
        """Send what is due (renewals, acknowledgements, fetches) to each broker without a request in flight."""
        if self._closed or self._broken is not None:
            return
        now_ms = self._clock.monotonic_ms()
        wanted = self._wanted()
        renewals = self._held.renewals(now_ms)
        for session, renewal in renewals.items():
            if session.node_id not in self._nodes or not self._send_renewal(self._nodes[session.node_id], renewal):
                self._held.put_off(renewal, now_ms)
        for node_id in wanted:
            if node_id not in self._nodes:
                self._nodes[node_id] = _Node(node_id)
        for node in self._nodes.values():
            if not node.busy and node.retry_at_ms <= now_ms:
                self._send_next(node, wanted.get(node.node_id, set()), now_ms)
        if self._flush_at_ms <= now_ms and not self._held.unsent_sessions:
            self._flush_at_ms = NEVER_MS
        self._set_timer()

    def _send_next(self, node: _Node, wanted: set[Place], now_ms: float) -> None:
        """Send acknowledgements or a fetch of the wanted partitions to this broker, if one is due."""
        is_fetch = self.hungry_until_ms is not None and self.hungry_until_ms > now_ms
        is_fetch = is_fetch and not self._arrivals.has_some(now_ms)
        is_fetch = is_fetch and bool(wanted or node.share.forgets(wanted))
        unsent = self._held.has_unsent(node.session)
        if not is_fetch and not (unsent and self._flush_at_ms <= now_ms):
            return
        connection = self._connection(node)
        if connection is None:
            return
        doubtful = self._held.drain_doubtful(node.session, now_ms)
        if doubtful:
            self._send_acks(node, connection, doubtful)
            return
        unassigned = self._held.drain(node.session, but_not=wanted) if is_fetch else self._held.drain(node.session)
        if unassigned:
            self._send_acks(node, connection, unassigned)
        elif is_fetch:
            self._send_fetch(node, connection, wanted, now_ms)

    def _wanted(self) -> dict[int, set[Place]]:
        """Return the assigned partitions by the node id of their leader, as far as that is known."""
        metadata, found = self._cluster.metadata, dict[int, set[Place]]()
        for place in self._member.assigned:
            name = metadata.topic_name(place.topic_id)
            leader = None if name is None else metadata.leader((name, place.partition))
            if leader is None:
                self._cluster.request_refresh()
            else:
                found.setdefault(leader, set()).add(place)
        return found

    def _connection(self, node: _Node) -> Connection | None:
        """Return the broker's connection; None while it is being opened. A new connection ends the old session."""
        ready = self._cluster.ready(node.node_id, PURPOSE)
        if ready is not node.connection:
            self._lose(node)
            node.connection = ready
        if ready is None and node.opening is None:
            node.opening = asyncio.get_running_loop().create_task(self._open(node))
        return ready

    async def _open(self, node: _Node) -> None:
        """Open the connection for share fetches to this broker (back off if that fails), then send what is due."""
        try:
            await self._cluster.node(node.node_id, PURPOSE)
        except KafkaError as error:
            self._back_off(node, error)
        except Exception as error:
            self._break(error)
        finally:
            node.opening = None
        self._pump_now()

    def _set_timer(self) -> None:
        """Set a timer to call pump() when the next request is due. If one is overdue, the next response calls it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now_ms = self._clock.monotonic_ms()
        moments = [node.retry_at_ms for node in self._nodes.values()] + [self._held.next_ms(), self._flush_at_ms]
        due_ms = min((each for each in moments if each > now_ms), default=NEVER_MS)
        if due_ms < NEVER_MS and not self._closed:
            delay_s = max(1.0, due_ms - now_ms) / 1000
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._pump_now)

    def _pump_now(self) -> None:
        """Call pump(). An unexpected error is kept for the application's next read."""
        try:
            self.pump()
        except Exception as error:
            self._break(error)

    def _break(self, error: Exception) -> None:
        """Keep the error that ended a background task, to be raised at the next read: nobody awaits the task."""
        self._broken = self._broken or broken("fetching records of a share group failed", error)
        self._notify()

    def _notify(self) -> None:
        """Wake tasks that wait in `_next_change`, and the application's waiting reads."""
        changed, self._changed = self._changed, None
        if changed is not None and not changed.done():
            changed.set_result(None)
        self._arrived()

    def _send_fetch(self, node: _Node, connection: Connection, wanted: set[Place], now_ms: float) -> None:
        """Send ShareFetch with acknowledgements. Fails if strict is set and the broker lacks version 2."""
        settings = self._settings
        if settings.strict and not connection.knows(ShareFetchRequest, STRICT_SINCE):
            missing = UnsupportedVersionError(
                f"{connection.name} cannot give out exactly max_poll_records of a share group: ShareFetch 2 is missing",
                hint="leave out strict",
            )
            self._fail(node, missing)
            return
        acks = self._held.drain(node.session, only=wanted) if node.share.is_open else {}
        ask = node.share.ask(wanted, acks)
        left_ms = NEVER_MS if self.hungry_until_ms is None else max(0.0, self.hungry_until_ms - now_ms)
        request = ShareFetchRequest(
            group_id=self._member.group_id,
            member_id=self._member.member_id,
            share_session_epoch=ask.epoch,
            max_wait_ms=int(min(settings.fetch_max_wait_ms, left_ms)),
            min_bytes=settings.fetch_min_bytes,
            max_bytes=settings.fetch_max_bytes,
            max_records=settings.max_poll_records,
            batch_size=settings.max_poll_records,
            share_acquire_mode=_EXACT if settings.strict else 0,
            topics=ask.topics,
            forgotten_topics_data=ask.forgotten,
        )
        node.fetching = not acks
        self._send(node, connection, request, acks)

    def _send_acks(self, node: _Node, connection: Connection, acks: Acks) -> None:
        epoch, topics = node.share.acknowledge(acks)
        request = ShareAcknowledgeRequest(
            group_id=self._member.group_id, member_id=self._member.member_id, share_session_epoch=epoch, topics=topics
        )
        self._send(node, connection, request, acks)

    def _send_renewal(self, node: _Node, renewal: Renewal) -> bool:
        """Send a request that renews these acquisition locks. Returns whether it was sent."""
        if node.busy or node.session not in {each.session for each, _, _ in renewal.deliveries}:
            return False
        connection = self._connection(node)
        if connection is None or not node.share.is_open or not connection.knows(ShareAcknowledgeRequest, RENEW_SINCE):
            return False
        epoch, topics = node.share.acknowledge(renewal.acks)
        request = ShareAcknowledgeRequest(
            group_id=self._member.group_id,
            member_id=self._member.member_id,
            share_session_epoch=epoch,
            is_renew_ack=True,
            topics=topics,
        )
        self._send(node, connection, request, renewal.acks, renewal)
        return True

    def _send(
        self,
        node: _Node,
        connection: Connection,
        request: ShareFetchRequest | ShareAcknowledgeRequest,
        acks: Acks,
        renewal: Renewal | None = None,
    ) -> None:
        """Send the request. acks: those in it. renewal: the locks it renews; None for other requests."""
        node.busy = True
        timeout_ms = self._settings.request_timeout_ms + self._settings.fetch_max_wait_ms
        future = connection.send(request, connection.version_of(type(request)), timeout_ms=timeout_ms)
        future.add_done_callback(lambda done: self._take_answer(node, acks, renewal, done))

    def _take_answer(self, node: _Node, acks: Acks, renewal: Renewal | None, future: "asyncio.Future[_Answer]") -> None:
        """Handle a response or a failed request, and send the next one. Keeps unexpected errors for a read."""
        node.busy = node.fetching = False
        try:
            if future.cancelled():
                return
            self._handle_answer(node, acks, renewal, future)
            self.pump()
        except Exception as error:
            self._break(error)
        self._notify()

    def _handle_answer(
        self, node: _Node, acks: Acks, renewal: Renewal | None, future: "asyncio.Future[_Answer]"
    ) -> None:
        failure = future.exception()
        if failure is not None:
            if not isinstance(failure, KafkaError):
                raise failure
            error: KafkaError = failure
            self._refused(acks, renewal, error)
            self._back_off(node, error)
            return
        response = future.result()
        code = code_of(response.error_code)
        if code is not ErrorCode.NONE:
            error = error_of(code, f"share group {self._member.group_id}: {response.error_message or code.text}")
            self._refused(acks, renewal, error)
            self._lose(node)
            if node.connection is not None:  # with which the broker ends the session, if it still has it
                node.connection.close()
            node.attempt += 1
            if code not in GONE or node.attempt > 1:
                self._fail(node, error)
            return
        node.share.answered()
        node.attempt = 0
        now_ms = self._clock.monotonic_ms()
        if response.throttle_time_ms:
            node.retry_at_ms = self._cluster.throttles.note(node.node_id, response.throttle_time_ms)
        refused = self._check_acks(acks, renewal, response)
        self._held.answered(node.session, refused)
        if renewal is not None:
            self._held.renewed(renewal, refused, now_ms, response.acquisition_lock_timeout_ms)
        if isinstance(response, ShareFetchResponse):
            self._take_records(node, response, now_ms)

    def _check_acks(self, acks: Acks, renewal: Renewal | None, response: _Answer) -> set[Place]:
        """Count accepted and note refused acknowledgements. Returns partitions that were refused or are missing."""
        codes = codes_of(response)
        refused: set[Place] = set()
        for place in acks:
            number, text = codes.get(place, (int(ErrorCode.INVALID_RECORD_STATE), None))
            if number:
                refused.add(place)
                code = code_of(number)
                self._refused({place: acks[place]}, renewal, error_of(code, text or code.text))
            else:
                self._held.count_acknowledged(acks[place])
        return refused

    def _refused(self, acks: Acks, renewal: Renewal | None, error: KafkaError) -> None:
        """Log and count acknowledgements that failed. Renewals are only logged, gaps and releases passed over."""
        for place, ranges in acks.items():
            count = sum(each.last_offset - each.first_offset + 1 for each in ranges)
            name = self._cluster.metadata.topic_name(place.topic_id) or place.topic_id.hex()
            where = f"{name}-{place.partition}"
            if renewal is not None:
                log.warning("share group %s: locks of %d records of %s were not renewed: %s",
                            self._member.group_id, count, where, error)  # fmt: skip
                continue
            if all(set(each.acknowledge_types) <= {0, 2} for each in ranges):
                continue  # gaps, and what was released: that is given back anyway
            log.warning("share group %s: %d acknowledgements of %s were not taken: %s",
                        self._member.group_id, count, where, error)  # fmt: skip
            refusal = RecordNotHeldError(f"{where}: {count} acknowledgements were not taken: {error}", code=error.code)
            self._held.failed(refusal, count)

    def _take_records(self, node: _Node, response: ShareFetchResponse, now_ms: float) -> None:
        """Pass the acquired records of a ShareFetch response on to `arrivals`, and handle errors of partitions."""
        lock_ms = response.acquisition_lock_timeout_ms or _USUAL_LOCK_MS
        for topic in response.responses:
            name = self._cluster.metadata.topic_name(topic.topic_id)
            for one in topic.partitions:
                code = code_of(one.error_code)
                if code is not ErrorCode.NONE:
                    self._partition_failed(node, name or topic.topic_id.hex(), code, one.error_message)
                elif one.acquired_records and name is not None:
                    ranges = [(each.first_offset, each.last_offset, each.delivery_count)
                              for each in one.acquired_records]  # fmt: skip
                    place = Place(topic.topic_id, one.partition_index)
                    partition = TopicPartition(name, one.partition_index)
                    self._arrivals.add(partition, place, node.session, ranges, one.records, now_ms, lock_ms)
        if self._held.unsent_sessions:  # gaps, and what cannot be read
            self.send_soon()

    def _partition_failed(self, node: _Node, topic: str, code: ErrorCode, text: str | None) -> None:
        """Refresh stale metadata, pause this broker, and keep a final error for the next read."""
        error = error_of(code, f"{topic}: {text or code.text}")
        self._cluster.stale(code)
        if not is_retriable(error):
            self._failure = self._failure or error
        log.info("share group %s: %s", self._member.group_id, error)
        self._pause(node)

    def _back_off(self, node: _Node, error: KafkaError) -> None:
        """End the session and pause this broker, after a request without response or a failed connection attempt."""
        self._lose(node)
        self._cluster.request_refresh()
        if not is_retriable(error):
            self._failure = self._failure or error
        log.info("share group %s: %s", self._member.group_id, error)
        self._pause(node)
        self._notify()

    def _fail(self, node: _Node, error: KafkaError) -> None:
        """Pause requests to this broker after an error. A final error is raised at the application's next read."""
        if not is_retriable(error):
            self._failure = self._failure or error
        log.info("share group %s: %s", self._member.group_id, error)
        self._pause(node)
        self._notify()

    def _pause(self, node: _Node) -> None:
        """Send nothing to this broker for the next retry backoff."""
        delay_ms = self._cluster.backoff.delay_ms(node.attempt, self._cluster.environment.rng.random())
        node.attempt += 1
        node.retry_at_ms = self._clock.monotonic_ms() + delay_ms

    def _lose(self, node: _Node) -> None:
        """Forget the session, whose records the broker releases. Unsent acknowledgements count as failed."""
        lost = self._held.end_session(node.session)
        node.share.lost()
        if lost:
            error = BrokerUnreachableError(
                f"{lost} acknowledgements were not sent: the session in which the records were acquired is over"
            )
            log.warning("share group %s: %s", self._member.group_id, error)
            self._held.failed(error, lost)

    async def flush(self, timeout_ms: float) -> bool:
        """Send all acknowledgements and wait for the answers. Returns whether all were answered in time."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while True:
                    self._flush_at_ms = min(self._flush_at_ms, self._clock.monotonic_ms())
                    self.pump()
                    self.check()
                    if not self._held.unsent_sessions and not any(node.acknowledging for node in self._nodes.values()):
                        return True
                    await self._next_change()
        except TimeoutError:
            return False

    async def _next_change(self) -> None:
        """Wait until a response was handled or a connection attempt has failed."""
        if self._changed is None:
            self._changed = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._changed)

    async def close(self) -> None:
        """Send the last acknowledgements and end the sessions, which releases all other records."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for node in self._nodes.values():
            if node.opening is not None:
                node.opening.cancel()
        await asyncio.gather(*(self._close_session(node) for node in self._nodes.values()))

    async def _close_session(self, node: _Node) -> None:
        """Send this broker the last acknowledgements and the end of the share session, if it has one."""
        while node.acknowledging:
            await self._next_change()
        connection = self._cluster.ready(node.node_id, PURPOSE)
        session, acks = node.session, self._held.drain(node.session)
        if connection is None or connection is not node.connection or (node.busy and not acks):
            return  # the end of the connection ends the session
        while node.busy:
            await self._next_change()
        closing = node.share.close(acks)
        self._held.end_session(session)
        if closing is None:
            return
        epoch, topics = closing
        request = ShareAcknowledgeRequest(
            group_id=self._member.group_id, member_id=self._member.member_id, share_session_epoch=epoch, topics=topics
        )
        try:
            version = connection.version_of(ShareAcknowledgeRequest)
            response = await connection.send(request, version, timeout_ms=self._settings.request_timeout_ms)
        except KafkaError as error:
            self._refused(acks, None, error)
            return
        code = code_of(response.error_code)
        if code is not ErrorCode.NONE:
            self._refused(acks, None, error_of(code))
        else:
            self._check_acks(acks, None, response)
