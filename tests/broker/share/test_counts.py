"""The counts of share groups, which count each record once, and the metrics that show them."""

import pytest
from fencepost.broker.metrics import AT_THE_LIMIT, NO_DATA, REJECTED, Metrics
from fencepost.broker.share.counts import count_acknowledged, count_released
from fencepost.broker.share.values import AckRange, AckType, Found, SharePartitionKey, State, StateBatch, Wanted
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.monitoring import DescribeMetricsRequest
from share_acknowledging import acknowledge_now
from share_transactions import ShareWorker, acquire, begin
from simulated_broker import SimulatedBroker

GAP, ACCEPT, RELEASE, REJECT, RENEW = AckType


def batch(first: int, last: int, state: State) -> StateBatch:
    return StateBatch(first, last, state, 1)


def test_metrics_count_share_records_by_acknowledgement_type() -> None:
    counts = Metrics()
    count_acknowledged(counts, {ACCEPT: 11, RELEASE: 1, REJECT: 1, GAP: 1, RENEW: 1}, archived=2)
    assert counts.share_acknowledged == {"gap": 1, "accept": 11, "release": 1, "reject": 1, "renew": 1}
    assert counts.share_archived == {REJECTED: 1, NO_DATA: 1, AT_THE_LIMIT: 0}


def test_records_released_at_the_delivery_limit_are_counted_as_archived_at_the_limit() -> None:
    counts = Metrics()
    count_acknowledged(counts, {RELEASE: 5}, archived=5)
    count_released(counts, [batch(5, 6, State.ARCHIVED), batch(7, 9, State.AVAILABLE)], timed_out=True)
    count_released(counts, [batch(10, 10, State.ARCHIVED)], timed_out=False)
    assert (counts.share_archived[AT_THE_LIMIT], counts.share_locks_timed_out) == (8, 5)


def test_of_rejected_records_only_those_that_were_archived_are_counted_as_archived() -> None:
    counts = Metrics()
    count_acknowledged(counts, {REJECT: 10}, archived=2)
    assert counts.share_archived == {REJECTED: 2, NO_DATA: 0, AT_THE_LIMIT: 0}


@pytest.fixture
def broker():
    with SimulatedBroker() as broker:
        yield broker


def metrics(broker: SimulatedBroker) -> dict[tuple[str, ...], float]:
    return {
        (family.name.removeprefix("fencepost_share_"), *sample.labels): sample.value
        for family in broker.ask(DescribeMetricsRequest()).families
        if family.name.startswith("fencepost_share_")
        for sample in family.samples
        if sample.value
    }


def test_metrics_count_acknowledged_archived_in_flight_and_timed_out_share_records(broker: SimulatedBroker) -> None:
    shares, place = broker.broker.share_partitions, (broker.broker.topics.create("t", 1).id, 0)
    unit = shares.initialize("g", {place: 0})
    shares.state_log.topic.commit(unit.parts)
    unit.apply()
    assert metrics(broker) == {}
    found = [Found(0, 9), Found(10, 10, is_data=False), Found(11, 19)]
    shares.acquire(SharePartitionKey("g", *place), "me", 0, found, Wanted(500, 500))
    refused = acknowledge_now(shares, "g", "me", {place: [AckRange(10, 10, [ACCEPT])]})
    assert refused[place] is not None
    assert acknowledge_now(shares, "g", "me", {place: [AckRange(1, 5, [ACCEPT]), AckRange(6, 6, [REJECT])]}) == {
        place: None
    }
    assert metrics(broker) == {
        ("acknowledgements_total", "accept"): 5,
        ("acknowledgements_total", "reject"): 1,
        ("archived_total", REJECTED): 1,
        ("archived_total", NO_DATA): 1,
        ("in_flight_records",): 20,
        ("in_flight_runs",): 6,
    }
    broker.wait(31)
    assert metrics(broker)["lock_timeouts_total",] == 13  # the acquired records that were not acknowledged


def test_metrics_show_how_many_share_records_are_pending_and_since_when(broker: SimulatedBroker) -> None:
    broker.broker.topics.create("t", 2)
    first, second = begin(broker, "t", partitions=2)
    worker = ShareWorker(broker)
    for key in (first, second):
        acquire(broker, key, 0, 9)
    assert worker.acknowledge((first, 0, 4), (second, 7, 7)) == [0, 0]
    broker.wait(5)
    found = metrics(broker)
    assert found["pending_records",] == 6
    assert found["pending_oldest_seconds",] == pytest.approx(5, abs=1)
    worker.end(commit=True)
    assert not {name for name in metrics(broker) if name[0].startswith("pending")}


@pytest.mark.parametrize("commit", [True, False])
def test_metrics_count_transactional_acknowledgements_and_records_a_commit_archives(
    broker: SimulatedBroker, commit: bool
) -> None:
    """An abort archives records at their delivery limit instead."""
    broker.broker.topics.create("t", 1)
    (key,) = begin(broker, "t")
    worker = ShareWorker(broker)
    for _ in range(4):  # of 5 deliveries
        for offset in (0, 1):
            acquire(broker, key, offset, offset)
        broker.broker.share_partitions.begin_release("g", "m", [(key.topic_id, 0)])
    for first, last in ((0, 0), (1, 1), (2, 5)):
        acquire(broker, key, first, last)
    assert worker.acknowledge((key, 0, 2)) == [0]
    assert worker.acknowledge((key, 3, 4), kind=REJECT) == [0]
    assert worker.acknowledge((key, 4, 5)) == [ErrorCode.INVALID_RECORD_STATE]
    found = metrics(broker)
    assert {name: found.get(("acknowledgements_total", name)) for name in ("accept", "reject")} == {
        "accept": 3,
        "reject": 2,
    }
    assert not any(name[0] == "archived_total" for name in found), "nothing is archived before the transaction ends"
    worker.end(commit=commit)
    found = metrics(broker)
    archived = {reason: found.get(("archived_total", reason)) for reason in (REJECTED, AT_THE_LIMIT)}
    assert archived == ({REJECTED: 2, AT_THE_LIMIT: None} if commit else {REJECTED: None, AT_THE_LIMIT: 2})
