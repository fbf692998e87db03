"""How a member gets into a generation: JoinGroup, the leader's work, SyncGroup, with the tries that they take.

The rule: it begins only inside of a poll. Once under way it goes on by itself, since the others of the group wait for
it; what comes out is taken over in a poll again. Source: Kafka's AbstractCoordinator, ConsumerCoordinator.
"""

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

from ...protocol.errors import ErrorCode
from ...protocol.messages.groups import JoinGroupRequest, JoinGroupResponse
from ..errors import UnsupportedVersionError, error_of, is_retriable
from ..net.cluster import Cluster
from ..net.coordinators import CoordinatorKind
from ..net.environment import Environment
from ..net.retry import Backoff, Deadline
from ..settings import ConsumerSettings
from ..values import TopicPartition
from . import leading
from .membership import Membership, State, Turn

JOIN_GRACE_MS = 5_000  # above the rebalance timeout, as Kafka's clients wait
STATIC_FROM = 5  # of JoinGroup (KIP-345)
MOST_PATIENCE_MS = 5_000  # for metadata, and never so long that the group misses a heartbeat


class Joining:
    """The exchange."""

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
        self._patience_ms = min(MOST_PATIENCE_MS, settings.session_timeout_ms // 3)
        self._attempt = 0
        self._led: dict[str, int | None] = {}

    async def run(self, topics: Collection[str], owned: Collection[TopicPartition]) -> None:
        """Returns with an assignment, or because a poll has to prepare again. Raises what the group refuses with."""
        joined = await self._join(topics, owned)
        if joined is not None:
            await self._sync(joined)

    # ---- JoinGroup -------------------------------------------------------------------------------------------

    async def _join(self, topics: Collection[str], owned: Collection[TopicPartition]) -> JoinGroupResponse | None:
        membership = self._membership
        while True:
            if self._static:
                await self._check_static()
            response = await self._asked(membership.join_request(topics, owned))
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
                await self._wait(forget=turn is Turn.FIND)
            elif turn is not Turn.TAKE_ID:
                raise error_of(response.error_code)

    async def _asked(self, request: Any) -> Any:
        """The response; None if there was none, after a while."""
        try:
            return await self._cluster.ask(self._target, request, timeout_ms=self._timeout_ms)
        except Exception as error:
            if not is_retriable(error):
                raise
            await self._wait(forget=True)
            return None

    async def _wait(self, *, forget: bool) -> None:
        if forget:
            self._cluster.forget_coordinator(*self._target)
        delay_ms = self._backoff.delay_ms(self._attempt, self._environment.rng.random())
        self._attempt += 1
        await asyncio.sleep(delay_ms / 1000)

    async def _check_static(self) -> None:
        """Raises UnsupportedVersionError: an older broker would take it for a dynamic member."""
        try:
            connection = await self._cluster.coordinator(*self._target)
        except Exception as error:
            if is_retriable(error):
                return  # the request itself will meet it
            raise
        version = connection.version_of(JoinGroupRequest)
        if version < STATIC_FROM:
            raise UnsupportedVersionError(
                f"group_instance_id needs JoinGroup version {STATIC_FROM}; {connection.name} supports {version}",
                hint="leave it out, or use a broker of Kafka 2.3 or newer",
            )

    # ---- SyncGroup -------------------------------------------------------------------------------------------

    async def _sync(self, joined: JoinGroupResponse) -> None:
        membership, asked = self._membership, self._membership.stamp
        assignments: Mapping[str, bytes] = await self._lead(joined) if membership.leads else {}
        if membership.stamp != asked or membership.state is not State.SYNCING:
            return  # a heartbeat learnt that it is out
        response = await self._asked(membership.sync_request(assignments))
        if response is None:
            membership.rejoin("SyncGroup was not answered")
            return
        turn = membership.on_sync(response, asked)
        if turn is Turn.FIND:
            await self._wait(forget=True)
        elif turn in (Turn.FENCE, Turn.REFUSE):
            raise error_of(response.error_code)

    async def _lead(self, joined: JoinGroupResponse) -> Mapping[str, bytes]:
        members = leading.members_of(joined.members)
        topics = leading.topics_of(members)
        self._cluster.watch_topics(topics)
        known = await self._partitions(topics)
        self._led = {topic: known.get(topic) for topic in topics}
        if joined.skip_assignment:  # KIP-814: the group goes on with what it has
            return {}
        assert self._membership.assignor is not None
        return leading.assignments(self._membership.assignor, known, members)

    async def _partitions(self, topics: Collection[str]) -> dict[str, int]:
        """What is known of these topics, after a look at the cluster if some are not."""
        known = self._known(topics)
        if len(known) < len(topics):
            try:
                deadline = Deadline(self._environment.clock, self._patience_ms)
                await self._cluster.refresh(topics, deadline_ms=deadline.at_ms)
            except Exception as error:
                if not is_retriable(error):
                    raise
            known = self._known(topics)
        return known

    def has_changed(self) -> bool:
        """Whether the topics of the group that this member leads are not what they were, as far as is known."""
        metadata = self._cluster.metadata
        for topic, before in self._led.items():
            now = metadata.partitions(topic)
            if now and now != before:
                return True
            if before is not None and metadata.error(topic) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return True
        return False

    def _known(self, topics: Collection[str]) -> dict[str, int]:
        found = {topic: self._cluster.metadata.partitions(topic) for topic in sorted(topics)}
        return {topic: count for topic, count in found.items() if count}
