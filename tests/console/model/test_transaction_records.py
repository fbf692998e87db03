"""Records of __transaction_state, as the broker writes them and in Kafka's older format."""

import struct

from fencepost.broker.transactions import records as written
from fencepost.broker.transactions.states.transaction import Prepared, Status, Transaction
from fencepost.client.values import TopicPartition
from fencepost.console.model.transaction_records import STATES, read_record
from hypothesis import given
from hypothesis import strategies as st

PARTITIONS = {("orders", 0): 1, ("orders", 3): 2, ("payments", 1): 3}


def record(status: Status, partitions: dict | None = None, prepared: Prepared | None = None) -> tuple[bytes, bytes]:
    txn = Transaction("id", 4000, 3, 60_000, status, PARTITIONS if partitions is None else partitions, 5, 6)
    return written.key("id"), written.value(txn._replace(prepared=prepared))


def test_every_transaction_state_record_of_the_broker_is_decoded() -> None:
    for status in Status:
        found = read_record(*record(status))
        assert found is not None
        name, read = found
        assert read is not None
        assert (name, read.producer_id, read.producer_epoch) == ("id", 4000, 3)
        assert read.state == STATES[status.value]
        assert read.state.upper() == status.name.replace("_", "")
        expected = set() if status == Status.EMPTY else {TopicPartition(*each) for each in PARTITIONS}
        assert read.partitions == expected


def test_the_record_of_a_prepared_transaction_with_300_partitions_is_decoded() -> None:
    many = {("t" * 200, number): number for number in range(300)}
    found = read_record(*record(Status.ONGOING, many, Prepared("sink", 17, 1000, 5)))
    assert found is not None
    assert found[1] is not None
    assert len(found[1].partitions) == 300


def test_transaction_records_of_version_0_are_decoded() -> None:
    head = struct.pack(">hqhib", 0, 9, 1, 1000, 1)  # version, producer id, epoch, timeout, state
    topic = struct.pack(">ih6sii", 1, 6, b"orders", 1, 4)
    found = read_record(written.key("old"), head + topic + struct.pack(">qq", 1, 1))  # last update, start
    assert found is not None
    assert found[1] == ("Ongoing", 9, 1, {TopicPartition("orders", 4)})


def test_an_expired_transactional_id_has_a_null_value() -> None:
    assert read_record(written.key("gone"), None) == ("gone", None)


@given(st.integers(0, 200), st.binary(max_size=20))
def test_reading_a_damaged_transaction_record_raises_nothing(at: int, other: bytes) -> None:
    key, value = record(Status.ONGOING)
    for damaged in ((key[:at], value), (key, value[:at]), (key, value[:at] + other + value[at:]), (other, value)):
        found = read_record(*damaged)
        assert found is None or isinstance(found[0], str)  # some other bytes are a record too
    assert read_record(b"", value) is None
    assert read_record(None, value) is None
    assert read_record(key, b"\x00\x02" + value[2:]) is None
