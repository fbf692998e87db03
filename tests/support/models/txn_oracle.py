"""Scripted transactions for crash tests, and what must hold of whatever a crash left of them (R1 to R8, R10).

A script notes on the simulated disk what it asks before it is sent and what it was told after. `check` begins a broker
on an image: a transaction whose end was answered is there whole, or not at all if it was aborted; one whose end was
asked and not answered, one or the other, its offsets with it; any other is not to be seen. Acknowledged records are in
the log; pairs that were given are fenced by the next; and when everybody has begun anew, nothing is open any more.
One that was held waits for its decision, whoever begins anew before.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from broker_lives import offset_at, small
from fencepost.broker.config.settings import BrokerSettings
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.cluster import MetadataRequest
from fencepost.protocol.messages.ledger import DescribeLedgerRequest
from ledger_client import HOUR_MS, decide, prepare
from produce_requests import create
from simulated_broker import SimulatedBroker
from txn_client import Txn, offset_of, stable, values

OK = ErrorCode.NONE
LATEST = -1
WAIT = ErrorCode.CONCURRENT_TRANSACTIONS
TOPICS = {"a": 2, "b": 1}
GROUPS = ("g", "h")
EPHEMERAL = "once-"


def settings(**more: Any) -> BrokerSettings:
    """Return settings with few partitions of the internal topics: each is a log that every start opens."""
    few = {"transaction_state_log_num_partitions": 2, "offsets_topic_num_partitions": 2}
    often = {"transaction_abort_timed_out_transaction_cleanup_interval_ms": 1_000}
    return small(**few | often | {"transactional_id_ephemeral_prefix": EPHEMERAL} | more)


@dataclass(frozen=True)
class Given:
    """Note: a producer was given this producer id and epoch."""

    name: str
    producer_id: int
    epoch: int


@dataclass(frozen=True)
class Wrote:
    """Note: a record of a transaction is being sent. number: of the transaction, over all ids."""

    number: int
    topic: str
    partition: int
    value: bytes


@dataclass(frozen=True)
class Acknowledged:
    wrote: Wrote


@dataclass(frozen=True)
class SentOffset:
    number: int
    group: str
    topic: str
    offset: int


@dataclass(frozen=True)
class Ending:
    """Note: a transaction is to be committed or aborted."""

    number: int
    commit: bool


@dataclass(frozen=True)
class Ended:
    """Note: the end of a transaction was answered, or follows from what was answered."""

    number: int
    commit: bool


@dataclass(frozen=True)
class Holding:
    """Note: a transaction is to be held (only its decision in the ledger may end it), with its id as ledger key and
    its number; `answered`: it is held.
    """

    name: str
    number: int
    answered: bool = False


@dataclass(frozen=True)
class Gone:
    """Note: a topic is to be deleted, so its records do not count any more."""

    topic: str


class Script:
    """A broker and transactional producers whose every step is noted on the disk."""

    def __init__(self, disk: SimulatedDisk, **more: Any) -> None:
        self.disk = disk
        self.broker = SimulatedBroker(settings(**more), disk=disk)
        for name, partitions in TOPICS.items():
            self.broker.ask(create(name, partitions))
        first = Txn(self.broker, "first", 2)
        first.init()
        first.write_offset("a", 1, "other")
        assert first.commit() == OK
        self.begins_at = len(disk.operations)
        self._number = 0
        self._values = 0

    def producer(self, name: str = "x", version: int = 1, **more: Any) -> "Scripted":
        """Return a producer with this id. A transaction that the id had open is aborted."""
        return Scripted(self, name, version, **more)

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def next_value(self, size: int = 0) -> bytes:
        self._values += 1
        return b"v%d" % self._values + bytes(size)

    def wait(self, seconds: float) -> None:
        self.broker.wait(seconds)

    def over(self) -> None:
        """End the script, and leave the disk as the broker has it now."""
        assert not self.broker.broker.metrics.failures
        self.disk.halt()
        self.broker.abandon()


class Scripted(Txn):
    """A producer of a script, whose every step is noted."""

    def __init__(self, script: Script, name: str, version: int, **more: Any) -> None:
        super().__init__(script.broker, name, version)
        self.script = script
        self.note = script.disk.note
        self.number = 0
        self.begin(**more)

    def begin(self, **more: Any) -> None:
        """Send InitProducerId, which aborts an open transaction; what is written next is of a new one."""
        if self.number:
            self.note(Ending(self.number, False))
        assert self.init(**more) == OK
        if self.number:
            self.note(Ended(self.number, False))
        self.note(Given(self.name, self.producer_id, self.epoch))
        self.number = self.script.next_number()

    def write(self, topic: str = "a", *partitions: int, size: int = 0) -> None:  # type: ignore[override]
        partitions = partitions or (0,)
        if self.version == 1:
            assert self.add(topic, *partitions) == [OK] * len(partitions)
        for partition in partitions:
            wrote = Wrote(self.number, topic, partition, self.script.next_value(size))
            self.note(wrote)
            assert self.send(topic, wrote.value, partition) == OK
            self.note(Acknowledged(wrote))

    def write_offset(self, topic: str, offset: int, group: str = "g") -> None:
        self.note(SentOffset(self.number, group, topic, offset))
        super().write_offset(topic, offset, group)

    def end(self, commit: bool, **more: Any) -> int:
        self.note(Ending(self.number, commit))
        code = super().end(commit, **more)
        if code == OK:
            self.ended(commit)
        return code

    def hold(self, timeout_ms: int = HOUR_MS) -> None:
        """Hold the transaction: it waits for the decision of its number under the key that is its id."""
        self.note(Holding(self.name, self.number))
        assert prepare(self, self.number, self.name, timeout_ms, hold=True).error_code == OK
        self.note(Holding(self.name, self.number, answered=True))

    def decide(self, commit: bool) -> None:
        self.note(Ending(self.number, commit))
        answer = decide(self.broker, self, key=self.name, number=self.number, committed=commit)
        assert answer.error_code == OK
        for each in answer.ended:
            self.goes_on_as(each.producer_id, each.producer_epoch)
        self.ended(commit)

    def ended(self, commit: bool) -> None:
        """Note that the transaction has ended, and count the next one."""
        self.note(Ended(self.number, commit))
        self.note(Given(self.name, self.producer_id, self.epoch))
        self.number = self.script.next_number()


# ---- what must hold ------------------------------------------------------------------------------------------


class Expected:
    """What a broker must serve, by the notes taken before a crash."""

    def __init__(self, notes: Iterable[Any]) -> None:
        self.wrote: list[Wrote] = []
        self.acknowledged: set[Wrote] = set()
        self.offsets: list[SentOffset] = []
        self.ending: dict[int, bool] = {}
        self.ended: dict[int, bool] = {}
        self.given: dict[str, tuple[int, int]] = {}
        self.gone: set[str] = set()
        self.held: dict[str, Holding] = {}  # by id, the last one
        for note in notes:
            match note:
                case Wrote():
                    self.wrote.append(note)
                case Acknowledged():
                    self.acknowledged.add(note.wrote)
                case SentOffset():
                    self.offsets.append(note)
                case Ending():
                    self.ending[note.number] = note.commit
                case Ended():
                    self.ended[note.number] = note.commit
                case Given():
                    self.given[note.name] = note.producer_id, note.epoch
                case Holding():
                    self.held[note.name] = note
                case Gone():
                    self.gone.add(note.topic)

    def outcomes(self, number: int) -> set[bool]:
        """Return the possible outcomes of a transaction: True for committed."""
        if number in self.ended:
            return {self.ended[number]}
        return {False, self.ending.get(number, False)}


def check(disk: SimulatedDisk, seed: int = 0) -> None:
    """Start a broker on the disk of a crash, and check what it serves."""
    expected = Expected(disk.notes)
    broker = SimulatedBroker(settings(), disk=disk, seed=seed)
    try:
        topics = [name for name in _topics(broker) if name in TOPICS and name not in expected.gone]
        places = [(topic, partition) for topic in topics for partition in range(TOPICS[topic])]
        before = {place: values(broker, *place) for place in places}
        _begin_anew(broker, expected)
        committed = _committed(broker, expected, places)
        _check_offsets(broker, expected, committed)
        for place in places:
            assert values(broker, *place)[: len(before[place])] == before[place], "what was seen has changed"
            assert stable(broker, *place) == offset_at(broker, place[0], LATEST, place[1]), "still open"
        assert not broker.broker.metrics.failures
    finally:
        disk.halt()
        broker.abandon()


def _topics(broker: SimulatedBroker) -> list[str]:
    return [topic.name for topic in broker.ask(MetadataRequest(topics=None)).topics]


def _committed(broker: SimulatedBroker, expected: Expected, places: list[tuple[str, int]]) -> dict[int, bool]:
    """Return by number whether each transaction that wrote something is committed. Fails if one is visible in part."""
    seen: dict[int, set[bool]] = defaultdict(set)
    for place in places:
        visible, there = values(broker, *place), values(broker, *place, committed=False)
        sent = [note for note in expected.wrote if (note.topic, note.partition) == place]
        assert set(there) <= {note.value for note in sent}, "nobody sent that"
        assert len(set(there)) == len(there), "something is there twice"
        assert [value for value in there if value in visible] == visible
        for note in sent:
            if note in expected.acknowledged:
                assert note.value in there, f"acknowledged and lost: {note}"
            seen[note.number].add(note.value in visible)
    for number, found in seen.items():
        assert len(found) == 1, f"transaction {number} is half there"
        assert found <= expected.outcomes(number), f"transaction {number}: {found}, not {expected.outcomes(number)}"
    return {number: True in found for number, found in seen.items()}


def _check_offsets(broker: SimulatedBroker, expected: Expected, committed: dict[int, bool]) -> None:
    """Check that committed offsets have the outcome of their transaction."""
    for group in GROUPS:
        for topic in TOPICS:
            possible = {-1}
            for note in expected.offsets:
                if (note.group, note.topic) != (group, topic) or note.topic in expected.gone:
                    continue
                outcomes = {committed[note.number]} if note.number in committed else expected.outcomes(note.number)
                possible = (possible if False in outcomes else set()) | ({note.offset} if True in outcomes else set())
            if topic not in expected.gone:
                assert offset_of(broker, topic, group) in possible


def _begin_anew(broker: SimulatedBroker, expected: Expected) -> None:
    """Check R6, R7: InitProducerId gives each id a pair above all that it had; the former producer is fenced; nothing
    stays open.
    """
    for name, pair in expected.given.items():
        zombie, successor = Txn(broker, name, 2), Txn(broker, name, 2)
        _end_held(broker, expected, name, pair)
        assert successor.init() == OK
        assert (successor.producer_id, successor.epoch) > pair, f"{name} was given {pair} before"
        zombie.goes_on_as(*pair)
        assert zombie.send("b", b"zombie", sequence=0) != OK
        assert zombie.commit() != OK


def _end_held(broker: SimulatedBroker, expected: Expected, name: str, pair: tuple[int, int]) -> None:
    """Check that a held transaction still waits for its decision, even after an InitProducerId of its id, and that
    only the decision ends it.
    """
    held = expected.held.get(name)
    if held is None or held.number in expected.ended:
        return
    code = Txn(broker, name, 2).init()
    if code != WAIT:
        assert code == OK
        assert not held.answered or held.number in expected.ending, f"{held} was ended by a successor"
        return
    (key,) = broker.ask(DescribeLedgerRequest(keys=[name])).keys
    (waits,) = key.waiting  # a backup may be older than the last note, and its pair newer than the last given
    assert waits.number <= held.number
    pair = max(pair, (waits.producer_id, waits.producer_epoch))
    commit = expected.ending.get(waits.number, True)
    listed = Txn(broker, name)
    for wrong in (pair[0], pair[1] + 1), (pair[0] + 1, pair[1]):
        listed.producer_id, listed.epoch = wrong
        assert decide(broker, listed, key=name, number=waits.number, committed=commit).error_code != OK
    listed.producer_id, listed.epoch = pair
    assert decide(broker, listed, key=name, number=waits.number, committed=commit).error_code == OK
    expected.ended[waits.number] = commit
