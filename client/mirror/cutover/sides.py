"""Both clusters, as a cutover needs them: what it changes there, and what it waits for. `running.py` has the order."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence

from ....protocol.errors import ErrorCode
from ...admin.admin import Admin
from ...admin.offsets import EARLIEST, LATEST
from ...admin.security_values import AclFilter
from ...admin.values import OpenTransaction, TransactionDescription
from ...errors import AuthorizationError, KafkaError, UnsupportedVersionError
from ...producer.producer import Producer
from ...values import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from ..committed import committed_batches
from ..findings import ANEW, Finding, fatal, named
from ..group_offsets import MapDamaged, PartitionMap
from ..map_reader import maps_in, read_newest
from ..names import MAP_TOPIC, cutover_id
from ..positions import Position
from ..topics import settle_configs
from .looking import SETTING, Looking, denial_of
from .plan import (
    Barrier,
    Found,
    Move,
    Offsets,
    Written,
    find_overtaken,
    planned_by,
    preview,
    refuse_written,
)
from .record import CutoverRecord, decode_record, encode_key, encode_record
from .running import CutoverFailed, Tell

QUIET_S = 1.0  # rules of access arrive at all brokers of a cluster one after the other
STEP_S = 0.2
MAX_QUIET_ROUNDS = 15
TOLD_EVERY_S = 5.0

MakeProducer = Callable[[str], Producer]
"""Makes a producer of the target with this transactional id."""


class AdminSides:
    """Both clusters by their Admin. wait_s: how long one wait may take in which nothing moves."""

    def __init__(self, looking: Looking, make_producer: MakeProducer, *, wait_s: float = 60) -> None:
        self._looking = looking
        self._source: Admin = looking.source
        self._target: Admin = looking.target
        self._mirror = looking.mirror
        self._make_producer = make_producer
        self._producer: Producer | None = None
        self._wait_s = wait_s
        self._barrier: Barrier = "none"
        self._is_ended = False
        self._partitions: list[TopicPartition] = []

    async def close(self) -> None:
        """Close the producer, if there is one."""
        if self._producer is not None:
            producer, self._producer = self._producer, None
            await producer.close()

    async def take_record(self) -> CutoverRecord | None:
        """Fence every earlier cutover of the mirror, and return the record that the last one left; None if there is
        none.
        """
        await self.close()
        self._producer = self._make_producer(cutover_id(self._mirror))
        await self._producer.start()
        await self._producer.init_transactions()
        return await self.read_record()

    async def read_record(self) -> CutoverRecord | None:
        """Return the record that the last cutover left, without fencing anybody; None if there is none."""
        value = (await read_newest(self._target)).get(encode_key(self._mirror))
        return None if value is None else decode_record(value)

    async def write(self, record: CutoverRecord | None, groups: Mapping[str, Offsets]) -> None:
        """Write the record, None to remove it, and commit these offsets on the target, all in one transaction."""
        assert self._producer is not None
        value = None if record is None else encode_record(record)
        async with self._producer.transaction() as transaction:
            await transaction.send(MAP_TOPIC, value, key=encode_key(self._mirror), partition=0)
            for name, offsets in groups.items():
                if offsets:
                    await transaction.send_offsets_to_transaction(offsets, ConsumerGroupMetadata(name))

    async def look(self, groups: Collection[str] | None = None) -> Found:
        """Return topics, groups with their offsets, and the ends of the source. groups: the names of those to look at;
        None for those that match the regular expression.
        """
        found = await self._looking.look(waits_for_stable=self._is_ended, named=groups)
        self._barrier = found.barrier
        self._partitions = sorted(found.ends)
        return found

    async def refuse_writes(self, topic: str, barrier: Barrier) -> None:
        """Have the source refuse every batch for the topic."""
        if barrier == "setting":
            await self._source.alter_configs(topic=topic, set={SETTING: "true"})
        elif barrier == "rule":
            await self._source.create_acls(denial_of(topic))

    async def allow_writes(self, topic: str, barrier: Barrier) -> None:
        """Undo refuse_writes(). A rule is removed also where this login may not see the topic any more."""
        rule = denial_of(topic)
        if barrier == "rule":
            kind, name, host, permission = rule.resource_type, rule.resource_name, rule.host, rule.permission
            wanted = AclFilter(rule.principal, rule.operation, kind, name, "literal", host, permission)
            await self._source.delete_acls(wanted)
        elif barrier == "setting" and topic in await self._source.describe_topics():
            await self._source.alter_configs(topic=topic, delete=[SETTING])

    async def settle_configs(self) -> None:
        """Give the topics on the target the settings that would have changed records while they were copied."""
        await settle_configs(self._source, self._target, sorted({each.topic for each in self._partitions}))

    async def put_back(self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata | None]) -> None:
        """Set the group's offsets on the target; None deletes one."""
        kept = {partition: at for partition, at in offsets.items() if at is not None}
        gone = [partition for partition, at in offsets.items() if at is None]
        if kept:
            await self._target.alter_group_offsets(group, kept)
        if gone:
            await self._target.delete_group_offsets(group, gone)

    # ---- what is open at the source --------------------------------------------------------------------------

    async def end_transactions(self, groups: Sequence[str]) -> list[str]:
        """Wait until every broker refuses writes, then abort the open transactions and wait until they have ended.
        Returns their transactional ids.
        """
        try:
            await self._wait_until_quiet()
        except AuthorizationError:
            await self._check_still_readable()
            raise
        await self._check_still_readable()
        ended: set[str] = set()
        clock = asyncio.get_running_loop()
        until = clock.time() + self._wait_s
        while left := await self._abort_open(groups, ended):
            if clock.time() > until:
                text = f"still open after {self._wait_s:.0f} s: {named(left)}"
                raise CutoverFailed([fatal(text, "fencepost txn list shows whose they are")])
            await asyncio.sleep(STEP_S)
        self._is_ended = True
        return sorted(ended)

    async def _wait_until_quiet(self) -> None:
        """Wait until the ends of the source's partitions stand still, at most MAX_QUIET_ROUNDS times QUIET_S. Records
        that are written later are found by written_since().
        """
        before = await self._source.ends(self._partitions, LATEST)
        for _ in range(MAX_QUIET_ROUNDS):
            await asyncio.sleep(QUIET_S)
            now = await self._source.ends(self._partitions, LATEST)
            if now == before:
                return
            before = now

    async def _check_still_readable(self) -> None:
        """Raise CutoverFailed if the rules that refuse writes have taken the right to read.

        With allow.everyone.if.no.acl.found a topic that gets its first rule is open to nobody any more.
        """
        if self._barrier != "rule":
            return
        names = sorted({each.topic for each in self._partitions})
        try:
            allowed = await self._source.allowed_operations(names)
            lost = [name for name, operations in allowed.items() if "read" not in operations]
        except AuthorizationError:
            lost = names
        if lost:
            text = f"nobody may read {named(lost)} at the source any more: it had no rule but the denial of writes"
            hint = "allow.everyone.if.no.acl.found is set: give readers, the mirror too, rules of their own"
            raise CutoverFailed([fatal(text, hint)])

    async def _abort_open(self, groups: Sequence[str], ended: set[str]) -> list[str]:
        """Abort the transactions that are open at the source. Returns a text for each that is still open. ended: gets
        the transactional ids.
        """
        stable = await self._source.ends(self._partitions, LATEST, "read_committed")
        ends = await self._source.ends(self._partitions, LATEST)
        blocked = [each for each in self._partitions if stable[each] < ends[each]]
        try:
            found = await self._source.open_transactions(blocked) if blocked else []
            held = await self._source.find_held_offsets(groups)
        except UnsupportedVersionError:  # before 3.0 they can only be waited for, until their timeout
            return [f"a transaction in {each}" for each in blocked]
        owners = await self._owners({each.producer.producer_id for each in [*found, *(one.open for one in held)]})
        for owner in owners.values():
            await self._source.fence_described(owner)
            ended.add(owner.transactional_id)
        for each in found:
            if each.producer.producer_id not in owners:
                await self._abort_hanging(each)
                ended.add(f"a transaction of nobody in {each.topic_partition}")
        return [*(f"a transaction in {each}" for each in blocked), *(f"offsets of {each.group_id}" for each in held)]

    async def _abort_hanging(self, found: OpenTransaction) -> None:
        """Abort a transaction that no coordinator knows, by a marker. An error is ignored if the transaction has
        ended.
        """
        try:
            await self._source.abort_transaction(found.topic_partition, found.start_offset)
        except KafkaError:
            if found in await self._source.open_transactions([found.topic_partition]):
                raise

    async def _owners(self, producer_ids: set[int]) -> dict[int, TransactionDescription]:
        """Return the transactions of these producers, as far as a coordinator knows them."""
        if not producer_ids:
            return {}
        listed = await self._source.list_transactions(producer_ids=sorted(producer_ids))
        described = await self._source.describe_listed_transactions(listed)
        return {each.producer_id: each for each in described.values()}

    # ---- the mirror -----------------------------------------------------------------------------------------

    async def drain(self, ends: Mapping[TopicPartition, int], tell: Tell) -> list[Finding]:
        """Wait until the mirror's positions are at these ends. Returns the problem for which it gave up waiting; an
        empty list if all was copied.
        """
        clock = asyncio.get_running_loop()
        moved_at, told_at, before = clock.time(), clock.time(), -1
        while True:
            positions = await self._looking.positions()
            behind = {
                partition: end - (positions[partition].offset if partition in positions else 0)
                for partition, end in ends.items()
                if partition not in positions or positions[partition].offset < end
            }
            if not behind:
                return await self.find_replaced(positions)
            left = sum(behind.values())
            if left != before:
                before, moved_at = left, clock.time()
            if clock.time() - moved_at > self._wait_s:
                first = min(behind)
                return [
                    fatal(
                        f"the mirror does not move: it is {behind[first]} offsets behind in {first}, and in "
                        f"{len(behind) - 1} more partitions",
                        "fencepost mirror has to run until the cutover is done: its lines say what it waits for",
                    )
                ]
            if clock.time() - told_at > TOLD_EVERY_S:
                told_at = clock.time()
                tell(f"the mirror is {left} offsets behind, in {len(behind)} partitions")
            await asyncio.sleep(STEP_S)

    async def find_replaced(self, positions: Mapping[TopicPartition, Position]) -> list[Finding]:
        """Return a problem for each partition of the source that does not have the last mirrored batch any more."""
        found: list[Finding] = []
        for partition, position in sorted(positions.items()):
            if position.mark is None or partition not in self._partitions:
                continue
            try:
                page = await self._source.read_page(partition, position.mark.last)
            except KafkaError as error:
                if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise
                continue  # retention has taken it
            if page.batches and not position.mark.is_kept_by(page.batches[0]):
                text = f"{partition} has other records at offset {position.mark.first} of the source than were copied"
                found.append(fatal(text, f"it was restored or cut: {ANEW}"))
        return found

    async def preview(self, found: Found) -> tuple[list[Move], list[Finding]]:
        """Return where the groups would go on, as far as the mirror has copied, and the problems that the cutover would
        find at the target.
        """
        positions = await self._looking.positions()
        there = await self._target.describe_topics()
        copies = [tp for tp in found.ends if tp.topic in there and tp.partition < len(there[tp.topic].partitions)]
        starts = await self._target.ends(copies, EARLIEST)
        ends = await self._target.ends(copies, LATEST, "read_committed")
        try:
            maps = await self.read_maps()  # behind the ends, while the mirror goes on
            copied = {each for each, end in found.ends.items() if each in positions and positions[each].offset >= end}
            lasts = {each: max(ends.get(each, 0), maps[each].target_end) for each in maps}
            moves = preview(found.groups, maps, lasts, copied)
        except MapDamaged as error:
            return [], [fatal(f"the map of offsets is damaged: {error}", ANEW)]
        foreign = [
            await self._first_written(self._target, each, max(starts[each], maps[each].target_end), ends[each])
            for each in sorted(copies)
        ]
        written = [each for each in foreign if each is not None]
        problems = await self.find_replaced(positions)
        return moves, [*problems, *refuse_written(written, "target"), *find_overtaken(found.groups, planned_by(moves))]

    async def read_maps(self) -> Mapping[TopicPartition, PartitionMap]:
        """Return, for each mirrored partition, the map of its source offsets to target offsets, from the newest entries
        on the target. It is empty for a partition without an entry.
        """
        topics = await self._looking.source_topics({each.topic for each in self._partitions})
        ids = {name: bytes(topic.topic_id) for name, topic in topics.items()}
        found = maps_in(await read_newest(self._target), self._mirror, ids)
        begin = await self._source.ends(self._partitions, EARLIEST)
        for partition, known in found.items():
            if not await self._has_lost(partition, known, begin.get(partition, 0)):
                known.first = 0
        return {each: found.get(each, PartitionMap([])) for each in self._partitions}

    async def _has_lost(self, partition: TopicPartition, known: PartitionMap, start: int) -> bool:
        """Return whether entries of the map were lost: the first begins above the source's start, and the target has
        records before the first one in it. start: of the source's partition.
        """
        if known.first <= start or not known.runs:
            return False
        below = (await self._target.ends([partition], EARLIEST))[partition]
        return await self._first_written(self._target, partition, below, known.runs[0].target) is not None

    # ---- what nobody should have written --------------------------------------------------------------------

    async def written_since(self, ends: Mapping[TopicPartition, int]) -> list[Written]:
        """Return, for each source partition that has records at or above this end, the first of them."""
        now = await self._source.ends(ends, LATEST)
        found = [await self._first_written(self._source, each, ends[each], now[each]) for each in sorted(ends)]
        return await self._named([each for each in found if each is not None])

    async def target_ends(
        self, maps: Mapping[TopicPartition, PartitionMap]
    ) -> tuple[Mapping[TopicPartition, int], list[Written]]:
        """Return the ends of the target's partitions; and, for each partition in which somebody else has written
        after the mirror's last record, the first record of those.
        """
        starts = await self._target.ends(maps, EARLIEST)
        ends = await self._target.ends(maps, LATEST)
        found = [
            await self._first_written(self._target, each, max(starts[each], maps[each].target_end), ends[each])
            for each in sorted(maps)
        ]
        return ends, [each for each in found if each is not None]

    async def _first_written(self, admin: Admin, partition: TopicPartition, start: int, end: int) -> Written | None:
        """Return the first record in this span of offsets that is committed, or whose transaction is open; None if
        there is none.
        """
        if start >= end:
            return None
        stable = (await admin.ends([partition], LATEST, "read_committed"))[partition]
        async for batch in committed_batches(admin, partition, start, min(end, stable)):
            return Written(partition, max(start, batch.base_offset), batch.max_timestamp, batch.producer_id)
        async for batch in admin.read_batches(partition, max(start, stable), end):
            if not batch.is_control:
                return Written(partition, batch.base_offset, batch.max_timestamp, batch.producer_id)
        return None

    async def _named(self, written: list[Written]) -> list[Written]:
        """Return these records with the transactional ids of their producers, where the source knows them."""
        try:
            owners = await self._owners({each.producer_id for each in written if each.producer_id >= 0})
        except UnsupportedVersionError:
            return written
        return [
            each._replace(transactional_id=owners[each.producer_id].transactional_id)
            if each.producer_id in owners
            else each
            for each in written
        ]
