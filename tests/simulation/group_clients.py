"""Scripted members of a consumer group that consume, transform and produce in transactions (KIP-447), and a client
that keeps its place with plain commits.

Each mover has a transactional id of its own. What it read goes out with the offsets of what it read, in one
transaction; after a rebalance it goes on where the group stands, waiting for offsets that are not decided.
"""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from fencepost.protocol.messages.offsets import OffsetCommitRequest, OffsetFetchRequest
from fencepost.protocol.messages.transactions import AddOffsetsToTxnRequest, TxnOffsetCommitRequest
from simulation.history import Commit, Join, OffsetOf, Offsets, Place
from simulation.lines import Caller, Unanswered
from simulation.plain_clients import RETRIED, Batch, Reader
from simulation.txn_clients import Incarnation
from simulation.world import World

E = ErrorCode
GROUP, PLAIN_GROUP = "movers", "places"
SESSION_MS, REBALANCE_MS = 1_200, 1_000
MOVED_AT_ONCE = 4
JOIN_PATIENCE_S = 6.0
JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION, FETCH_VERSION, COMMIT_VERSION = 5, 3, 3, 7, 7
NOT_A_MEMBER = {E.UNKNOWN_MEMBER_ID, E.FENCED_INSTANCE_ID, E.MEMBER_ID_REQUIRED}


class Mover(Incarnation):
    """One member of the group, until it is fenced or leaves."""

    pauses = 0.15  # chance of one, twice in each transaction

    def __init__(
        self, world: World, name: str, number: int, tv: int, inputs: Sequence[Place], outputs: Sequence[Place]
    ) -> None:
        super().__init__(world, name, number, tv, outputs)
        self.inputs = inputs
        self.group = Caller(world, self.name)
        self.member_id = ""
        self.generation = -1
        self.owned: tuple[Place, ...] | None = None  # None: not a member
        self.positions: dict[Place, int] | None = None  # None: to be asked for
        self._moved: dict[Place, int] = {}
        self._readers = {place: Reader(world, self.name, place, committed=True) for place in inputs}

    async def run(self) -> None:
        await super().run()
        await self._leave()

    async def _leave(self) -> None:
        if self.member_id and self.rng.random() < 0.5:
            member = LeaveGroupRequest.Member(member_id=self.member_id)
            try:
                await self.group.ask(LeaveGroupRequest(group_id=GROUP, members=[member]), 3)
            except Unanswered:
                pass
        self.group.close()

    # ---- one transaction -------------------------------------------------------------------------------------

    async def fill(self, txn: str) -> tuple[bool, bool] | None:
        if not await self._belong() or self.positions is None:
            return None
        batches = await self._moving(txn)
        if not batches:
            return None
        if not await self.add(txn, [each.send.place for each in batches]):
            for each in batches:
                each.op.fail(0)  # never sent
            return False, False
        sure, good = await self.deliver(batches)
        if sure and good:
            await self._perhaps_pause()
            good = await self._send_offsets(txn)
            sure = good or not self._offsets_unsure
            await self._perhaps_pause()
        return sure, good

    async def _perhaps_pause(self) -> None:
        """Sometimes pause for so long that the group takes it for dead, but not the transaction coordinator."""
        if self.rng.random() < self.pauses:
            await asyncio.sleep(self.rng.choice((0.3, 1.5, 2.5)))

    async def _moving(self, txn: str) -> list[Batch]:
        """Read the inputs. Returns batches of output for them, not sent yet; the inputs' positions are in _moved."""
        assert self.positions is not None
        self._moved, batches = {}, []
        for place, position in self.positions.items():
            seen = await self._readers[place].read(position)
            if seen is None:
                continue
            taken = seen.records[:MOVED_AT_ONCE]
            if taken:
                sources = tuple((place, offset) for offset, _ in taken)
                values = tuple(f"{self.name}:{self.number()}<{place[0]}-{place[1]}@{offset}" for offset, _ in taken)
                batches.append(self.batch(txn, ("out", place[1]), values, sources))
                self._moved[place] = taken[-1][0] + 1
            elif seen.next_offset > position:
                self.positions = {**self.positions, place: seen.next_offset}  # markers, or what was aborted
        return batches

    _offsets_unsure = False

    async def _send_offsets(self, txn: str) -> bool:
        op = self.history.invoke(
            self.name, Offsets(txn, GROUP, self.producer, self.generation, tuple(self._moved.items()), self.member_id)
        )
        producer_id, epoch = self.producer
        unsure = False
        code: int | None = E.NONE
        if self.versions.tv < 2:
            request = AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id, producer_id=producer_id, producer_epoch=epoch, group_id=GROUP
            )
            code, _, unsure = await self.persist(
                self.coordinator, request, self.versions.add_offsets, lambda one: int(one.error_code)
            )
        if code == E.NONE:
            code, _, unsure = await self.persist(self.group, self._offsets(), self.versions.offsets, _code_of_offsets)
        self._offsets_unsure = unsure or code is None
        if code == E.NONE:
            op.ok()
            return True
        if self._offsets_unsure:
            op.info()
        else:
            op.fail(code or 0)
        self._lost_membership(code or 0)
        return False

    def _offsets(self) -> TxnOffsetCommitRequest:
        Topic = TxnOffsetCommitRequest.Topic
        return TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=GROUP,
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            generation_id=self.generation,
            member_id=self.member_id,
            topics=[
                Topic(name=topic, partitions=[Topic.Partition(partition_index=partition, committed_offset=position)])
                for (topic, partition), position in self._moved.items()
            ],
        )

    async def end(self, txn: str, commit: bool) -> bool:
        going_on = await super().end(txn, commit)
        if going_on and commit and self.positions is not None:
            self.positions = {**self.positions, **self._moved}
        else:
            self.positions = None  # back to where the group stands
        return going_on

    # ---- membership ------------------------------------------------------------------------------------------

    async def _belong(self) -> bool:
        """Become a member of the present generation, and get its positions, as far as needed. Returns whether it has
        both.
        """
        if self.member_id and self.generation >= 0 and self.owned is not None:
            request = HeartbeatRequest(group_id=GROUP, generation_id=self.generation, member_id=self.member_id)
            try:
                code = (await self.group.ask(request, HEARTBEAT_VERSION)).error_code
            except Unanswered:
                return False
            if code != E.NONE:
                self._lost_membership(code)
        if self.owned is None:
            await self._join()
        if self.owned is not None and self.positions is None:
            self.positions = await self._stand(self.owned)
        return self.positions is not None

    def _lost_membership(self, code: int) -> None:
        self.owned = self.positions = None
        if code in NOT_A_MEMBER:
            self.member_id = ""

    async def _join(self) -> None:
        joined = await self._joined()
        if joined is None:
            return
        self.generation = joined.generation_id
        op = self.history.invoke(self.name, Join(GROUP))
        assignments = _shared_out(joined, self.inputs) if joined.leader == self.member_id else []
        request = SyncGroupRequest(
            group_id=GROUP, generation_id=self.generation, member_id=self.member_id, assignments=assignments
        )
        try:
            answer = await self.group.ask(request, SYNC_VERSION, JOIN_PATIENCE_S)
        except Unanswered:
            op.info()
            return
        if answer.error_code:
            op.fail(answer.error_code)
            self._lost_membership(answer.error_code)
            return
        places = tuple((topic, partition) for topic, partition in json.loads(answer.assignment or b"[]"))
        op.ok((self.generation, self.member_id, places))
        self.owned = places

    async def _joined(self) -> Any:
        """Send JoinGroup until it succeeds, at most three times. Returns the answer, or None."""
        for _ in range(3):
            request = JoinGroupRequest(
                group_id=GROUP,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=REBALANCE_MS,
                member_id=self.member_id,
                protocol_type="consumer",
                protocols=[JoinGroupRequest.Protocol(name="shared", metadata=b"")],
            )
            try:
                answer = await self.group.ask(request, JOIN_VERSION, JOIN_PATIENCE_S)
            except Unanswered:
                return None
            if answer.error_code == E.NONE:
                self.member_id = answer.member_id
                return answer
            self.member_id = answer.member_id if answer.error_code == E.MEMBER_ID_REQUIRED else ""
            if answer.error_code in RETRIED:
                await asyncio.sleep(0.05)
        return None

    async def _stand(self, places: Sequence[Place]) -> dict[Place, int] | None:
        found: dict[Place, int] = {}
        for place in places:
            offset = await stand_of(self.group, self.name, GROUP, place, attempts=40)
            if offset is None:
                return None
            found[place] = max(offset, 0)
        return found


def _shared_out(joined: Any, places: Sequence[Place]) -> list[SyncGroupRequest.Assignment]:
    members = sorted(member.member_id for member in joined.members)
    shares: dict[str, list[Place]] = {member: [] for member in members}
    for number, place in enumerate(places):
        shares[members[number % len(members)]].append(place)
    return [
        SyncGroupRequest.Assignment(member_id=member, assignment=json.dumps(share).encode())
        for member, share in shares.items()
    ]


def _code_of_offsets(answer: Any) -> int:
    codes = [int(part.error_code) for topic in answer.topics for part in topic.partitions]
    return next((code for code in codes if code), 0)


async def stand_of(caller: Caller, client: str, group: str, place: Place, attempts: int = 8) -> int | None:
    """Ask for the offset that a group has committed, until no transaction is pending there. Returns None if that was
    refused, or took too long.
    """
    op = caller.world.history.invoke(client, OffsetOf(group, place))
    topic = OffsetFetchRequest.Topic(name=place[0], partition_indexes=[place[1]])
    request = OffsetFetchRequest(group_id=group, topics=[topic], require_stable=True)
    for _ in range(attempts):
        try:
            answer = await caller.ask(request, FETCH_VERSION)
        except Unanswered:
            continue
        code = answer.error_code or answer.topics[0].partitions[0].error_code
        if code == E.NONE:
            offset: int = op.ok(answer.topics[0].partitions[0].committed_offset)
            return offset
        if code not in RETRIED and code != E.UNSTABLE_OFFSET_COMMIT:
            op.fail(code)
            return None
        await asyncio.sleep(0.1)
    op.info()
    return None


class PlainCommitter:
    """Commits growing offsets in a group without members, and reads them back."""

    def __init__(self, world: World, name: str, place: Place) -> None:
        self.world = world
        self.name = name
        self.place = place
        self.rng = world.rng(name)
        self.caller = Caller(world, name)

    async def run(self) -> None:
        position = 0
        while not self.world.over:
            position += self.rng.randint(1, 5)
            await self._commit(position)
            if self.rng.random() < 0.4:
                await stand_of(self.caller, self.name, PLAIN_GROUP, self.place)
            await asyncio.sleep(self.rng.choice((0, 0.05, 0.5)))

    async def _commit(self, position: int) -> None:
        op = self.world.history.invoke(self.name, Commit(PLAIN_GROUP, -1, ((self.place, position),)))
        Topic = OffsetCommitRequest.Topic
        part = Topic.Partition(partition_index=self.place[1], committed_offset=position)
        request = OffsetCommitRequest(group_id=PLAIN_GROUP, topics=[Topic(name=self.place[0], partitions=[part])])
        unsure = False
        while True:
            try:
                answer = await self.caller.ask(request, COMMIT_VERSION)
            except Unanswered:
                unsure = True
                continue
            code = answer.topics[0].partitions[0].error_code
            if code == E.NONE:
                op.late = unsure
                op.ok()
                return
            if code not in RETRIED:
                op.info() if unsure else op.fail(code)
                return
            await asyncio.sleep(0.05)
