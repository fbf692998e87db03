"""Histories of a broker that does everything right, at random: lost replies, aborts, zombies, overlapping operations.

The broker is a model of some lines: logs, open transactions, offsets. Clients are generators that pause before an
operation takes effect and before its answer arrives; chance decides who goes on.
"""

import random
from collections import defaultdict
from collections.abc import Iterator

from simulation.history import (
    Add,
    Begin,
    Dump,
    End,
    Entry,
    History,
    Init,
    OffsetOf,
    Offsets,
    Op,
    Place,
    Producer,
    Read,
    Restart,
    Seen,
    Send,
)

INPUT, LEFT, RIGHT, OUTPUT = ("in", 0), ("left", 0), ("right", 0), ("out", 0)
FENCED = 90
Client = Iterator[None]


class Model:
    """A broker: its logs, open transactions and committed offsets."""

    def __init__(self) -> None:
        self.logs: dict[Place, list[Entry]] = defaultdict(list)
        self.ends: dict[Place, int] = defaultdict(int)
        self.epochs: dict[str, Producer] = {}
        self.open: dict[int, dict[Place, int]] = defaultdict(dict)  # first offsets by producer id
        self.staged: dict[int, dict[Place, int]] = defaultdict(dict)
        self.stand: dict[Place, int] = {}
        self.aborted: dict[Place, set[int]] = defaultdict(set)
        self.next_id = 0

    def new_id(self) -> int:
        self.next_id += 1
        return self.next_id

    def append(self, place: Place, entry: Entry) -> int:
        offset = self.ends[place]
        self.logs[place].append(entry._replace(offset=offset))
        self.ends[place] += max(1, len(entry.values))
        return offset

    def stable(self, place: Place) -> int:
        return min([self.ends[place], *(firsts[place] for firsts in self.open.values() if place in firsts)])

    def end(self, producer: Producer, commit: bool) -> None:
        producer_id = producer[0]
        for place, first in self.open.pop(producer_id, {}).items():
            if not commit:
                for entry in self.logs[place]:
                    if entry.producer[0] == producer_id and entry.offset >= first:
                        self.aborted[place].add(entry.offset)
            self.append(place, Entry(0, producer, -1, True, (), "commit" if commit else "abort"))
        staged = self.staged.pop(producer_id, {})
        if commit:
            self.stand.update(staged)

    def init(self, transactional_id: str) -> Producer:
        known = self.epochs.get(transactional_id)
        if known is not None:
            self.end(known, commit=False)
        self.epochs[transactional_id] = (self.new_id(), 0) if known is None else (known[0], known[1] + 1)
        return self.epochs[transactional_id]

    def seen(self, place: Place, committed: bool, start: int) -> Seen:
        stable, end = self.stable(place), self.ends[place]
        records, at = [], start
        for entry in self.logs[place]:
            after = entry.offset + max(1, len(entry.values))
            if after <= start or entry.offset >= (stable if committed else end):
                continue
            at = after
            if not (committed and entry.offset in self.aborted[place]):
                records += [(entry.offset + i, v) for i, v in enumerate(entry.values) if entry.offset + i >= start]
        return Seen(tuple(records), at, end, stable)


class Clients:
    """All clients of one model."""

    def __init__(self, rng: random.Random, history: History) -> None:
        self.rng = rng
        self.history = history
        self.model = Model()
        self.values = 0

    def value(self) -> str:
        self.values += 1
        return f"v{self.values}"

    def lost(self, op: Op) -> bool:
        """Sometimes end the operation without an answer, whatever its effect was. Returns whether it did."""
        if self.rng.random() < 0.1:
            op.info()
            return True
        return False

    def plain(self, name: str, place: Place) -> Client:
        producer = (self.model.new_id(), 0)
        self.history.invoke(name, Init()).ok(producer)
        sequence = 0
        for _ in range(4):
            values = tuple(self.value() for _ in range(self.rng.randint(1, 3)))
            op = self.history.invoke(name, Send(place, producer, sequence, values))
            yield
            if self.rng.random() < 0.1:
                op.fail(19)
                continue
            offset = self.model.append(place, Entry(0, producer, sequence, False, values))
            yield
            op.ok(offset)
            if self.rng.random() < 0.2:
                self.history.invoke(name, Send(place, producer, sequence, values, again=True)).ok(offset)
            sequence += len(values)

    def transactional(self, name: str, transactional_id: str, moving: bool) -> Client:
        init = self.history.invoke(name, Init(transactional_id))
        yield
        producer = self.model.init(transactional_id)
        yield
        init.ok(producer)
        sequences: dict[Place, int] = defaultdict(int)
        for number in range(3):
            txn = f"{name}/{number}"
            self.history.invoke(name, Begin(txn, transactional_id, producer)).ok()
            yield from self._fill(name, txn, producer, sequences, moving)
            if self.unsure:
                return
            commit = self.rng.random() < 0.7 and not self.failed
            op = self.history.invoke(name, End(txn, transactional_id, producer, commit))
            yield
            if self.model.epochs[transactional_id] != producer:
                op.fail(FENCED)
                return
            if self.rng.random() < 0.05:
                op.info()
                return
            self.model.end(producer, commit)
            yield
            if self.lost(op):
                return
            op.ok(producer)
            if self.rng.random() < 0.1:
                return

    unsure = failed = False

    def _fill(self, name: str, txn: str, producer: Producer, sequences: dict[Place, int], moving: bool) -> Client:
        failed = unsure = False
        sources: tuple[tuple[Place, int], ...] = ()
        places = self.rng.sample((LEFT, RIGHT), self.rng.randint(0, 2))
        if moving:
            at = self.model.stand.get(INPUT, 0)
            seen = self.model.seen(INPUT, True, at)
            sources = tuple((INPUT, offset) for offset, _ in seen.records[:2])
            places = [OUTPUT] if sources else []
        for place in places:
            values = tuple(self.value() for _ in sources or range(self.rng.randint(1, 2)))
            self.history.invoke(name, Add(txn, place, producer)).ok()
            op = self.history.invoke(name, Send(place, producer, sequences[place], values, txn, sources))
            yield
            if self.current(producer):
                entry = Entry(0, producer, sequences[place], True, values)
                offset = self.model.append(place, entry)
                self.model.open[producer[0]].setdefault(place, offset)
                sequences[place] += len(values)
                yield
                unsure = unsure or self.lost(op)
                if not unsure:
                    op.ok(offset)
            else:
                op.fail(FENCED)
                failed = True
        if sources and not failed:
            position = sources[-1][1] + 1
            op = self.history.invoke(name, Offsets(txn, "g", producer, -1, ((INPUT, position),)))
            if self.current(producer):
                self.model.staged[producer[0]][INPUT] = position
                op.ok()
            else:
                op.fail(FENCED)
                failed = True
            yield
        self.unsure, self.failed = unsure, failed

    def current(self, producer: Producer) -> bool:
        return producer in self.model.epochs.values()

    def reader(self, name: str) -> Client:
        at: dict[tuple[Place, bool], int] = defaultdict(int)
        for _ in range(8):
            place, committed = self.rng.choice((INPUT, LEFT, RIGHT, OUTPUT)), self.rng.random() < 0.7
            start = at[place, committed] if self.rng.random() < 0.8 else 0
            op = self.history.invoke(name, Read(place, committed, start))
            yield
            seen = self.model.seen(place, committed, start)
            yield
            at[place, committed] = op.ok(seen).next_offset
            if self.rng.random() < 0.2:
                self.history.invoke(name, OffsetOf("g", INPUT)).ok(self.model.stand.get(INPUT, -1))

    def last(self) -> None:
        for transactional_id in list(self.model.epochs):
            self.history.invoke("last", Init(transactional_id)).ok(self.model.init(transactional_id))
        for place in (INPUT, LEFT, RIGHT, OUTPUT):
            for committed in (False, True):
                self.history.invoke("final", Read(place, committed, 0)).ok(self.model.seen(place, committed, 0))
            self.history.invoke("final", Dump(place)).ok(tuple(self.model.logs[place]))
        self.history.invoke("final", OffsetOf("g", INPUT)).ok(self.model.stand.get(INPUT, -1))


def good_history(rng: random.Random) -> History:
    """Return a random history of a broker that does everything right: of some clients, with dozens of operations."""
    history = History(stall_ms=10_000)
    clients = Clients(rng, history)
    history.invoke("broker", Restart()).ok()
    running = [clients.plain("plain", INPUT), clients.plain("other", LEFT), clients.reader("reader")]
    running += [clients.transactional(f"{name}-{n}", name, False) for name in "ab" for n in range(2)]
    running += [clients.transactional("mover", "m", True)]
    while running:
        client = rng.choice(running)
        try:
            next(client)
        except StopIteration:
            running.remove(client)
    clients.last()
    return history
