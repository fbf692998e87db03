"""Scripted members of a group whose broker assigns the partitions (KIP-848), which do what no good client does.

They give up late, change their minds, send a heartbeat twice over two connections, are silent for longer than their
session, and go on with what is not theirs any more: with an epoch of before, or after they were removed. The group has
to refuse that; where it takes an older epoch, the partition has been theirs since then (KIP-1251).
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from fencepost.protocol.messages.offsets import OffsetCommitRequest
from simulation.group_clients import GROUP, Mover, stand_of
from simulation.heartbeats import beat_of, note_answer
from simulation.history import Commit, Place
from simulation.lines import Caller, Unanswered
from simulation.plain_clients import RETRIED
from simulation.world import World

E = ErrorCode
KEEPERS = "keepers"
REBALANCE_MS = 2_500
TWICE, DAWDLES, OLD, FOREIGN = 0.08, 0.3, 0.25, 0.15
CHANGES = 0.05  # share of heartbeats with another subscription
NEVER_GIVEN = 0.03  # share of commits with an epoch that nobody was given
OUT = (E.UNKNOWN_MEMBER_ID, E.FENCED_MEMBER_EPOCH, E.FENCED_INSTANCE_ID, E.UNRELEASED_INSTANCE_ID, E.GROUP_ID_NOT_FOUND)
BY_NAME = 9  # version of OffsetCommit


class Membership:
    """A client's membership in a group. With each join it has another member id."""

    def __init__(self, world: World, name: str, group: str, topics: Sequence[str], rng: Any) -> None:
        self.world = world
        self.name = name
        self.group = group
        self.topics = topics
        self.rng = rng
        self.caller = Caller(world, name)
        self.member_id = ""
        self.epoch = 0
        self.past: list[int] = []  # its epochs, as long as it is the same member
        self.owned: tuple[Place, ...] | None = None  # None: not a member
        self._instance_id = name.split("#")[0] if rng.random() < 0.25 else None
        self._subscribed: tuple[str, ...] = ()
        self._regex = ""
        self._other = Caller(world, name)
        self._assigned: tuple[Place, ...] = ()  # by the group
        self._was_answered = False  # the last heartbeat, once
        self._joins = 0
        self._subscribe()

    def _subscribe(self) -> None:
        """Choose a subscription at random: all topics or some, by name or by a pattern."""
        self._subscribed = tuple(self.rng.sample(self.topics, self.rng.randint(1, len(self.topics))))
        self._regex = "|".join(self._subscribed) if self.rng.random() < 0.4 else ""
        self._was_answered = False

    async def belong(self) -> bool:
        """Join, or send one heartbeat, and give up partitions that were taken from it, sometimes late. Returns whether
        it is a member now.
        """
        if self.owned is None:
            await self._join()
        else:
            if self.rng.random() < CHANGES:
                self._subscribe()
            if self.rng.random() > DAWDLES:
                self.owned = tuple(place for place in self.owned if place in self._assigned)
            await self._beat(self.epoch)
        if self.owned is not None and set(self.owned) <= set(self._assigned):
            self.owned = self._assigned  # there is nothing that it has to give up first
        return self.owned is not None

    async def _join(self) -> None:
        self._joins += 1
        self.member_id, self.epoch, self.past, self._assigned = f"{self.name}.{self._joins}", 0, [], ()
        for _ in range(3):
            if await self._beat(0):
                return
            await asyncio.sleep(self.rng.choice((0.05, 0.1, 0.5)))
            if self._is_refused:
                return

    async def _beat(self, epoch: int) -> bool:
        """Send a heartbeat, sometimes twice over two connections. Returns whether it was accepted."""
        self._is_refused = False
        request = self._request(epoch)
        callers = [self.caller, *([self._other] if self.rng.random() < TWICE else [])]
        answers = await asyncio.gather(*(self._asked(caller, request) for caller in callers))
        heard = [answer for answer in answers if answer is not None]
        good = [answer for answer in heard if answer.error_code == E.NONE]
        self._was_answered = len(callers) == len(good) == 1
        if good:
            newest = max(good, key=lambda answer: (answer.member_epoch, answer.assignment is not None))
            self._take(newest)
        elif any(answer.error_code in OUT for answer in heard):
            self._is_refused, self.owned = True, None
        return bool(good)

    def _take(self, answer: Any) -> None:
        if answer.member_epoch != self.epoch:
            self.past.append(self.epoch)
        self.epoch = answer.member_epoch
        self.owned = self.owned or ()
        if answer.assignment is not None:
            names = self.world.topic_names
            listed = answer.assignment.topic_partitions
            self._assigned = tuple(sorted((names[each.topic_id], part) for each in listed for part in each.partitions))

    def _request(self, epoch: int) -> ConsumerGroupHeartbeatRequest:
        """Build the heartbeat: with all fields when the member joins, and after a heartbeat that was not answered."""
        ids = {name: topic_id for topic_id, name in self.world.topic_names.items()}
        owned = [] if epoch == 0 else self.owned or ()
        topics: dict[str, list[int]] = {}
        for topic, partition in owned:
            topics.setdefault(topic, []).append(partition)
        Topic = ConsumerGroupHeartbeatRequest.TopicPartitions
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self._instance_id,
            topic_partitions=[Topic(topic_id=ids[name], partitions=parts) for name, parts in topics.items()],
        )
        if epoch == 0 or not self._was_answered:
            request.rebalance_timeout_ms = REBALANCE_MS
            request.subscribed_topic_names = [] if self._regex else sorted(self._subscribed)
            request.subscribed_topic_regex = self._regex
        return request

    async def _asked(self, caller: Caller, request: ConsumerGroupHeartbeatRequest) -> Any:
        op = self.world.history.invoke(self.name, beat_of(self.world, request))
        try:
            answer = await caller.ask(request)
        except Unanswered:
            return None
        note_answer(self.world, op, answer)
        return answer

    async def leave(self) -> None:
        """Leave the group, sometimes without telling it; a static member sometimes only for a while (epoch -2)."""
        if self.owned is not None and self.rng.random() < 0.6:
            epoch = -2 if self._instance_id is not None and self.rng.random() < 0.8 else -1
            request = ConsumerGroupHeartbeatRequest(
                group_id=self.group, member_id=self.member_id, member_epoch=epoch, instance_id=self._instance_id
            )
            await self._asked(self.caller, request)
        self.owned = None

    def may_have(self, place: Place) -> bool:
        """Return whether the partition may be its own, by all that the group has told it."""
        return place in self._assigned or place in (self.owned or ())

    def close(self) -> None:
        self.caller.close()
        self._other.close()

    def epoch_to_send(self, places: Sequence[Place]) -> int:
        """Return its epoch or, sometimes, an older one that it had; for partitions that it does not own, always an
        older one.
        """
        is_foreign = any(place not in (self.owned or ()) for place in places)
        older = [epoch for epoch in self.past if epoch > 0]
        if is_foreign or self.rng.random() < OLD:
            return self.rng.choice(older) if older else max(self.epoch - 1, 0) if is_foreign else self.epoch
        return self.epoch


class AssignedMover(Mover):
    """Consumes, transforms and produces in transactions, as a member whose partitions the broker assigns."""

    pauses = 0.35

    def __init__(
        self, world: World, name: str, number: int, tv: int, inputs: Sequence[Place], outputs: Sequence[Place]
    ) -> None:
        super().__init__(world, name, number, tv, inputs, outputs)
        topics = sorted({topic for topic, _ in inputs})
        self.membership = Membership(world, self.name, GROUP, topics, world.rng(f"{self.name} membership"))

    async def _belong(self) -> bool:
        membership = self.membership
        before = membership.member_id
        if not await membership.belong():
            self._lost_membership(E.UNKNOWN_MEMBER_ID)
            return False
        places = membership.owned or ()
        self.member_id, self.generation, self.owned = membership.member_id, membership.epoch, places
        known = self.positions if self.positions is not None and before == self.member_id else {}
        self.positions = {place: at for place, at in known.items() if place in places}
        stands = await self._stand([place for place in places if place not in self.positions])
        self.positions = None if stands is None else self.positions | stands
        return self.positions is not None

    def _offsets(self) -> Any:
        request = super()._offsets()
        request.group_instance_id = self.membership._instance_id
        return request

    async def _send_offsets(self, txn: str) -> bool:
        self.generation = self.membership.epoch_to_send(list(self._moved))
        return await super()._send_offsets(txn)

    def _lost_membership(self, code: int) -> None:
        if code == E.NONE:
            return
        self.owned = self.positions = None
        if code in OUT:
            self.membership.owned = None

    async def _leave(self) -> None:
        await self.membership.leave()
        self.membership.close()


class Keeper:
    """Reads nothing, and commits growing offsets of what it owns; now and then of what it does not own any more."""

    def __init__(self, world: World, name: str, number: int, topics: Sequence[str]) -> None:
        self.world = world
        self.name = f"{name}#{number}"
        self.rng = world.rng(self.name)
        self.membership = Membership(world, self.name, KEEPERS, topics, self.rng)
        self._at: dict[Place, int] = {}

    async def run(self) -> None:
        membership = self.membership
        lives_s = self.rng.uniform(2.0, 20.0)
        begun = self.world.loop.time()
        had: tuple[Place, ...] = ()
        while not self.world.over and self.world.loop.time() - begun < lives_s:
            if not await membership.belong():
                await self._commit(had, membership.epoch)  # as one that was a member
                continue
            owned = membership.owned or ()
            for place in owned:
                if place not in had and not await self._begin_at(place):
                    break
            else:
                await self._commit(owned, membership.epoch_to_send(owned))
                if self.rng.random() < FOREIGN:
                    foreign = [place for place in self._at if not membership.may_have(place)]
                    await self._commit(foreign, membership.epoch_to_send(foreign))
                had = owned
            await asyncio.sleep(self.rng.choice((0.05, 0.2, 0.2, 0.6, 2.5)))
        await membership.leave()
        membership.close()

    async def _begin_at(self, place: Place) -> bool:
        offset = await stand_of(self.membership.caller, self.name, KEEPERS, place)
        if offset is not None:
            self._at[place] = max(offset, 0)
        return offset is not None

    async def _commit(self, places: Sequence[Place], epoch: int) -> None:
        """Commit offsets, if there are any, with one attempt: unanswered, its outcome is unknown. Sometimes the epoch
        is one that nobody was given.
        """
        if not places or epoch <= 0 or not self.membership.member_id:
            return
        if self.rng.random() < NEVER_GIVEN:
            epoch += 1_000
        is_mine = all(place in (self.membership.owned or ()) for place in places)
        positions = {place: self._at.get(place, 0) + (self.rng.randint(1, 5) if is_mine else 0) for place in places}
        op = self.world.history.invoke(
            self.name, Commit(KEEPERS, epoch, tuple(positions.items()), self.membership.member_id)
        )
        Topic = OffsetCommitRequest.Topic
        request = OffsetCommitRequest(
            group_id=KEEPERS,
            generation_id_or_member_epoch=epoch,
            member_id=self.membership.member_id,
            group_instance_id=self.membership._instance_id,
            topics=[
                Topic(name=topic, partitions=[Topic.Partition(partition_index=number, committed_offset=offset)])
                for (topic, number), offset in positions.items()
            ],
        )
        try:
            answer = await self.membership.caller.ask(request, BY_NAME)
        except Unanswered:
            op.info()
            return
        codes = [part.error_code for topic in answer.topics for part in topic.partitions]
        if not any(codes):
            op.ok()
            self._at |= positions
        elif all(codes):
            op.fail(codes[0])
        else:
            op.info()  # a part of it was committed
        if any(code in RETRIED for code in codes):
            await asyncio.sleep(0.05)
