"""The records that one consumer of a share group has, and what became of each. Pure.

The rules: a record is this consumer's from its delivery until it is acknowledged, its lock ends, or the session ends in
which it was acquired, whichever comes first; if it is delivered once more, only the newest delivery counts. A record is
in one state at a time, and what a transaction took is out of the consumer's own hands. It is renewed until it is sent.
If the broker has taken it then, it is gone, whatever becomes of the transaction; else it may be this consumer's still,
and is given back at the end of the transaction. Since a broker refuses all that a request says of a partition because
of one record, that is asked for alone, and in halves if it is refused. Locks are renewed after two thirds of their
time: of records that were fetched and not returned yet; of returned ones for `hold_ms` at most, so that a record that
the application lost comes again; never of acknowledged ones, which are sent before that.
"""

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import count
from typing import NamedTuple

from ...protocol.messages.share_fetch import AcknowledgementBatch
from ..errors import IllegalStateError, KafkaError, RecordNotHeldError
from ..values import AcknowledgeType, ShareRecord, TopicPartition
from .membership import Place

GAP, RENEW = 0, int(AcknowledgeType.RENEW)
DONE = (AcknowledgeType.ACCEPT, AcknowledgeType.REJECT)
NEVER_MS = float("inf")
PUT_OFF_MS = 200
Acks = dict[Place, list[AcknowledgementBatch]]
Taken = Sequence[tuple["Delivery", int]]
"""Records by their deliveries and offsets."""

_numbers = count()  # of all consumers, so that one does not take another's record for its own


class Session(NamedTuple):
    """The session in which records were acquired: of which broker, and which one."""

    node_id: int
    stamp: int


class State(Enum):
    """What became of a record that this consumer acquired."""

    FETCHED = auto()  # not returned to the application yet
    RETURNED = auto()
    ACKNOWLEDGED = auto()  # not sent yet
    TAKEN = auto()  # by a transaction, which has not sent it yet
    SENT = auto()  # by a transaction, and the broker has not said that it has taken it


_FETCHED, _RETURNED, _ACKNOWLEDGED, _TAKEN, _SENT = State  # read for each record: State.SENT is slow in Python 3.11


class Entry:
    """The state of one acquired record. deliveries: how often it was delivered. deadline_ms: when its lock ends.
    returned_ms: when the application got it. type: its acknowledgement.
    """

    __slots__ = ("deadline_ms", "deliveries", "returned_ms", "state", "type")

    def __init__(self, deliveries: int, deadline_ms: float) -> None:
        self.deliveries = deliveries
        self.deadline_ms = deadline_ms
        self.state = _FETCHED
        self.type = GAP
        self.returned_ms = 0.0


@dataclass(slots=True, eq=False)
class Delivery:
    """The acquired records of one partition in one ShareFetch response. entries: by offset. unsent: the offsets whose
    acknowledgements were not sent yet.
    """

    number: int
    partition: TopicPartition
    place: Place
    session: Session
    lock_ms: int
    renew_at_ms: float
    entries: dict[int, Entry] = field(default_factory=dict)
    unsent: set[int] = field(default_factory=set)


class Renewal(NamedTuple):
    """The locks to renew over one session. deliveries: each with the offsets to renew, and when it is looked at next
    (monotonic ms).
    """

    acks: Acks
    deliveries: list[tuple[Delivery, list[int], float]]


class Held:
    """The records that one share consumer has acquired. hold_ms: for how long after its return to the application a
    record's lock is renewed.
    """

    def __init__(self, hold_ms: float) -> None:
        self._hold_ms = hold_ms
        self._deliveries: dict[int, Delivery] = {}
        self._unsent: dict[Session, dict[int, Delivery]] = {}  # those with acknowledgements that were not sent yet
        self._doubtful: dict[Session, deque[tuple[Place, Taken]]] = {}  # to be given back, if they are ours
        self._asked: dict[Session, list[tuple[Place, Taken]]] = {}  # of these, what is asked for now
        self._returned: deque[tuple[Delivery, int, Entry]] = deque()  # since `accept_returned`
        self.failure: KafkaError | None = None  # the first of an acknowledgement, since it was last asked for
        self.on_acknowledged: Callable[[str, int], None] | None = None  # for metrics: so many records, and how
        self.on_failed: Callable[[int], None] | None = None

    def add(
        self,
        partition: TopicPartition,
        place: Place,
        session: Session,
        ranges: Iterable[tuple[int, int, int]],
        records: Collection[int],
        now_ms: float,
        lock_ms: int,
    ) -> Delivery:
        """Add acquired records. ranges: first offset, last offset (inclusive) and delivery count of each; records: the
        offsets that have a record, others are gaps. lock_ms: how long the lock lasts.
        """
        found = Delivery(next(_numbers), partition, place, session, lock_ms, now_ms + lock_ms * 2 / 3)
        entries, deadline_ms = found.entries, now_ms + lock_ms
        for first, last, deliveries in ranges:
            for offset in range(first, last + 1):
                entries[offset] = Entry(deliveries, deadline_ms)
        for older in [each for each in self._deliveries.values() if each.place == place]:
            for offset in sorted(older.entries.keys() & entries.keys()):  # only the newest delivery counts
                self._remove(older, offset)
        if entries:
            self._deliveries[found.number] = found
        if len(records) < len(entries):
            for offset in [offset for offset in entries if offset not in records]:
                self._acknowledge(found, offset, GAP)
        return found

    def may_give(self, delivery: Delivery, offset: int, now_ms: float) -> bool:
        """Return whether the record is still acquired by this consumer and was not returned yet."""
        entry = delivery.entries.get(offset)
        return entry is not None and entry.state is _FETCHED and entry.deadline_ms > now_ms

    def give(self, delivery: Delivery, offset: int, now_ms: float) -> Entry | None:
        """Mark the record as returned to the application, and return its entry; None if the consumer no longer
        has it.
        """
        entry = delivery.entries.get(offset)
        if entry is None or entry.state is not _FETCHED or entry.deadline_ms <= now_ms:
            return None
        entry.state, entry.returned_ms = _RETURNED, now_ms
        self._returned.append((delivery, offset, entry))
        return entry

    def find(self, number: int, offset: int, now_ms: float) -> tuple[Delivery, Entry]:
        """Return delivery and entry of a record that was returned to the application. number: of its delivery. Raises
        RecordNotHeldError if it was acknowledged, or its lock has ended.
        """
        delivery = self._deliveries.get(number)
        entry = None if delivery is None else delivery.entries.get(offset)
        if delivery is None or entry is None or entry.state is _SENT:
            raise RecordNotHeldError(
                f"the record at offset {offset} was acknowledged already, or is not this consumer's any more"
            )
        if entry.deadline_ms <= now_ms:
            raise RecordNotHeldError(f"{delivery.partition}: the lock of the record at offset {offset} has ended")
        return delivery, entry

    def acknowledge(self, number: int, offset: int, kind: AcknowledgeType, now_ms: float) -> None:
        """Set a record's acknowledgement, which may be changed until it is sent; RENEW only renews its lock. number:
        of its delivery. Raises RecordNotHeldError.
        """
        delivery, entry = self.find(number, offset, now_ms)
        if entry.state is _TAKEN:
            raise IllegalStateError(f"{delivery.partition}: a transaction acknowledges the record at offset {offset}")
        if kind is not AcknowledgeType.RENEW:
            self._acknowledge(delivery, offset, kind)
            return
        if entry.state is _ACKNOWLEDGED:
            self._take_back(delivery, offset)
        entry.state, entry.returned_ms, delivery.renew_at_ms = _RETURNED, now_ms, now_ms

    def _acknowledge(self, delivery: Delivery, offset: int, kind: int) -> None:
        """Set the record's acknowledgement and note that it has to be sent. kind: the AcknowledgeType."""
        entry = delivery.entries[offset]
        entry.state, entry.type = _ACKNOWLEDGED, kind
        if not delivery.unsent:
            self._unsent.setdefault(delivery.session, {})[delivery.number] = delivery
        delivery.unsent.add(offset)

    def _take_back(self, delivery: Delivery, offset: int) -> None:
        """Drop an acknowledgement that was not sent."""
        delivery.unsent.remove(offset)
        if not delivery.unsent:
            self._all_sent(delivery)

    def _all_sent(self, delivery: Delivery) -> None:
        """Remove a delivery from those with unsent acknowledgements: it has none any more."""
        deliveries = self._unsent[delivery.session]
        del deliveries[delivery.number]
        if not deliveries:
            del self._unsent[delivery.session]

    def accept_returned(self) -> None:
        """Accept all records that were returned since the last call and have no acknowledgement. If a record's lock or
        session has ended, that counts as a failed acknowledgement.
        """
        while self._returned:
            delivery, offset, entry = self._returned.popleft()
            if entry.state is not _RETURNED:
                continue
            if delivery.entries.get(offset) is entry:
                self._acknowledge(delivery, offset, AcknowledgeType.ACCEPT)
            else:
                self._lost_too_early(delivery, offset)

    def _lost_too_early(self, delivery: Delivery, offset: int) -> None:
        """Count a failed acknowledgement: the record's lock or session ended before it was sent."""
        text = f"{delivery.partition}: before the record at offset {offset} was acknowledged, its lock or session ended"
        self.failed(RecordNotHeldError(text), 1)

    def failed(self, error: KafkaError, count: int) -> None:
        """Count this many acknowledgements as failed. The first error since the last `commit` is raised by the next
        one.
        """
        if self.failure is None:
            self.failure = error
        if self.on_failed is not None:
            self.on_failed(count)

    def release(self, delivery: Delivery, offsets: Iterable[int]) -> None:
        """Release these records, which were not returned."""
        for offset in offsets:
            self._acknowledge(delivery, offset, AcknowledgeType.RELEASE)

    def release_returned(self, delivery: Delivery, offset: int) -> None:
        """Release this returned record, unless it has an acknowledgement."""
        entry = delivery.entries.get(offset)
        if entry is not None and entry.state is _RETURNED:
            self._acknowledge(delivery, offset, AcknowledgeType.RELEASE)

    def forget_returned(self) -> None:
        """Do not accept automatically the records returned so far: they need an explicit acknowledgement."""
        self._returned.clear()

    def release_unread(self) -> None:
        """Release the records that were fetched and not returned."""
        for delivery in self._deliveries.values():
            for offset, entry in delivery.entries.items():
                if entry.state is _FETCHED:
                    self._acknowledge(delivery, offset, AcknowledgeType.RELEASE)

    def take(self, number: int, offset: int, now_ms: float) -> Delivery:
        """Reserve a returned record for a transaction, which alone may acknowledge it then. number: of its delivery.
        Raises RecordNotHeldError if the consumer has lost it, IllegalStateError if it is acknowledged.
        """
        delivery, entry = self.find(number, offset, now_ms)
        if entry.state is not _RETURNED:
            raise IllegalStateError(f"{delivery.partition}: the record at offset {offset} is acknowledged already")
        entry.state = _TAKEN
        return delivery

    def untake(self, taken: Taken) -> None:
        """Undo take() for these records: the call that took them failed."""
        for delivery, offset in taken:
            delivery.entries[offset].state = _RETURNED

    def hand_over(self, taken: Taken, now_ms: float) -> None:
        """Mark these records as sent by their transaction. Raises RecordNotHeldError, without a change, if the
        consumer has lost one.
        """
        entries = [self.find(delivery.number, offset, now_ms)[1] for delivery, offset in taken]
        for entry in entries:
            entry.state = _SENT

    def remove_sent(self, sent: Taken) -> None:
        """Remove these records, because the broker has answered to the acknowledgements that were sent for them."""
        for delivery, offset in sent:
            if self._is_sent(delivery, offset):  # so it is not among the unsent ones
                del delivery.entries[offset]
                if not delivery.entries:
                    del self._deliveries[delivery.number]

    def doubt(self, sent: Taken) -> None:
        """Note that these records are to be released if the broker still counts them as acquired: their transaction
        has ended, and it is unknown whether it acknowledged them.
        """
        places: dict[tuple[Session, Place], list[tuple[Delivery, int]]] = {}
        for delivery, offset in sent:
            if self._is_sent(delivery, offset):
                places.setdefault((delivery.session, delivery.place), []).append((delivery, offset))
        for (session, place), found in places.items():
            self._doubtful.setdefault(session, deque()).append((place, found))

    def _is_sent(self, delivery: Delivery, offset: int) -> bool:
        """Return whether a transaction has sent this record's acknowledgement, without a confirmation so far."""
        entry = delivery.entries.get(offset)
        return entry is not None and entry.state is _SENT

    def put_back(self, taken: Taken) -> None:
        """Release these records, so that they are delivered again: their transaction has ended without sending them."""
        for delivery, offset in taken:
            entry = delivery.entries.get(offset)
            if entry is not None and entry.state is _TAKEN:
                self._acknowledge(delivery, offset, AcknowledgeType.RELEASE)

    def has_unsent(self, session: Session) -> bool:
        """Return whether acknowledgements are to be sent over this session."""
        return session in self._unsent or bool(self._doubtful.get(session))

    @property
    def unsent_sessions(self) -> list[Session]:
        """Return the sessions over which acknowledgements are to be sent."""
        return [session for session in {*self._unsent, *self._doubtful} if self.has_unsent(session)]

    def drain(
        self, session: Session, *, only: Collection[Place] | None = None, but_not: Collection[Place] = ()
    ) -> Acks:
        """Return the acknowledgements to send over this session now, and forget them: each is returned once. only,
        but_not: limit them to these partitions, or exclude these.
        """
        kinds: dict[Place, list[tuple[int, int]]] = {}
        for delivery in list(self._unsent.get(session, {}).values()):
            place = delivery.place
            if (only is None or place in only) and place not in but_not:
                kinds.setdefault(place, []).extend(self._drain(delivery))
        return {place: in_ranges(sorted(found)) for place, found in kinds.items()}

    def _drain(self, delivery: Delivery) -> list[tuple[int, int]]:
        """Remove the acknowledged records of a delivery that were not sent. Returns the offset and type of each."""
        entries = delivery.entries
        found = [(offset, entries.pop(offset).type) for offset in delivery.unsent]
        delivery.unsent.clear()
        self._all_sent(delivery)
        if not entries:
            self._deliveries.pop(delivery.number)
        return found

    def drain_doubtful(self, session: Session, now_ms: float) -> Acks:
        """Return the releases to send in this session for records of which it is unknown whether the broker still
        counts them as acquired (`doubt`). The broker answers for a partition as a whole. So they are sent in groups,
        one of each partition at a time; a group that is refused is divided (`answered`).
        """
        found: Acks = {}
        for place, group in self._doubtful.pop(session, ()):
            if place in found:
                self._doubtful.setdefault(session, deque()).append((place, group))
                continue
            group = [
                (delivery, offset)
                for delivery, offset in group
                if self._is_sent(delivery, offset) and delivery.entries[offset].deadline_ms > now_ms
            ]
            if group:
                found[place] = in_ranges(sorted((offset, int(AcknowledgeType.RELEASE)) for _, offset in group))
                self._asked.setdefault(session, []).append((place, group))
        return found

    def answered(self, session: Session, refused: Collection[Place]) -> None:
        """Apply the answer to a request of `drain_doubtful`. refused: the partitions with errors, whose groups are
        divided in two and asked for again.
        """
        for place, group in self._asked.pop(session, ()):
            if place in refused and len(group) > 1:
                half = len(group) // 2
                self._doubtful.setdefault(session, deque()).extend([(place, group[:half]), (place, group[half:])])
            else:
                self.remove_sent(group)

    def end_session(self, session: Session) -> int:
        """Forget the session's records, since the broker releases them. Returns how many had an unsent acknowledgement
        and are delivered again nevertheless.
        """
        self._doubtful.pop(session, None)
        self._asked.pop(session, None)
        lost = 0
        for delivery in self._unsent.pop(session, {}).values():
            lost += sum(delivery.entries[offset].type in DONE for offset in delivery.unsent)
        for delivery in [each for each in self._deliveries.values() if each.session == session]:
            del self._deliveries[delivery.number]
            delivery.entries.clear()
            delivery.unsent.clear()
        return lost

    def _remove(self, delivery: Delivery, offset: int) -> None:
        """Remove a record whose lock has ended; an unsent acknowledgement of it counts as failed."""
        entry = delivery.entries.pop(offset)
        if not delivery.entries:
            self._deliveries.pop(delivery.number)
        if offset in delivery.unsent:
            self._take_back(delivery, offset)
            if entry.type in DONE:
                self._lost_too_early(delivery, offset)

    def count_acknowledged(self, ranges: Iterable[AcknowledgementBatch]) -> None:
        """Count the acknowledgements in these ranges as accepted by the broker, for metrics."""
        if self.on_acknowledged is None:
            return
        for each in ranges:
            (kind,) = each.acknowledge_types
            if kind not in (GAP, RENEW):
                self.on_acknowledged(AcknowledgeType(kind).name.lower(), each.last_offset - each.first_offset + 1)

    def counts(self) -> dict[TopicPartition, Counter[State]]:
        """Return how many records of each partition this consumer has, by state."""
        found: dict[TopicPartition, Counter[State]] = {}
        for delivery in self._deliveries.values():
            states = found.setdefault(delivery.partition, Counter())
            states.update(entry.state for entry in delivery.entries.values())
        return found

    def next_ms(self) -> float:
        """Return when the next lock must be renewed, in ms of the monotonic clock; NEVER_MS if none."""
        return min((each.renew_at_ms for each in self._deliveries.values()), default=NEVER_MS)

    def renewals(self, now_ms: float) -> dict[Session, Renewal]:
        """Return the locks to renew now, by session; they are due again only after renewed(), or shortly before they
        end. Drops records whose lock has ended.
        """
        found: dict[Session, Renewal] = {}
        kinds: dict[tuple[Session, Place], list[tuple[int, int]]] = {}
        for delivery in [each for each in self._deliveries.values() if each.renew_at_ms <= now_ms]:
            offsets = [offset for offset, entry in delivery.entries.items() if self._is_renewed(entry, now_ms)]
            for offset in [at for at, entry in delivery.entries.items() if entry.deadline_ms <= now_ms]:
                self._remove(delivery, offset)
            delivery.renew_at_ms = max((each.deadline_ms for each in delivery.entries.values()), default=NEVER_MS)
            if offsets:
                found.setdefault(delivery.session, Renewal({}, [])).deliveries.append(
                    (delivery, offsets, delivery.renew_at_ms)
                )
                kinds.setdefault((delivery.session, delivery.place), []).extend((at, RENEW) for at in offsets)
        for (session, place), each in kinds.items():
            found[session].acks[place] = in_ranges(sorted(each))
        return found

    def put_off(self, renewal: Renewal, now_ms: float) -> None:
        """Make a renewal due again PUT_OFF_MS later, because it could not be sent now."""
        for delivery, _, _ in renewal.deliveries:
            delivery.renew_at_ms = now_ms + PUT_OFF_MS

    def _is_renewed(self, entry: Entry, now_ms: float) -> bool:
        """Return whether the record's lock is to be renewed: it is not acknowledged, and not returned longer than
        hold_ms ago.
        """
        if entry.deadline_ms <= now_ms or entry.state in (_ACKNOWLEDGED, _SENT):
            return False
        return entry.state is not _RETURNED or now_ms < entry.returned_ms + self._hold_ms

    def renewed(self, renewal: Renewal, refused: Collection[Place], now_ms: float, lock_ms: int) -> None:
        """Extend the locks by lock_ms (0: as before) after the answer to a renewal. refused: partitions whose records
        keep their deadline and are not renewed again.
        """
        for delivery, offsets, looked_at_ms in renewal.deliveries:
            if delivery.place in refused:
                continue
            delivery.lock_ms = lock_ms or delivery.lock_ms
            if delivery.renew_at_ms == looked_at_ms:  # else the application wants it renewed once more
                delivery.renew_at_ms = now_ms + delivery.lock_ms * 2 / 3
            for offset in offsets:
                if offset in delivery.entries:
                    delivery.entries[offset].deadline_ms = now_ms + delivery.lock_ms


def check_record(record: object) -> None:
    """Raise TypeError if it is not a record of a share group."""
    if not isinstance(record, ShareRecord):
        raise TypeError(f"expected a record that a ShareConsumer returned, not {type(record).__name__}")


def in_ranges(kinds: Sequence[tuple[int, int]]) -> list[AcknowledgementBatch]:
    """Return ranges of neighbouring offsets with the same type. kinds: (offset, type) in the order of offsets."""
    found: list[AcknowledgementBatch] = []
    last = newest = None
    for offset, kind in kinds:
        if offset - 1 != last or kind != newest:
            found.append(AcknowledgementBatch(first_offset=offset, last_offset=offset, acknowledge_types=[kind]))
            newest = kind
        found[-1].last_offset = last = offset
    return found
