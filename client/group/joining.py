"""Joining a generation: JoinGroup, the leader's work and SyncGroup, with retries.

The rule: it starts only within a poll. Then it runs in the background, since the other members wait for it; the next
poll applies its result. Source: Kafka's AbstractCoordinator, ConsumerCoordinator.
"""

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

from ...protocol.errors import ErrorCode
from ...protocol.messages.groups import JoinGroupRequest, JoinGroupResponse, SyncGroupResponse
from ..errors import InvalidConfigurationError, KafkaError, UnsupportedVersionError, error_of, is_retriable
from ..net.cluster import Cluster
from ..net.coordinators import CoordinatorKind
from ..net.environment import Environment
from ..net.retry import Backoff, Deadline
from ..settings import ConsumerSettings
from ..values import TopicPartition
from . import leading
from .membership import Membership, State, Turn

_OTHER_PROTOCOL = (
    "the members of this group have other assignors, or it is of another type: use theirs, or another group_id; "
    "a share group stays one until it is deleted"
)

JOIN_GRACE_MS = 5_000  # the wait for JoinGroup exceeds the rebalance timeout by this, as in Kafka's clients
STATIC_FROM = 5  # of JoinGroup (KIP-345)
MAX_PATIENCE_MS = 5_000  # the longest wait for metadata; less with a short session timeout


class Joining:
    """Sends the requests with which one member joins its group."""

    def __init__(
        self, cluster: Cluster, settings: ConsumerSettings, membership: Membership, environment: Environment
    ) -> None:
        assert settings.group_id is not None
        self._cluster = cluster
        self._membership = membership
        self._environment = environment
        self._static = settings.group_instance_id is not None
        self._target: tuple[CoordinatorKind, str] = ("group", settings.group_id)
        self._backoff = Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms)
        self._timeout_ms = max(settings.request_timeout_ms, settings.max_poll_interval_ms + JOIN_GRACE_MS)
        self._patience_ms = min(MAX_PATIENCE_MS, settings.session_timeout_ms // 3)
        self._attempt = 0
        self._assigned_counts: dict[str, int | None] = {}

    async def run(self, topics: Collection[str], owned: Collection[TopicPartition]) -> None:
        """Send JoinGroup and then SyncGroup. Returns when there is an assignment, or when the next poll must first
        give up partitions and join again. Raises errors of the group.
        """
        joined = await self._join(topics, owned)
        if joined is not None:
            await self._sync(joined)

    # ---- JoinGroup -------------------------------------------------------------------------------------------

    async def _join(self, topics: Collection[str], owned: Collection[TopicPartition]) -> JoinGroupResponse | None:
        """Send JoinGroup until it succeeds. Returns its response; None if the next poll must act first. Raises final
        errors.
        """
        membership = self._membership
        while True:
            if self._static:
                await self._check_static()
            response = await self._send(membership.join_request(topics, owned))
            if response is None:
                continue
            turn = membership.on_join(response)
            if turn is Turn.GO_ON:
                self._attempt = 0
                assert isinstance(response, JoinGroupResponse)
                return response
            if turn in (Turn.LEAVE_GENERATION, Turn.LEAVE_MEMBER):
                return None
            if turn in (Turn.AGAIN, Turn.FIND):
                await self._pause(forget=turn is Turn.FIND)
            elif turn is not Turn.TAKE_ID:
                raise self._refusal(response)

    async def _send(self, request: Any) -> Any:
        """Send a request and return the response; None, after a pause, if there was none."""
        try:
            return await self._cluster.ask(self._target, request, timeout_ms=self._timeout_ms)
        except Exception as error:
            if not is_retriable(error):
                raise
            await self._pause(forget=True)
            return None

    async def _pause(self, *, forget: bool) -> None:
        """Wait before the next attempt; forget the coordinator if it must be looked up again."""
        if forget:
            self._cluster.forget_coordinator(*self._target)
        delay_ms = self._backoff.delay_ms(self._attempt, self._environment.rng.random())
        self._attempt += 1
        await asyncio.sleep(delay_ms / 1000)

    async def _check_static(self) -> None:
        """Raise UnsupportedVersionError if the broker would treat the member as a dynamic one."""
        try:
            connection = await self._cluster.coordinator(*self._target)
        except Exception as error:
            if is_retriable(error):
                return  # the request itself handles it
            raise
        version = connection.version_of(JoinGroupRequest)
        if version < STATIC_FROM:
            raise UnsupportedVersionError(
                f"group_instance_id needs JoinGroup version {STATIC_FROM}; {connection.name} supports {version}",
                hint="leave it out, or use a broker of Kafka 2.3 or newer",
            )

    # ---- SyncGroup -------------------------------------------------------------------------------------------

    async def _sync(self, joined: JoinGroupResponse) -> None:
        """Send SyncGroup and take over the assignment that it answers; as the leader, compute everybody's assignment
        first. Does nothing if the membership has changed meanwhile; without a response, the next poll joins again.
        Raises the error of a refusal after which joining again is of no use.
        """
        membership, stamp = self._membership, self._membership.stamp
        assignments: Mapping[str, bytes] = await self._lead(joined) if membership.leads else {}
        if membership.stamp != stamp or membership.state is not State.SYNCING:
            return  # a heartbeat's response has put it out
        response = await self._send(membership.sync_request(assignments))
        if response is None:
            membership.rejoin("SyncGroup got no response")
            return
        turn = membership.on_sync(response, stamp)
        if turn is Turn.FIND:
            await self._pause(forget=True)
        elif turn in (Turn.FENCE, Turn.REFUSE):
            raise self._refusal(response)

    def _refusal(self, response: JoinGroupResponse | SyncGroupResponse) -> KafkaError:
        """Return the error to raise for a refused response. If that has no error code, the group's protocol is none
        that this member offered.
        """
        if response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            return InvalidConfigurationError(code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL, hint=_OTHER_PROTOCOL)
        if response.error_code:
            return error_of(response.error_code)
        return error_of(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"the group {self._target[1]!r} has the protocol {response.protocol_name!r} of the type "
            f"{response.protocol_type!r}, which is not one of: {', '.join(self._membership.assignors)}",
        )

    async def _lead(self, joined: JoinGroupResponse) -> Mapping[str, bytes]:
        """Return the assignment of all members, encoded, by member id; this member computes it as the group's
        leader.
        """
        members = leading.members_of(joined.members)
        topics = leading.topics_of(members)
        self._cluster.watch_topics(topics)
        known = await self._partitions(topics)
        self._assigned_counts = {topic: known.get(topic) for topic in topics}
        if joined.skip_assignment:  # KIP-814: the group keeps its assignment
            return {}
        assert self._membership.assignor is not None
        return leading.assignments(self._membership.assignor, known, members)

    async def _partitions(self, topics: Collection[str]) -> dict[str, int]:
        """Return the numbers of partitions of these topics; refreshes metadata once if some are unknown."""
        known = self._partition_counts(topics)
        if len(known) < len(topics):
            try:
                deadline = Deadline(self._environment.clock, self._patience_ms)
                await self._cluster.refresh(topics, deadline_ms=deadline.at_ms)
            except Exception as error:
                if not is_retriable(error):
                    raise
            known = self._partition_counts(topics)
        return known

    def has_changed(self) -> bool:
        """Return whether a topic that this leader has assigned has another number of partitions now, or was deleted or
        created.
        """
        metadata = self._cluster.metadata
        for topic, before in self._assigned_counts.items():
            now = metadata.partitions(topic)
            if now and now != before:
                return True
            if before is not None and metadata.error(topic) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return True
        return False

    def _partition_counts(self, topics: Collection[str]) -> dict[str, int]:
        """Return the number of partitions of each of these topics; topics that are not known are left out."""
        found = {topic: self._cluster.metadata.partitions(topic) for topic in sorted(topics)}
        return {topic: count for topic, count in found.items() if count}
