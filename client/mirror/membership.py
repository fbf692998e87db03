"""A task's membership in the mirror's group on the target: a consumer's member without a consumer, since it reads the
positions there and not the topics.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from ..config_names import settings_from
from ..group.any_group import group_of
from ..group.subscription import Subscription
from ..net.cluster import Cluster
from ..net.environment import Environment
from ..settings import CLASSIC, ConsumerSettings
from ..values import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from .assignor import MirrorAssignor

POLL_MS = 500
"""So long a poll waits for an assignment, so that a task that is told to stop does."""
SESSION_MS = 10_000
METADATA_MS = 30_000
"""How often the target is asked whether topics have grown."""


class Membership:
    """One member of the mirror's group."""

    def __init__(self, config: Mapping[str, Any], group_id: str, source_id: str, environment: Environment) -> None:
        """config: of the target, by Kafka's names of settings. source_id: the cluster id of the source."""
        own = {"group.id": group_id, "enable.auto.commit": False}
        usual = {"session.timeout.ms": SESSION_MS, "metadata.max.age.ms": METADATA_MS}
        if config.get("group.protocol", CLASSIC) != CLASSIC:
            del usual["session.timeout.ms"]  # the broker's
        settings = settings_from(ConsumerSettings, usual | dict(config) | own)
        if settings.group_protocol == CLASSIC:
            # an object, where settings that users write have names
            settings = replace(settings, partition_assignment_strategy=(MirrorAssignor(source_id),))  # type: ignore[arg-type]
        self._clock = environment.clock
        self._cluster = Cluster(settings, environment)
        self._subscription = Subscription(True)
        self._group = group_of(self._cluster, settings, self._subscription, environment)
        self._timeout_ms = settings.default_api_timeout_ms

    async def start(self) -> None:
        """Connect. Raises BrokerUnreachableError and the like."""
        await self._cluster.start()

    async def close(self) -> None:
        """Leave the group and close all connections."""
        try:
            await self._group.close()
        finally:
            await self._cluster.close()

    def subscribe(self, topics: Collection[str]) -> None:
        """Subscribe to these topics. Their partitions are assigned from the next poll on."""
        if frozenset(topics) != self._subscription.topics:
            self._subscription.subscribe(topics)
        self._cluster.request_refresh()

    async def poll(self) -> ConsumerGroupMetadata | None:
        """Join, or stay in the group. Returns the member with its generation; None while it has no assignment.

        Raises the group's errors.
        """
        if self._group.needs_poll:
            await self._group.poll(self._clock.monotonic_ms() + POLL_MS)
        else:
            self._group.polled()
        self._cluster.check()
        member = self._group.metadata()
        return member if self._subscription.has_assignment and member.generation >= 0 else None

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """Return the partitions that this task mirrors."""
        return frozenset(self._subscription.assigned)

    async def stable_offsets(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the committed offsets, None for a partition without one. Partitions whose offset an open transaction
        may still move are left out.
        """
        return await self._group.stable_now(partitions, timeout_ms=self._timeout_ms)
