"""Members of the share group that fetch all of its partitions in one request, and have room for few bytes.

So batches are larger than a partition's part of an answer, in the tail and in segments. What is given is said in the
next request; `share_rules.py` says what must hold.
"""

import asyncio

from fencepost.protocol.messages.share_fetch import ShareFetchRequest
from share_client import got
from simulation.history import Place
from simulation.queues import GROUP, PLACES, QueueKeeper, Session, _batches, _settle
from simulation.share_rules import ACCEPT, RELEASE, Ack, Acknowledge, Acquire
from simulation.world import World

WIDE_MEMBERS = 2
MAX_BYTES = (1, 300, 500)  # of an answer: of a batch however large, of one or two, of some


class WideSession(Session):
    """A share session of all places."""

    def __init__(self, world: World, member: str, topic_id: bytes) -> None:
        super().__init__(world, member, PLACES[0], topic_id)

    async def fetch_all(self, max_bytes: int, max_wait_ms: int, acks: dict[Place, list[Ack]]) -> dict[Place, list[int]]:
        """Fetch from all places, with these acknowledgements in the same request; without them if it opens a session.
        Returns the offsets of the records that it was given, by place.
        """
        if self._epoch == 0:
            acks = {}
        invoke, member = self.world.history.invoke, self.member
        said = {place: invoke(member, Acknowledge(GROUP, place, member, tuple(of))) for place, of in acks.items()}
        asked = {place: invoke(member, Acquire(GROUP, place, member)) for place in PLACES}
        Topic = ShareFetchRequest.Topic
        parts = [
            Topic.Partition(partition_index=place[1], acknowledgement_batches=_batches(acks.get(place, [])))
            for place in PLACES
        ]
        request = ShareFetchRequest(
            group_id=GROUP,
            member_id=member,
            share_session_epoch=self._epoch,
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            max_records=500,
            batch_size=500,
            topics=[Topic(topic_id=self._topic_id, partitions=parts)],
        )
        answer = await self._ask(request, [*said.values(), *asked.values()])
        if answer is None:
            return {}
        found = got(answer)
        for place, op in said.items():
            _settle(op, found[place[1]].ack_error if place[1] in found else 0)
        for place, op in asked.items():
            part = found.get(place[1])
            given = [
                (offset, part.values[offset], count)
                for first, last, count in (part.ranges if part else ())
                for offset in range(first, last + 1)
                if part and offset in part.values
            ]
            op.ok(tuple(given))
        return {place: [offset for offset, _, _ in op.result] for place, op in asked.items() if op.result}


class WideMember:
    """A member with one id after the other, that fetches all places at once."""

    def __init__(self, world: World, name: str, keeper: QueueKeeper) -> None:
        self.world = world
        self.name = name
        self.keeper = keeper
        self.rng = world.rng(name)

    async def run(self) -> None:
        await self.keeper.made.wait()
        life = 0
        while not self.world.over:
            life += 1
            session = WideSession(self.world, f"{self.name}/{life}", self.keeper.topic_id)
            given: dict[Place, list[int]] = {}
            for _ in range(self.rng.randint(5, 40)):
                if self.world.over:
                    break
                acks = {place: [self._ack(offset) for offset in offsets] for place, offsets in given.items()}
                given = await session.fetch_all(self.rng.choice(MAX_BYTES), self.rng.choice((0, 300)), acks)
                self.world.met["queue: given to wide members"] += sum(map(len, given.values()))
                await asyncio.sleep(self.rng.choice((0.02, 0.2, 0.7)))
            if self.rng.random() < 0.5:
                await session.close()
            else:
                session.vanish()

    def _ack(self, offset: int) -> Ack:
        return offset, offset, self.rng.choice((ACCEPT,) * 5 + (RELEASE,))


def wide_members_of(world: World, keeper: QueueKeeper) -> list[WideMember]:
    return [WideMember(world, f"wide{number}", keeper) for number in range(WIDE_MEMBERS)]
