"""Bugs that share groups had in Apache Kafka, kfake and Pulsar (by the numbers of their reports): none of them here.

A letter of states(): A available, L acquired, K acknowledged, X archived, P pending.
"""

import gc
import random
from collections.abc import Iterator
from functools import partial
from itertools import pairwise

import pytest
from fencepost.broker.config.settings import BrokerSettings
from fencepost.broker.requests.share.fetching import ShareFetching
from fencepost.broker.share.values import AckRange, AckType, AcquiredRange, State
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.share_offsets import AlterShareGroupOffsetsRequest
from produce_requests import batch, create, produce
from share_acknowledging import acknowledge_now
from share_client import ACCEPT, RELEASE, ShareClient, got, initialize
from share_driver import ShareDriver, durable_view
from share_transactions import ShareWorker, acquire, begin, states
from simulated_broker import SimulatedBroker

T = (0, 7)


def ack(first: int, last: int, kind: AckType) -> AckRange:
    return AckRange(first, last, [kind])


@pytest.fixture
def broker() -> Iterator[SimulatedBroker]:
    with SimulatedBroker(BrokerSettings(share_coordinator_state_topic_num_partitions=2)) as made:
        made.ask(create("t"))
        yield made


def fill(broker: SimulatedBroker, count: int, topic: str = "t") -> None:
    broker.ask(produce(topic, batch(count)))


# ---- the state of records --------------------------------------------------------------------------------------


def test_kafka_18084_19463_an_acknowledgement_that_is_not_logged_keeps_the_locks(broker: SimulatedBroker) -> None:
    """In Kafka, a failed write left records in transition: acknowledging hung, and the records were skipped."""
    (key,) = begin(broker, "t")
    acquire(broker, key, 0, 4)
    shares = broker.broker.share_partitions
    log = broker.broker.topics.by_name["__share_group_state"].partitions[shares.state_log.home(key)].log
    log.offline = "a test"
    refused = acknowledge_now(shares, "g", "m", {key[1:]: [ack(0, 2, AckType.ACCEPT)]})[key[1:]]
    assert refused is not None
    log.offline = None
    assert states(broker, key) == "0 LLLLL"
    assert shares.next_offset(key) == 5
    assert acknowledge_now(shares, "g", "m", {key[1:]: [ack(0, 2, AckType.ACCEPT)]}) == {key[1:]: None}
    assert states(broker, key) == "3 LL"


def test_kafka_19859_acknowledging_below_a_moved_log_start_keeps_the_start_offset() -> None:
    """In Kafka, the start offset was wrong after acknowledgements of records that were deleted meanwhile."""
    driver = ShareDriver()
    driver.acquire("me", (0, 5))
    driver.log_begins(3)
    driver.acknowledge("me", ack(0, 2, AckType.ACCEPT))
    assert (driver.machine.start, driver.states()) == (3, "LLL")
    driver.acknowledge("me", ack(2, 3, AckType.ACCEPT), ack(5, 5, AckType.ACCEPT))
    assert (driver.machine.start, driver.states()) == (4, "LK")
    assert durable_view(driver.replay()) == durable_view(driver.machine)


def test_kafka_19630_all_records_below_a_new_log_start_leave_the_window() -> None:
    """They leave in any state: available, acquired, acknowledged or pending. Kafka archives them by two methods with
    `||` between them, so the second one was skipped if the first had found something.
    """
    driver = ShareDriver()
    driver.acquire("me", (0, 9))
    driver.acknowledge("me", ack(1, 1, AckType.RELEASE), ack(3, 3, AckType.ACCEPT))
    driver.acknowledge_in(T, "me", ack(5, 5, AckType.ACCEPT))
    driver.log_begins(6)
    assert (driver.machine.start, driver.states(), driver.machine.transactions) == (6, "LLLL", [])
    assert durable_view(driver.replay()) == durable_view(driver.machine)


@pytest.mark.slow
def test_kafka_19954_and_19632_runs_do_not_overlap_after_a_replay() -> None:
    for seed in range(40):
        chance = random.Random(seed)
        driver = ShareDriver(limit=9)
        for _ in range(20):
            at = driver.machine.start + chance.randrange(6)
            driver.acquire("me", (at, at + 4), offset=at)
            theirs = [run for run in driver.machine.runs if run[2].state is State.ACQUIRED]
            driver.acknowledge("me", *(ack(*run[:2], chance.choice((ACCEPT, RELEASE))) for run in theirs[:2]))
            if chance.random() < 0.2:
                driver.snapshot()
        runs = list(driver.replay().runs)
        assert all(one[1] < other[0] for one, other in pairwise(runs))


def test_kafka_20034_23112_the_count_of_complete_records_survives_a_restart(broker: SimulatedBroker) -> None:
    """The lag is computed from this count. In Kafka it was wrong after a restart and after the log start had moved."""
    (key,) = begin(broker, "t")
    acquire(broker, key, 0, 9)
    shares = broker.broker.share_partitions
    acks = [ack(2, 4, AckType.ACCEPT), ack(6, 6, AckType.REJECT)]
    assert acknowledge_now(shares, "g", "m", {key[1:]: acks}) == {key[1:]: None}
    assert shares.describe(key)[::3] == (0, 4)  # (start offset, number of complete records in the window)
    shares.state_log.commit([(key, shares.state_log.known[key].machine.decide_start(4))])
    assert shares.describe(key)[::3] == (5, 1)
    broker.wait(1)
    with broker.after_power_cut() as later:
        assert later.broker.share_partitions.describe(key)[::3] == (5, 1)


@pytest.mark.slow
def test_kafka_23074_the_start_offset_of_a_share_partition_never_moves_back() -> None:
    for seed in range(20):
        chance = random.Random(seed)
        driver = ShareDriver(limit=3)
        start = 0
        for _ in range(40):
            at = driver.machine.next_offset
            driver.acquire("me", (at, at + chance.randrange(5)), offset=at)
            theirs = [run for run in driver.machine.runs if run[2].state is State.ACQUIRED]
            theirs = theirs[: chance.randrange(3)]
            driver.acknowledge("me", *(ack(*run[:2], chance.choice((1, 2, 3))) for run in theirs))
            chance.choice((driver.snapshot, driver.restart, partial(driver.release, "me")))()
            assert driver.machine.start >= start
            start = driver.machine.start


def test_kafka_21426_pruning_the_state_log_keeps_the_newest_snapshot(broker: SimulatedBroker) -> None:
    (key,) = begin(broker, "t")
    state_log = broker.broker.share_partitions.state_log
    home = state_log.home(key)
    acquire(broker, key, 0, 4)
    acknowledge_now(broker.broker.share_partitions, "g", "m", {key[1:]: [ack(0, 1, AckType.ACCEPT)]})
    state_log.write_snapshots([key])
    broker.wait(1)
    state_log.prune(home, [each for each in state_log.known if state_log.home(each) == home])
    assert state_log.topic.log(home).start_offset == state_log.known[key].snapshot_offset
    with broker.after_power_cut() as later:
        assert states(later, key) == "2"


# ---- members ---------------------------------------------------------------------------------------------------


def test_kafka_19485_the_first_share_fetch_of_a_session_may_not_acknowledge(broker: SimulatedBroker) -> None:
    initialize(broker, "t", 0)
    member = ShareClient(broker)
    fill(broker, 5)
    assert member.take(0) == [(0, 4, 1)]
    answer = member.client.ask(member.fetching(0, acks={0: [(0, 0, ACCEPT)]}, epoch=0), 2)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert member.states() == "LLLLL"


def test_kafka_20736_a_partition_forgotten_by_a_share_session_returns_no_records(broker: SimulatedBroker) -> None:
    initialize(broker, "t", 0)
    member = ShareClient(broker)
    fill(broker, 1)
    assert member.take(0) == [(0, 0, 1)]
    fill(broker, 1)
    assert got(member.fetch(forget=[0])) == {}
    assert member.states() == "L"


def test_kafka_20052_a_share_session_survives_the_deletion_of_one_of_its_topics(broker: SimulatedBroker) -> None:
    broker.ask(create("gone"))
    initialize(broker, "gone", 0)
    initialize(broker, "t", 0)
    member, gone = ShareClient(broker), broker.broker.topics.by_name["gone"]
    fill(broker, 1)
    member.fetch(0)
    member.fetch(0, topic_id=gone.id)
    broker.broker.topics.delete(gone)
    errors = {topic.topic_id: topic.partitions[0].error_code for topic in member.fetch().responses}
    assert errors == {gone.id: ErrorCode.UNKNOWN_TOPIC_ID}
    fill(broker, 1)
    assert member.take() == [(1, 1, 1)]


def test_kfake_20a5749a_a_recreated_topic_has_no_share_state_of_the_old_one(broker: SimulatedBroker) -> None:
    initialize(broker, "t", 0)
    fill(broker, 3)
    member = ShareClient(broker)
    member.take(0)
    assert member.acknowledge((0, 2, ACCEPT)) == 0
    broker.broker.topics.delete(broker.broker.topics.by_name["t"])
    broker.ask(create("t"))
    initialize(broker, "t", 0)
    fill(broker, 2)
    assert ShareClient(broker, member="n").take(0) == [(0, 1, 1)]


def test_kafka_19662_a_share_offset_can_be_set_for_a_topic_the_group_does_not_read(broker: SimulatedBroker) -> None:
    initialize(broker, "t", 0)
    broker.ask(create("other"))
    made = AlterShareGroupOffsetsRequest.Topic
    topic = made(topic_name="other", partitions=[made.Partition(partition_index=0, start_offset=0)])
    answer = broker.ask(AlterShareGroupOffsetsRequest(group_id="g", topics=[topic]))
    assert (answer.error_code, answer.responses[0].partitions[0].error_code) == (0, 0)


def test_kafka_20330_an_acknowledgement_after_a_restart_gets_session_not_found(
    broker: SimulatedBroker,
) -> None:
    initialize(broker, "t", 0)
    fill(broker, 3)
    member = ShareClient(broker)
    assert member.take(0) == [(0, 2, 1)]
    with broker.after_power_cut() as later:
        again = ShareClient(later)
        again.epoch = member.epoch
        assert again.acknowledge((0, 2, ACCEPT)) == ErrorCode.SHARE_SESSION_NOT_FOUND
        again.epoch = 0
        assert again.take(0) == [(0, 2, 1)]


def test_kafka_19389_an_answered_share_fetch_is_freed_at_once(broker: SimulatedBroker) -> None:
    """It is freed before its max_wait_ms is over, and without the garbage collector. In Kafka, fetches that were
    answered kept their records in memory.
    """
    initialize(broker, "t", 0)
    member = ShareClient(broker)
    gc.collect()
    gc.disable()
    try:
        fill(broker, 3)
        assert member.take(0, max_wait_ms=60_000) == [(0, 2, 1)]  # is answered at once
        assert member.take(max_wait_ms=0) == []
        assert member.take(max_wait_ms=1_000) == []  # waits until that is over
        member.client.send(member.fetching(max_wait_ms=60_000), 2)
        assert member.client.quiet(1)
        fill(broker, 3)
        assert got(member.client.receive())[0].ranges == [(3, 5, 1)]
        assert [each for each in gc.get_objects() if isinstance(each, ShareFetching)] == []
    finally:
        gc.enable()


# ---- transactions ----------------------------------------------------------------------------------------------


def test_pulsar_19451_records_pending_in_a_transaction_are_not_delivered(broker: SimulatedBroker) -> None:
    (key,) = begin(broker, "t")
    worker = ShareWorker(broker)
    acquire(broker, key, 0, 4)
    assert worker.acknowledge((key, 1, 3)) == [0]
    broker.wait(60)
    assert acquire(broker, key, 0, 6, "other") == [
        AcquiredRange(0, 0, 2),
        AcquiredRange(4, 4, 2),
        AcquiredRange(5, 6, 1),
    ]


def test_pulsar_14371_an_abort_makes_all_its_acknowledged_records_available_again(broker: SimulatedBroker) -> None:
    (key,) = begin(broker, "t")
    worker = ShareWorker(broker)
    acquire(broker, key, 0, 99)
    for first in range(0, 99, 3):
        assert worker.acknowledge((key, first, first + 1)) == [0]
    worker.end(commit=False)
    broker.wait(60)
    again = acquire(broker, key, 0, 99, "other")
    assert sum(last - first + 1 for first, last, _ in again) == 100


def test_pulsar_14889_a_share_member_reads_past_records_pending_in_a_transaction(broker: SimulatedBroker) -> None:
    initialize(broker, "t", 0)
    fill(broker, 5)
    member = ShareClient(broker)
    assert member.take(0) == [(0, 4, 1)]
    worker = ShareWorker(broker)
    key = next(iter(broker.broker.share_partitions.state_log.known))
    assert worker.acknowledge((key, 0, 4)) == [0]
    others = [ShareClient(broker, member=name) for name in "abc"]
    for number, other in enumerate(others):
        fill(broker, 1)
        assert other.take(0) == [(5 + number, 5 + number, 1)]
