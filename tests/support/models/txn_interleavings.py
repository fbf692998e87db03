"""A client's transactions against the broker's machine, with a network between that may do anything, and no loop.

A run is a list of choices: at each request what becomes of it (answered, lost, its answer lost, held back and delivered
later, delivered twice), and before it what else happens (the broker's time-out, a second producer with the same id, the
arrival of what was held back). `every_run` goes through all of them with at most so many faults.

Version 1 has no defence against a copy of an answered request that the network makes by itself and delivers later (TCP
does not do that), so there a copy comes at once.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from fencepost.broker.transactions.states import machine
from fencepost.broker.transactions.states.init_producer_id import Initialisation, Limits, init_producer_id
from fencepost.broker.transactions.states.machine import Decision, Inputs
from fencepost.client.errors import CommitOutcomeUnknownError, DeliveryTimeoutError, RequestTimedOutError, error_of
from fencepost.client.transactions.answers import Verdict, of_write
from fencepost.client.transactions.machine import ClientTransaction
from fencepost.client.transactions.table import Event, State
from fencepost.client.values import NO_IDENTITY, ProducerIdentity, TopicPartition
from fencepost.protocol.errors import ErrorCode, KafkaError

OFFSETS = TopicPartition("__consumer_offsets", 0)
ATTEMPTS = 2
TIMEOUT_MS = 60_000


@dataclass
class BrokerSide:
    """The coordinator's state, and partitions that remember a producer's epoch and last sequence."""

    txn: machine.Transaction | None = None
    logs: dict[TopicPartition, list[tuple]] = field(default_factory=dict)
    producers: dict[tuple, tuple[int, int]] = field(default_factory=dict)
    age_ms: int = 0
    ids: int = 1000

    def given(self) -> Inputs:
        return Inputs(0, self.age_ms, self._new_id, lambda _: 5)

    def _new_id(self) -> int:
        self.ids += 1
        return self.ids

    def apply(self, decision: Decision) -> Decision:
        if decision.states:
            self.txn = decision.states[-1]
        if (marker := decision.marker) is not None:
            for key in marker.partitions:
                partition = TopicPartition(*key)
                self.logs.setdefault(partition, []).append(("end", marker.producer_id, marker.commit))
                _, last = self.producers.get((partition, marker.producer_id), (0, -1))
                known, _ = self.producers.get((partition, marker.producer_id), (0, -1))
                if marker.producer_epoch != known:
                    last = -1
                self.producers[partition, marker.producer_id] = marker.producer_epoch, last
        return decision

    def take(self, request: tuple) -> Any:
        """Process a request and return the answer."""
        name, version, pair, *rest = request
        return getattr(self, f"_{name}")(version, pair, *rest)

    def _init(self, version: int, pair: ProducerIdentity) -> tuple[int, ProducerIdentity]:
        asked = Initialisation("x", TIMEOUT_MS, *pair)
        return self._answer(self.apply(init_producer_id(self.txn, asked, Limits(), self.given())))

    def _add(self, version: int, pair: ProducerIdentity, partition: TopicPartition) -> int:
        added = {tuple(partition): 1}
        return int(self.apply(machine.add_partitions(self.txn, *pair, added, 0, self.given())).error)

    def _admitted(self, version: int, pair: ProducerIdentity, partition: TopicPartition) -> int:
        if version == 1:
            code = machine.verify(self.txn, *pair, tuple(partition), 1)
        else:
            code = self.apply(machine.add_partitions(self.txn, *pair, {tuple(partition): 1}, 2, self.given())).error
        return int(ErrorCode.INVALID_PRODUCER_EPOCH if code is ErrorCode.PRODUCER_FENCED else code)

    def _produce(
        self, version: int, pair: ProducerIdentity, partition: TopicPartition, sequence: int, value: tuple
    ) -> int:
        epoch, last = self.producers.get((partition, pair.producer_id), (pair.epoch, -1))
        if pair.epoch < epoch:
            return int(ErrorCode.INVALID_PRODUCER_EPOCH)
        last = last if pair.epoch == epoch else -1
        if sequence <= last and pair.epoch == epoch:
            return 0  # written before
        if code := self._admitted(version, pair, partition):
            return code
        if sequence != last + 1:
            return int(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        self.producers[partition, pair.producer_id] = pair.epoch, sequence
        self.logs.setdefault(partition, []).append(("data", pair.producer_id, value))
        return 0

    def _offsets(self, version: int, pair: ProducerIdentity, value: tuple) -> int:
        if code := self._admitted(version, pair, OFFSETS):
            return code
        self.logs.setdefault(OFFSETS, []).append(("data", pair.producer_id, value))
        return 0

    def _end(self, version: int, pair: ProducerIdentity, commit: bool) -> tuple[int, ProducerIdentity]:
        decision = self.apply(machine.end(self.txn, commit, *pair, 2 if version == 2 else 0, self.given()))
        return self._answer(decision)

    def _answer(self, decision: Decision) -> tuple[int, ProducerIdentity]:
        return int(decision.error), ProducerIdentity(decision.producer_id, decision.producer_epoch)

    def time_out(self) -> None:
        self.age_ms += TIMEOUT_MS * 2
        if self.txn is not None:
            self.apply(machine.expire(self.txn, self.given()))

    def visible(self, partition: TopicPartition) -> list[tuple]:
        """Return what a read_committed reader gets, in the order in which it becomes visible."""
        waiting: dict[int, list[tuple]] = {}
        seen: list[tuple] = []
        for kind, producer_id, what in self.logs.get(partition, []):
            if kind == "data":
                waiting.setdefault(producer_id, []).append(what)
            elif what:
                seen += waiting.pop(producer_id, [])
            else:
                waiting.pop(producer_id, None)
        return seen


class Choices:
    """The choices of one run: first those that are given, then always the first one; and how many there were."""

    def __init__(self, given: list[int], faults: int) -> None:
        self.given = given
        self.faults = faults
        self.made: list[tuple[int, int]] = []

    def pick(self, options: list[tuple[str, int]]) -> str:
        """Return one of the options; each has its price in faults."""
        options = [(name, price) for name, price in options if price <= self.faults]
        at = len(self.made)
        chosen = self.given[at] if at < len(self.given) else 0
        self.made.append((chosen, len(options)))
        name, price = options[chosen]
        self.faults -= price
        return name


def every_run(play: Callable[[Choices], None], faults: int) -> Iterator[list[int]]:
    """Run `play` for every possible sequence of choices, and yield each."""
    given: list[int] = []
    while True:
        choices = Choices(given, faults)
        play(choices)
        yield [chosen for chosen, _ in choices.made]
        made = choices.made
        while made and made[-1][0] + 1 >= made[-1][1]:
            made.pop()
        if not made:
            return
        given = [chosen for chosen, _ in made[:-1]] + [made[-1][0] + 1]


class Run:
    """One client, its transactions, and the outcomes that it was told."""

    def __init__(self, version: int, choices: Choices, *, rivals: bool = True) -> None:
        self.version = version
        self.broker = BrokerSide()
        self.choices = choices
        self.rivals = rivals
        self.held: list[tuple] = []
        self.client = ClientTransaction("x", TIMEOUT_MS)
        self.client.can_renew = True
        self.sequences: dict[tuple, int] = {}
        self.outcomes: list[tuple[str, list[tuple]]] = []
        self.open_commits: set[ProducerIdentity] = set()
        self.rival_writes = 0
        self.sent: list[tuple] = []

    # ---- the network -----------------------------------------------------------------------------------------

    def ask(self, *request: Any) -> Any:
        """Send a request and return the answer. None if the client gets none: the request or the answer is lost, or the
        request arrives later, when others were sent (held).
        """
        name, pair = request[0], request[2]
        if name == "end" and not request[3]:
            assert pair not in self.open_commits, "an abort on the epoch of a commit that was not answered"
        if name == "end" and request[3]:
            self.open_commits.add(pair)
        self.sent.append(request)
        self._meanwhile()
        fate = self.choices.pick([("answered", 0), ("lost", 1), ("answer lost", 1), ("held", 1), ("twice", 1)])
        if fate == "lost":
            return None
        if fate == "held":
            self.held.append(request)
            return None
        answer = self.broker.take(request)
        if fate == "answer lost":
            return None
        if fate == "twice" and self.version == 1:
            self.broker.take(request)
        elif fate == "twice":
            self.held.append(request)
        return answer

    def _meanwhile(self) -> None:
        while True:
            options = [("nothing", 0), ("time out", 1)]
            if self.rivals:
                options += [("rival", 1), ("rival writes", 1)]
            options += [(f"deliver {at}", 0) for at in range(len(self.held))]
            what = self.choices.pick(options)
            if what == "nothing":
                return
            if what == "time out":
                self.broker.time_out()
            elif what.startswith("deliver"):
                self.broker.take(self.held.pop(int(what.split()[1])))
            else:
                self._rival(what == "rival writes")

    def _rival(self, writes: bool) -> None:
        _, pair = self.broker.take(("init", 2, NO_IDENTITY))
        if writes:
            self.rival_writes += 1
            partition = TopicPartition("t", 0)
            assert self.broker.take(("produce", 2, pair, partition, 0, ("rival", self.rival_writes))) == 0
            assert self.broker.take(("end", 2, pair, True))[0] == 0

    # ---- the client ------------------------------------------------------------------------------------------

    def init(self) -> None:
        """Send InitProducerId until it is answered; after ATTEMPTS attempts the client is told that it timed out."""
        client = self.client
        if client.state is not State.ABORTING:
            client.request(Event.INIT)
        for _ in range(ATTEMPTS):
            answer = self.ask("init", self.version, client.former_identity())
            if answer is not None and client.initialised(*answer) is not Verdict.AGAIN:
                return
        client.not_initialised(RequestTimedOutError())

    def transaction(self, number: int, partitions: list[int], *, offsets: bool, commit: bool) -> None:
        """Run one transaction as the SDK's context manager does."""
        client = self.client
        if client.state in (State.UNINITIALIZED, State.STALE):
            self.init()
        if client.state is State.ABORTABLE_ERROR:
            self.abort()
            if client.state is State.STALE:
                self.init()
        try:
            client.begin(self.version, 0)
        except KafkaError:
            return
        writes = [(number, each) for each in partitions] + ([(number, "offsets")] if offsets else [])
        self._write(number, partitions, offsets)
        if commit and client.state is State.IN_TRANSACTION:
            self.commit(client)
        if client.state in (State.IN_TRANSACTION, State.ABORTABLE_ERROR):
            self.abort()
            outcome = "aborted"
        else:
            outcome = client.outcome or "aborted"
        self.outcomes.append((outcome, writes))

    def _write(self, number: int, partitions: list[int], offsets: bool) -> None:
        for index in partitions:
            if self.client.state is State.IN_TRANSACTION:
                self._send(TopicPartition("t", index), (number, index))
        if offsets and self.client.state is State.IN_TRANSACTION:
            self.client.attempts_offsets()
            if self.version == 1 and not self._insist("add", OFFSETS):
                return
            self._insist("offsets", (number, "offsets"))

    def _send(self, partition: TopicPartition, value: tuple) -> None:
        client = self.client
        if not client.may_write_to(partition):
            answered = False
            for _ in range(ATTEMPTS):
                code = self.ask("add", self.version, client.identity, partition)
                if code is None:
                    client.unanswered()
                elif client.added({partition: code}) is not Verdict.AGAIN:
                    answered = True
                    break
            if not answered:
                client.failed(DeliveryTimeoutError())
            if not client.may_write_to(partition):
                return
        key = (client.identity, partition)
        sequence = self.sequences.get(key, 0)
        self.sequences[key] = sequence + 1
        self._insist("produce", partition, sequence, value)

    def _insist(self, name: str, *rest: Any) -> bool:
        client = self.client
        for _ in range(ATTEMPTS):
            code = self.ask(name, self.version, client.identity, *rest)
            if code is None:
                client.unanswered()
            elif code == 0:
                return True
            elif of_write(code) is not Verdict.AGAIN:
                client.failed(error_of(code))
                return False
        client.failed(DeliveryTimeoutError())
        return False

    def commit(self, client: ClientTransaction, resolves: int = 2) -> None:
        """Commit. If the outcome stays unknown, perhaps call commit again to learn it, `resolves` times at most."""
        client.request(Event.COMMIT)
        if client.state is State.FLUSHING and client.ends_without_request():
            return
        self._end(True)
        if client.state is State.UNKNOWN_OUTCOME:
            assert isinstance(client.failure(), CommitOutcomeUnknownError)
            if resolves and self.choices.pick([("resolve", 0), ("leave", 1)]) == "resolve":
                self.commit(client, resolves - 1)

    def abort(self) -> None:
        client = self.client
        client.request(Event.ABORT)
        if not client.ends_without_request():
            self._end(False)

    def _end(self, commit: bool) -> None:
        client = self.client
        going = State.COMMITTING if commit else State.ABORTING
        for _ in range(ATTEMPTS):
            if client.needs_identity_to_abort():
                self.init()
                return
            pair = client.identity
            answer = self.ask("end", self.version, pair, commit)
            if answer is None:
                client.end_unanswered()
                continue
            if client.ended(*answer) not in (Verdict.AGAIN, Verdict.PERHAPS):
                self.open_commits.discard(pair)
            if client.state is not going:
                return
        if client.needs_identity_to_abort():
            self.init()
        else:
            client.gave_up(RequestTimedOutError())

    # ---- what has to hold ------------------------------------------------------------------------------------

    def check(self) -> None:
        """Let all late requests arrive and open transactions time out, and compare what readers see with the
        outcomes.
        """
        while self.held:
            self.broker.take(self.held.pop(0))
        self.broker.time_out()
        for outcome, writes in self.outcomes:
            counts = [self._count(write) for write in writes]
            if outcome == "committed":
                assert all(counts), f"committed, and not there: {writes} {counts}"
            elif outcome == "aborted":
                assert not any(counts), f"aborted, and there: {writes} {counts}"
            else:
                assert all(counts) or not any(counts), f"torn: {writes} {counts}"
        numbers = [number for number, _ in self.broker.visible(OFFSETS)]
        assert numbers == sorted(numbers), f"an offset of an older transaction counts: {numbers}"

    def _count(self, write: tuple) -> int:
        where = OFFSETS if write[1] == "offsets" else TopicPartition("t", write[1])
        found = self.broker.visible(where).count(write)
        assert found <= 1 or where is OFFSETS, f"{write} stands there {found} times"
        return found
