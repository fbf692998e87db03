"""How long requests take: counted by turns and rounds, with a clock that the test sets."""

from dataclasses import dataclass

import pytest
from fencepost.broker.metrics import Metrics
from fencepost.broker.requests.request_times import RequestTimes
from fencepost.protocol.messages.cluster import MetadataRequest
from fencepost.protocol.messages.monitoring import DescribeMetricsRequest
from produce_requests import batch, create, fetch, produce
from simulated_broker import SimulatedBroker
from simulated_client import SimulatedClient
from txn_client import Txn

PRODUCE, FETCH, METADATA, END_TXN = 0, 1, 3, 26


@dataclass
class Units:
    last_unit: int = 0
    released_unit: int = 0


class Turns:
    """The RequestTimes of one broker, told of turns and rounds as Rounds tells it."""

    def __init__(self) -> None:
        self.metrics, self.units, self.now = Metrics(), Units(), 0
        self.times = RequestTimes(self.metrics, self.units, lambda: self.now)

    def found(self, place: int) -> tuple[int, int]:
        """Return how many requests were counted in this histogram, and the sum of their times."""
        histogram = self.metrics.request_ns.get(place)
        return (0, 0) if histogram is None else (sum(histogram.counts), histogram.total)

    def turn(self, *, writes: bool = False, flies: bool = False) -> None:
        """End a turn. writes: its units are taken into a round. flies: an earlier round is still being written."""
        self.times.end_turn(writes or flies)
        if writes and not flies:
            self.times.begin_round()
        self.times.count_answers()

    def released(self, *, is_last: bool = True) -> None:
        self.units.released_unit = self.units.last_unit
        self.times.end_round(is_last)


@pytest.fixture
def turns() -> Turns:
    return Turns()


def test_an_answer_that_waits_for_nothing_is_timed_to_the_end_of_its_turn(turns: Turns) -> None:
    turns.times.begin_turn()
    assert turns.times.note_answer(METADATA, False) == 0
    turns.times.note_answer(METADATA, False)
    turns.now = 7
    turns.turn()
    assert turns.found(METADATA) == (2, 14)


def test_an_answer_that_waits_is_timed_to_the_release_of_its_journal_round(turns: Turns) -> None:
    turns.units.last_unit = 5
    turns.times.begin_turn()
    assert turns.times.note_answer(END_TXN, True) == 5
    turns.metrics.fast_requests[PRODUCE] += 3
    turns.turn(writes=True)
    assert turns.found(END_TXN) == turns.found(PRODUCE) == (0, 0)
    turns.now = 10
    turns.released()
    assert (turns.found(END_TXN), turns.found(PRODUCE)) == ((1, 10), (3, 30))


def test_requests_that_arrive_while_a_round_is_written_end_with_the_next_round(turns: Turns) -> None:
    turns.units.last_unit = 1
    turns.times.begin_turn()
    turns.metrics.fast_requests[PRODUCE] += 1
    turns.turn(writes=True)
    turns.now = 4
    turns.times.begin_turn()
    turns.units.last_unit = 2
    turns.metrics.fast_requests[PRODUCE] += 1
    turns.turn(flies=True)
    turns.now = 6
    turns.released(is_last=False)
    assert turns.found(PRODUCE) == (1, 6)
    turns.times.begin_turn()
    turns.turn(writes=True)
    turns.now = 9
    turns.released()
    assert turns.found(PRODUCE) == (2, 6 + 5)


def test_an_answer_that_waits_for_a_journal_unit_in_flight_is_timed_to_its_release(turns: Turns) -> None:
    turns.units.last_unit = 1
    turns.times.begin_turn()
    turns.metrics.fast_requests[PRODUCE] += 1
    turns.turn(writes=True)
    turns.now = 2
    turns.times.begin_turn()
    turns.times.note_answer(END_TXN, True)  # wrote nothing itself
    turns.turn(flies=True)
    turns.now = 5
    turns.released()
    assert (turns.found(PRODUCE), turns.found(END_TXN)) == ((1, 5), (1, 3))


def test_a_postponed_request_is_timed_from_its_first_attempt(turns: Turns) -> None:
    turns.now = 100
    assert turns.times.note_late_answer(FETCH, False, 40) == 0
    turns.units.last_unit = 1
    assert turns.times.note_late_answer(END_TXN, True, 70) == 1
    turns.times.begin_turn()
    turns.turn(writes=True)
    turns.now = 130
    turns.released()
    assert (turns.found(FETCH), turns.found(END_TXN)) == ((1, 60), (1, 60))


def test_every_request_is_counted_once_in_the_durations() -> None:
    with SimulatedBroker() as broker:
        broker.ask(create("t"))
        client = SimulatedClient(broker)
        for _ in range(20):
            client.ask(produce("t", batch()))
            client.ask(MetadataRequest(topics=None), 9)
        client.ask(fetch("t", 10_000, max_wait_ms=500))  # beyond the end: it waits
        for version in (1, 2):
            txn = Txn(broker, f"x{version}", version)
            txn.init()
            for _ in range(5):
                txn.write("t", b"v")
                txn.end(True)
        metrics = broker.broker.metrics
        families = {each.name: each for each in broker.ask(DescribeMetricsRequest()).families}
        durations = {
            each.labels[0]: each.buckets[-1].count for each in families["fencepost_request_duration_seconds"].samples
        }
        counts = {each.labels[0]: each.value for each in families["fencepost_requests_total"].samples}
        del counts["DescribeMetrics"]  # the answer in which it stands has not left
        assert counts == durations
        assert metrics.fast_requests[PRODUCE] > 20
        assert sum(metrics.request_ns[FETCH].counts) == 1
