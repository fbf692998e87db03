"""Batches of records with their offsets, and the iterator that yields them. Pure.

The rule: a batch has the offsets, assignment and group metadata of the time when it was read, so a transaction commits
exactly the records that it processed, with the member that read them (KIP-447). After an abort, partitions that were
assigned all the time go back to the batch's first offsets, or to earlier records that were returned and never
committed, since these may belong to the same work. A partition that was revoked meanwhile begins at the group's
committed offset. Records that were rolled back are processed again either from the old batch or from a new one, never
both: a batch may be used for another transaction while the positions are where it begins, and then moves them to its
end.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, overload

from ...effects.counts import count_text
from ..errors import AlreadyCommittedError, CommitOutcomeUnknownError, IllegalStateError
from ..group.subscription import Need, PartitionState, Subscription
from ..values import ConsumerGroupMetadata, OffsetAndMetadata, Record, TopicPartition

if TYPE_CHECKING:
    from ..transactions.sources import Sources


class Batch(Sequence[Record]):
    """A sequence of records, in order within each partition, never empty.

    offsets: the offsets to commit: after the last record of each partition; first_offsets: the position of each before.
    """

    __slots__ = (
        "_asks",
        "_claimed_by",
        "_jumps",
        "_records",
        "_rewinds",
        "_rolled_back_to",
        "_settled",
        "_states",
        "_subscription",
        "assignment",
        "commits_itself",
        "first_offsets",
        "group_metadata",
        "offsets",
        "parts",
    )

    def __init__(
        self,
        records: Sequence[Record],
        taken: Mapping[PartitionState, int],
        subscription: Subscription,
        group_metadata: ConsumerGroupMetadata | None,
        settled: Callable[["Batch"], None],
        *,
        asks: Collection[PartitionState] = (),
        commits_itself: bool = False,
    ) -> None:
        """settled: called with the batch after a commit or abort. commits_itself: whether enable_auto_commit is on.

        taken: the offset of the first record of each partition. asks: partitions of which some records may be
        committed already, so that their committed offset is looked up after an abort.
        """
        self._records = records
        self._states = tuple(taken)
        self._rewinds = {state: state.rewinds.count for state in taken}
        self._jumps = {state: state.jumps for state in taken}
        self._rolled_back_to: dict[PartitionState, tuple[int, int]] = {}  # (rewinds, position) after its rollback
        self._asks = asks
        self._claimed_by: Sources | None = None  # the newest transaction that uses it
        self.commits_itself = commits_itself
        self._subscription = subscription
        self._settled = settled
        self.first_offsets: Mapping[TopicPartition, int] = MappingProxyType(
            {state.tp: first for state, first in taken.items()}
        )
        self.offsets: Mapping[TopicPartition, OffsetAndMetadata] = MappingProxyType(
            {state.tp: state.offset for state in taken}
        )
        self.parts: Any = None  # the Polls of its consumer
        self.group_metadata = group_metadata
        self.assignment: frozenset[TopicPartition] = frozenset(subscription.assigned)

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self._records)

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Record]: ...
    def __getitem__(self, index: int | slice) -> Record | Sequence[Record]:
        return self._records[index]

    def __repr__(self) -> str:
        spans = ", ".join(f"{tp}@{first}-{self.offsets[tp].offset - 1}" for tp, first in self.first_offsets.items())
        return f"<Batch of {count_text(len(self._records), 'record')}: {spans}>"

    def _own(self) -> Iterator[PartitionState]:
        """Return the states of the batch's partitions that have stayed assigned since it was read."""
        return (state for state in self._states if self._subscription.is_current(state))

    def spans(self) -> Iterator[tuple[PartitionState, int, int, int]]:
        """Yield for each partition its state, how many jumps (seeks and lookups of the position) it had made when the
        batch was read, and the positions before and after the batch.
        """
        for state in self._states:
            yield state, self._jumps[state], self.first_offsets[state.tp], self.offsets[state.tp].offset

    @property
    def _was_assigned_manually(self) -> bool:
        """Return whether the batch was read after `assign`, so that no generation fences a late commit."""
        return self.group_metadata is not None and self.group_metadata.generation < 0

    def claim(self, by: "Sources") -> None:
        """Note that a transaction uses the batch. After a rollback another transaction may use it, if nothing was read
        since.

        Raises if records would be committed twice or skipped: AlreadyCommittedError, CommitOutcomeUnknownError (which
        can be resolved), IllegalStateError.
        """
        if self.commits_itself:
            raise IllegalStateError(
                "with enable_auto_commit the consumer would also commit offsets of a transaction that is rolled back",
                hint="set enable_auto_commit=False: the transaction commits the offsets",
            )
        self._check_outcome(by)
        for state in self._states:
            self._check_order(state, by)
        rewound = [state for state in self._own() if self._will_be_read_again(state)]
        for state in rewound:
            if not self._may_continue_after(state):
                raise IllegalStateError(
                    f"{state.tp} was rolled back since this batch was read: it will be read again",
                    hint="read the next batch instead of using this one",
                )
        for state in rewound:
            after = self.offsets[state.tp]
            state.go_on(after.offset, after.leader_epoch)
            self._rewinds[state] = state.rewinds.count
        self._claimed_by = by
        for state in self._states:
            end = self._jumps[state], self.offsets[state.tp].offset
            state.claimed_end = max(state.claimed_end, end) if state.claimed_by is by else end
            state.claimed_by = by
        if rewound:
            self._subscription.on_change()

    def _will_be_read_again(self, state: PartitionState) -> bool:
        """Return whether a rollback since the batch was read, or last used, went back to an offset before its end."""
        return state.rewinds.lowest_since(self._rewinds[state]) < self.offsets[state.tp].offset

    def _may_continue_after(self, state: PartitionState) -> bool:
        """Return whether nothing was read since the rollback: the position is still where the batch begins."""
        where = state.rewinds.count, state.position
        return state.position == self.first_offsets[state.tp] or self._rolled_back_to.get(state) == where

    def _check_outcome(self, by: "Sources") -> None:
        """Raise an error if an earlier transaction has, or may have, committed this batch."""
        before = self._claimed_by
        if before is None or before is by:
            return
        if before.outcome == "committed":
            raise AlreadyCommittedError("this batch was committed already, by an earlier transaction")
        if before.outcome == "unknown":
            raise CommitOutcomeUnknownError(
                "this batch was in a transaction whose commit got no response: it may be committed or not",
                hint="await err.resolve(); or read the next batch: this one is read again if it was not committed",
                resolve=before.resolve,
            )

    def _check_order(self, state: PartitionState, by: "Sources") -> None:
        """Raise an error if a commit would skip uncommitted batches, go back, or commit records to be read again."""
        if state.claimed_by is not None and state.claimed_by is not by:
            raise IllegalStateError(
                f"another open transaction uses a batch of {state.tp}: if one is committed and the other is not, "
                "records would be lost or read twice",
                hint="end that transaction first, or use a separate consumer for each producer",
            )
        jumps, offset = state.claimed_end
        is_new = state.claimed_by is by and self._claimed_by is not by
        if is_new and jumps == self._jumps[state] and self.offsets[state.tp].offset < offset:
            raise IllegalStateError(
                f"this transaction has a later batch of {state.tp}: the offsets would go back",
                hint="send the offsets of the batches in the order in which they were read",
            )
        came_back = state.tp in self._subscription.assigned and not self._subscription.is_current(state)
        if came_back and self._was_assigned_manually:
            raise IllegalStateError(
                f"{state.tp} was revoked and assigned again since this batch was read: it will be read again",
                hint="read the next batch instead of using this one",
            )
        jumps, offset = state.committed
        if jumps == self._jumps[state] and self.first_offsets[state.tp] < offset:
            raise AlreadyCommittedError(f"later offsets of {state.tp} than this batch's first were committed already")

    def _release(self) -> None:
        """End the transaction's claim on the batch's partitions."""
        for state in self._states:
            if state.claimed_by is self._claimed_by:
                state.claimed_by = None

    def committed(self) -> None:
        """Note that the batch's offsets are committed."""
        self.committed_in(self._states)

    def committed_in(self, states: Collection[PartitionState]) -> None:
        """Note that the batch's offsets are committed in these partitions, and in no other."""
        self._release()
        for state in states:
            jumps, offset = self._jumps[state], self.offsets[state.tp].offset
            state.committed = max(state.committed, (jumps, offset))
            if jumps == state.jumps:
                state.note_committed(offset)
        self._settled(self)

    def aborted(self) -> None:
        """Note that the batch was rolled back: move each position back to the batch's first offset, or to an earlier
        one if records before the batch are not committed either.

        Only the partitions that are still assigned are moved. A partition that was rolled back meanwhile with an
        earlier batch keeps that position.
        """
        self._release()
        for state in self._own():
            first = self.first_offsets[state.tp]
            if state.rewinds.count == self._rewinds[state] or state.position > first:
                state.roll_back(first, asks=state in self._asks)
                self._rolled_back_to[state] = state.rewinds.count, state.position
        self._settled(self)
        self._subscription.on_change()

    def outcome_unknown(self) -> None:
        """Look up the positions from the committed offsets, because the outcome of the batch's commit is unknown.

        If a partition has no committed offset, the batch was not committed there, and is read again.
        """
        self._release()
        for state in self._own():
            first = self.first_offsets[state.tp]
            if self.group_metadata is None:
                state.rewinds.add(first)
                state.move(first)
            else:
                state.rewinds.add(0)  # how far back the committed offset is, is not known yet
                state.look_up(Need.COMMITTED, fallback=min(first, state.committed_below))
        self._settled(self)
        self._subscription.on_change()


class Batches(AsyncIterator[Batch]):
    """`async for batch in consumer.batches(...)`: waits for records; it may be iterated again, also after an error."""

    __slots__ = ("_next",)

    def __init__(self, following: Callable[[], Awaitable[Batch | None]]) -> None:
        """following: returns the next batch, None after its timeout."""
        self._next = following

    def __aiter__(self) -> "Batches":
        return self

    async def __anext__(self) -> Batch:
        found = await self._next()
        if found is None:
            raise StopAsyncIteration
        return found
