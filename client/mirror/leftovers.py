"""What tasks leave behind on the target: transactions of dead ones, and entries of the map that nobody needs any more.

A transaction of a dead task holds the positions of its partitions until it times out, or hides from readers what others
write after it; it may be aborted at any time, and so may that of a living one, which begins its cycle anew then. So to
abort one only saves time.

An entry of the map that ends at or below the source's first offset answers for no record that a group could still read:
to remove it only saves room. Where an entry ends is taken from where the next one begins, since the newest one may grow
after it was read. So the newest one of a partition stays: it also says up to where the records on the target are the
mirror's. Entries of an earlier copy of a topic have to go, since a cutover would believe them.
"""

import logging
from bisect import bisect_right, insort
from collections.abc import Collection, Iterable, Mapping

from ...protocol.errors import ErrorCode, KafkaError
from ..admin.admin import Admin
from ..admin.offsets import EARLIEST
from ..errors import IllegalStateError, UnknownTopicError
from ..net.environment import Environment
from ..records.decoding import records_of
from ..records.isolation import AbortedFilter
from ..values import TopicPartition
from .names import MAP_TOPIC, group_id, is_cutover_id, transactional_id
from .offset_map import EntryKey, decode_key
from .positions import Position

log = logging.getLogger("fencepost.client")

PATIENCE_MS = 2_000
"""How long positions may be held before somebody is taken for dead: living tasks commit within that."""
MAX_GONE = 500
"""So many entries are removed in one cycle."""
_MAP = TopicPartition(MAP_TOPIC, 0)


class Leftovers:
    """Finds for one task what others have left behind: aborts transactions of dead tasks, and names the entries of the
    map that a cycle has to remove.
    """

    def __init__(self, target: Admin, mirror: str, environment: Environment) -> None:
        self._admin = target
        self._mirror = mirror
        self._clock = environment.clock
        self._held_since_ms: int | None = None
        self._read_to = 0  # of the map's topic
        self._firsts: dict[TopicPartition, dict[bytes, list[int]]] = {}  # of the entries, in order, by topic id
        self._positions: Mapping[TopicPartition, Position] = {}

    # ---- transactions of dead tasks ------------------------------------------------------------------------------

    async def end_orphans(self, *, patience_ms: int = PATIENCE_MS) -> None:
        """Abort the open transactions of tasks that are not in the group, once transactions have held positions for
        patience_ms.

        Does nothing where the target does not tell of transactions (before Kafka 3.0), or does not let us. Nor does it
        touch those of cutovers, and of tasks that are in the group of a mirror whose name begins with this one's.
        """
        now_ms = self._clock.monotonic_ms()
        self._held_since_ms = self._held_since_ms or now_ms
        if now_ms - self._held_since_ms < patience_ms:
            return
        self._held_since_ms = now_ms
        own = transactional_id(self._mirror, "")
        try:
            ongoing = [each.transactional_id for each in await self._admin.list_transactions(states=["Ongoing"])]
            tasks = {each for each in ongoing if each.startswith(own) and not is_cutover_id(each)}
            orphans = sorted(tasks - await self._living()) if tasks else []
            if orphans:
                log.info("mirror: ends what dead tasks left open: %s", ", ".join(orphans))
                await self._admin.fence_producers(orphans)
        except KafkaError as error:
            log.info("mirror: waits until transactions of dead tasks time out: %s", error)

    async def _living(self) -> set[str]:
        """Return the transactional ids of tasks in the group of this mirror, and of mirrors with a longer name."""
        prefix = group_id(self._mirror)
        groups = [each.group_id for each in await self._admin.list_groups() if each.group_id.startswith(prefix)]
        described = await self._admin.describe_groups(groups)
        return {member.client_id for group in described.values() for member in group.members}

    # ---- the map ---------------------------------------------------------------------------------------------------

    async def look(self, positions: Mapping[TopicPartition, Position]) -> None:
        """Note the positions in the partitions that this task mirrors from now on, and read what is new in the map's
        topic.
        """
        self._held_since_ms = None
        self._positions = dict(positions)
        try:
            await self._read_map()
        except UnknownTopicError:
            self._forget_map(0)
        except KafkaError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            # Somebody has deleted the topic, and a mirror has made it again; or has deleted records of it.
            self._forget_map((await self._admin.ends([_MAP], EARLIEST))[_MAP])
            await self._read_map()

    def _forget_map(self, read_to: int) -> None:
        """Forget all entries of the map. read_to: where to read on in its topic."""
        self._read_to = read_to
        self._firsts = {}

    async def _read_map(self) -> None:
        """Note where the mirror's entries begin."""
        while True:
            page = await self._admin.read_page(_MAP, self._read_to, isolation_level="read_committed")
            hides = AbortedFilter(page.aborted).hides
            for batch in page.batches:
                for record in () if hides(batch) else records_of(batch, *_MAP):
                    self._note(record.key, record.value)
            if page.next_offset == self._read_to:
                return
            self._read_to = page.next_offset

    def _note(self, key: bytes, value: bytes | None) -> None:
        """Note where an entry begins, or that a tombstone has removed it. Those of other mirrors are ignored."""
        try:
            found = decode_key(key)
        except IllegalStateError:
            return  # a key of another kind, such as the state of a cutover
        if found.mirror != self._mirror:
            return
        if value is None:
            self.removed([found])
            return
        of_partition = self._firsts.setdefault(TopicPartition(found.topic, found.partition), {})
        firsts = of_partition.setdefault(found.topic_id, [])
        if found.first not in firsts:
            insort(firsts, found.first)

    def gone(self, starts: Mapping[TopicPartition, int]) -> list[EntryKey]:
        """Return entries of this task's partitions that end at or below the source's first offset. starts: the first
        offsets.
        """
        found = list[EntryKey]()
        for tp, position in self._positions.items():
            firsts = self._firsts.get(tp, {}).get(position.topic_id, [])
            ended = max(0, bisect_right(firsts, starts.get(tp, 0)) - 1)
            found += self._keys(tp, position.topic_id, firsts[: min(ended, MAX_GONE - len(found))])
        return found

    def of_earlier_copies(self, partitions: Collection[TopicPartition]) -> list[EntryKey]:
        """Return the keys of all entries of these partitions, in which the mirror has no position yet. The entries tell
        of an earlier copy: the topic on the target, or the mirror's positions, were deleted since.
        """
        return [
            key
            for tp in partitions
            for topic_id, firsts in self._firsts.get(tp, {}).items()
            for key in self._keys(tp, topic_id, firsts)
        ]

    def _keys(self, tp: TopicPartition, topic_id: bytes, firsts: Iterable[int]) -> list[EntryKey]:
        """Return the keys of the entries of a partition that begin at these offsets."""
        return [EntryKey(self._mirror, tp.topic, topic_id, tp.partition, first) for first in firsts]

    def removed(self, keys: Iterable[EntryKey]) -> None:
        """Forget these entries, which have tombstones now."""
        for key in keys:
            firsts = self._firsts.get(TopicPartition(key.topic, key.partition), {}).get(key.topic_id, [])
            if key.first in firsts:
                firsts.remove(key.first)
