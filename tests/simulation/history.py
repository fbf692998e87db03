"""What clients did and were told: the history that the checker judges.

An operation is invoked, and later ok, failed or unknown ("info"): failed means that it surely had no effect and never
will have, unknown that nobody can say. Retries belong to the operation they retry. Moments are one counter over
invocations and completions, so `a.done < b.invoked` says that a was over before b began; times are virtual, in ms.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

Place = tuple[str, int]
"""Topic and partition."""
Producer = tuple[int, int]
"""Producer id and epoch."""
W = TypeVar("W")


def name_of(place: Place) -> str:
    """Return the topic's name on the wire: topics made again under one name are `name@number` in histories."""
    return place[0].split("@")[0]


def key_of(value: str) -> str | None:
    """Return the key of a record: in histories the value of a record with a key is `key=anything`; no other value has a
    "=".
    """
    key, is_keyed, _ = value.partition("=")
    return key if is_keyed else None


def is_tombstone(value: str) -> bool:
    """Return whether the record has no value. In histories it is called `key=!anything`; that name is in a header."""
    return "=!" in value


OK, FAIL, INFO = "ok", "fail", "info"


class Init(NamedTuple):
    """Ask for a producer id. Result: the Producer. current: what the client has so far, if it says so (KIP-360)."""

    transactional_id: str | None = None
    current: Producer | None = None


class Begin(NamedTuple):
    """A client begins a transaction, for itself. Always ok."""

    txn: str
    transactional_id: str
    producer: Producer
    timeout_ms: int = 60_000


class Send(NamedTuple):
    """One batch. Result: its base offset. `sources`: for each value the record it was made of. `again`: known to be a
    repetition of a batch that was answered."""

    place: Place
    producer: Producer
    sequence: int
    values: tuple[str, ...]
    txn: str | None = None
    sources: tuple[tuple[Place, int], ...] = ()
    again: bool = False


class Add(NamedTuple):
    """Announce a place to the coordinator (AddPartitionsToTxn)."""

    txn: str
    place: Place
    producer: Producer


class Offsets(NamedTuple):
    """Offsets of a group, in a transaction."""

    txn: str
    group: str
    producer: Producer
    generation: int
    positions: tuple[tuple[Place, int], ...]
    member: str = ""


class End(NamedTuple):
    """End a transaction. Result: the Producer to go on with."""

    txn: str
    transactional_id: str
    producer: Producer
    commit: bool
    again: bool = False


class Kill(NamedTuple):
    """An operator ends the open transaction of this id, or of all if it is None."""

    transactional_id: str | None


class Commit(NamedTuple):
    """Commit offsets of a group outside of transactions. Result: the member's epoch with which it was accepted, if it
    has grown meanwhile.
    """

    group: str
    generation: int
    positions: tuple[tuple[Place, int], ...]
    member: str = ""


class OffsetOf(NamedTuple):
    """Ask for a group's committed offset, with require_stable. Result: the offset, or -1."""

    group: str
    place: Place


class Join(NamedTuple):
    """Become a member. Result: (generation, member, places)."""

    group: str


class Beat(NamedTuple):
    """A heartbeat of a member whose broker assigns (KIP-848). Result: Given.

    epoch: 0 joins, below it leaves, -2 for a while. owned: what it reports to own; None if it reports nothing.
    session_ms: for how long it need not be heard of.
    """

    group: str
    member: str
    epoch: int
    owned: tuple[Place, ...] | None = None
    session_ms: int = 0


class Given(NamedTuple):
    """The answer to a heartbeat. places: all that the member may read; None where that has not changed."""

    epoch: int
    places: tuple[Place, ...] | None = None


class Read(NamedTuple):
    """One fetch, or what a consumer of the SDK gave. Result: Seen.

    session: reads of one in the same place go on where the one before ended. txn: what is made of it, if anything is.
    group: whose work was done on it, outside of transactions.
    """

    place: Place
    committed: bool
    start: int
    session: str = ""
    txn: str | None = None
    group: str = ""


class Seen(NamedTuple):
    """What a fetch showed, after the reader left out what is aborted. next_offset: where the reader goes on.

    A consumer of the SDK does not say how far the log goes: the last three are UNTOLD then.
    """

    records: tuple[tuple[int, str], ...]
    next_offset: int
    high_watermark: int
    last_stable: int
    log_start: int = 0

    @property
    def tells_ends(self) -> bool:
        return self.high_watermark != UNTOLD


UNTOLD = -1


class Listed(NamedTuple):
    """Where a log begins (at -2), ends (-1), or which offset stands at a time in ms. Result: the offset, or -1."""

    place: Place
    committed: bool
    at: int


class Dump(NamedTuple):
    """The whole of a partition's log, when all is over. Result: a tuple of Entry."""

    place: Place


EMPTIED = "emptied"


class Entry(NamedTuple):
    """A batch as it stands in the log. marker: "commit" or "abort" for a control batch, EMPTIED if only its header is
    left, which compaction keeps for the epoch in it."""

    offset: int
    producer: Producer
    sequence: int
    transactional: bool
    values: tuple[str, ...] = ()
    marker: str = ""
    timestamp: int = -1  # the latest of its records
    offsets: tuple[int, ...] = ()  # of its values, where some of the batch are gone
    last: int = -1  # its last offset, in the same case

    @property
    def records(self) -> tuple[tuple[int, str], ...]:
        offsets = self.offsets or range(self.offset, self.offset + len(self.values))
        return tuple(zip(offsets, self.values, strict=True))

    @property
    def end(self) -> int:
        """The offset after its last one."""
        last = self.last if self.last >= 0 else self.offset + max(1, len(self.values)) - 1
        return last + 1


class Finish(NamedTuple):
    """A client has to come to its end; one that was killed, or gave up and said so, fails."""

    what: str


class Pause(NamedTuple):
    """From now on a consumer gives nothing of a place."""

    place: Place


class Resume(NamedTuple):
    """From now on the consumer gives records of the place again."""

    place: Place


class Claim(NamedTuple):
    """A second producer is given a batch of an open transaction, or a committed one. Result: was it begun."""

    txn: str


class LeftBehind(NamedTuple):
    """A member leaves its group because it was not polled. Result: for how many ms it was not."""

    group: str
    allowed_ms: int


class Trim(NamedTuple):
    """Delete what is below an offset. Result: where the log begins then."""

    place: Place
    offset: int


class Cleanup(NamedTuple):
    """A topic is created whose records are removed by age, by the size of the log, or by newer ones of their key
    (compaction).

    -1: not in this way. tombstones_ms: how long compaction keeps a tombstone.
    """

    place: Place
    retention_ms: int = -1
    retention_bytes: int = -1
    tombstones_ms: int = -1

    @property
    def compacts(self) -> bool:
        return self.tombstones_ms >= 0


class Together(NamedTuple):
    """These transactions are decided as one. Always ok."""

    txns: tuple[str, ...]


class Pipelined(NamedTuple):
    """These operations were sent over one connection in this order, none of them a second time, and none waited for the
    answer of another. Always ok."""

    ops: "tuple[Op, ...]"


class Create(NamedTuple):
    """A topic is made again, under a name that had one before. The topic of `place` is that name, `@` and a number."""

    place: Place


class Restart(NamedTuple):
    """A broker began to serve."""


class Outlived(NamedTuple):
    """Another broker has taken over from this one, which lives on: until it is gone it may show an older state."""


class NotWritten(NamedTuple):
    """Between two times (ms) the owner released nothing because the store failed its writes. Always ok."""

    since_ms: int
    until_ms: int


class Forgotten(NamedTuple):
    """The broker forgets a producer in one place, or a transactional id and its producer everywhere. Always ok.

    why: "limit" or "silence". wrong: what speaks against it, as the broker itself stands; empty if nothing does.
    """

    place: Place | None
    producer_id: int
    transactional_id: str | None
    why: str
    wrong: str = ""


class ForgottenGroup(NamedTuple):
    """The broker forgets a group that nobody is in: its generations begin again. Always ok."""

    group: str


class Need(NamedTuple):
    """An honest client asks until it is served, also where a limit refuses it meanwhile. Result: how often it was."""

    what: str


class Healed(NamedTuple):
    """The last fault is over, and nobody begins anything new but honest clients that need it. Always ok."""


class Held(NamedTuple):
    """What is still held for clients that vanished, long after. Result: names."""


@dataclass(slots=True, eq=False)
class Op:
    """`late`: an attempt was not answered, and may still arrive whatever became of the operation: nothing orders the
    requests of one client over two connections."""

    client: str
    what: Any
    invoked: int
    invoked_ms: int
    _history: "History"
    done: int = 1 << 60
    done_ms: int = 1 << 60
    outcome: str = INFO
    result: Any = None
    error: int = 0
    late: bool = False

    def ok(self, result: Any = None) -> Any:
        self._end(OK)
        self.result = result
        return result

    def fail(self, error: int = -1) -> None:
        self._end(FAIL)
        self.error = error

    def info(self, error: int = 0) -> None:
        """End it with an unknown outcome, which is also that of an operation that is never ended. error: the one that
        its client was given.
        """
        self._end(INFO)
        self.error = error

    def _end(self, outcome: str) -> None:
        if self._history.closed:
            return
        self.outcome = outcome
        self.done = self._history.moment()
        self.done_ms = self._history.now_ms()

    def __repr__(self) -> str:
        result = f" -> {self.result}" if self.outcome == OK else f" ({self.error})" if self.error else ""
        done = "" if self.done == 1 << 60 else self.done
        late = " late" if self.late else ""
        return f"[{self.invoked}-{done} {self.invoked_ms} ms] {self.client}: {self.what} {self.outcome}{late}{result}"


@dataclass(slots=True)
class History:
    """All operations, in the order in which they were invoked."""

    now_ms: Callable[[], int] = lambda: 0
    stall_ms: int = 1 << 60  # no transaction may hold a last stable offset for longer, while a broker can write
    ops: list[Op] = field(default_factory=list)
    closed: bool = False  # it is judged: nothing ends any more
    given_later: list[Op] = field(default_factory=list)  # of until(): reads of members that were answered after its end
    _moments: int = 0
    _by_kind: dict[type, list[Op]] = field(default_factory=dict)

    def invoke(self, client: str, what: Any) -> Op:
        op = Op(client, what, self.moment(), self.now_ms(), self)
        self.take(op)
        return op

    def take(self, op: Op) -> None:
        """Add an operation at the end."""
        self.ops.append(op)
        self._by_kind.setdefault(op.what.__class__, []).append(op)

    def moment(self) -> int:
        self._moments += 1
        return self._moments

    def of(self, kind: type[W], *, only_ok: bool = True) -> Iterator[tuple[Op, W]]:
        """Yield the operations of a kind; if only_ok, those that succeeded."""
        for op in self._by_kind.get(kind, ()):
            if op.outcome == OK or not only_ok:
                yield op, op.what

    def digest(self) -> str:
        """Return a hash that is equal for equal histories."""
        digest = hashlib.sha256()
        for op in self.ops:
            digest.update(repr(op).encode())
        return digest.hexdigest()[:16]


TOLD = (Cleanup, Together, Forgotten, ForgottenGroup, Restart, Outlived, NotWritten)


def until(history: History, covered_ms: int, moment: int) -> History:
    """Return what clients knew of a broker at covered_ms, to check what it had written by then.

    moment: when the written state was looked at; what was invoked later is left out. What was answered between the two
    has an unknown outcome: the state may have it or not. If the state has a commit of that time, the records that it
    commits may have been given to readers after covered_ms: such reads are in `given_later`.
    """
    then = History(history.now_ms, history.stall_ms, _moments=history._moments)
    for op in history.ops:
        if op.invoked > moment or isinstance(op.what, Finish | Need | Healed):
            continue
        known = Op(op.client, op.what, op.invoked, op.invoked_ms, then)
        known.late = op.late
        if op.done_ms < covered_ms or isinstance(op.what, TOLD) or op.outcome == FAIL:
            known.done, known.done_ms, known.outcome = op.done, op.done_ms, op.outcome
            known.result, known.error = op.result, op.error
        elif op.outcome == OK and isinstance(op.what, Read) and op.what.group:
            then.given_later.append(op)
        then.take(known)
    return then
