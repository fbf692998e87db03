"""The records of one consumer that one transaction acknowledges, until they are sent or the transaction ends.

The rules: they are renewed until they are sent. Once the broker has taken them they are the consumer's no more: if the
transaction is committed, they are acknowledged for good; if not, the broker delivers them again. All others the
consumer gives back when the transaction ends, whether they were not sent, refused, or are without an answer.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...protocol.messages.share_fetch import AcknowledgementBatch
from ..values import AcknowledgeType, ShareRecord
from .held import Delivery, check_record, in_ranges
from .membership import Place

if TYPE_CHECKING:
    from .polls import SharePolls

MANY = 500
"""So many are sent at once, fewer with the commit: as many as are usually returned together."""
TYPES = (AcknowledgeType.ACCEPT, AcknowledgeType.REJECT)
"""What a transaction can say: a record that is to be delivered again needs no transaction."""


class TakenRecords:
    """The records of one share consumer that one transaction acknowledges."""

    def __init__(self, polls: "SharePolls") -> None:
        self._polls = polls
        self._taken: list[tuple[Delivery, int]] = []
        self._types: list[int] = []
        self._sent: list[tuple[Delivery, int]] = []  # not taken by the broker, as far as we know
        self._ranges: list[AcknowledgementBatch] = []  # of these

    @property
    def group_id(self) -> str:
        return self._polls.member.group_id

    @property
    def member_id(self) -> str:
        return self._polls.member.member_id

    @property
    def are_many(self) -> bool:
        """Return whether so many records were added that they should be sent before the commit."""
        return len(self._taken) > MANY

    def add(self, records: Sequence[ShareRecord], type: AcknowledgeType) -> None:
        """Add records to be acknowledged with this type, ACCEPT or REJECT. Raises RecordNotHeldError or
        IllegalStateError; then none of them is added.
        """
        if type not in TYPES:
            raise ValueError(f"a transaction can ACCEPT or REJECT a record, not {AcknowledgeType(type).name} it")
        for record in records:
            check_record(record)
        held, now_ms = self._polls.held, self._polls.now().now_ms
        new: list[tuple[Delivery, int]] = []
        try:
            for record in records:
                new.append((held.take(record.delivery, record.offset, now_ms), record.offset))
        except BaseException:
            held.untake(new)
            raise
        self._taken += new
        self._types += [int(type)] * len(new)

    def hand_over(self) -> list[tuple[bytes, int, list[AcknowledgementBatch]]]:
        """Return the acknowledgements for a request that is sent now: topic id, partition and offset ranges. Raises
        RecordNotHeldError if the consumer has lost one of the records.
        """
        self._polls.held.hand_over(self._taken, self._polls.now().now_ms)
        self._sent = self._taken
        kinds: dict[Place, list[tuple[int, int]]] = {}
        place, here = None, list[tuple[int, int]]()
        for (delivery, offset), kind in zip(self._taken, self._types, strict=True):
            if delivery.place is not place:
                place = delivery.place
                here = kinds.setdefault(place, [])
            here.append((offset, kind))
        self._taken, self._types = [], []
        found = [(at.topic_id, at.partition, in_ranges(sorted(kinds[at]))) for at in sorted(kinds)]
        self._ranges = [each for _, _, ranges in found for each in ranges]
        return found

    def note_success(self) -> None:
        """Note that the broker has accepted what `hand_over` returned last."""
        self._polls.held.remove_sent(self._sent)
        self._polls.held.count_acknowledged(self._ranges)
        self._sent = []

    def give_back(self) -> None:
        """Release the records that were not sent, and those of which it is unknown whether the broker took them: the
        transaction has ended.
        """
        taken, sent = self._taken, self._sent
        self._taken, self._types, self._sent = [], [], []
        self._polls.held.put_back(taken)
        self._polls.held.doubt(sent)
        if (taken or sent) and self._polls.is_open:
            self._polls.fetcher.send_soon()
