"""`async with sql.inbox(db, batch) as new:`: what the block writes and the place in the topic, in one transaction.

The rule: the place is moved by the last statement before COMMIT, under the condition that it is where the batch's
records begin. A COMMIT without an answer is asked about, by reading the place. Within the block of a producer's
transaction, that one begins and ends the database's. `places.py` says why this is exactly once.
"""

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from ..consumer.batches import Batch
from ..errors import (
    AbortableTransactionError,
    CommitOutcomeUnknownError,
    IllegalStateError,
    InboxFencedError,
    KafkaError,
    Outcome,
)
from ..group.subscription import PartitionState
from ..transactions.cancellation import outlast
from ..transactions.participant import Block, DatabaseAway
from ..transactions.sources import Sources
from ..values import ConsumerGroupMetadata, Record
from . import place_statements as statements
from .interfaces import Database
from .keeping import Places, attached
from .places import Move, first_new

if TYPE_CHECKING:
    from ..transactions.sources import Offsets

COMMIT_S = 5.0
"""How long a cancelled block waits for the answer to its COMMIT."""


class Inbox:
    """The block for one batch: what is written in the database within it is committed together with the places after
    the batch. db: a database of `sql.connect`, open.
    """

    def __init__(self, db: Database, batch: Batch) -> None:
        if not isinstance(batch, Batch):
            raise TypeError(f"expected a batch of consumer.batches(), not {type(batch).__name__}")
        self._db = db
        self._batch = batch
        self._block: Block | None = None  # of the producer's transaction around this one
        self._sources = Sources()
        self._places: Places | None = None
        self._moves: dict[PartitionState, Move] = {}
        self._to_forget: list[PartitionState] = []  # whose claims are undone with the transaction, or do not hold
        self._is_entered = self._has_moved = False
        self.is_open = False  # within the block

    # ---- the block ---------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Sequence[Record]:
        """Return the records of the batch whose effects are not in the database yet. Returns none if the effects of all
        are there, or if earlier records have to be read first.
        """
        if self._is_entered:
            raise IllegalStateError("an inbox can be entered only once", hint="async with sql.inbox(db, batch) as new:")
        self._is_entered, self._block = True, self._db.block
        if self._block is not None:
            self._sources = self._block.sources
        self._batch.claim(self._sources)
        try:
            self._places = await self._claim_all()
            new = self._look(self._places)
            if self._block is None:
                await self._begin()
        except BaseException:
            self.aborted()
            raise
        if self._block is not None:
            self._sources.add(self)
        self.is_open = True
        return new

    async def _begin(self) -> None:
        try:
            await self._db.begin()
        except asyncio.CancelledError:  # it may have begun
            await self._db.rollback()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.is_open = False
        if self._block is not None:
            await self._end_inside(self._block, error)
            return
        if error is not None:
            await self._roll_back()
            return
        try:
            await self._move_all()
        except BaseException:
            await self._roll_back()
            raise
        await self._commit()

    async def _roll_back(self) -> None:
        """Roll back the database's transaction, and read the batch again."""
        try:
            await self._db.rollback()
        finally:
            self.aborted()

    async def _end_inside(self, block: Block, error: BaseException | None) -> None:
        """End the block within a producer's transaction, which commits or rolls back later. If this fails, that
        transaction fails too, because half of its work is done.
        """
        try:
            if error is None:
                await self._move_all()
        except BaseException as failed:
            error = failed
            raise
        finally:
            if error is not None:
                block.fail(AbortableTransactionError(f"the inbox within it failed: {error!r}"))

    async def _claim_all(self) -> Places:
        """Claim the batch's partitions that are not claimed yet. Raises InboxFencedError for one that was revoked."""
        inside = self._block is not None
        subscription = None if self._batch.parts is None else self._batch.parts.subscription
        before: set[PartitionState] = set() if subscription is None else set(subscription.assigned.values())
        known = None if self._batch.parts is None else self._batch.parts.positions.places
        if inside:
            claimed = known.claims if isinstance(known, Places) else ()
            self._to_forget = [state for state in before if state not in claimed]
        places = await attached(self._db, self._batch.parts, inside=inside)
        for state, *_ in self._batch.spans():
            if state not in places.claims and state not in before:
                raise InboxFencedError(f"{state.tp} was revoked since this batch was read, before it was claimed")
        return places

    def _look(self, places: Places) -> Sequence[Record]:
        """Return the batch's records whose effects are not in the database yet. Notes in `_moves` how the place of each
        partition changes.
        """
        is_whole = True
        for state, jumps, first, end in self._batch.spans():
            claim = places.claims.get(state)
            if claim is None or claim.jumps != jumps:  # it is being looked up, or was read after a seek or before it
                is_whole = False
                if claim is not None and state.is_known and state.jumps != claim.jumps:
                    places.return_to_place(state)
                elif claim is None:
                    places.forget([state])
                continue
            begins = first_new(claim.place, first, end)
            if begins is None:
                is_whole = False
                places.return_to_place(state)
                continue
            is_whole &= begins == first
            self._moves[state] = Move(claim.key, claim.number, claim.place, end)
        if is_whole:
            return self._batch
        begins_at: dict[tuple[str, int], float] = {state.tp: move.place for state, move in self._moves.items()}
        never = float("inf")
        return [one for one in self._batch if one.offset >= begins_at.get((one.topic, one.partition), never)]

    async def _move_all(self) -> None:
        """Write the places after the batch into the database. Raises InboxFencedError if the row of a partition is not
        as it was found.
        """
        places = self._places
        assert places is not None
        for state, move in sorted(self._moves.items(), key=lambda one: one[1]):
            key, claim, place, after = move
            if await self._db.execute_last(statements.MOVE, places.group_id, *key, claim, place, after) != 1:
                self._to_forget = list(self._moves)
                raise InboxFencedError(
                    f"group {places.group_id}: another consumer has claimed {state.tp}, or moved its place from {place}"
                )
        self._has_moved = True

    # ---- the end, without a producer's transaction -------------------------------------------------------------

    async def _commit(self) -> None:
        """Commit; if that fails or has no answer, find out what the database did."""
        committing = asyncio.ensure_future(self._db.commit())
        try:
            try:
                await asyncio.shield(committing)
            except Exception as error:
                await self._db.rollback()
                await self._find_out(error)
            else:
                self.committed()
        except asyncio.CancelledError as cancelled:
            await self._give_up(committing)
            cancelled.add_note(f"cancelled during the commit of the inbox; its outcome: {self._sources.outcome}")
            raise

    async def _give_up(self, committing: "asyncio.Future[None]") -> None:
        """Note the outcome of a COMMIT whose caller is cancelled: committed if COMMIT succeeds soon, else unknown."""
        await outlast(committing, COMMIT_S)
        if not committing.done():
            committing.cancel()
            await outlast(committing, COMMIT_S)
        if committing.done() and not committing.cancelled() and committing.exception() is None:
            self.committed()
            return
        try:
            await self._db.rollback()
        finally:
            self.outcome_unknown()

    async def _find_out(self, error: Exception) -> None:
        """Ask the database whether the COMMIT that ended with this error was carried out. Raises the error if nothing
        was committed, CommitOutcomeUnknownError if the database does not answer.
        """
        try:
            outcome = await self._ask()
        except (DatabaseAway, KafkaError) as away:
            self.outcome_unknown()
            raise CommitOutcomeUnknownError(
                f"the database did not confirm COMMIT, and cannot be asked: {away}",
                hint="go on with the next batch: what was not committed is read again",
                resolve=self._resolve,
            ) from error
        if outcome == "committed":
            self.committed()
            return
        self._to_forget = list(self._moves)
        self.aborted()
        raise error

    async def _ask(self) -> Outcome:
        """Return "committed" if the effects of the batch are in the database, else "aborted". Raises DatabaseAway."""
        assert self._places is not None
        found = await self._places.ask([move.key for move in self._moves.values()])
        is_there = all(found.get(move.key, -1) >= move.after for move in self._moves.values())
        return "committed" if is_there and self._moves else "aborted"

    async def _resolve(self) -> Outcome:
        """Ask the database again whether the batch was committed. Returns "unknown" if it does not answer."""
        try:
            return await self._ask()
        except (DatabaseAway, KafkaError):
            return "unknown"

    # ---- as a source of a transaction --------------------------------------------------------------------------

    @property
    def offsets(self) -> "Offsets":
        """Return the offsets after the batch, by partition."""
        return self._batch.offsets

    @property
    def group_metadata(self) -> ConsumerGroupMetadata | None:
        """Return the member that read the batch; None if it was read without a group."""
        return self._batch.group_metadata

    def claim(self, by: Sources) -> None:
        """Reserve the batch for a transaction. Raises like Batch.claim."""
        self._batch.claim(by)

    def committed(self) -> None:
        """Note that the transaction is committed and has moved the places, and have the group's
        offsets committed too.
        """
        places = self._places
        assert places is not None
        if not self._has_moved:  # the exception of its block was swallowed, and the transaction was ended by hand
            self.aborted()
            return
        self._sources.outcome = "committed"
        for state, move in self._moves.items():
            claim = places.claims.get(state)
            if claim is not None and claim.number == move.claim:
                places.claims[state] = claim._replace(place=move.after)
        self._batch.committed_in(self._moves)
        places.show({state.tp: self._batch.offsets[state.tp] for state in self._moves})

    def aborted(self) -> None:
        """Note that the transaction was rolled back: the batch's records are read again, from the places."""
        if self._block is None:
            self._sources.outcome = "aborted"
        self._batch.aborted()
        if self._places is not None and self._to_forget:
            self._places.forget(self._to_forget)

    def outcome_unknown(self) -> None:
        """Note that nobody knows whether the transaction was committed: look up the places, and read on from there."""
        if self._block is None:
            self._sources.outcome = "unknown"
        self._batch.outcome_unknown()
        if self._places is not None:
            self._places.forget([*self._moves, *self._to_forget])


def inbox(db: Database, batch: Batch) -> Inbox:
    """`async with sql.inbox(db, batch) as new:`: commit what the block writes together with the group's place (the
    offset after the batch).

    db: of `sql.connect`. batch: of `consumer.batches()`; its consumer has a group_id and reads committed records only.
    `new` has the batch's records whose effects are not in the database yet; it may be empty. At the end of the block
    InboxFencedError is raised if another consumer has taken over a partition: nothing was committed.
    """
    return Inbox(db, batch)
