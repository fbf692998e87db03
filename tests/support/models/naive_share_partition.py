"""A share partition with an entry for each offset, as plainly as the rules can be written down, and what it had logged.

It knows no runs and no ranges. NaiveSharePartition says what must be the case after each step of the real one.
"""

from dataclasses import dataclass, replace

from fencepost.broker.share.values import AckType


@dataclass(frozen=True)
class Record:
    state: str = "A"
    deliveries: int = 0
    member: str = ""
    deadline_ms: int = 0
    transaction: tuple[int, int] | None = None
    becomes: str = ""


class Refused(Exception):
    """Raised for a record that this member has not acquired."""


class NaiveSharePartition:
    """records: by offset, from start to end."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.records: dict[int, Record] = {}

    @property
    def end(self) -> int:
        return max(self.records, default=self.start - 1)

    @property
    def complete(self) -> int:
        return sum(record.state in "KX" for record in self.records.values())

    def acquire(self, first: int, last: int, member: str, deadline_ms: int) -> None:
        for offset in range(first, last + 1):
            record = self.records.get(offset, Record())
            assert record.state == "A", "only what is available is given out"
            self.records[offset] = Record("L", record.deliveries + 1, member, deadline_ms)

    def archive(self, first: int, last: int) -> None:
        for offset in range(first, last + 1):
            record = self.records.get(offset, Record())
            assert record.state == "A", "nobody has what is no data"
            self.records[offset] = Record("X", record.deliveries)
        self.advance()

    def acknowledge(
        self,
        member: str,
        types: dict[int, int],
        limit: int,
        deadline_ms: int,
        transaction: tuple[int, int] | None = None,
    ) -> None:
        """Acknowledge records: offset → type. deadline_ms: the new end of a lock that is renewed.

        Raises Refused, without any change, if the member has not acquired all of them.
        """
        after = dict(self.records)
        for offset, kind in types.items():
            if offset < self.start and transaction is None:
                continue
            record = self.records.get(offset, Record())
            if record.state != "L" or record.member != member:
                raise Refused
            after[offset] = self._after(record, kind, limit, deadline_ms, transaction)
        self.records = after
        self.advance()

    @staticmethod
    def _after(record: Record, kind: int, limit: int, deadline_ms: int, transaction: tuple[int, int] | None) -> Record:
        final = "K" if kind == AckType.ACCEPT else "X"
        if transaction is not None:
            return Record("P", record.deliveries, record.member, 0, transaction, final)
        if kind == AckType.RENEW:
            return replace(record, deadline_ms=deadline_ms)
        if kind == AckType.RELEASE:
            return released(record, limit)
        return Record(final, record.deliveries)

    def release(self, member: str, limit: int) -> None:
        self._change(lambda one: released(one, limit) if one.state == "L" and one.member == member else one)

    def expire(self, now_ms: int, limit: int) -> None:
        self._change(lambda one: released(one, limit) if one.state == "L" and one.deadline_ms <= now_ms else one)

    def settle(self, transaction: tuple[int, int], limit: int, *, commit: bool) -> None:
        def settled(one: Record) -> Record:
            if one.transaction != transaction:
                return one
            return Record(one.becomes, one.deliveries) if commit else released(one, limit)

        self._change(settled)

    def restart(self) -> None:
        """Do what a restart of the broker does: locks are forgotten, and so is the last delivery of locked records."""
        self._change(lambda one: Record("A", one.deliveries - 1) if one.state == "L" else one)
        for offset in sorted(self.records, reverse=True):
            if self.records[offset] != Record():
                break
            del self.records[offset]

    def log_begins(self, offset: int) -> None:
        if offset > self.start:
            self.start = offset
            self.records = {each: record for each, record in self.records.items() if each >= offset}
            self.advance()

    def begin_anew(self, offset: int) -> None:
        self.start, self.records = offset, {}

    def _change(self, change: object) -> None:
        self.records = {offset: change(record) for offset, record in self.records.items()}  # type: ignore[operator]
        self.advance()

    def advance(self) -> None:
        while self.records.get(self.start, Record()).state in "KX":
            del self.records[self.start]
            self.start += 1


def released(record: Record, limit: int) -> Record:
    return Record("A" if record.deliveries < limit else "X", record.deliveries)
