"""What follows from a history about its transactions, values and producers; shared by the checker's rules."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from fencepost.protocol.errors import ErrorCode
from simulation.history import (
    FAIL,
    INFO,
    OK,
    Add,
    Begin,
    Cleanup,
    Create,
    Dump,
    End,
    Forgotten,
    History,
    Init,
    NotWritten,
    Offsets,
    Op,
    Outlived,
    Place,
    Producer,
    Read,
    Restart,
    Send,
    Together,
    Trim,
    name_of,
)

NEVER = 1 << 60


class Anomaly(NamedTuple):
    """Something that must not be: its class, a text, and the operations that show it."""

    name: str
    text: str
    ops: tuple[Op, ...] = ()

    def __str__(self) -> str:
        return "\n    ".join([f"{self.name}: {self.text}", *(repr(op)[:400] for op in self.ops)])


@dataclass(eq=False)
class Fate:
    """One transaction, as its client knows it. Its properties are only to be read when all operations are known."""

    txn: str
    begin: Op | None = None
    ends: list[tuple[Op, End]] = field(default_factory=list)
    sends: list[tuple[Op, Send]] = field(default_factory=list)
    offsets: list[tuple[Op, Offsets]] = field(default_factory=list)
    adds: list[tuple[Op, Add]] = field(default_factory=list)
    seen_by: Op | None = None  # the first committed read that showed something of it

    @cached_property
    def committed(self) -> Op | None:
        """The first acknowledged commit, if there is one."""
        return min((op for op, end in self.ends if end.commit and op.outcome == OK), key=_done, default=None)

    @cached_property
    def aborted(self) -> bool:
        """Whether it surely ends aborted: no commit was asked for, or all were refused; or an abort was acknowledged,
        and no commit.
        """
        commits = [op for op, end in self.ends if end.commit and op.outcome != FAIL]
        return not commits or (not self.committed and any(op.outcome == OK for op, end in self.ends if not end.commit))

    @cached_property
    def may_show_from(self) -> int:
        """The moment before which no committed read may show it; NEVER if it is surely not committed."""
        return min((op.invoked for op, end in self.ends if end.commit and op.outcome != FAIL), default=NEVER)

    @cached_property
    def decided(self) -> int:
        """The moment from which on every committed read must show it; NEVER if neither an answer nor a read says that
        it is committed.
        """
        moments = [op.done for op in (self.committed, self.seen_by) if op is not None]
        return min(moments, default=NEVER)

    @cached_property
    def over(self) -> int:
        """The moment since which it is surely not open; NEVER if no end of it was acknowledged."""
        return min((op.done for op, _ in self.ends if op.outcome == OK), default=NEVER)


def _done(op: Op) -> int:
    return op.done


class Facts:
    """An index over a history."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.fates: dict[str, Fate] = {}
        self.sends = list(history.of(Send, only_ok=False))
        self.writer: dict[str, tuple[Op, Send]] = {}
        self.reads: dict[Place, list[tuple[Op, Read]]] = defaultdict(list)
        self.dumps = {dump.place: op for op, dump in history.of(Dump)}
        self.given: dict[str | None, list[tuple[Op, Producer]]] = defaultdict(list)  # by transactional id
        self.wrote_in: dict[Place, set[str]] = defaultdict(set)  # transactions that did, or tried to
        self.touched: dict[Place, set[int]] = defaultdict(set)  # by which producer ids, or tried to
        self._take_transactions()
        self.together = {txn: group.txns[0] for _, group in history.of(Together) for txn in group.txns}
        self.trimmed: dict[Place, list[tuple[Op, Trim]]] = defaultdict(list)
        for op, trim in history.of(Trim, only_ok=False):
            self.trimmed[trim.place].append((op, trim))
        self.forgotten: dict[tuple[Place, int] | str, list[int]] = defaultdict(list)  # moments, by place and id, or id
        for op, what in history.of(Forgotten):
            if not what.wrong:
                self.forgotten[what.transactional_id or (what.place, what.producer_id)].append(op.invoked)
        self.cleanups = {cleanup.place: cleanup for _, cleanup in history.of(Cleanup)}
        self.created = {create.place: op for op, create in history.of(Create, only_ok=False)}
        self.sends_in: dict[tuple[Place, int], list[tuple[Op, Send]]] = defaultdict(list)
        for op, send in self.sends:
            self.sends_in[send.place, send.producer[0]].append((op, send))
            self.touched[send.place].add(send.producer[0])
            if send.txn is not None:
                self.wrote_in[send.place].add(send.txn)
            for value in send.values:
                self.writer.setdefault(value, (op, send))
        for op, add in history.of(Add, only_ok=False):
            self.fate(add.txn).adds.append((op, add))
            self.touched[add.place].add(add.producer[0])
            self.wrote_in[add.place].add(add.txn)
        for op, read in history.of(Read):
            self.reads[read.place].append((op, read))
            if read.committed:
                for _, value in op.result.records:
                    self._seen(value, op)

    def _take_transactions(self) -> None:
        history = self.history
        for op, begin in history.of(Begin):
            self.fate(begin.txn).begin = op
        for op, init in history.of(Init):
            self.given[init.transactional_id].append((op, op.result))
        for op, end in history.of(End, only_ok=False):
            if end.again:
                continue
            self.fate(end.txn).ends.append((op, end))
            if op.outcome == OK and op.result != end.producer:
                self.given[end.transactional_id].append((op, op.result))
        for op, offsets in history.of(Offsets, only_ok=False):
            self.fate(offsets.txn).offsets.append((op, offsets))
        for op, send in self.sends:
            if send.txn is not None and not send.again:
                self.fate(send.txn).sends.append((op, send))

    def loses_its_beginning(self, place: Place) -> bool:
        """Return whether a log may lose its first records: to DeleteRecords or to retention."""
        cleanup = self.cleanups.get(place)
        return place in self.trimmed or (cleanup is not None and not cleanup.compacts)

    def is_compacted(self, place: Place) -> bool:
        cleanup = self.cleanups.get(place)
        return cleanup is not None and cleanup.compacts

    def was_in(self, producer_id: int, place: Place) -> bool:
        """Return whether this producer wrote to this place, or tried to. If the topic was made again, only what may
        have arrived after that counts.
        """
        made = self.created.get(place)
        if made is None:
            return producer_id in self.touched[place]
        return any(
            op.what.producer[0] == producer_id
            and name_of(op.what.place) == name_of(place)
            and (op.outcome == INFO or op.done > made.invoked)
            for op in self.history.ops
            if isinstance(op.what, Add | Send)
        )

    def forgot(self, place: Place, producer_id: int, since: int, until: int = NEVER) -> bool:
        """Return whether this producer was forgotten in this place between two moments."""
        return any(
            since < moment < until for moment in self.forgotten.get(((name_of(place), place[1]), producer_id), ())
        )

    def times_forgotten(self, place: Place, sent: Op, send: Send, until: int) -> int:
        """Return how often the producer of this batch was forgotten after it was sent: that often a retry may be
        written again. 0 for a batch of a transaction.
        """
        moments = self.forgotten.get(((name_of(place), place[1]), send.producer[0]), ())
        return 0 if send.txn is not None else sum(sent.invoked < moment < until for moment in moments)

    @cached_property
    def _outlived(self) -> list[Op]:
        return [op for op, _ in self.history.of(Outlived, only_ok=False)]

    @cached_property
    def _not_written(self) -> list[NotWritten]:
        """The times in which the store failed what the owner wrote, in order, joined where they touch."""
        merged: list[NotWritten] = []
        for since_ms, until_ms in sorted(what for _, what in self.history.of(NotWritten)):
            if merged and since_ms <= merged[-1].until_ms:
                merged[-1] = NotWritten(merged[-1].since_ms, max(until_ms, merged[-1].until_ms))
            else:
                merged.append(NotWritten(since_ms, until_ms))
        return merged

    def could_write_ms(self, since_ms: int, until_ms: int) -> int:
        """Return for how much of the time between two moments (ms) the store took what its owner wrote."""
        missed = (min(until_ms, one.until_ms) - max(since_ms, one.since_ms) for one in self._not_written)
        return until_ms - since_ms - sum(ms for ms in missed if ms > 0)

    def may_be_outdated(self, op: Op) -> bool:
        """Return whether a broker may have answered that another one had taken over from: its answer may be an older
        state.
        """
        return any(each.invoked < op.done and op.invoked < each.done for each in self._outlived)

    def may_be_first_known(self, place: Place, producer: Producer, taken: Op) -> bool:
        """Return whether this may be the first batch of its producer that the broker knows there, so that any sequence
        is accepted.

        The broker remembers a batch that it refused (KAFKA-14904), but not over a restart, and not one that no client
        sends again.
        """
        sends = [op for op, send in self.sends_in[place, producer[0]] if op.invoked < taken.invoked]
        knows = any(
            self._may_be_written(place, op) and not self.forgot(place, producer[0], op.invoked, taken.done)
            for op in sends
        )
        refused = [op for op in sends if op.outcome == FAIL and op.what.producer == producer]
        if any(op.error == ErrorCode.INVALID_TIMESTAMP for op in refused):
            return not knows
        since = max((op.done for op in refused), default=NEVER)
        return not knows and any(since < op.invoked < taken.done for op, _ in self.history.of(Restart))

    def _may_be_written(self, place: Place, op: Op) -> bool:
        """Return whether the batch of this Send may be in the log. If its result is not known, the log tells, unless
        that may have lost records since.
        """
        if op.outcome != INFO or self.loses_its_beginning(place) or self.is_compacted(place) or place not in self.dumps:
            return bool(op.outcome != FAIL)
        return any(op.what.values[0] in entry.values for entry in self.dumps[place].result)

    def forgot_id(self, transactional_id: str | None, since: int, until: int = NEVER) -> bool:
        """Return whether this transactional id was forgotten between two moments."""
        return any(since < moment < until for moment in self.forgotten.get(transactional_id or "", ()))

    def forgot_writer(self, place: Place, value: str) -> bool:
        """Return whether the producer of this value was forgotten after it was sent, so that a retry is written again.

        Never in a transaction. The producer id of the SDK is not in its operation, and is taken from the log's dump.
        """
        sent, send = self.writer[value]
        ids = {send.producer[0]}
        if send.producer[0] < 0 and place in self.dumps:
            ids = {entry.producer[0] for entry in self.dumps[place].result if value in entry.values}
        return send.txn is None and any(self.forgot(place, producer_id, sent.invoked) for producer_id in ids)

    def fate(self, txn: str) -> Fate:
        if txn not in self.fates:
            self.fates[txn] = Fate(txn)
        return self.fates[txn]

    def transactional_id(self, txn: str | None) -> str | None:
        begin = None if txn is None else self.fate(txn).begin
        return None if begin is None else begin.what.transactional_id

    @cached_property
    def open_in(self) -> dict[Place, list[tuple[int, str, int, int]]]:
        """Transactions that may be open in each place: (until when, which, since when, from which offset; -1 if that is
        unknown).

        Those that are open for longest come first. Only to be read when all facts are known.
        """
        found: dict[Place, list[tuple[int, str, int, int]]] = defaultdict(list)
        for fate in self.fates.values():
            until = min(fate.over, self._succeeded(fate))
            for op, send in fate.sends:
                if op.outcome != FAIL:
                    found[send.place].append((until, fate.txn, op.invoked, -1 if op.outcome == INFO else op.result))
        for each in found.values():
            each.sort(reverse=True)
        return found

    def _succeeded(self, fate: Fate) -> int:
        """Return the moment at which a later producer had got the transactional id, which ends the transaction; NEVER
        if there is none.
        """
        begin = fate.begin
        if begin is None:
            return NEVER
        given = self.given[begin.what.transactional_id]
        return min(
            (op.done for op, _ in given if op.what.__class__ is Init and begin.invoked < op.invoked), default=NEVER
        )

    def _seen(self, value: str, op: Op) -> None:
        found = self.writer.get(value)
        if found is not None and found[1].txn is not None:
            fate = self.fate(found[1].txn)
            if fate.seen_by is None or op.done < fate.seen_by.done:
                fate.seen_by = op

    def answered(self) -> Iterable[tuple[Op, Send, int, str]]:
        """Yield every value that was acknowledged, with its offset."""
        for op, send in self.sends:
            if op.outcome == OK:
                for index, value in enumerate(send.values):
                    yield op, send, op.result + index, value
