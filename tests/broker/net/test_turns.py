"""A request about thousands of topics is answered as if at once, and holds nobody else up."""

import struct
from types import SimpleNamespace

import pytest
from fencepost.broker.config.settings import BrokerSettings
from fencepost.broker.net import turns
from fencepost.broker.requests import dispatch
from fencepost.protocol.apis import APIS
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.cluster import MetadataRequest
from fencepost.protocol.messages.configs import DescribeConfigsRequest, IncrementalAlterConfigsRequest
from fencepost.protocol.messages.groups import HeartbeatRequest, HeartbeatResponse
from fencepost.protocol.messages.topics import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest
from produce_requests import batch, list_offsets, produce
from simulated_broker import SimulatedBroker
from simulated_client import SimulatedClient

HEARTBEAT = 12
NAMES = [f"t{number}" for number in range(50)]


@pytest.fixture
def broker(monkeypatch):
    """A broker that works one topic of a request in each slice."""
    monkeypatch.setattr(turns, "SLICE_UNITS", 1)
    with SimulatedBroker(BrokerSettings()) as broker:
        yield broker


def create(names=NAMES):
    topics = [CreateTopicsRequest.Topic(name=name, num_partitions=1, replication_factor=1) for name in names]
    return CreateTopicsRequest(topics=topics, timeout_ms=1000)


def count(broker):
    return len(broker.ask(MetadataRequest(topics=None)).topics)


def test_the_items_of_a_long_request_are_answered_in_request_order(broker):
    """Topics are created, altered, described, extended and deleted, 50 at a time. In the first request "no good" is an
    invalid name, and t3 is there three times: it is refused, with one answer, at its last place.
    """
    created = broker.ask(create([*NAMES, "no good", "t3", "t3"])).topics
    assert [topic.name for topic in created] == [name for name in NAMES if name != "t3"] + ["no good", "t3"]
    assert [topic.error_code for topic in created] == [0] * 49 + [17, 42]
    resource = IncrementalAlterConfigsRequest.Resource
    change = resource.Config(name="retention.ms", config_operation=0, value="7")
    asked = [resource(resource_type=2, resource_name=name, configs=[change]) for name in NAMES]
    altered = broker.ask(IncrementalAlterConfigsRequest(resources=asked)).responses
    assert [(one.resource_name, one.error_code) for one in altered] == [(n, 0 if n != "t3" else 3) for n in NAMES]
    wanted = [
        DescribeConfigsRequest.Resource(resource_type=2, resource_name=name, configuration_keys=["retention.ms"])
        for name in NAMES
    ]
    described = broker.ask(DescribeConfigsRequest(resources=wanted)).results
    assert [config.value for one in described for config in one.configs] == ["7"] * 49
    grown = [CreatePartitionsRequest.Topic(name=name, count=2) for name in NAMES]
    assert [one.error_code for one in broker.ask(CreatePartitionsRequest(topics=grown, timeout_ms=1)).results].count(
        0
    ) == 49
    gone = [DeleteTopicsRequest.Topic(name=name) for name in NAMES]
    deleted = broker.ask(DeleteTopicsRequest(topics=gone, timeout_ms=1)).responses
    assert [one.error_code for one in deleted].count(0) == 49
    assert count(broker) == 0


def test_other_clients_are_served_while_a_long_request_is_processed(broker):
    client, other = SimulatedClient(broker), SimulatedClient(broker)
    client.send(create())
    other.send(MetadataRequest(topics=None))
    seen = len(other.receive().topics)
    assert 0 < seen < 50, "the answer comes while the 50 topics are created"
    assert len(client.receive().topics) == count(broker) == 50


def test_later_requests_of_a_connection_are_answered_after_its_long_request(broker):
    client = SimulatedClient(broker)
    client.send(create())
    client.send(MetadataRequest(topics=None))
    assert len(client.receive().topics) == 50
    assert len(client.receive().topics) == 50


def test_a_request_that_fits_in_one_slice_is_completed_before_another_is_served(broker, monkeypatch):
    monkeypatch.setattr(turns, "SLICE_UNITS", 50 * 40)  # a topic takes 32 units
    client, other = SimulatedClient(broker), SimulatedClient(broker)
    client.send(create())
    other.send(MetadataRequest(topics=None))
    assert len(other.receive().topics) == 50
    assert [topic.error_code for topic in client.receive().topics] == [0] * 50


# ---- requests that come when the turn's allowance is spent ---------------------------------------------------------


@pytest.fixture
def crowded(monkeypatch):
    """A broker that handles in each turn of the loop one request as it arrives, and one that is queued."""
    monkeypatch.setattr(turns, "ARRIVAL_UNITS", 1)
    monkeypatch.setattr(turns, "SLICE_UNITS", 1)
    with SimulatedBroker(BrokerSettings()) as broker:
        yield broker


@pytest.fixture
def handled(monkeypatch):
    """The client ids of all Heartbeats, in the order in which they were handled."""
    seen = []

    def answer(broker, call, request):
        seen.append(call.client_id)
        return HeartbeatResponse()

    monkeypatch.setitem(dispatch.HANDLERS, HEARTBEAT, dispatch.Handler(APIS[HEARTBEAT], answer, False))
    return seen


def heartbeat():
    return HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


def test_pipelined_requests_take_turns_with_requests_of_other_clients(handled, crowded):
    many, one = SimulatedClient(crowded, "many"), SimulatedClient(crowded, "one")
    for _ in range(20):
        many.send(heartbeat())
    one.send(heartbeat())
    one.receive()
    assert handled.count("many") <= 6, "of twenty that were sent before"
    for _ in range(20):
        many.receive()
    assert handled.count("many") == 20


def test_connections_with_queued_requests_are_served_in_turns(handled, crowded):
    clients = [SimulatedClient(crowded, f"{number}") for number in range(5)]
    for _ in range(10):
        for client in clients:
            client.send(heartbeat())
    for client in clients:
        for _ in range(10):
            client.receive()
    for end in range(len(handled)):
        counts = [handled[:end].count(f"{number}") for number in range(5)]
        # One queued request of each connection is worked in turn, and some are handled as they arrive.
        assert max(counts) - min(counts) <= 3


def test_queued_requests_of_a_connection_are_answered_in_order(crowded):
    client = SimulatedClient(crowded)
    for number in range(6):
        client.send(create([f"t{number}"]))
        client.send(MetadataRequest(topics=None))
    for number in range(6):
        assert [topic.error_code for topic in client.receive().topics] == [0]
        assert len(client.receive().topics) == number + 1


def test_queued_acks_0_requests_keep_their_order_among_the_others(crowded):
    crowded.ask(create(["t"]))
    client = SimulatedClient(crowded)
    for number in range(5):
        client.send_unanswered(produce("t", batch(key=b"%d" % number), acks=0))
        client.send(list_offsets("t", -1))
    offsets = [client.receive().topics[0].partitions[0].offset for _ in range(5)]
    assert offsets == [1, 2, 3, 4, 5]
    crowded.wait(1)
    assert crowded.ask(list_offsets("t", -1)).topics[0].partitions[0].offset == 5


def test_malformed_bytes_close_the_connection_after_the_earlier_replies(handled, crowded):
    client = SimulatedClient(crowded)
    for _ in range(4):
        client.send(heartbeat())
    frame = struct.pack(">hhih", HEARTBEAT, 0, 99, -1)
    client.send_raw(struct.pack(">i", len(frame)) + frame)
    for _ in range(4):
        client.receive()
    assert client.closed()
    assert len(handled) == 4


def test_queued_requests_are_dropped_when_their_client_disconnects(handled, crowded):
    gone, stays = SimulatedClient(crowded, "gone"), SimulatedClient(crowded, "stays")
    for client in (stays, gone):
        for _ in range(50):
            client.send(heartbeat())
    stays.receive()
    gone.close()
    for _ in range(49):
        stays.receive()
    assert handled.count("gone") < 50, "only those that came to their turn before"
    assert len(crowded.broker.turns) == 0


def test_a_bug_in_a_queued_request_is_answered_with_an_error(monkeypatch, crowded):
    def answer(broker, call, request):
        raise ZeroDivisionError("oops")

    monkeypatch.setitem(dispatch.HANDLERS, HEARTBEAT, dispatch.Handler(APIS[HEARTBEAT], answer, False))
    client = SimulatedClient(crowded)
    for _ in range(3):
        client.send(heartbeat())
    assert [client.receive().error_code for _ in range(3)] == [ErrorCode.UNKNOWN_SERVER_ERROR] * 3
    assert len(crowded.broker.metrics.failures) == 3
    crowded.broker.metrics.failures.clear()


def test_stopping_the_broker_drops_unfinished_long_requests(broker):
    client = SimulatedClient(broker)
    client.send(create([f"t{number}" for number in range(1_000)]))
    broker.wait(0)
    assert len(broker.broker.turns) == 1
    broker.stop()
    assert len(broker.broker.topics.by_name) < 1_000


def test_the_work_limit_of_a_loop_turn_counts_no_work_of_earlier_turns(monkeypatch, broker):
    monkeypatch.setattr(turns, "SLICE_UNITS", 50)
    monkeypatch.setattr(turns, "ARRIVAL_UNITS", 70)
    broker.ask(create(["t"]))
    queued, enqueue = [], broker.broker.turns.enqueue
    monkeypatch.setattr(broker.broker.turns, "enqueue", lambda job: enqueue(job) or queued.append(job))
    for _ in range(30):
        assert broker.ask(MetadataRequest(topics=None)).topics
        broker.wait(0.01)
    assert not queued


@pytest.mark.slow
def test_a_short_request_waits_for_one_step_of_a_long_one_and_not_for_all(monkeypatch):
    monkeypatch.setattr(turns, "ARRIVAL_UNITS", 10)
    with SimulatedBroker(BrokerSettings()) as broker:
        producers = [SimulatedClient(broker) for _ in range(30)]
        other = SimulatedClient(broker)
        for producer in producers:
            producer.send(produce("nowhere", *[None] * 2_000), 9)
        other.send(MetadataRequest(topics=[]))
        other.receive()
        assert len(broker.broker.turns) >= 5, "long requests still wait"
        for producer in producers:
            assert len(producer.receive().responses[0].partition_responses) == 2_000


@pytest.mark.slow
def test_requests_after_a_postponed_produce_see_its_records(monkeypatch):
    monkeypatch.setattr(turns, "ARRIVAL_UNITS", 10)
    with SimulatedBroker(BrokerSettings()) as broker:
        broker.ask(create(["t"]))
        client = SimulatedClient(broker)
        for number in range(1, 6):
            client.send(produce("t", batch(), *[None] * 2_000), 9)
            client.send(list_offsets("t", -1), 7)
            assert client.receive().responses[0].partition_responses[0].base_offset == number - 1
            assert client.receive().topics[0].partitions[0].offset == number
        client.send_together(*[(produce("t", batch(), *[None] * 2_000), 9), (list_offsets("t", -1), 7)] * 5)
        for number in range(6, 11):
            assert client.receive().responses[0].partition_responses[0].base_offset == number - 1
            assert client.receive().topics[0].partitions[0].offset == number


@pytest.mark.slow
def test_a_postponed_produce_request_is_counted_once(monkeypatch):
    monkeypatch.setattr(turns, "ARRIVAL_UNITS", 10)
    with SimulatedBroker(BrokerSettings()) as broker:
        broker.ask(create(["t"]))
        clients = [SimulatedClient(broker) for _ in range(3)]
        for client in clients:
            client.send(produce("t", batch(), *[None] * 2_000), 9)
        for client in clients:
            client.receive()
        assert broker.broker.metrics.requests[0] == len(clients)


@pytest.mark.slow
@pytest.mark.parametrize("turns_before", [0, 1, 2, 5])
def test_a_short_request_does_not_wait_until_thirty_long_ones_have_ended(turns_before):
    """Each of 30 long requests runs one slice; after that they only take turns among themselves."""
    store, later, worked, done = SimpleNamespace(turn=0), [], [], []
    queue = turns.Turns(store, SimpleNamespace(monotonic_ms=lambda: 0), later.append, lambda: False)

    def turn():
        store.turn += 1
        later.pop()()

    def steps(name, count):
        for _ in range(count):
            worked.append(name)
            yield 1
        done.append(name)

    for number in range(30):
        queue.enqueue(turns.Job(steps(number, 10 * turns.SLICE_UNITS)))
    for _ in range(turns_before):
        turn()
    worked.clear()
    queue.enqueue(turns.Job(steps("short", 1)))
    turns_taken = 0
    while not done:
        turn()
        turns_taken += 1
    assert done == ["short"]
    before = worked[: worked.index("short")]
    a_turn = turns.SLICE_UNITS // turns.SHORT_UNITS
    still_short = max(0, 30 - turns_before * a_turn)
    assert turns_taken == still_short // a_turn + 1
    long_ones = turns_taken - 1  # each turn before the last also did one slice of a long one
    assert len(before) == still_short * turns.SHORT_UNITS + long_ones * turns.SLICE_UNITS
    while later:
        turn()
    assert len(done) == 31


def test_a_request_whose_next_steps_take_long_lets_all_queued_short_requests_pass():
    store, later, done = SimpleNamespace(turn=0), [], []
    queue = turns.Turns(store, SimpleNamespace(monotonic_ms=lambda: 0), later.append, lambda: False)

    def steps(name, *units):
        yield from units
        done.append(name)

    at_once = turns.Job(steps("puts itself off", turns.BEHIND_SHORT))
    assert not queue.begin(at_once)
    assert (at_once.is_long, queue.left) == (True, turns.ARRIVAL_UNITS)
    queue.enqueue(at_once, long=True)
    queue.enqueue(turns.Job(steps("waited and puts itself off", 1, turns.BEHIND_SHORT)))
    for number in range(3):
        queue.enqueue(turns.Job(steps(number, 1)))
    store.turn += 1
    later.pop()()
    assert done == [0, 1, 2, "puts itself off", "waited and puts itself off"]


def test_a_cancelled_job_is_closed_and_reported_without_running():
    store, later, reported = SimpleNamespace(turn=0), [], []
    queue = turns.Turns(store, SimpleNamespace(monotonic_ms=lambda: 0), later.append, lambda: False)

    def steps():
        try:
            yield 1
        finally:
            reported.append("closed")

    job = turns.Job(steps())
    job.work(SimpleNamespace(monotonic_ms=lambda: 0), 1, 1)
    job.wanted, job.finish = (lambda: False), (lambda result: reported.append("over"))
    queue.enqueue(job)
    later.pop()()
    assert reported == ["closed", "over"]
    assert not later


def test_work_on_queued_requests_leaves_arriving_ones_their_full_share_of_a_turn():
    store, later = SimpleNamespace(turn=0), []
    queue = turns.Turns(store, SimpleNamespace(monotonic_ms=lambda: 0), later.append, lambda: False)
    queue.spend(turns.ARRIVAL_UNITS)
    assert queue.is_spent()
    queue.enqueue(turns.Job(1 for _ in range(10 * turns.SLICE_UNITS)), long=True)
    store.turn += 1
    later.pop()()
    assert queue.left == turns.ARRIVAL_UNITS
    assert not queue.is_spent()


class Clock:
    """A clock that moves on by each_look_ms whenever it is read."""

    def __init__(self, now_ms=1_000_001, each_look_ms=0):
        self.now_ms, self.each_look_ms = now_ms, each_look_ms

    def monotonic_ms(self):
        self.now_ms += self.each_look_ms
        return self.now_ms


def test_a_slice_of_a_long_request_reads_the_clock_every_twenty_units_of_work():
    """Steps cost 7 units each, so the clock is read after 21, 42 and 63 units; the limit has passed at the third
    reading.
    """
    job = turns.Job(7 for _ in range(1_000))
    assert job.work(Clock(0, 1), 3, 10**9) == (False, 3 * 21)
    assert turns.Job(7 for _ in range(10)).work(Clock(0, 1), 100, 10**9) == (True, 70)


def test_a_slow_step_counts_against_the_work_limit_of_a_turn_by_the_time_it_took():
    clock = Clock()
    queue = turns.Turns(SimpleNamespace(turn=0), clock, lambda call: None, lambda: False)

    def steps():
        clock.now_ms += 2
        yield turns.LOOK_UNITS

    assert queue.begin(turns.Job(steps()))
    assert queue.left == turns.ARRIVAL_UNITS - turns.SLICE_UNITS // 2


def test_the_size_limit_of_an_answer_falls_with_connections_from_16_mib_to_256_kib():
    found = [turns.AnswerRoom(connections).left_bytes for connections in (0, 1, 16, 64, 1_024, 100_000)]
    assert found == [16 << 20, 16 << 20, 16 << 20, 4 << 20, 256 << 10, 256 << 10]
    assert not turns.AnswerRoom(1).is_full
