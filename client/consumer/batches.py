"""Batches of records that know where they come from, and the object that yields them.

The rule: what a batch says of offsets, assignment and group is as of the moment it was taken, so a transaction commits
exactly what it processed, as the member that was given it (KIP-447). After an abort the partitions that are still the
same ones go back to the batch's first offsets, or to what was given before them and never committed: it may have been
part of the same work. One that was away meanwhile begins where its group has committed.
What is rolled back is either worked on again or given again, never both: a batch may be used for another attempt as
long as its partitions stand where it begins, and then they go on behind it.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, overload

from ..errors import AlreadyCommittedError, CommitOutcomeUnknownError, IllegalStateError
from ..group.subscription import Need, PartitionState, Subscription
from ..values import ConsumerGroupMetadata, OffsetAndMetadata, Record, TopicPartition

if TYPE_CHECKING:
    from ..transactions.sources import Sources


class Batch(Sequence[Record]):
    """Records in the order of each partition, never none of them.

    offsets: the next offset of each partition, which is what to commit; first_offsets: where each began.
    """

    __slots__ = (
        "_claimed_by",
        "_gone_back",
        "_jumps",
        "_records",
        "_rewinds",
        "_settled",
        "_states",
        "_subscription",
        "assignment",
        "commits_itself",
        "first_offsets",
        "group_metadata",
        "offsets",
    )

    def __init__(
        self,
        records: Sequence[Record],
        taken: Mapping[PartitionState, int],
        subscription: Subscription,
        group_metadata: ConsumerGroupMetadata | None,
        settled: Callable[["Batch"], None],
        *,
        commits_itself: bool = False,
    ) -> None:
        """commits_itself: its consumer does, now and then, whatever becomes of a transaction."""
        self._records = records
        self._states = tuple(taken)
        self._rewinds = {state: state.rewinds.count for state in taken}
        self._jumps = {state: state.jumps for state in taken}
        self._gone_back: dict[PartitionState, tuple[int, int]] = {}  # (rewinds, position) after it was rolled back
        self._claimed_by: Sources | None = None  # the newest transaction that it was given to
        self.commits_itself = commits_itself
        self._subscription = subscription
        self._settled = settled
        self.first_offsets: Mapping[TopicPartition, int] = MappingProxyType(
            {state.tp: first for state, first in taken.items()}
        )
        self.offsets: Mapping[TopicPartition, OffsetAndMetadata] = MappingProxyType(
            {state.tp: state.offset for state in taken}
        )
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
        return f"<Batch of {len(self._records)} records: {spans}>"

    def _own(self) -> Iterator[PartitionState]:
        return (state for state in self._states if self._subscription.is_current(state))

    @property
    def _was_assigned_by_hand(self) -> bool:
        """So no generation fences who commits it late."""
        return self.group_metadata is not None and self.group_metadata.generation < 0

    def claim(self, by: "Sources") -> None:
        """A transaction works on it: for the first time, or again after it was rolled back and nothing was read since.

        Raises where that would do something twice, or leave something out: AlreadyCommittedError,
        CommitOutcomeUnknownError (can be resolved), IllegalStateError.
        """
        if self.commits_itself:
            raise IllegalStateError(
                "with enable_auto_commit the consumer would also commit offsets of a transaction that is rolled back",
                hint="set enable_auto_commit=False: the transaction commits the offsets",
            )
        self._check_outcome(by)
        for state in self._states:
            self._check_order(state, by)
        rewound = [state for state in self._own() if self._comes_again(state)]
        for state in rewound:
            if not self._may_go_on_behind(state):
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

    def _comes_again(self, state: PartitionState) -> bool:
        """Whether a rollback has gone back to before its end since it was read."""
        return state.rewinds.lowest_since(self._rewinds[state]) < self.offsets[state.tp].offset

    def _may_go_on_behind(self, state: PartitionState) -> bool:
        """Whether nothing was read since it was rolled back, and all that comes again is its own or was left to it."""
        where = state.rewinds.count, state.position
        return state.position == self.first_offsets[state.tp] or self._gone_back.get(state) == where

    def _check_outcome(self, by: "Sources") -> None:
        """Raises if an earlier transaction has committed this batch, or perhaps has."""
        before = self._claimed_by
        if before is None or before is by:
            return
        if before.outcome == "committed":
            raise AlreadyCommittedError("this batch was committed already, by an earlier transaction")
        if before.outcome == "unknown":
            raise CommitOutcomeUnknownError(
                "this batch was in a transaction whose commit was not answered: it may be committed or not",
                hint="await err.resolve(); or read the next batch: this one is read again if it was not committed",
                resolve=before.resolve,
            )

    def _check_order(self, state: PartitionState, by: "Sources") -> None:
        """Raises if a commit would pass over a batch that is not committed yet, take committed offsets back, or be made
        again from records that come again.
        """
        if state.claimed_by is not None and state.claimed_by is not by:
            raise IllegalStateError(
                f"another open transaction uses a batch of {state.tp}: if one is committed and the other is not, "
                "records would be lost or read twice",
                hint="end that transaction first, or give each producer a consumer of its own",
            )
        jumps, offset = state.claimed_end
        is_new = state.claimed_by is by and self._claimed_by is not by
        if is_new and jumps == self._jumps[state] and self.offsets[state.tp].offset < offset:
            raise IllegalStateError(
                f"this transaction has a later batch of {state.tp}: the offsets would go back",
                hint="send the offsets of the batches in the order in which they were read",
            )
        came_back = state.tp in self._subscription.assigned and not self._subscription.is_current(state)
        if came_back and self._was_assigned_by_hand:
            raise IllegalStateError(
                f"{state.tp} was revoked and assigned again since this batch was read: it will be read again",
                hint="read the next batch instead of using this one",
            )
        jumps, offset = state.committed
        if jumps == self._jumps[state] and self.first_offsets[state.tp] < offset:
            raise AlreadyCommittedError(f"later offsets of {state.tp} than this batch's first were committed already")

    def _release(self) -> None:
        """Its transaction has ended."""
        for state in self._states:
            if state.claimed_by is self._claimed_by:
                state.claimed_by = None

    def committed(self) -> None:
        """Its offsets are committed."""
        self._release()
        for state in self._states:
            jumps, offset = self._jumps[state], self.offsets[state.tp].offset
            state.committed = max(state.committed, (jumps, offset))
            if jumps == state.jumps:
                state.note_committed(offset)
        self._settled(self)

    def aborted(self) -> None:
        """It was rolled back: the partitions that are still ours are read again from its first offsets, or from before.

        One that was rolled back meanwhile, with an earlier batch, stays where that begins.
        """
        self._release()
        for state in self._own():
            first = self.first_offsets[state.tp]
            if state.rewinds.count == self._rewinds[state] or state.position > first:
                state.roll_back(first)
                self._gone_back[state] = state.rewinds.count, state.position
        self._settled(self)
        self._subscription.on_change()

    def outcome_unknown(self) -> None:
        """It may or may not have been committed: only the group's committed offsets can tell where to go on.

        Where nothing was ever committed, nothing of this was: then it comes again.
        """
        self._release()
        for state in self._own():
            first = self.first_offsets[state.tp]
            if self.group_metadata is None:
                state.rewinds.add(first)
                state.move(first)
            else:
                state.rewinds.add(0)
                state.ask(Need.COMMITTED, fallback=min(first, state.committed_below))
        self._settled(self)
        self._subscription.on_change()


class Batches(AsyncIterator[Batch]):
    """`async for batch in consumer.batches(...)`: it waits for records; may be iterated again, after an error too."""

    __slots__ = ("_next",)

    def __init__(self, following: Callable[[], Awaitable[Batch | None]]) -> None:
        """following: the next batch, None where its time limit has passed."""
        self._next = following

    def __aiter__(self) -> "Batches":
        return self

    async def __anext__(self) -> Batch:
        found = await self._next()
        if found is None:
            raise StopAsyncIteration
        return found
