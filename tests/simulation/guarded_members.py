"""Members of one group that belong to different users, while a warden changes what these may read.

All subscribe to all guarded topics by one regular expression. What a member is told is an op; what must hold is in
`rights_rules.py`: nobody is told of a topic that it may not know of, and in the end what somebody may read is read.
"""

import asyncio

from fencepost.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from simulation.guarded import GROUP, TOPICS, USERS, UserCaller
from simulation.lines import Unanswered
from simulation.rights_rules import Settled, Told
from simulation.world import World

SETTLING_S = 60  # virtual: longer than the session of a member that may not log in any more
_Owned = ConsumerGroupHeartbeatRequest.TopicPartitions


class GuardedMember:
    """A member of the guarded group that gives up a partition as soon as it is no longer assigned."""

    def __init__(self, world: World, user: str) -> None:
        self.world = world
        self.user = user
        self.name = f"{user}'s member"
        self.rng = world.rng(self.name)
        self.is_in = False
        self.owned: frozenset[str] = frozenset()
        self._caller = UserCaller(world, self.name, user)
        self._lives = 0
        self._epoch = 0
        self._recent: tuple[frozenset[str], ...] = ()  # what it heard of lately, and may hear of again
        self._is_sure = True  # no answer was lost since then

    async def run(self) -> None:
        while not self.world.over:
            await asyncio.sleep(self.rng.choice((0.1, 0.5, 1.0)))
            if set(TOPICS) <= set(self.world.topic_names.values()):  # the warden has made them, and knows their ids
                await self.beat()

    async def beat(self) -> None:
        """Send one heartbeat with all fields, and note of which topics it was newly told."""
        if not self._epoch:
            self._lives += 1
            self.owned, self._recent, self._is_sure = frozenset(), (), True
        op = self.world.history.invoke(self.name, Told(self.user))
        try:
            answer = await self._caller.ask(self._request())
        except Unanswered:
            self.is_in = self._is_sure = False
            return
        self.is_in = not answer.error_code
        if answer.error_code:
            self._epoch = 0
            op.ok(())
            return
        self._epoch = answer.member_epoch
        told = self.owned
        if answer.assignment is not None:
            names = self.world.topic_names
            told = frozenset(names[each.topic_id] for each in answer.assignment.topic_partitions)
        new = told.difference(*self._recent) if self._is_sure else ()
        op.ok(tuple(sorted(new)))
        self._recent = (*self._recent[-1:], told)
        self.owned, self._is_sure = told, True

    def _request(self) -> ConsumerGroupHeartbeatRequest:
        ids = {name: topic_id for topic_id, name in self.world.topic_names.items()}
        return ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=f"{self.name} {self._lives}",
            member_epoch=self._epoch,
            rebalance_timeout_ms=5_000,
            subscribed_topic_regex="|".join(TOPICS),
            subscribed_topic_names=[],
            topic_partitions=[_Owned(topic_id=ids[name], partitions=[0]) for name in sorted(self.owned)],
        )


class GuardedGroup:
    """All members of the guarded group. After the last change of rights each gets the partitions that are due to it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.members = [GuardedMember(world, user) for user in USERS]
        world.looks_before_the_end.insert(0, self.settle)

    async def settle(self) -> None:
        for _ in range(SETTLING_S):
            for member in self.members:
                await member.beat()
            await asyncio.sleep(1)
        op = self.world.history.invoke("the guarded group", Settled())
        op.ok(tuple((each.user, tuple(sorted(each.owned))) for each in self.members if each.is_in))
