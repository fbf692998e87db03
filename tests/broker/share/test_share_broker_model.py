"""Share partitions of a broker, beside a model of single records, in random histories with resets, pruning and starts.

Requests are decided in steps, and snapshots of the coordinators are taken row by row; between these steps everything
else may happen. After each step the broker's state must equal the model's, and the state that a start would restore.

There is one rule, which draws the next step by its weight. With a rule for each kind of step, hypothesis drew them
evenly: in twenty histories nothing was acknowledged, because no member had acquired records for long.
"""

import random
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple
from unittest import mock

import pytest
from fencepost.broker.config.settings import BrokerSettings
from fencepost.broker.handlers.share_transactions import _acknowledge
from fencepost.broker.share import acknowledging, logged, portions, state_log
from fencepost.broker.share.values import AckRange, AckType, Found, SharePartitionKey, State, Wanted
from fencepost.protocol.errors import ErrorCode, KafkaError
from fencepost.protocol.messages.share_transactions import TxnShareAcknowledgeRequest
from fencepost.protocol.messages.topics import DeleteRecordsRequest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from offset_requests import Producer
from produce_requests import batch, create, produce
from share_lives import positions, replayed, view
from share_records import Ack, ShareRecords
from share_transactions import begin
from simulated_broker import SimulatedBroker

LIMIT, RECORDS, PARTITIONS = 5, 60, 2
MEMBERS, IDS = st.sampled_from("ab"), st.sampled_from(("x", "y"))
KINDS = (AckType.GAP, AckType.ACCEPT, AckType.ACCEPT, AckType.RELEASE, AckType.REJECT, AckType.RENEW)
DECISIONS = (AckType.ACCEPT, AckType.REJECT)
MANY = 1_000  # more steps than any request has left
INDEXES = st.integers(0, PARTITIONS - 1)

STEPS: dict[str, tuple[int, dict[str, st.SearchStrategy[Any]]]] = {
    "acquire": (
        4,
        {
            "index": INDEXES,
            "member": MEMBERS,
            "most": st.integers(5, 30),
            "size": st.integers(1, 4),
            "no_data": st.integers(0, 30),
        },
    ),
    "begin_to_acknowledge": (
        6,
        {
            "member": MEMBERS,
            "txn": st.none() | IDS,
            "chance": st.randoms(use_true_random=False),
            "at_once": st.booleans(),
        },
    ),
    "go_on_with_a_request": (4, {"steps": st.sampled_from((1, 2, MANY)), "number": st.integers(0, 9)}),
    "end_transaction": (3, {"txn": IDS, "commit": st.booleans()}),
    "end_session": (1, {"member": MEMBERS}),
    "end_locks": (1, {"index": INDEXES, "member": MEMBERS}),
    "delete_records": (1, {"index": INDEXES, "more": st.integers(1, 9)}),
    "reset": (1, {"index": INDEXES, "offset": st.integers(0, RECORDS // 2)}),
    "write_snapshots_and_prune": (1, {}),
    "wait": (1, {"seconds": st.sampled_from((0.001, 0.05, 0.5))}),
    "take_rows": (3, {"rows": st.integers(1, 3)}),
    "start_again": (1, {"power": st.booleans()}),
}
"""The kinds of steps: the weight of each, and how its arguments are drawn."""
RARE = [name for name, (weight, _) in STEPS.items() if weight == 1]


class Flight(NamedTuple):
    """A request that is being decided. seen: by share partition, the answers that the model gave at each moment."""

    member: str
    producer: Producer | None
    who: dict[str, Any]
    acks: dict[SharePartitionKey, list[Ack]]
    acknowledging: Any
    steps: Iterator[int]
    seen: dict[SharePartitionKey, set[ErrorCode]]


class ShareBroker(RuleBasedStateMachine):
    @initialize(updates=st.sampled_from((0, 3, 20, 500)), never=st.sets(st.sampled_from(RARE)))
    def start(self, updates: int, never: set[str]) -> None:
        """never: the kinds of steps that this history leaves out, so that the effects of others last longer."""
        self.names = [name for name, (weight, _) in STEPS.items() if name not in never for _ in range(weight)]
        self.world = SimulatedBroker(
            BrokerSettings(
                share_coordinator_state_topic_num_partitions=2,
                share_coordinator_snapshot_update_records_per_snapshot=updates,
            )
        )
        self.world.ask(create("t", PARTITIONS))
        self.keys = begin(self.world, "t", partitions=PARTITIONS)
        for index in range(PARTITIONS):
            self.world.ask(produce("t", batch(RECORDS), partition=index), 9)
        self.models = {key: ShareRecords(LIMIT) for key in self.keys}
        self.producers: dict[str, Producer] = {}
        self.flights: list[Flight] = []
        self.taken: list[tuple[list[Any], dict[int, int]]] = []
        self.taking: tuple[list[Any], dict[int, int], Iterator[Any]] | None = None

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.wait(0.2)
            self.world.abandon()

    @property
    def shares(self) -> Any:
        return self.world.broker.share_partitions

    def machine(self, key: SharePartitionKey) -> Any:
        return self.shares.state_log.known[key].machine

    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        possible = [name for name in self.names if self._is_possible(name)]
        name = data.draw(st.sampled_from(possible), label="step")
        arguments = {key: data.draw(strategy, label=key) for key, strategy in STEPS[name][1].items()}
        getattr(self, name)(**arguments)

    def _is_possible(self, name: str) -> bool:
        if name == "begin_to_acknowledge":
            return any(one.state == "L" for each in self.models.values() for one in each.records.values())
        if name == "go_on_with_a_request":
            return bool(self.flights)
        return name != "end_transaction" or any(model.is_pending() for model in self.models.values())

    # ---- fetches and acknowledgements ------------------------------------------------------------------------

    def acquire(self, index: int, member: str, most: int, size: int, no_data: int) -> None:
        """Acquire `most` records at most from batches of `size` records. Batch number `no_data` has no data, only
        offsets that are archived.
        """
        key, model = self.keys[index], self.models[self.keys[index]]
        offset = self.shares.next_offset(key)
        firsts = range(offset - offset % size, RECORDS, size)[:10]
        found = [Found(at, min(RECORDS, at + size) - 1, number != no_data) for number, at in enumerate(firsts)]
        given = self.shares.acquire(key, member, offset, found, Wanted(most, size))
        machine = self.machine(key)
        for each in found:
            for at in range(each.first, each.last + 1) if not each.is_data else ():
                if at < machine.start or ((run := machine.runs.at(at)) and run[2].state == 4):
                    model.archive(at)
        for first, last, deliveries in given:
            model.acquire(first, last, deliveries, member)
        model.advance()

    def begin_to_acknowledge(self, member: str, txn: str | None, chance: random.Random, at_once: bool) -> None:
        """Begin a request that acknowledges records of this member; of the other if this has acquired none."""
        if not any(model.held_by(member) for model in self.models.values()):
            member = next(each for each in "ab" if each != member)
        acks: dict[SharePartitionKey, list[Ack]] = {}
        for key, model in self.models.items():
            density = chance.choice((0, 0.2, 0.2, 0.7))
            chosen = {at for at in model.held_by(member) if chance.random() < density}
            if chance.random() < 0.05:
                chosen.add(chance.randrange(RECORDS))
            if chosen:
                acks[key] = [(at, at, chance.choice(DECISIONS if txn else KINDS)) for at in sorted(chosen)]
        if not acks:
            return
        asked = {key[1:]: [AckRange(first, last, [kind]) for first, last, kind in of] for key, of in acks.items()}
        producer, who = None, dict[str, Any]()
        if txn is None:
            deciding = self.shares.begin_acknowledging("g", member, asked)
        else:
            producer = self.producers.setdefault(txn, None) or Producer(self.world, txn, tv=2)  # type: ignore[arg-type]
            self.producers[txn], who = producer, producer.who
            deciding = self.shares.begin_acknowledging_in_transaction("g", member, producer.producer_id, asked)
        flight = Flight(member, producer, who, acks, deciding, deciding.decide_ahead(), {})
        self.flights.append(flight)
        if at_once:
            self.look_at_requests()
            self._go_on(flight, MANY)

    @invariant()
    def look_at_requests(self) -> None:
        for flight in getattr(self, "flights", ()):
            for key, acks in flight.acks.items():
                error = self.models[key].judge(flight.member, acks, flight.producer is not None)
                flight.seen.setdefault(key, set()).add(error)

    def go_on_with_a_request(self, steps: int, number: int) -> None:
        self._go_on(self.flights[number % len(self.flights)], steps)

    def _go_on(self, flight: Flight, steps: int) -> None:
        for _ in range(steps):
            if next(flight.steps, None) is None:
                self.flights.remove(flight)
                self._finish(flight) if flight.producer is None else self._finish_in_transaction(
                    flight, flight.producer
                )
                break

    def _finish(self, flight: Flight) -> None:
        answers = self.shares.finish(flight.acknowledging)
        for key, acks in flight.acks.items():
            if answers[key[1:]] is None:
                assert self.models[key].judge(flight.member, acks, False) is ErrorCode.NONE
                self.models[key].acknowledge(acks)
            else:
                assert flight.seen[key] - {ErrorCode.NONE}

    def _finish_in_transaction(self, flight: Flight, producer: Producer) -> None:
        request = TxnShareAcknowledgeRequest(**flight.who, group_id="g", member_id=flight.member, topics=[])
        asked = {key[1:]: [] for key in flight.acks}
        try:
            wrong = _acknowledge(self.world.broker, request, asked, flight.acknowledging)  # type: ignore[arg-type]
        except KafkaError:  # fenced
            assert flight.who != producer.who, "only what comes after the end of its transaction is fenced"
            return
        assert flight.who == producer.who
        for key, acks in flight.acks.items():
            if wrong:
                assert key[1:] not in wrong or flight.seen[key] - {ErrorCode.NONE}
            else:
                assert self.models[key].judge(flight.member, acks, True) is ErrorCode.NONE
                self.models[key].acknowledge_in(producer.transactional_id, acks)

    def end_transaction(self, txn: str, commit: bool) -> None:
        """End this transaction, or the other one if this one has nothing pending."""
        if not any(model.is_pending(txn) for model in self.models.values()):
            txn = next(each for each in "xy" if each != txn)
        self.producers[txn].end(commit)
        for model in self.models.values():
            model.settle(txn, commit)

    # ---- other ends of acquisitions ------------------------------------------------------------------------

    def end_session(self, member: str) -> None:
        self.shares.begin_release("g", member, [key[1:] for key in self.keys])
        for _ in self.shares.finish_release("g", member):
            pass
        for model in self.models.values():
            model.release_all(member)

    def end_locks(self, index: int, member: str) -> None:
        key, now_ms = self.keys[index], self.world.broker.clock.monotonic_ms()
        machine = self.machine(key)
        held = [run for run in machine.runs if run[2].state is State.ACQUIRED and run[2].member == member]
        machine.end_locks(held, now_ms)
        self.shares.locks._due[key] = None
        while self.shares.locks._due:
            self.shares.locks._take_step_of_due()
        self.models[key].release_all(member)

    def delete_records(self, index: int, more: int) -> None:
        key, offset = self.keys[index], min(RECORDS, self.models[self.keys[index]].start + more)
        part = DeleteRecordsRequest.Topic.Partition(partition_index=index, offset=offset)
        topic = DeleteRecordsRequest.Topic(name="t", partitions=[part])
        self.world.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=1_000))
        self._log_begins(key)

    def _log_begins(self, key: SharePartitionKey) -> None:
        self.shares.next_offset(key)  # moves the window up to the log start offset
        self.models[key].begin_at(self.world.broker.topics.by_name["t"].partitions[key.partition].log.start_offset)

    def reset(self, index: int, offset: int) -> None:
        key = self.keys[index]
        if self.models[key].is_pending():
            with pytest.raises(KafkaError, match="pending"):
                self.shares.alter("g", {key[1:]: offset})
            return
        unit = self.shares.alter("g", {key[1:]: offset})
        self.shares.state_log.topic.commit(unit.parts)
        unit.apply()
        self.models[key].reset(offset)
        self._log_begins(key)

    # ---- the log -------------------------------------------------------------------------------------------

    def write_snapshots_and_prune(self) -> None:
        log = self.shares.state_log
        log.write_snapshots(self.keys)
        self.world.wait(0.05)
        for home, keys in log._by_home().items():
            log.prune(home, keys)

    def wait(self, seconds: float) -> None:
        self.world.wait(seconds)

    def take_rows(self, rows: int) -> None:
        """Take the next rows of a snapshot of the coordinators, and keep the snapshot once it has all rows."""
        if self.taking is None:
            self.taking = [], positions(self.world), self.shares.state_log.rows()
        found, since, rest = self.taking
        for _ in range(rows):
            row = next(rest, None)
            if row is None:
                self.taken, self.taking = [*self.taken[-2:], (found, since)], None
                return
            found.append(row)

    def start_again(self, power: bool) -> None:
        self.world.wait(0.2)
        self.flights, self.taking = [], None
        live = view(self.shares.state_log)
        self.world = self.world.after_power_cut() if power else self.world.again()
        assert view(self.shares.state_log) == live or not power
        for producer in self.producers.values():
            producer.asked = self.world
        for key, model in self.models.items():
            model.restart(self.machine(key).end)
            self._log_begins(key)

    @invariant()
    def the_broker_and_the_model_agree(self) -> None:
        for key, model in getattr(self, "models", {}).items():
            assert model.differences(self.machine(key)) == []

    @invariant()
    def a_start_would_know_the_same(self) -> None:
        if hasattr(self, "world"):
            live = view(self.shares.state_log)
            assert replayed(self.world) == live
            for rows, since in self.taken:
                assert replayed(self.world, rows, since) == live


def check(examples: int, steps: int) -> None:
    with ExitStack() as stack:
        small = {"LEAST_BYTES": 400, "PRUNE_AFTER_BYTES": 3_000, "COLD_BYTES": 2_000}
        stack.enter_context(mock.patch.multiple(state_log, **small))
        stack.enter_context(mock.patch.object(logged, "RUNS", 4))
        for module in (portions, acknowledging):
            stack.enter_context(mock.patch.object(module, "RUNS", 3))
        run_state_machine_as_test(  # type: ignore[no-untyped-call]
            ShareBroker,
            settings=settings(
                max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=list(HealthCheck)
            ),
        )


@pytest.mark.slow
def test_share_partitions_agree_with_a_model_of_single_records() -> None:
    check(examples=3, steps=60)


@pytest.mark.long
def test_share_partitions_agree_with_a_model_of_single_records_in_many_histories() -> None:
    check(examples=1_000, steps=100)
