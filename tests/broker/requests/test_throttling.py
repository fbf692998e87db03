"""Clients over their quotas, through a whole broker in virtual time: who waits, for how long, and who does not."""

from typing import Any

import pytest
from fencepost.broker.quotas import limits
from fencepost.broker.quotas.entities import LONGEST_NAME, REQUEST_PERCENTAGE, entity_of
from fencepost.broker.quotas.limits import Measures
from fencepost.broker.quotas.mutes import LOOKED_AT_AFTER_MS
from fencepost.broker.quotas.quota_records import quota_set
from fencepost.effects.simulated.loop import LoopClock
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.cluster import ApiVersionsRequest, MetadataRequest
from fencepost.protocol.messages.topics import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest
from fencepost.protocol.messages.transactions import InitProducerIdRequest
from login_client import add_users, asking, log_in
from produce_requests import answers, batch, bytes_of, create, fetch, fetched, idempotent, produce
from quota_client import altering, entry, set_quota
from simulated_broker import SimulatedBroker
from simulated_client import SimulatedClient
from txn_client import Txn

OK, EXCEEDED = ErrorCode.NONE, ErrorCode.THROTTLING_QUOTA_EXCEEDED
KB = b"v" * 1000


@pytest.fixture
def broker() -> Any:
    with SimulatedBroker() as running:
        running.ask(create("t", 2))
        yield running
        assert not running.broker.metrics.failures


def now_ms(broker: SimulatedBroker) -> int:
    return broker.broker.clock.monotonic_ms()


def produced(client: SimulatedClient, value: bytes = KB, **more: Any) -> int:
    """Produce a batch, which is accepted. Return the throttle time."""
    response = client.ask(produce("t", batch(value=value, timestamp=client.broker.broker.clock.now_ms()), **more))
    assert [code for code, _ in answers(response)] == [OK]
    return int(response.throttle_time_ms)


# ---- Produce -------------------------------------------------------------------------------------------------


def test_a_client_over_its_quota_is_answered_and_then_muted(broker: SimulatedBroker) -> None:
    set_quota(broker, "client-id=fast", producer_byte_rate=1000)
    fast, other = SimulatedClient(broker, "fast"), SimulatedClient(broker, "other")
    begun = now_ms(broker)
    reported = produced(fast, b"v" * 19_900)
    assert now_ms(broker) - begun < 100, "the answer itself does not wait"
    assert reported == pytest.approx(10_000, rel=0.02), "20 KB in 10 s are 2 KB/s, twice the quota"
    assert produced(other, b"v" * 19_900) == 0
    fast.send(ApiVersionsRequest())
    assert fast.quiet(reported / 1000 - 0.2)
    fast.receive()
    assert now_ms(broker) - begun == pytest.approx(reported, abs=60)


@pytest.mark.slow
def test_a_client_sending_twenty_times_its_quota_is_slowed_to_the_quota(broker: SimulatedBroker) -> None:
    set_quota(broker, "client-id=fast", producer_byte_rate=5_000)
    fast, other = SimulatedClient(broker, "fast"), SimulatedClient(broker, "other")
    sent, longest, begun = 0, 0, now_ms(broker)
    request = produce("t", batch(value=KB))
    size = len(fast.encoded(request)[2]) - 4
    fast.send(request)
    waiting = True
    while now_ms(broker) - begun < 300_000:
        broker.wait(0.01)  # a request each 10 ms is 100 KB/s
        if waiting and fast.line.received:
            fast.receive()
            sent, waiting = sent + size, False
        if not waiting:
            fast.send(request)
            waiting = True
        if (now_ms(broker) - begun) % 1000 < 10:
            asked = now_ms(broker)
            assert produced(other) == 0
            longest = max(longest, now_ms(broker) - asked)
    assert sent / 300 == pytest.approx(5_000, rel=0.05)
    assert longest <= 20, "another client is answered at once all the time"


def test_a_client_over_its_quota_is_muted_with_acks_0_too(broker: SimulatedBroker) -> None:
    set_quota(broker, "client-id=fast", producer_byte_rate=1000)
    client = SimulatedClient(broker, "fast")
    client.send_unanswered(produce("t", batch(value=b"v" * 20_000), acks=0))
    client.send(ApiVersionsRequest())
    assert client.quiet(8)
    client.receive()


def test_requests_received_together_over_quota_are_delayed_and_stay_in_order(broker: SimulatedBroker) -> None:
    set_quota(broker, "client-id=fast", producer_byte_rate=1000)
    client = SimulatedClient(broker, "fast")
    requests = [produce("t", idempotent(number, value=KB * 12)) for number in range(3)]
    begun = now_ms(broker)
    client.send_together(*requests)
    answered = []
    for number in range(3):
        assert answers(client.receive()) == [(OK, number)]
        answered.append(now_ms(broker) - begun)
    assert answered[0] < 100, "the first does not wait"
    assert answered[1] == pytest.approx(2_000, rel=0.1), "12 KB at 1 KB/s take 12 s, of which 10 s are free"
    assert answered[2] == pytest.approx(16_200, rel=0.01), "24.2 KB are 14.1 s more than 10.1 s are free"


def test_changing_or_removing_a_quota_applies_at_once_to_the_next_request(broker: SimulatedBroker) -> None:
    client = SimulatedClient(broker, "app")
    assert produced(client, KB * 50) == 0
    set_quota(broker, "user=<default>", producer_byte_rate=1000)
    assert produced(client, KB * 20) > 5_000
    other = SimulatedClient(broker, "app")
    set_quota(broker, "user=<default>", producer_byte_rate=1_000_000)
    assert produced(other, KB * 20) == 0, "the wait is computed by the present quota"
    set_quota(broker, "user=<default>", producer_byte_rate=None)
    assert produced(other, KB * 900) == 0


def test_all_clients_of_a_user_share_its_user_quota_but_not_a_client_id_quota(broker: SimulatedBroker) -> None:
    set_quota(broker, "user=ANONYMOUS", producer_byte_rate=1000)
    assert [produced(SimulatedClient(broker, name), KB * 8) > 0 for name in ("a", "b")] == [False, True]
    set_quota(broker, "user=ANONYMOUS client-id=<default>", producer_byte_rate=1000)
    assert [produced(SimulatedClient(broker, name), KB * 8) for name in ("c", "d")] == [0, 0]
    assert [produced(SimulatedClient(broker, name), KB * 8) > 0 for name in ("c", "d")] == [True, True]


def test_clients_with_a_quota_take_no_fast_path(broker: SimulatedBroker) -> None:
    set_quota(broker, "client-id=slow", producer_byte_rate=1000)
    slow, free = SimulatedClient(broker, "slow"), SimulatedClient(broker, "free")
    calls = []
    general = broker.broker.server.serve.__self__._serve_generally  # type: ignore[attr-defined]
    broker.broker.server.serve.__self__._serve_generally = lambda *given: (calls.append(given), general(*given))  # type: ignore[attr-defined]
    assert produced(free) == 0
    assert not calls
    assert produced(slow, KB * 20) > 0
    assert len(calls) == 1


def test_a_transaction_of_a_client_with_a_quota_takes_no_fast_path(broker: SimulatedBroker) -> None:
    set_quota(broker, "client-id=slow", request_percentage=50)
    metered: list[int] = []
    throttling = broker.broker.throttling
    ordinary = throttling.meter

    def meter(connection: Any, api_key: int, *more: Any) -> Any:
        metered.append(api_key)
        return ordinary(connection, api_key, *more)

    throttling.meter = meter  # type: ignore[method-assign]
    for client_id, counted in (("slow", [24, 26]), ("other", [])):
        txn = Txn(broker, client_id, client=SimulatedClient(broker, client_id))
        assert txn.init() == OK
        metered.clear()
        assert (txn.add("t", 0), txn.commit()) == ([OK], OK)
        assert metered == counted


# ---- Fetch ---------------------------------------------------------------------------------------------------


def filled(broker: SimulatedBroker, batches: int = 40) -> None:
    client = SimulatedClient(broker, "writer")
    for number in range(batches):
        client.ask(produce("t", idempotent(number, value=KB)))


def test_a_fetch_over_its_quota_is_empty_with_a_throttle_time_and_not_counted(broker: SimulatedBroker) -> None:
    filled(broker)
    set_quota(broker, "client-id=reader", consumer_byte_rate=1000)
    client = SimulatedClient(broker, "reader")
    first = client.ask(fetch("t", partition_max_bytes=9_000), 12)
    assert first.throttle_time_ms == 0
    assert 7_000 < len(bytes_of(fetched(first))) <= 9_000  # eight batches
    second = client.ask(fetch("t", 8, partition_max_bytes=9_000), 12)
    assert (second.error_code, second.responses) == (OK, [])
    assert 4_000 < second.throttle_time_ms < 9_000
    begun = now_ms(broker)
    third = client.ask(fetch("t", 8, partition_max_bytes=2_000), 12)
    assert now_ms(broker) - begun == pytest.approx(second.throttle_time_ms, abs=100)
    assert (third.throttle_time_ms, len(bytes_of(fetched(third))) > 900) == (0, True)


def test_a_first_fetch_with_a_quota_returns_at_most_ten_seconds_worth_of_bytes(broker: SimulatedBroker) -> None:
    filled(broker)
    set_quota(broker, "client-id=reader", consumer_byte_rate=1000)
    response = SimulatedClient(broker, "reader").ask(fetch("t"), 12)
    assert response.throttle_time_ms == 0
    assert 9_000 < len(bytes_of(fetched(response))) <= 10_000


def test_a_fetched_batch_larger_than_the_quota_is_returned_and_throttles_the_client(broker: SimulatedBroker) -> None:
    writer = SimulatedClient(broker, "writer")
    for number in range(3):
        writer.ask(produce("t", idempotent(number, value=KB * 60)))
    set_quota(broker, "client-id=reader", consumer_byte_rate=1000)
    client, begun = SimulatedClient(broker, "reader"), now_ms(broker)
    for number in range(3):
        response = client.ask(fetch("t", number), 12)
        assert len(bytes_of(fetched(response))) > 60_000
        assert response.throttle_time_ms == pytest.approx(50_000, rel=0.02)
        assert now_ms(broker) - begun == pytest.approx(50_000 * number, abs=2_000)


def test_a_new_connection_waits_too_after_a_batch_larger_than_its_quota(broker: SimulatedBroker) -> None:
    """The rate windows cover eleven seconds, but such a batch takes a minute to wait for, so the wait is remembered
    separately.
    """
    writer = SimulatedClient(broker, "writer")
    for number in range(2):
        writer.ask(produce("t", idempotent(number, value=KB * 60)))
    set_quota(broker, "client-id=reader", consumer_byte_rate=1000)
    first, begun = SimulatedClient(broker, "reader").ask(fetch("t", 0), 12), now_ms(broker)
    assert first.throttle_time_ms == pytest.approx(50_000, rel=0.02)
    broker.wait(15)
    again = SimulatedClient(broker, "reader")
    refused = again.ask(fetch("t", 1), 12)
    assert (refused.error_code, refused.responses) == (OK, [])
    assert refused.throttle_time_ms == pytest.approx(begun + first.throttle_time_ms - now_ms(broker), abs=500)
    assert len(bytes_of(fetched(again.ask(fetch("t", 1), 12)))) > 60_000
    assert now_ms(broker) - begun >= first.throttle_time_ms


def test_a_quota_that_is_raised_ends_the_wait_for_a_large_batch(broker: SimulatedBroker) -> None:
    writer = SimulatedClient(broker, "writer")
    for number in range(2):
        writer.ask(produce("t", idempotent(number, value=KB * 60)))
    set_quota(broker, "client-id=reader", consumer_byte_rate=1000)
    SimulatedClient(broker, "reader").ask(fetch("t", 0), 12)
    set_quota(broker, "client-id=reader", consumer_byte_rate=1_000_000)
    response = SimulatedClient(broker, "reader").ask(fetch("t", 1), 12)
    assert (response.throttle_time_ms, len(bytes_of(fetched(response))) > 60_000) == (0, True)


def test_a_reader_over_its_quota_gets_all_records_at_the_quotas_rate(broker: SimulatedBroker) -> None:
    filled(broker)
    set_quota(broker, "client-id=reader", consumer_byte_rate=1000)
    client, offset, begun = SimulatedClient(broker, "reader"), 0, now_ms(broker)
    while offset < 40:
        response = client.ask(fetch("t", offset, partition_max_bytes=3_000), 12)
        for topic in response.responses:
            offset += len(bytes_of(topic.partitions[0])) // 1000
    assert 25_000 < now_ms(broker) - begun < 45_000, "40 KB at 1 KB/s, of which 10 KB are free"


@pytest.mark.parametrize("partitions", [1, 60, 600])
def test_a_fetch_session_continues_after_a_throttled_fetch(broker: SimulatedBroker, partitions: int) -> None:
    broker.ask(create("wide", partitions))
    writer = SimulatedClient(broker, "writer")
    writer.ask(produce("wide", batch(value=KB * 8)))
    request = fetch("wide", epoch=0)
    make = request.topics[0].partitions[0].__class__
    request.topics[0].partitions = [
        make(partition=index, fetch_offset=0, partition_max_bytes=1 << 20) for index in range(partitions)
    ]
    client = SimulatedClient(broker, "reader")
    opened = client.ask(request, 12)
    assert opened.session_id > 0
    set_quota(broker, "client-id=reader", consumer_byte_rate=2000)
    writer.ask(produce("wide", batch(value=KB * 9, timestamp=broker.broker.clock.now_ms())))
    advance = {"topics": [], "session_id": opened.session_id}
    moved = fetch("wide", 1, session_id=opened.session_id, epoch=1)
    assert len(bytes_of(fetched(client.ask(moved, 12)))) > 9_000
    writer.ask(produce("wide", batch(value=KB * 19, timestamp=broker.broker.clock.now_ms())))
    put_off = client.ask(fetch("wide", 2, session_id=opened.session_id, epoch=2), 12)
    assert (put_off.error_code, put_off.session_id, put_off.responses) == (OK, opened.session_id, [])
    assert put_off.throttle_time_ms > 0
    broker.wait(30)
    again = client.ask(fetch(epoch=3, **advance), 12)
    assert (again.error_code, len(bytes_of(fetched(again))) > 19_000) == (OK, True)


def test_a_throttled_fetch_opens_no_fetch_session(broker: SimulatedBroker) -> None:
    filled(broker, 20)
    set_quota(broker, "client-id=reader", consumer_byte_rate=1000)
    client = SimulatedClient(broker, "reader")
    client.ask(fetch("t", partition_max_bytes=9_000), 12)
    put_off = client.ask(fetch("t", 8, epoch=0, partition_max_bytes=9_000), 12)
    assert (put_off.session_id, put_off.responses) == (0, [])
    assert put_off.throttle_time_ms > 0
    assert len(broker.broker.fetch_sessions.cache) == 0
    assert client.ask(fetch("t", 8, epoch=0, partition_max_bytes=2_000), 12).session_id > 0


# ---- the time of requests ------------------------------------------------------------------------------------


class WorkingClock(LoopClock):
    """A clock that finds step_ns more of working time whenever it is asked for it."""

    step_ns = 0

    def __init__(self, loop: Any) -> None:
        super().__init__(loop)
        self._worked_ns = 0

    def work_ns(self) -> int:
        self._worked_ns += self.step_ns
        return self._worked_ns


@pytest.fixture
def working(broker: SimulatedBroker) -> SimulatedBroker:
    clock = WorkingClock(broker.loop)
    broker.broker.throttling.clock = clock
    return broker


@pytest.mark.parametrize(
    "request_", [ApiVersionsRequest(), MetadataRequest(topics=None), InitProducerIdRequest(transaction_timeout_ms=1)]
)
def test_request_time_over_its_quota_throttles_for_at_most_one_window(working: SimulatedBroker, request_: Any) -> None:
    set_quota(working, "client-id=busy", request_percentage=1)
    WorkingClock.step_ns = 1_000_000
    client = SimulatedClient(working, "busy")
    waits = [client.ask(request_).throttle_time_ms for _ in range(120)]
    WorkingClock.step_ns = 10_000_000_000
    waits.append(client.ask(request_).throttle_time_ms)
    assert waits[0] == 0
    assert any(0 < wait < 1000 for wait in waits)
    assert waits[-1] == 1000
    assert SimulatedClient(working, "idle").ask(request_).throttle_time_ms == 0
    WorkingClock.step_ns = 0


@pytest.mark.slow
@pytest.mark.parametrize("quota_of", ["client-id=payments", "user=default"])
def test_failed_logins_do_not_use_up_a_users_request_time(quota_of: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with SimulatedBroker(asking()) as broker:
        add_users(broker.broker)
        names = {"client-id": "payments"} if quota_of.startswith("client-id") else {"user": None}
        broker.broker.security_log.commit([quota_set(entity_of(names), REQUEST_PERCENTAGE, 1)])
        broker.broker.throttling.clock = WorkingClock(broker.loop)
        monkeypatch.setattr(WorkingClock, "step_ns", 1_000_000)
        alice = SimulatedClient(broker, "payments")
        log_in(alice)
        for _ in range(200):
            stranger = SimulatedClient(broker, "payments")
            assert stranger.ask(ApiVersionsRequest()).throttle_time_ms == 0
            stranger.close()
        assert alice.ask(ApiVersionsRequest()).throttle_time_ms == 0
        begun, bob = now_ms(broker), SimulatedClient(broker, "payments")
        assert log_in(bob, "bob").error_code == 0
        assert now_ms(broker) - begun < 100
        waits = [bob.ask(ApiVersionsRequest()).throttle_time_ms for _ in range(120)]
        assert any(waits), "once it is known who a client is, its quota counts"


def test_time_in_which_a_fetch_waits_does_not_count_as_request_time(broker: SimulatedBroker) -> None:
    set_quota(broker, "client-id=reader", request_percentage=0.001)
    client = SimulatedClient(broker, "reader")
    for wait_ms in (5_000, 20):
        assert client.ask(fetch("t", max_wait_ms=wait_ms), 12).throttle_time_ms == 0


def test_a_fetch_over_its_request_time_quota_is_answered_empty(working: SimulatedBroker) -> None:
    filled(working, 2)
    set_quota(working, "client-id=reader", request_percentage=0.1)
    WorkingClock.step_ns = 1_000_000_000
    response = SimulatedClient(working, "reader").ask(fetch("t"), 12)
    WorkingClock.step_ns = 0
    assert (response.throttle_time_ms, response.responses) == (1000, [])


# ---- partitions made and deleted -----------------------------------------------------------------------------


def test_creating_extending_or_deleting_topics_above_the_quota_is_refused_for_a_time(broker: SimulatedBroker) -> None:
    set_quota(broker, "client-id=admin", controller_mutation_rate=1)
    client = SimulatedClient(broker, "admin")
    made = client.ask(CreateTopicsRequest(topics=[*create("a", 8).topics, *create("b", 8).topics, *create("c").topics]))
    assert [topic.error_code for topic in made.topics] == [OK, OK, EXCEEDED], "the bucket of 11 is overdrawn by 5"
    assert made.throttle_time_ms == 5_000
    begun = now_ms(broker)
    again = client.ask(create("c"))
    assert ([topic.error_code for topic in again.topics], again.throttle_time_ms) == ([OK], 0)
    assert now_ms(broker) - begun >= 5_000
    grown = client.ask(
        CreatePartitionsRequest(
            topics=[CreatePartitionsRequest.Topic(name="c", count=3, assignments=None)],
            timeout_ms=1,
            validate_only=False,
        )
    )
    assert [result.error_code for result in grown.results] == [EXCEEDED]
    assert grown.throttle_time_ms > 0
    gone = client.ask(
        DeleteTopicsRequest(
            topics=[DeleteTopicsRequest.Topic(name="a"), DeleteTopicsRequest.Topic(name="b")], timeout_ms=1
        )
    )
    assert [topic.error_code for topic in gone.responses] == [OK, EXCEEDED]


def test_create_topics_v5_over_quota_creates_the_topics_and_throttles_the_client(broker: SimulatedBroker) -> None:
    set_quota(broker, "client-id=admin", controller_mutation_rate=1)
    client = SimulatedClient(broker, "admin")
    made = client.ask(CreateTopicsRequest(topics=[*create("a", 16).topics, *create("b", 4).topics]), 5)
    assert [topic.error_code for topic in made.topics] == [OK, OK]
    assert made.throttle_time_ms == 9_000


def test_topics_auto_created_by_metadata_count_towards_the_quota(broker: SimulatedBroker) -> None:
    set_quota(broker, "client-id=app", controller_mutation_rate=0.1)
    client = SimulatedClient(broker, "app")
    asked = MetadataRequest(topics=[MetadataRequest.Topic(name=f"m{number}") for number in range(4)])
    answer = client.ask(asked)
    assert {topic.error_code for topic in answer.topics} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert answer.throttle_time_ms > 0
    assert len([name for name in broker.broker.topics.by_name if name.startswith("m")]) == 2, (
        "the bucket has 0.1/s * 11 s = 1.1: the first topic fits, the second overdraws it, no other is created"
    )
    broker.wait(60)
    assert [topic.error_code for topic in client.ask(asked).topics].count(OK) == 2


@pytest.mark.slow
def test_quota_memory_stays_bounded_with_many_clients(broker: SimulatedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_MEASURED", 500)
    monkeypatch.setattr(limits, "MAX_KNOWN", 700)
    set_quota(broker, "client-id=<default>", producer_byte_rate=1000, controller_mutation_rate=1)
    measures: Measures = broker.broker.throttling.measures
    for number in range(20_000):
        limit = measures.limits_of("u", f"c{number}")
        assert limit is not None
        assert limit.produce is not None
        assert limit.mutations is not None
        measures.produce.record(limit.produce, 5.0, number // 10)
        measures.mutations.record(limit.mutations, 1, number // 10, strict=True)
    assert len(measures.produce) <= 501
    assert len(measures.mutations) <= 501
    assert len(measures._known) <= 700
    assert produced(SimulatedClient(broker, "c19999"), KB * 30) > 0


def test_a_client_id_longer_than_a_quota_can_name_gets_the_default_quota(broker: SimulatedBroker) -> None:
    longest = "x" * LONGEST_NAME
    set_quota(broker, f"client-id={longest}", producer_byte_rate=1000)
    set_quota(broker, "client-id=<default>", producer_byte_rate=2000)
    measures: Measures = broker.broker.throttling.measures
    for tail, most in (("", 1000), ("y", 2000), ("y" * 30_000, 2000)):
        produced(SimulatedClient(broker, longest + tail))
        limit = measures.limits_of("u", longest + tail)
        assert limit is not None and limit.produce is not None and limit.produce.value == most  # noqa: PT018
    assert max(len(client_id) for _, client_id in measures._known) == LONGEST_NAME + 1
    assert max(len(client_id) for _, client_id in measures.produce._by_owner) == LONGEST_NAME + 1


def test_rates_of_clients_without_traffic_are_dropped(broker: SimulatedBroker) -> None:
    set_quota(broker, "client-id=<default>", producer_byte_rate=1000)
    measures = broker.broker.throttling.measures
    for number in range(5_000):
        limit = measures.limits_of("u", f"c{number}")
        assert limit is not None
        assert limit.produce is not None
        measures.produce.record(limit.produce, 5.0, number * 100)
    assert len(measures.produce) < 130, "eleven seconds of ten a second"


def test_a_client_that_disconnects_while_muted_leaves_no_state(broker: SimulatedBroker) -> None:
    set_quota(broker, "client-id=fast", producer_byte_rate=1)
    client = SimulatedClient(broker, "fast")
    assert produced(client) > 100 * LOOKED_AT_AFTER_MS
    client.close()
    assert len(broker.broker.server.connections) == 2, "a muted connection is not read, so its end is not noticed yet"
    broker.wait(LOOKED_AT_AFTER_MS / 1000 + 0.1)
    assert len(broker.broker.server.connections) == 1
    assert len(broker.broker.throttling._mutes) == 0


def test_stopping_the_broker_does_not_wait_for_muted_clients(broker: SimulatedBroker) -> None:
    set_quota(broker, "client-id=fast", producer_byte_rate=1)
    assert produced(SimulatedClient(broker, "fast")) > 0
    begun = broker.loop.time()
    broker.loop.run_until_complete(broker.broker.stop())
    assert broker.loop.time() - begun < 2


def test_throttles_are_counted_by_the_kind_of_quota(broker: SimulatedBroker) -> None:
    set_quota(broker, "client-id=fast", producer_byte_rate=1000, controller_mutation_rate=1)
    reported = produced(SimulatedClient(broker, "fast"), KB * 20)
    made = SimulatedClient(broker, "fast").ask(create("a", 16), 5)
    metrics = broker.broker.metrics
    assert metrics.throttles == {"producer_byte_rate": 1, "controller_mutation_rate": 1}
    assert metrics.throttle_ms == {"producer_byte_rate": reported, "controller_mutation_rate": made.throttle_time_ms}


def test_without_client_quotas_no_rates_are_measured(broker: SimulatedBroker) -> None:
    measures = broker.broker.throttling.measures
    assert not measures.is_active
    set_quota(broker, "ip=10.0.0.1", connection_creation_rate=1)
    assert not measures.is_active
    set_quota(broker, "client-id=x", producer_byte_rate=1)
    assert (measures.is_active, measures.times_requests) == (True, False)
    assert broker.ask(altering(entry("client-id=x", producer_byte_rate=None))).throttle_time_ms == 0
    assert not measures.is_active
