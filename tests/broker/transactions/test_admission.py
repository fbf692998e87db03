"""What may be written in a transaction, over the fast path and the general path."""

import pytest
from broker_lives import offset_at
from fencepost.protocol.errors import ErrorCode
from produce_requests import answers, create, idempotent, produce
from simulated_broker import SimulatedBroker
from txn_client import begun, values

OK = ErrorCode.NONE
FENCED, STALE = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH
MAPPING, STATE = ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_TXN_STATE
ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE


@pytest.fixture
def broker():
    with SimulatedBroker() as broker:
        broker.ask(create("t", 3))
        broker.ask(create("u", 1))
        yield broker
        assert not broker.broker.metrics.failures


@pytest.mark.parametrize(("version", "code"), [(3, STATE), (10, STATE), (11, ABORTABLE)])
def test_a_batch_for_a_partition_that_was_not_added_is_refused_by_tv1(broker, version, code):
    txn = begun(broker)
    assert txn.add("t", 1) == [OK]
    assert txn.send("t", b"x", version=version) == code
    assert offset_at(broker, "t", -1) == 0


def test_a_produce_request_with_two_transactional_producers_is_refused(broker):
    one, two = begun(broker, 2, "one"), begun(broker, 2, "two")
    request, other = one.producing("t", b"1"), two.producing("t", b"2", 1)
    request.topic_data[0].partition_data += other.topic_data[0].partition_data
    assert answers(broker.ask(request, 12)) == [(MAPPING, -1)] * 2


def test_a_plain_batch_is_refused_only_in_partitions_of_the_open_transaction(broker):
    txn = begun(broker)
    txn.write("t", b"x")
    plain = idempotent(1, producer_id=txn.producer_id, epoch=txn.epoch)
    assert answers(broker.ask(produce("t", plain), 9)) == [(STATE, -1)]
    assert answers(broker.ask(produce("t", idempotent(0, producer_id=txn.producer_id, epoch=0), partition=1), 9)) == [
        (OK, 0)
    ]


def test_transactional_produce_has_the_same_result_on_the_fast_and_general_path():
    """Versions 3, 8 and 10 of Produce are compared."""

    def after(version: int) -> tuple[list, list, list]:
        with SimulatedBroker() as broker:
            broker.ask(create("t"))
            txn = begun(broker)
            for number in range(4):
                assert txn.add("t", 0) == [OK]
                for _ in range(3):
                    assert txn.send("t", b"%d" % number, version=version) == OK
                assert txn.send("t", b"%d" % number, sequence=3 * number + 2, version=version) == OK  # once more
                assert txn.end(commit=number % 2 == 0) == OK
            assert txn.add("t", 0) == [OK]
            assert txn.send("t", b"open", version=version) == OK
            log = broker.broker.topics.by_name["t"].partitions[0].log
            described = [each._replace(last_timestamp=0) for each in log.producers.describe()]
            return described, values(broker, "t"), values(broker, "t", committed=False)

    assert after(3) == after(8) == after(10)


@pytest.mark.parametrize(("version", "code"), [(0, STATE), (3, STATE), (4, ABORTABLE)])
def test_offsets_of_a_group_that_was_not_added_are_refused_by_tv1(broker, version, code):
    txn = begun(broker)
    assert txn.send_offset("t", 1, version=version) == code
