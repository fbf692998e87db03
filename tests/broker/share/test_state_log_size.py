"""How many bytes the log of share states takes: for one request, and in all, however much is acknowledged."""

from collections.abc import Iterator, Sequence

import pytest
from fencepost.broker.config.settings import BrokerSettings
from fencepost.broker.share import state_log
from fencepost.broker.share.values import AckRange, AcquiredRange
from share_acknowledging import acknowledge_now
from share_transactions import ShareWorker, begin
from simulated_broker import SimulatedBroker

MIB = 1 << 20
FOR_EVER_MS = 1 << 60


class Log:
    """The log of the state of one share partition."""

    def __init__(self, world: SimulatedBroker, group: str = "eight_ch") -> None:
        self.world = world
        world.broker.topics.create("orders", 1)
        (self.key,) = begin(world, "orders", group)
        self.shares = world.broker.share_partitions
        self.log = self.shares.state_log.topic.log(0)
        self.machine = self.shares.state_log.known[self.key].machine

    @property
    def size_bytes(self) -> int:
        return int(self.log.size_bytes)

    def acquire(self, first: int, count: int) -> None:
        self.machine.acquire([AcquiredRange(first, first + count - 1, 1)], "m", FOR_EVER_MS)

    def acknowledge(self, first: int, count: int, kinds: Sequence[int] = (1,)) -> None:
        acks = [AckRange(first, first + count - 1, [kinds[each % len(kinds)] for each in range(count)])]
        if len(kinds) == 1:
            acks = [AckRange(first, first + count - 1, kinds)]
        self.acquire(first, count)
        assert acknowledge_now(self.shares, self.key.group, "m", {self.key[1:]: acks}) == {self.key[1:]: None}


SETTINGS = BrokerSettings(
    share_coordinator_state_topic_num_partitions=1, share_coordinator_state_topic_segment_bytes=MIB
)


@pytest.fixture
def log() -> Iterator[Log]:
    with SimulatedBroker(SETTINGS) as world:
        yield Log(world)


@pytest.mark.parametrize("ranges", [1, 2, 50])
def test_logging_an_acknowledgement_takes_up_to_160_bytes_plus_20_per_further_range(log: Log, ranges: int) -> None:
    before = log.size_bytes
    log.acknowledge(0, ranges, (1, 3) if ranges > 1 else (1,))
    assert 100 < log.size_bytes - before <= 160 + 20 * (ranges - 1)


def test_logging_a_transactional_acknowledgement_adds_at_most_5_bytes_per_range(log: Log) -> None:
    worker = ShareWorker(log.world)
    log.acquire(0, 100)
    before = log.size_bytes
    assert worker.acknowledge(*((log.key, offset, offset) for offset in range(0, 100, 2))) == [0]
    assert log.size_bytes - before <= 160 + (20 + 5) * 50


@pytest.mark.slow
def test_the_share_state_log_stays_below_2_mib_under_many_acknowledgements(monkeypatch: pytest.MonkeyPatch) -> None:
    """The group has a long name, which is in each record, so that few records make a long log."""
    monkeypatch.setattr(state_log, "PRUNE_AFTER_BYTES", MIB // 8)
    with SimulatedBroker(SETTINGS) as world:
        log, most, logged = Log(world, "g" * 4_000), 0, 0
        for number in range(1_000):
            before = log.size_bytes
            log.acknowledge(number, 1)
            logged += max(0, log.size_bytes - before)
            if not number % 20:
                world.wait(0.5)
                most = max(most, log.size_bytes)
        assert logged > 3 * MIB  # written in all; most of it was pruned again
        assert most < 2 * MIB


@pytest.mark.slow
def test_the_share_state_log_stays_short_under_transactional_acknowledgements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_log, "PRUNE_AFTER_BYTES", MIB // 8)
    with SimulatedBroker(SETTINGS) as world:
        log, most, logged = Log(world, "g" * 4_000), 0, 0
        worker = ShareWorker(world)
        for number in range(400):
            before = log.size_bytes
            for commit in (True,) if number % 5 else (False, True):
                log.acquire(2 * number, 2)
                for offset in (2 * number, 2 * number + 1):
                    assert worker.acknowledge((log.key, offset, offset)) == [0]
                worker.end(commit)
            logged += max(0, log.size_bytes - before)
            if not number % 20:
                world.wait(0.5)
                most = max(most, log.size_bytes)
        assert log.machine.start == 800
        assert logged > 3 * MIB  # written in all; most of it was pruned again
        assert most < 2 * MIB


@pytest.mark.long
def test_ten_million_acknowledgements_leave_at_most_8_mib_of_share_state_log() -> None:
    with SimulatedBroker(BrokerSettings(share_coordinator_state_topic_num_partitions=1)) as world:
        log, most = Log(world), 0
        for number in range(200_000):
            log.acknowledge(50 * number, 50)
            if not number % 1_000:
                world.wait(5)
                most = max(most, log.size_bytes)
        assert log.machine.start == 10_000_000
        assert most <= 8 * MIB


@pytest.mark.long
def test_ten_million_transactional_acknowledgements_leave_at_most_8_mib_of_log() -> None:
    with SimulatedBroker(BrokerSettings(share_coordinator_state_topic_num_partitions=1)) as world:
        log, most = Log(world), 0
        worker = ShareWorker(world)
        for number in range(20_000):
            at = 500 * number
            log.acquire(at, 500)
            for first in range(at, at + 500, 50):
                assert worker.acknowledge((log.key, first, first + 49)) == [0]
            worker.end(commit=True)
            if not number % 100:
                world.wait(5)
                most = max(most, log.size_bytes)
        assert log.machine.start == 10_000_000
        assert most <= 8 * MIB
