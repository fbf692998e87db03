"""The places of one consumer: it claims them in the database when a partition is assigned, and reads on from there.

The rule: with it, a position is never taken from the group but for a row that is made: that begins at the group's
committed offset, else where auto_offset_reset says, and that is written before a record is read. What was claimed
within a user's transaction is forgotten if that is not committed. The group's offsets are committed afterwards, for
those who look at the group; nothing reads them.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from ...protocol.primitives import ZERO_UUID
from ..consumer.list_offsets import READ_COMMITTED, READ_UNCOMMITTED, list_once
from ..errors import IllegalStateError, InvalidConfigurationError, OffsetOutOfRangeError, RequestTimedOutError
from ..group.subscription import EARLIEST, LATEST, Need, PartitionState
from ..transactions.participant import DatabaseAway
from ..values import OffsetAndMetadata, TopicPartition
from . import place_statements as statements
from .interfaces import Database
from .places import Claim, Key, is_outside

if TYPE_CHECKING:
    from ..consumer.polls import Polls

log = logging.getLogger("fencepost.client")
SHOWN_EVERY_S = 1.0
"""How often the group's offsets are committed for those who look at the group."""
WARN_EVERY_MS = 60_000

Keys = dict[PartitionState, Key]
Rows = dict[Key, tuple[int, int]]
"""Claim and place of each row."""


class Places:
    """The places of one consumer: for each partition the offset of the first record whose effects are not in the
    database.

    db: the database, which is open. parts: of the consumer. claims: what is known of the rows, by assigned partition.
    """

    def __init__(self, db: Database, parts: "Polls") -> None:
        """Raises InvalidConfigurationError for a consumer that cannot have places."""
        if parts.group is None:
            raise InvalidConfigurationError("without a group_id there is no place in a topic", hint="set group_id")
        if parts.positions.isolation != READ_COMMITTED:
            raise InvalidConfigurationError(
                "with read_uncommitted the database would have effects of records that are aborted",
                hint='set isolation_level="read_committed"',
            )
        if parts.settings.enable_auto_commit:
            raise InvalidConfigurationError(
                "with enable_auto_commit the group's offsets would run ahead of the database",
                hint="set enable_auto_commit=False: the inbox commits them",
            )
        self.db = db
        self.group_id = parts.group.metadata().group_id
        self.claims: WeakKeyDictionary[PartitionState, Claim] = WeakKeyDictionary()
        self._parts = parts
        self._group = parts.group
        self._warned_ms = float("-inf")
        self._to_show: dict[TopicPartition, OffsetAndMetadata] = {}
        self._showing: asyncio.Task[None] | None = None

    # ---- claiming ----------------------------------------------------------------------------------------------

    async def find(self, states: Collection[PartitionState]) -> bool:
        """Claim the rows of these partitions (each claim fences the consumer that read there before), and set the
        positions to the places. Returns whether any was found.

        Raises RequestTimedOutError if the database does not answer.
        """
        epochs = {state: state.epoch for state in states}
        claimed = await self._claim(states)
        for state, (key, number, place) in claimed.items():
            if state.epoch == epochs[state] and self._parts.subscription.is_current(state):
                self._go_to(state, Claim(key, number, place, 0))
        return bool(claimed)

    async def take_over(self, states: Iterable[PartitionState], *, inside: bool) -> None:
        """Claim the rows of these partitions, except of those that are claimed already or have no position yet. If the
        place lies within the records that were returned to the application, it may go on to use them; otherwise the
        position is set to the place.

        inside: in the open transaction of the database. Raises RequestTimedOutError if the database does not answer;
        with inside the driver's error.
        """
        wanted = [state for state in states if state not in self.claims and state.is_known]
        claimed = await self._claim(wanted, inside=inside) if wanted else {}
        for state, (key, number, place) in claimed.items():
            if not self._parts.subscription.is_current(state):
                continue
            if state.is_known and self._given_from(state) <= place <= state.position:
                self.claims[state] = Claim(key, number, place, state.jumps)
            else:
                self._go_to(state, Claim(key, number, place, 0))

    def _go_to(self, state: PartitionState, claim: Claim) -> None:
        """Set the position to the place of this claim, and note the claim."""
        state.move(claim.place)
        self.claims[state] = claim._replace(jumps=state.jumps)
        self._parts.subscription.on_change()

    def return_to_place(self, state: PartitionState) -> None:
        """Read on from the place of a claimed partition, whose position is somewhere else."""
        self._go_to(state, self.claims[state])

    def forget(self, states: Iterable[PartitionState]) -> None:
        """Forget the claims of these partitions. Those that are still assigned are claimed again, and read on from
        their places.
        """
        for state in states:
            self.claims.pop(state, None)
            if self._parts.subscription.is_current(state):
                state.look_up(Need.COMMITTED)
        self._parts.subscription.on_change()

    def _given_from(self, state: PartitionState) -> int:
        """Return the first offset from which on records may be in use by the application while their effects are not in
        the database.
        """
        given = self._parts.reading.first_given(state)
        return state.position if given is None else min(given, state.position)

    async def _claim(
        self, states: Collection[PartitionState], *, inside: bool = False
    ) -> dict[PartitionState, tuple[Key, int, int]]:
        """Claim the rows of these partitions. Returns for each its key, the number of the claim and the place.

        Left out are partitions that have no topic id, offset or leader at the moment, or whose read is refused.
        """
        keys = {state: key for state in states if (key := self._key_of(state)) is not None}
        try:
            rows, renewed = await self._read(keys, inside)
            firsts = await self._firsts([state for state, key in keys.items() if key not in rows], renewed)
            resets = await self._resets({state: key for state, key in keys.items() if key in rows}, rows)
            wanted: list[tuple[str, Sequence[Any]]] = []
            ready = {state: key for state, key in keys.items() if key not in rows or state.refused is None}
            ready = {state: key for state, key in ready.items() if key in rows or state in firsts}
            for state, key in sorted(ready.items(), key=lambda one: one[1]):
                row = (self.group_id, *key)
                member = self._group.member[1]
                wanted.append((statements.CLAIM, (*row, state.tp.topic, member, firsts.get(state, 0))))
                if state in resets:
                    wanted.append((statements.RESET, (*row, rows[key][1], resets[state])))
                wanted.append((statements.READ, row))
            found = await self._run(wanted, inside)
        except DatabaseAway as away:
            self._warn(states, away)
            raise RequestTimedOutError(f"the database: {away.__cause__ or away}") from away
        read = iter(rows_of for (text, _), rows_of in zip(wanted, found, strict=True) if text is statements.READ)
        claims = {key: next(read)[0] for key in sorted(ready.values())}
        return {state: (key, *claims[key]) for state, key in ready.items()}

    def _key_of(self, state: PartitionState) -> Key | None:
        """Return the key of the partition's row; None while its topic is not known."""
        metadata, topic = self._parts.cluster.metadata, state.tp.topic
        topic_id = state.topic_id or metadata.topic_id(topic)
        if topic_id == ZERO_UUID:
            if topic not in metadata.topics:
                self._parts.cluster.request_refresh()
                return None
            return Key(topic, state.tp.partition)
        state.topic_id = topic_id  # so that the fetcher tells when it is another topic
        return Key(topic_id.hex(), state.tp.partition)

    async def _firsts(
        self, states: Collection[PartitionState], renewed: Collection[PartitionState]
    ) -> dict[PartitionState, int]:
        """Return, for partitions without a row, the place with which one is made. Partitions without an offset at the
        moment are left out.

        renewed: partitions whose topic was deleted and made again, so that positions and the group's offsets may be of
        the old topic.
        """
        missing = [state for state in states if state in renewed]
        known = {state: self._given_from(state) for state in states if state.is_known and state not in renewed}
        of_group = [state for state in states if state not in known and state not in renewed]
        timeout_ms = self._parts.settings.default_api_timeout_ms
        offsets = await self._group.stable_now([state.tp for state in of_group], timeout_ms=timeout_ms)
        for state in of_group:
            if state.tp in offsets:
                committed = offsets[state.tp]
                if committed is None:
                    missing.append(state)
                else:
                    known[state] = committed.offset
        return known | await self._by_policy(missing)

    async def _by_policy(self, states: Collection[PartitionState]) -> dict[PartitionState, int]:
        """Return the offset that auto_offset_reset names for each of these partitions. If it names none, the next read
        raises NoOffsetError.
        """
        positions = self._parts.positions
        if positions.policy is None:
            for state in states:
                positions.apply_policy(state)
            return {}
        return await self._list(states, positions.policy, positions.isolation)

    async def _list(self, states: Collection[PartitionState], end: int, isolation: int) -> dict[PartitionState, int]:
        """Return the first or last offset of each partition's log, as far as the leaders answer. end: EARLIEST or
        LATEST.
        """
        if not states:
            return {}
        cluster = self._parts.cluster
        wanted = {state.tp: end for state in states}
        timeout_ms = self._parts.settings.request_timeout_ms
        listed, _ = await list_once(cluster, wanted, isolation, timeout_ms=timeout_ms)
        if len(listed) < len(wanted):
            cluster.request_refresh()
        return {state: listed[state.tp].offset for state in states if state.tp in listed}

    async def _resets(self, keys: Keys, rows: Rows) -> dict[PartitionState, int]:
        """Return new places for partitions whose place is not in the log any more. Without auto_offset_reset the next
        read raises OffsetOutOfRangeError instead.
        """
        asked = [state for state in keys if state.need is Need.OFFSET]
        starts = await self._list(asked, EARLIEST, READ_UNCOMMITTED)
        ends = await self._list(asked, LATEST, READ_UNCOMMITTED)
        outside = [
            state
            for state in asked
            if state in starts and state in ends and is_outside(rows[keys[state]][1], starts[state], ends[state])
        ]
        if self._parts.positions.policy is not None:
            return await self._by_policy(outside)
        for state in outside:
            place = rows[keys[state]][1]
            state.refused = OffsetOutOfRangeError(f"{state.tp}: the place {place} in the database is outside the log")
        return {}

    # ---- the database ------------------------------------------------------------------------------------------

    async def _run(self, wanted: list[tuple[str, Sequence[Any]]], inside: bool) -> list[list[tuple[Any, ...]]]:
        """Run these statements, and return the rows of each. inside: in the open transaction of the database."""
        if not wanted:
            return []
        if not inside:
            return await self.db.run_alone(wanted)
        rows: list[list[tuple[Any, ...]]] = []
        for statement, values in wanted:
            if statement.startswith("select"):
                rows.append(await self.db.fetch(statement, *values))
            else:
                await self.db.execute(statement, *values)
                rows.append([])
        return rows

    async def _read(self, keys: Keys, inside: bool) -> tuple[Rows, set[PartitionState]]:
        """Return the rows that exist for these keys (claim and place), and the partitions that have a row of a former
        topic with the same name.
        """
        wanted: list[tuple[str, Sequence[Any]]] = []
        for state, key in keys.items():
            wanted.append((statements.READ, (self.group_id, *key)))
            wanted.append((statements.FIND_OTHERS, (self.group_id, *key, state.tp.topic)))
        found = await self._run(wanted, inside)
        rows = {key: rows[0] for key, rows in zip(keys.values(), found[::2], strict=True) if rows}
        return {key: (row[0], row[1]) for key, row in rows.items()}, {
            state for state, others in zip(keys, found[1::2], strict=True) if others
        }

    async def ask(self, keys: Collection[Key]) -> dict[Key, int]:
        """Return the places in these rows, as they are once the transactions that change them now have ended. Raises
        DatabaseAway.
        """
        wanted: list[tuple[str, Sequence[Any]]] = []
        for key in sorted(keys):
            wanted += [(statements.WAIT, (self.group_id, *key)), (statements.READ, (self.group_id, *key))]
        found = await self._run(wanted, inside=False)
        return {key: rows[0][1] for key, rows in zip(sorted(keys), found[1::2], strict=True) if rows}

    def _warn(self, states: Collection[PartitionState], away: DatabaseAway) -> None:
        """Log that these partitions wait for the database, at most once a minute."""
        now_ms = self._parts.cluster.environment.clock.monotonic_ms()
        if now_ms - self._warned_ms >= WARN_EVERY_MS:
            self._warned_ms = now_ms
            log.warning(
                "group %s: nothing is read of %s until the database says where to go on: %s",
                self.group_id,
                ", ".join(str(state.tp) for state in states),
                away,
            )

    # ---- the group's offsets -----------------------------------------------------------------------------------

    def show(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit these offsets to the group soon, for those who look at the group; nothing reads on from them."""
        self._to_show |= offsets
        if self._showing is None or self._showing.done():
            self._showing = asyncio.get_running_loop().create_task(self._show_later())

    async def _show_later(self) -> None:
        """Commit the noted offsets to the group again and again, with a pause, until there are none."""
        while self._to_show:
            await self._show_now(self._parts.settings.request_timeout_ms)
            await asyncio.sleep(SHOWN_EVERY_S)

    async def _show_now(self, timeout_ms: float) -> None:
        """Commit the noted offsets of assigned partitions to the group. An error is only logged."""
        assigned = self._parts.subscription.assigned
        offsets = {tp: after for tp, after in self._to_show.items() if tp in assigned}
        self._to_show = {}
        try:
            if offsets:
                await self._group.commit(offsets, timeout_ms=timeout_ms)
        except Exception as error:
            log.info("group %s: its offsets were not brought up to the database's places: %s", self.group_id, error)

    async def close(self, timeout_ms: float) -> None:
        """Commit the group's offsets a last time."""
        showing, self._showing = self._showing, None
        if showing is not None and not showing.done():
            showing.cancel()
            await asyncio.wait({showing})
        if self._to_show:
            await self._show_now(timeout_ms)


async def keep_places(db: Database, consumer: Any) -> None:
    """Make the consumer read on from its group's places in the database, in each partition that it is assigned.

    An inbox does so with its first batch. With auto_offset_reset="latest" call this before the loop: otherwise a
    consumer that stops before its first batch skips what is written until it is started again. Raises
    InvalidConfigurationError, IllegalStateError, RequestTimedOutError.
    """
    await attached(db, getattr(consumer, "_polls", None), inside=False)


async def attached(db: Database, parts: "Polls | None", *, inside: bool) -> Places:
    """Return the Places of the consumer with these parts; makes them if the consumer has none. Claims the rows of the
    partitions that the consumer reads already.

    Raises TypeError for something that is no consumer, IllegalStateError if the consumer has its places in another
    database.
    """
    if parts is None:
        raise TypeError("expected a fencepost.Consumer, or a batch of one")
    places = parts.positions.places
    if not isinstance(places, Places):
        places = parts.positions.places = Places(db, parts)
    elif places.db is not db:
        raise IllegalStateError(
            "this consumer has its places in another database", hint="use one consumer for each database"
        )
    await places.take_over(tuple(parts.subscription.assigned.values()), inside=inside)
    return places
