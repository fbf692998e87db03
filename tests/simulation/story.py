"""Histories in few words, for tests of the checker: each call is one operation, over at once unless it says `late`."""

from typing import Any

from simulation.checker import check
from simulation.history import (
    UNTOLD,
    Add,
    Beat,
    Begin,
    Claim,
    Cleanup,
    Commit,
    Dump,
    End,
    Entry,
    Finish,
    Forgotten,
    ForgottenGroup,
    Given,
    Healed,
    Held,
    History,
    Init,
    Join,
    LeftBehind,
    Listed,
    Need,
    NotWritten,
    OffsetOf,
    Offsets,
    Op,
    Pause,
    Pipelined,
    Place,
    Producer,
    Read,
    Restart,
    Resume,
    Seen,
    Send,
    Together,
    Trim,
)

P, Q = ("p", 0), ("q", 0)
ONE: Producer = (1, 0)
NOBODY: Producer = (-1, -1)
SESSION_MS = 3_000


class Story:
    """A history under construction. ok=None leaves an operation unknown, False fails it; error is its code."""

    def __init__(self, stall_ms: int = 1000) -> None:
        self.now = 0
        self.history = History(lambda: self.now, stall_ms)

    def _op(self, client: str, what: Any, ok: bool | None, result: Any = None, error: int = 35) -> Op:
        op = self.history.invoke(client, what)
        if ok is True:
            op.ok(result)
        elif ok is False:
            op.fail(error)
        return op

    def init(
        self,
        producer: Producer | None = ONE,
        tid: str | None = "a",
        ok: bool | None = True,
        current: Producer | None = None,
        client: str = "w",
    ) -> Op:
        return self._op(client, Init(tid, current), ok, producer)

    def begin(self, txn: str, producer: Producer = ONE, tid: str = "a", timeout_ms: int = 60_000) -> Op:
        return self._op("w", Begin(txn, tid, producer, timeout_ms), True)

    def send(
        self,
        *values: str,
        at: int = 0,
        txn: str | None = None,
        sequence: int = 0,
        producer: Producer = ONE,
        place: Place = P,
        ok: bool | None = True,
        again: bool = False,
        sources: tuple[tuple[Place, int], ...] = (),
        error: int = 35,
    ) -> Op:
        return self._op("w", Send(place, producer, sequence, values, txn, sources, again), ok, at, error)

    def add(self, txn: str, place: Place = P, producer: Producer = ONE) -> Op:
        return self._op("w", Add(txn, place, producer), True)

    def end(
        self,
        txn: str,
        commit: bool = True,
        ok: bool | None = True,
        producer: Producer = ONE,
        next_producer: Producer | None = None,
        tid: str = "a",
        error: int = 35,
    ) -> Op:
        return self._op("w", End(txn, tid, producer, commit), ok, next_producer or producer, error)

    def commit(self, txn: str, **more: Any) -> Op:
        return self.end(txn, True, **more)

    def abort(self, txn: str, **more: Any) -> Op:
        return self.end(txn, False, **more)

    def offsets(
        self,
        txn: str,
        position: int,
        ok: bool | None = True,
        producer: Producer = ONE,
        generation: int = 1,
        place: Place = P,
        member: str = "",
    ) -> Op:
        return self._op("w", Offsets(txn, "g", producer, generation, ((place, position),), member), ok)

    def plain(
        self,
        position: int,
        generation: int = 1,
        ok: bool | None = True,
        place: Place = P,
        member: str = "",
        newest: int | None = None,
    ) -> Op:
        """Note a commit outside of transactions. newest: the epoch with which it was accepted, if the member's epoch
        has grown meanwhile.
        """
        return self._op("c", Commit("g", generation, ((place, position),), member), ok, newest)

    def beats(
        self,
        member: str,
        epoch: int,
        *owned: Place,
        gets: tuple[int, tuple[Place, ...] | None] | None = None,
        error: int = 0,
        reports: bool = True,
    ) -> Op:
        """Note a heartbeat. gets: its answer, an epoch and what the member may read. With neither that nor an error it
        is not answered.
        """
        ok = True if gets is not None else False if error else None
        what = Beat("g", member, epoch, owned if reports else None, SESSION_MS)
        return self._op(member, what, ok, None if gets is None else Given(*gets), error)

    def stands(self, offset: int, client: str = "c", place: Place = P) -> Op:
        return self._op(client, OffsetOf("g", place), True, offset)

    def join(self, generation: int, member: str, *places: Place) -> Op:
        return self._op(member, Join("g"), True, (generation, member, places))

    def read(
        self,
        *records: tuple[int, str],
        start: int = 0,
        upto: int | None = None,
        hw: int | None = None,
        lso: int | None = None,
        committed: bool = True,
        place: Place = P,
        client: str = "r",
        log_start: int = 0,
        session: str = "",
        txn: str | None = None,
        group: str = "",
    ) -> Op:
        """Note a fetch. upto: the offset at which the reader goes on, by default the one after the last record. lso is
        by default upto, or hw if that is higher; hw is by default lso.
        """
        upto = upto if upto is not None else records[-1][0] + 1 if records else start
        lso = lso if lso is not None else max(upto, hw or 0)
        seen = Seen(records, upto, lso if hw is None else hw, lso, log_start)
        return self._op(client, Read(place, committed, start, session, txn, group), True, seen)

    def poll(self, *records: tuple[int, str], start: int = 0, upto: int | None = None, **more: Any) -> Op:
        """Note that a consumer of the SDK gives these records. All polls are of one session."""
        seen = Seen(records, records[-1][0] + 1 if upto is None else upto, UNTOLD, UNTOLD, UNTOLD)
        return self._op("m", Read(P, more.pop("committed", True), start, "session", **more), True, seen)

    def pauses(self, place: Place = P, client: str = "m", *, again: bool = False) -> Op:
        """Note that a consumer pauses a partition. again: that it resumes it."""
        return self._op(client, Resume(place) if again else Pause(place), True)

    def claimed(self, txn: str, *, begun: bool) -> Op:
        return self._op("m", Claim(txn), True, begun)

    def left_behind(self, silent_ms: int) -> Op:
        return self._op("m", LeftBehind("g", 1_500), True, silent_ms)

    def listed(self, at: int, offset: int, committed: bool = True) -> Op:
        return self._op("c", Listed(P, committed, at), True, offset)

    def pipelined(self, *ops: Op) -> Op:
        """Note that these operations were sent over one connection, in this order, without waiting for answers."""
        for op in ops:
            op.done = max(each.done for each in ops)
        return self._op("w", Pipelined(ops), True)

    def beside(self, *ops: Op) -> None:
        """Let these operations be answered now, in this order, so that all of them overlap."""
        for op in ops:
            op.done = self.history.moment()

    def finish(self, what: str, ok: bool | None = True) -> Op:
        return self._op("w", Finish(what), ok)

    def final(self, *records: tuple[int, str], **more: Any) -> Op:
        return self.read(*records, client="final", **more)

    def raw(self, *records: tuple[int, str], **more: Any) -> Op:
        return self.read(*records, committed=False, **more)

    def dump(self, *entries: Entry, place: Place = P) -> Op:
        return self._op("final", Dump(place), True, entries)

    def trim(self, offset: int, ok: bool | None = True) -> Op:
        return self._op("d", Trim(P, offset), ok, offset)

    def cleaned_by(self, place: Place = P, **how: int) -> Op:
        return self._op("d", Cleanup(place, **how), True)

    def together(self, *txns: str) -> Op:
        return self._op("w", Together(txns), True)

    def restart(self) -> Op:
        return self._op("broker", Restart(), True)

    def forgotten(self, producer_id: int = ONE[0], place: Place = P, wrong: str = "") -> Op:
        return self._op("broker", Forgotten(place, producer_id, None, "limit", wrong), True)

    def forgotten_id(self, tid: str = "a", wrong: str = "") -> Op:
        return self._op("broker", Forgotten(None, ONE[0], tid, "limit", wrong), True)

    def group_forgotten(self) -> Op:
        return self._op("broker", ForgottenGroup("g"), True)

    def needs(self, what: str) -> Op:
        """Note that a client needs something, and is not served yet."""
        return self._op("n", Need(what), None)

    def healed(self) -> Op:
        return self._op("scenario", Healed(), True)

    def held(self, *names: str) -> Op:
        return self._op("final", Held(), True, names)

    def passes(self, ms: int) -> None:
        self.now += ms

    def store_fails(self, ms: int) -> None:
        """Let this time pass, in which the store fails what the owner writes."""
        self.now += ms
        self.store_failed(self.now - ms, self.now)

    def store_failed(self, since_ms: int, until_ms: int) -> Op:
        return self._op("store", NotWritten(since_ms, until_ms), True)

    @property
    def anomalies(self) -> set[str]:
        return {anomaly.name for anomaly in check(self.history)}


def data(
    offset: int, *values: str, producer: Producer = ONE, sequence: int = 0, plain: bool = False, timestamp: int = -1
) -> Entry:
    """Return a batch as it stands in a dump."""
    return Entry(offset, producer, sequence, not plain, values, "", timestamp)


def marker(offset: int, kind: str = "commit", producer: Producer = ONE) -> Entry:
    return Entry(offset, producer, -1, True, (), kind)
