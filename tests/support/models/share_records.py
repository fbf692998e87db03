"""A model of one share partition that has each record by itself: no ranges, no log, no steps.

A record that it does not have is available and was never given out.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fencepost.broker.share.machine import SharePartition
from fencepost.broker.share.values import AckType
from fencepost.protocol.errors import ErrorCode

AVAILABLE, ACQUIRED, PENDING, ACKNOWLEDGED, ARCHIVED = "ALPKX"
DONE = (ACKNOWLEDGED, ARCHIVED)
_LETTERS = {0: AVAILABLE, 1: ACQUIRED, 2: ACKNOWLEDGED, 4: ARCHIVED, 10: PENDING}

Ack = tuple[int, int, int]


class One(NamedTuple):
    """One record. transaction, becomes: of a pending one."""

    state: str
    deliveries: int
    member: str = ""
    transaction: str = ""
    becomes: str = ""


class ShareRecords:
    """All records of one share partition."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.records: dict[int, One] = {}
        self.start = 0
        self.end = -1

    # ---- questions -------------------------------------------------------------------------------------------

    def judge(self, member: str, acks: Sequence[Ack], in_transaction: bool) -> ErrorCode:
        """Return the answer to a request that acknowledges."""
        if in_transaction and acks[0][0] < self.start:
            return ErrorCode.INVALID_RECORD_STATE
        above = -2
        for first, last, _ in acks:
            if first <= above:
                return ErrorCode.INVALID_RECORD_STATE
            above = last
            if last < self.start:
                continue
            if last > self.end >= self.start:
                return ErrorCode.INVALID_REQUEST
            for offset in range(max(first, self.start), last + 1):
                one = self.records.get(offset)
                if one is None or (one.state, one.member) != (ACQUIRED, member):
                    return ErrorCode.INVALID_RECORD_STATE
        return ErrorCode.NONE

    def is_pending(self, transaction: str | None = None) -> bool:
        """Return whether a transaction, or any, has a record pending."""
        return any(one.state == PENDING and transaction in (None, one.transaction) for one in self.records.values())

    def held_by(self, member: str) -> list[int]:
        return sorted(at for at, one in self.records.items() if (one.state, one.member) == (ACQUIRED, member))

    @property
    def next_offset(self) -> int:
        return next(
            at
            for at in range(self.start, self.end + 2)
            if at not in self.records or self.records[at].state == AVAILABLE
        )

    def differences(self, machine: SharePartition) -> list[str]:
        """Return in which ways the real machine differs from this model."""
        found = {
            offset: One(_LETTERS[one.state], one.deliveries, one.member)
            for first, last, one in machine.runs
            for offset in range(first, last + 1)
        }
        wanted = {
            offset: one._replace(transaction="", becomes="", member=one.member if one.state in "LP" else "")
            for offset, one in self.records.items()
            if one.state != AVAILABLE or one.deliveries
        }
        differ = [
            f"{offset}: {found.get(offset)} is {wanted.get(offset)}"
            for offset in sorted(found.keys() | wanted.keys())
            if found.get(offset) != wanted.get(offset)
        ]
        complete = sum(one.state in DONE for one in self.records.values())
        numbers = {
            "start": (machine.start, self.start),
            "end": (machine.end, self.end),
            "complete": (machine.runs.complete, complete),
            "next offset": (machine.next_offset, self.next_offset),
        }
        return differ + [f"{name} {has} is {should}" for name, (has, should) in numbers.items() if has != should]

    # ---- what happens ----------------------------------------------------------------------------------------

    def acquire(self, first: int, last: int, deliveries: int, member: str) -> None:
        for offset in range(first, last + 1):
            one = self.records.get(offset, One(AVAILABLE, 0))
            assert (one.state, one.deliveries + 1) == (AVAILABLE, deliveries), (offset, one)
            self.records[offset] = One(ACQUIRED, deliveries, member)
        self.end = max(self.end, last)

    def archive(self, offset: int) -> None:
        """Archive a record that no member has, as a fetch finds it removed."""
        one = self.records.get(offset, One(AVAILABLE, 0))
        if one.state == AVAILABLE and offset >= self.start:
            self.records[offset] = One(ARCHIVED, one.deliveries)
            self.end = max(self.end, offset)

    def acknowledge(self, acks: Iterable[Ack]) -> None:
        for first, last, kind in acks:
            for offset in range(max(first, self.start), last + 1):
                one = self.records[offset]
                if kind == AckType.RELEASE:
                    self._release(offset)
                elif kind != AckType.RENEW:
                    state = ACKNOWLEDGED if kind == AckType.ACCEPT else ARCHIVED
                    self.records[offset] = One(state, one.deliveries)
        self.advance()

    def acknowledge_in(self, transaction: str, acks: Iterable[Ack]) -> None:
        for first, last, kind in acks:
            for offset in range(first, last + 1):
                becomes = ACKNOWLEDGED if kind == AckType.ACCEPT else ARCHIVED
                one = self.records[offset]
                self.records[offset] = one._replace(state=PENDING, transaction=transaction, becomes=becomes)

    def settle(self, transaction: str, commit: bool) -> None:
        for offset, one in list(self.records.items()):
            if one.transaction == transaction:
                if commit:
                    self.records[offset] = One(one.becomes, one.deliveries)
                else:
                    self._release(offset)
        self.advance()

    def release_all(self, member: str) -> None:
        for offset in self.held_by(member):
            self._release(offset)
        self.advance()

    def _release(self, offset: int) -> None:
        deliveries = self.records[offset].deliveries
        self.records[offset] = One(AVAILABLE if deliveries < self.limit else ARCHIVED, deliveries)

    def begin_at(self, offset: int) -> None:
        """Let the log begin at this offset."""
        if offset > self.start:
            self.start = offset
            self.end = max(self.end, offset - 1)
            self.records = {at: one for at, one in self.records.items() if at >= offset}
        self.advance()

    def reset(self, offset: int) -> None:
        self.records.clear()
        self.start = offset
        self.end = offset - 1

    def restart(self, end: int) -> None:
        """Do what a restart of the broker does: locks are forgotten, and so is the last delivery of locked records.

        end: up to where the broker knows the window to reach.
        """
        for offset, one in list(self.records.items()):
            if one.state == ACQUIRED:
                self.records[offset] = One(AVAILABLE, one.deliveries - 1)
                if one.deliveries == 1:
                    del self.records[offset]
        self.advance()
        assert end >= max(self.records, default=self.start - 1)
        self.end = end

    def advance(self) -> None:
        while self.start in self.records and self.records[self.start].state in DONE:
            del self.records[self.start]
            self.start += 1
        self.end = max(self.end, self.start - 1)
