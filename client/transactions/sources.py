"""The consumed batches that a transaction is made from: their offsets, and notifying them of its outcome.

The rule: offsets are committed with the member that fetched them, never with a group id alone (KIP-447). The consumer
of a batch is notified of the outcome, because its position depends on it.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, cast, runtime_checkable

from ...protocol.messages.share_fetch import AcknowledgementBatch
from ..arguments import offset_of
from ..errors import IllegalStateError
from ..values import AcknowledgeType, ConsumerGroupMetadata, OffsetAndMetadata, ShareRecord, TopicPartition
from .machine import Outcome

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


@runtime_checkable
class FromGroup(Protocol):
    """A batch that a consumer yielded: the offsets to commit, and the member that fetched them."""

    @property
    def offsets(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Return the offset to commit for each partition."""
        ...

    @property
    def group_metadata(self) -> ConsumerGroupMetadata | None:
        """Return the member and generation that fetched the batch; None without a group."""
        ...

    def claim(self, by: "Sources") -> None:
        """Reserve the batch for the transaction `by`. Raises IllegalStateError if another one has it,
        CommitOutcomeUnknownError if it is unknown whether one committed it.
        """
        ...

    def aborted(self) -> None:
        """Rewind the consumer to the batch's first offsets: its transaction was aborted."""
        ...

    def outcome_unknown(self) -> None:
        """Make the consumer look up its position: whether the batch was committed is unknown."""
        ...

    def committed(self) -> None:
        """Note that the batch's offsets were committed."""
        ...


SharedRanges = Sequence[tuple[bytes, int, list[AcknowledgementBatch]]]
"""What is acknowledged, by topic id and partition."""


class FromShareGroup(Protocol):
    """Records of one consumer of a share group, which a transaction acknowledges."""

    @property
    def group_id(self) -> str:
        """Return the id of the share group."""
        ...

    @property
    def member_id(self) -> str:
        """Return the id of the member that acquired the records."""
        ...

    @property
    def are_many(self) -> bool:
        """Return whether so many records were added that they should be sent before the commit."""
        ...

    def add(self, records: Sequence[ShareRecord], type: AcknowledgeType) -> None:
        """Add records, to be acknowledged with this type. Nothing is sent yet."""
        ...

    def hand_over(self) -> SharedRanges:
        """Return the acknowledgements that were not sent yet, as offset ranges; the caller sends them now. Raises
        RecordNotHeldError.
        """
        ...

    def note_success(self) -> None:
        """Note that the broker has accepted what `hand_over` returned last."""
        ...

    def give_back(self) -> None:
        """Give the consumer back the records whose acknowledgements were not sent, because the
        transaction has ended.
        """
        ...


class Watch(Protocol):
    """What is called for a transaction that is traced. None of it raises."""

    def reads(self, batch: FromGroup) -> None:
        """Note that a consumed batch was added to the transaction."""
        ...

    def acknowledges(self, group_id: str, records: Sequence[ShareRecord]) -> None:
        """Note that acknowledgements of records of a share group were added to the transaction."""
        ...

    def ended(self, outcome: Outcome | None) -> None:
        """Note that the transaction has ended. outcome: None if no response has confirmed one."""
        ...


class Sources:
    """The batches of one transaction, and its outcome.

    outcome: None while it is open or its abort is not confirmed. resolve: asks the broker for an unknown outcome.
    label: a name that the application gave it. cause: the class of the exception that aborts it.
    """

    def __init__(self) -> None:
        self._batches: list[FromGroup] = []
        self.outcome: Outcome | None = None
        self.resolve: Callable[[], Awaitable[Outcome]] | None = None
        self.label: str | None = None
        self.cause: str | None = None
        self.watch: Watch | None = None  # makes its span; None without tracing
        self.at_end: list[Callable[[], None]] = []  # called once, whatever the outcome

    def add(self, batch: FromGroup) -> None:
        """Register a consumed batch, to be notified of the transaction's outcome. Adding it again changes nothing."""
        if all(batch is not known for known in self._batches):
            self._batches.append(batch)
            if self.watch is not None:
                self.watch.reads(batch)

    def notify(self, outcome: Outcome | None) -> None:
        """Set the outcome, call the functions in at_end, and notify the consumed batches. outcome: None if no commit
        was sent and none will be, which counts as aborted.
        """
        self.outcome = outcome
        if self.watch is not None:
            self.watch.ended(outcome)
        calls, self.at_end = self.at_end, []
        for call in calls:
            call()
        batches, self._batches = self._batches, []
        for batch in batches:
            if outcome == "committed":
                batch.committed()
            elif outcome == "unknown":
                batch.outcome_unknown()
            else:
                batch.aborted()


def offsets_of(
    source: Any, metadata: ConsumerGroupMetadata | None = None
) -> tuple[Offsets, ConsumerGroupMetadata, FromGroup | None]:
    """Return the offsets to commit, the group's metadata, and the batch (None for a mapping). source: a consumer, for
    its last batch; a batch; or a mapping, which needs metadata.

    Raises TypeError for anything else, IllegalStateError if there is nothing to commit.
    """
    if isinstance(metadata, str):
        raise TypeError(
            f"send_offsets_to_transaction needs the consumer's group metadata, not the group's name {metadata!r}: "
            "the name alone does not identify a member. Pass the consumer, a batch, or consumer.group_metadata()"
        )
    if isinstance(source, Mapping):
        if metadata is None:
            raise TypeError("offsets need group metadata: send_offsets_to_transaction(offsets, metadata)")
        offsets = cast("Mapping[TopicPartition, OffsetAndMetadata | int]", source)
        return {TopicPartition(*partition): offset_of(at) for partition, at in offsets.items()}, metadata, None
    batch = source if isinstance(source, FromGroup) else getattr(source, "last_batch", source)
    if batch is None:
        raise IllegalStateError(
            "the consumer has returned nothing since the last commit or abort, so there are no offsets to commit",
            hint="after an abort its records come again: read them in the transaction that is tried again",
        )
    if not isinstance(batch, FromGroup):
        raise TypeError(f"expected a consumer, a batch, or a mapping of offsets, not {type(source).__name__}")
    group = metadata or batch.group_metadata
    if group is None:
        raise IllegalStateError("the batch was read without a group, so it has no offsets to commit")
    return batch.offsets, group, batch
