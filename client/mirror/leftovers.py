"""What tasks leave behind on the target: transactions of dead ones, and entries of the map that nobody needs any more.

Both only save time and room. A transaction of a dead task holds the positions of its partitions until it times out; it
may be aborted at any time, and so may that of a living one, which begins its cycle anew then. An entry of the map that
ends at or below the source's first offset answers for no record that a group could still read.
"""

import logging
from collections.abc import Iterable, Mapping

from ...protocol.errors import KafkaError
from ..admin.admin import Admin
from ..errors import IllegalStateError, UnknownTopicError
from ..net.environment import Environment
from ..records.decoding import records_of
from ..records.isolation import AbortedFilter
from ..values import TopicPartition
from .names import MAP_TOPIC, group_id, transactional_id
from .offset_map import EntryKey, decode_entry, decode_key
from .positions import Position

log = logging.getLogger("fencepost.client")

PATIENCE_MS = 2_000
"""How long positions may be held before somebody is taken for dead: living tasks commit within that."""
MOST_GONE = 500
"""So many entries are removed in one cycle."""
_MAP = TopicPartition(MAP_TOPIC, 0)


class Leftovers:
    """Finds for one task what other tasks have left behind, and aborts their transactions."""

    def __init__(self, target: Admin, mirror: str, environment: Environment) -> None:
        self._admin = target
        self._mirror = mirror
        self._clock = environment.clock
        self._held_since_ms: int | None = None
        self._read_to = 0  # of the map's topic
        self._ends: dict[EntryKey, int] = {}
        self._positions: Mapping[TopicPartition, Position] = {}

    # ---- transactions of dead tasks ------------------------------------------------------------------------------

    async def end_orphans(self) -> None:
        """Abort the open transactions of tasks that are not in the group, once positions were held for a while.

        Does nothing where the target does not tell of transactions (before Kafka 3.0), or does not let us.
        """
        now_ms = self._clock.monotonic_ms()
        self._held_since_ms = self._held_since_ms or now_ms
        if now_ms - self._held_since_ms < PATIENCE_MS:
            return
        self._held_since_ms = now_ms
        group = group_id(self._mirror)
        try:
            own = transactional_id(self._mirror, "")
            ongoing = [each.transactional_id for each in await self._admin.list_transactions(states=["Ongoing"])]
            members = (await self._admin.describe_groups([group]))[group].members
            living = {member.client_id for member in members}
            orphans = [each for each in ongoing if each.startswith(own) and each not in living]
            if orphans:
                log.info("mirror: ends what dead tasks left open: %s", ", ".join(orphans))
                await self._admin.fence_producers(orphans)
        except KafkaError as error:
            log.info("mirror: waits until transactions of dead tasks time out: %s", error)

    # ---- the map ---------------------------------------------------------------------------------------------------

    async def look(self, positions: Mapping[TopicPartition, Position]) -> None:
        """Read the map from where it was read before, for the partitions that this task mirrors from now on."""
        self._held_since_ms = None
        self._positions = dict(positions)
        try:
            await self._read_map()
        except UnknownTopicError:
            self._read_to = 0

    async def _read_map(self) -> None:
        """Note the ends of the mirror's entries."""
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
        """Note the end of an entry, or that a tombstone has removed it. Those of other mirrors are ignored."""
        try:
            found = decode_key(key)
        except IllegalStateError:
            return  # a key of another kind, such as the state of a cutover
        if found.mirror != self._mirror:
            return
        if value is None:
            self._ends.pop(found, None)
        else:
            self._ends[found] = decode_entry(found.first, value).end

    def gone(self, starts: Mapping[TopicPartition, int]) -> list[EntryKey]:
        """Return entries of this task's partitions that end at or below the source's first offset. starts: the first
        offsets.
        """
        found = list[EntryKey]()
        for key, end in self._ends.items():
            tp = TopicPartition(key.topic, key.partition)
            position = self._positions.get(tp)
            is_mine = position is not None and position.topic_id == key.topic_id
            if is_mine and end <= starts.get(tp, 0):
                found.append(key)
                if len(found) == MOST_GONE:
                    break
        return found

    def removed(self, keys: Iterable[EntryKey]) -> None:
        """Forget these entries, which have tombstones now."""
        for key in keys:
            self._ends.pop(key, None)
