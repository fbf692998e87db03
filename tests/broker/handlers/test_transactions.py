"""InitProducerId and DescribeProducers."""

import pytest
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.produce import ProduceRequest
from fencepost.protocol.messages.topics import CreateTopicsRequest
from fencepost.protocol.messages.transactions import DescribeProducersRequest, InitProducerIdRequest
from fencepost.protocol.records import Record, build
from produce_requests import answers, batch, create, one, produce
from simulated_broker import SimulatedBroker
from txn_client import PRODUCE, Txn, values

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def init(broker: SimulatedBroker, version: int | None = None, **fields: object) -> tuple[int, int, int]:
    """Send an InitProducerId. Returns (error code, producer id, epoch)."""
    asked: dict[str, object] = {"transaction_timeout_ms": 1000} | fields
    response = broker.ask(InitProducerIdRequest(**asked), version)  # type: ignore[arg-type]
    return response.error_code, response.producer_id, response.producer_epoch


@pytest.mark.requirement("S-14", "S-15")
def test_every_idempotent_producer_gets_a_new_producer_id_with_epoch_0(broker: SimulatedBroker) -> None:
    assert [init(broker) for _ in range(3)] == [(0, 0, 0), (0, 1, 0), (0, 2, 0)]


@pytest.mark.slow
@pytest.mark.requirement("S-16")
def test_no_producer_id_is_assigned_twice_over_a_restart(broker: SimulatedBroker) -> None:
    first = init(broker)[1]
    with broker.again() as restarted:
        second = init(restarted)[1]
        with restarted.after_power_cut() as unplugged:
            third = init(unplugged)[1]
    assert (first, second, third) == (0, 1000, 2000)  # each start reserves a new block of 1000 ids


@pytest.mark.slow
@pytest.mark.requirement("S-16")
def test_producer_ids_continue_in_the_next_block_when_a_block_is_used_up(broker: SimulatedBroker) -> None:
    assert [init(broker)[1] for _ in range(1001)] == list(range(1001))
    with broker.after_power_cut() as unplugged:
        assert init(unplugged)[1] == 2000


@pytest.mark.parametrize("version", range(6))
def test_every_version_of_init_producer_id_is_answered(broker: SimulatedBroker, version: int) -> None:
    assert init(broker, version) == (0, 0, 0)


def test_init_producer_id_without_a_transactional_id_ignores_the_claimed_producer_id(broker: SimulatedBroker) -> None:
    assert init(broker, producer_id=5, producer_epoch=3) == (0, 0, 0)


@pytest.mark.parametrize("fields", [{"transactional_id": ""}, {"producer_id": 5}, {"producer_epoch": 5}])
def test_a_malformed_init_producer_id_request_is_refused(broker: SimulatedBroker, fields: dict[str, object]) -> None:
    assert init(broker, **fields) == (ErrorCode.INVALID_REQUEST, -1, -1)


@pytest.mark.requirement("S-61")
def test_a_repeated_init_producer_id_keeps_the_producer_id_and_increments_the_epoch(broker: SimulatedBroker) -> None:
    assert init(broker, transactional_id="t", transaction_timeout_ms=1) == (0, 0, 0)
    assert init(broker, transactional_id="t", transaction_timeout_ms=1) == (0, 0, 1)
    assert init(broker, transactional_id="u", transaction_timeout_ms=1) == (0, 1, 0)


@pytest.mark.requirement("S-109", "C-10")
@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_transaction_timeout_below_1_or_above_the_brokers_limit_is_refused(
    broker: SimulatedBroker, timeout_ms: int
) -> None:
    assert init(broker, transactional_id="t", transaction_timeout_ms=timeout_ms) == (
        ErrorCode.INVALID_TRANSACTION_TIMEOUT,
        -1,
        -1,
    )


def test_describe_producers_lists_the_producers_of_a_partition(broker: SimulatedBroker) -> None:
    broker.ask(CreateTopicsRequest(topics=[CreateTopicsRequest.Topic(name="a")]))
    _, producer_id, epoch = init(broker)
    records = [Record(offset, 1_700_000_000_000, None, b"v") for offset in range(3)]
    batch = build(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=0)
    partition = ProduceRequest.Topic.Partition(index=0, records=memoryview(batch))
    data = [ProduceRequest.Topic(name="a", partition_data=[partition])]
    response = broker.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=data), 9)
    assert response.responses[0].partition_responses[0].error_code == 0
    asked = DescribeProducersRequest.Topic(name="a", partition_indexes=[0, 9])
    (topic,) = broker.ask(DescribeProducersRequest(topics=[asked])).topics
    there, missing = topic.partitions
    assert (missing.partition_index, missing.error_code, missing.active_producers) == (9, UNKNOWN, [])
    (producer,) = there.active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (producer_id, 0, 2)
    assert (producer.last_timestamp, producer.current_txn_start_offset) == (1_700_000_000_000, -1)


def test_describe_producers_gives_each_unknown_topic_its_own_error(broker: SimulatedBroker) -> None:
    Topic = DescribeProducersRequest.Topic
    asked = [Topic(name="nope", partition_indexes=[0]), Topic(name="a b", partition_indexes=[1])]
    found = broker.ask(DescribeProducersRequest(topics=asked)).topics
    assert [(t.name, [(p.partition_index, p.error_code) for p in t.partitions]) for t in found] == [
        ("nope", [(0, UNKNOWN)]),
        ("a b", [(1, ErrorCode.INVALID_TOPIC_EXCEPTION)]),
    ]


def test_a_tv2_produce_adds_all_its_partitions_to_the_transaction_at_once(broker: SimulatedBroker) -> None:
    """Each logged state names all partitions: adding 10,000 one by one would write 600 MB."""
    many = 200
    broker.ask(create("wide", many))
    txn = Txn(broker, "x", 2)
    assert txn.init() == 0
    first = batch(
        value=b"v", producer_id=txn.producer_id, producer_epoch=txn.epoch, base_sequence=0, transactional=True
    )
    late = batch(value=b"v", producer_id=txn.producer_id, producer_epoch=txn.epoch, base_sequence=7, transactional=True)
    topic = broker.broker.transactions.topic
    log = topic.log(topic.partition_for("x"))
    before = log.end_offset
    asked = produce("wide", *[first] * (many - 1), late, first, transactional_id="x")
    reported = [code for code, _ in answers(txn.client.ask(asked, 12))]
    assert reported == [0] * (many - 1) + [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, UNKNOWN]
    assert log.end_offset == before + 1
    assert txn.commit() == 0
    assert [values(broker, "wide", index) for index in (0, many - 2, many - 1)] == [[b"v"], [b"v"], []]


@pytest.mark.parametrize("version", [1, 2])
def test_a_produce_to_a_topic_recreated_in_its_transaction_fails_with_the_reason(version):
    """The error code alone would look like a mistake of the client."""
    with SimulatedBroker() as broker:
        broker.ask(create("t", 1))
        broker.ask(create("u", 1))
        txn = Txn(broker, "x", version)
        assert txn.init() == 0
        txn.write("t", b"1")
        txn.write("u", b"2")
        broker.broker.topics.delete(broker.broker.topics.by_name["t"])
        broker.ask(create("t", 1))
        refused = one(txn.client.ask(txn.producing("t", b"3"), PRODUCE[version]))
        assert refused.error_code == (
            ErrorCode.INVALID_TXN_STATE if version == 1 else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        )
        assert "deleted and made again" in refused.error_message
        txn.sequences["u", 0] = 7
        assert one(txn.client.ask(txn.producing("u", b"4"), PRODUCE[version])).error_message is None
        assert txn.abort() == 0
        assert txn.init() == 0
        txn.write("t", b"5")
        assert txn.commit() == 0


def test_a_produce_names_each_partition_recreated_inside_its_transaction():
    """TV2 adds the partitions of one request together; the broker must still notice that they belong to a new topic."""
    with SimulatedBroker() as broker:
        broker.ask(create("t", 2))
        broker.ask(create("u", 1))
        txn = Txn(broker, "x", 2)
        assert txn.init() == 0
        for topic, partition in (("t", 0), ("t", 1), ("u", 0)):
            txn.write(topic, b"1", partition)
        broker.broker.topics.delete(broker.broker.topics.by_name["t"])
        broker.ask(create("t", 2))
        request = txn.producing("t", b"2", 0)
        for more in (txn.producing("t", b"2", 1), txn.producing("u", b"2", 0)):
            request.topic_data += more.topic_data
        for _ in range(2):
            response = txn.client.ask(request, PRODUCE[2])
            *remade, other = (part for topic in response.responses for part in topic.partition_responses)
            assert [part.error_code for part in remade] == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER] * 2
            assert all("deleted and made again" in (part.error_message or "") for part in remade)
            assert (other.error_code, other.error_message) == (0, None)
        assert txn.abort() == 0
        assert [values(broker, "t", 0), values(broker, "u", 0)] == [[], []]
