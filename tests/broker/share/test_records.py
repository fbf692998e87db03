"""The records of share partitions: bytes that Apache Kafka 4.3.1 wrote, and what cannot be such a record."""

from struct import pack

import pytest
from fencepost.broker.share.records import (
    Kind,
    home_name,
    read_key,
    read_snapshot,
    read_update,
    record_key,
    snapshot_value,
    update_value,
)
from fencepost.broker.share.values import UNCHANGED, SharePartitionKey, Snapshot, State, StateBatch, Update
from fencepost.protocol.java_hash import partition_for
from fencepost.protocol.record_fields import UnreadableRecord

A, K, X = State.AVAILABLE, State.ACKNOWLEDGED, State.ARCHIVED

# What a ShareConsumer made Kafka write: of 20 records it released 3, 4 and 10, rejected 7 and 15, accepted the others,
# then accepted 3 and 4, and released 10 until it was given out five times. Snapshots came with every second update.
KEY = SharePartitionKey("billing", bytes.fromhex("f0f355a36a664d2f82074e48307f4a6a"), 0)
WRITTEN_TO = 45  # of 50 partitions
RECORDS = [
    (
        "0000000762696c6c696e67f0f355a36a664d2f82074e48307f4a6a00000000",
        "0000000000000000000200000000ffffffffffffffff000001a21f9afc86000001a21f9afc860100",
    ),
    (
        "0001000762696c6c696e67f0f355a36a664d2f82074e48307f4a6a00000000",
        "0000000000000000000000000000000000000a0000000000000000000000000000000202000100000000000000000300"
        "000000000000040000010000000000000000050000000000000006020001000000000000000007000000000000000704"
        "0001000000000000000008000000000000000902000100000000000000000a000000000000000a000001000000000000"
        "00000b000000000000000e02000100000000000000000f000000000000000f0400010000000000000000100000000000"
        "0000130200010001000400000011",
    ),
    (
        "0001000762696c6c696e67f0f355a36a664d2f82074e48307f4a6a00000000",
        "000000000000000000000000000000000003030000000000000003000000000000000402000200000000000000000a00"
        "0000000000000a0000020001000400000010",
    ),
    (
        "0000000762696c6c696e67f0f355a36a664d2f82074e48307f4a6a00000000",
        "0000000000010000000200000000000000000000000a000001a21f9b06cd000001a21f9b06cd05000000000000000a00"
        "0000000000000a00000300000000000000000b000000000000000e02000100000000000000000f000000000000000f04"
        "000100000000000000001000000000000000130200010001000400000009",
    ),
    (
        "0001000762696c6c696e67f0f355a36a664d2f82074e48307f4a6a00000000",
        "00000000000100000000000000000000000a02000000000000000a000000000000000a0000040001000400000009",
    ),
    (
        "0001000762696c6c696e67f0f355a36a664d2f82074e48307f4a6a00000000",
        "00000000000100000000000000000000000a02000000000000000a000000000000000a040005000100040000000a",
    ),
]


def read(kind: Kind, value: bytes) -> Snapshot | Update:
    return read_snapshot(value) if kind is Kind.SNAPSHOT else read_update(value)


def written(what: Snapshot | Update, epoch: int) -> bytes:
    return snapshot_value(what) if isinstance(what, Snapshot) else update_value(what, epoch)


def test_share_state_records_of_kafka_decode_and_encode_to_the_same_bytes() -> None:
    epoch = 0
    for key, value in RECORDS:
        kind, share_partition = read_key(bytes.fromhex(key))
        assert share_partition == KEY
        assert record_key(kind, KEY).hex() == key
        what = read(kind, bytes.fromhex(value))
        epoch = what.epoch if isinstance(what, Snapshot) else epoch
        assert written(what, epoch).hex() == value


def test_share_state_records_of_kafka_decode_to_the_states_that_its_consumer_made() -> None:
    found = [read(*(read_key(bytes.fromhex(key))[0], bytes.fromhex(value))) for key, value in RECORDS]
    assert found[0] == Snapshot(0, 2, -1, UNCHANGED, [], 1795826580614, 1795826580614)
    assert found[2] == Update(3, 16, [StateBatch(3, 4, K, 2), StateBatch(10, 10, A, 2)])
    rest = [StateBatch(11, 14, K, 1), StateBatch(15, 15, X, 1), StateBatch(16, 19, K, 1)]
    assert found[3] == Snapshot(1, 2, 10, 9, [StateBatch(10, 10, A, 3), *rest], 1795826583245, 1795826583245)
    assert found[5] == Update(10, 10, [StateBatch(10, 10, X, 5)])


def test_share_state_is_in_the_state_partition_that_kafka_would_choose() -> None:
    assert partition_for(home_name(KEY), 50) == WRITTEN_TO


def test_the_member_of_a_pending_range_is_a_tagged_field_that_readers_may_skip() -> None:
    update = Update(
        UNCHANGED, UNCHANGED, [StateBatch(0, 4, K, 1, "m-1"), StateBatch(7, 7, X, 2), StateBatch(9, 9, K, 1, "m-2")]
    )
    value = update_value(update, 3)
    assert read_update(value) == update
    # the same tagged field with another number, which this reader does not know
    assert read_update(value.replace(pack(">BHB", 1, 0x904E, 3), pack(">BHB", 1, 0x914E, 3))) == Update(
        UNCHANGED, UNCHANGED, [batch._replace(member="") for batch in update.batches]
    )


def test_share_records_in_the_archiving_state_are_decoded_as_archived() -> None:
    value = update_value(Update(0, 1, [StateBatch(5, 5, X, 1)]), 0)
    assert read_update(value.replace(pack(">bh", 4, 1), pack(">bh", 3, 1))).batches == [StateBatch(5, 5, X, 1)]


@pytest.mark.parametrize("cut", range(1, 70))
def test_a_share_state_value_that_is_cut_short_is_unreadable(cut: int) -> None:
    for key, value in RECORDS:
        kind, _ = read_key(bytes.fromhex(key))
        if cut < len(value) // 2:
            with pytest.raises(UnreadableRecord):
                read(kind, bytes.fromhex(value)[:-cut])


@pytest.mark.parametrize(
    "batches",
    [
        [StateBatch(5, 4, K, 1)],
        [StateBatch(-1, 4, K, 1)],
        [StateBatch(0, 4, K, 1), StateBatch(4, 5, X, 1)],
        [StateBatch(6, 6, K, 1), StateBatch(4, 5, X, 1)],
        [StateBatch(0, 4, K, -1)],
        [StateBatch(0, 4, State.PENDING, 1)],
    ],
)
def test_share_state_updates_and_snapshots_with_invalid_ranges_are_unreadable(batches: list[StateBatch]) -> None:
    with pytest.raises(UnreadableRecord):
        read_update(update_value(Update(0, 0, batches), 0))
    with pytest.raises(UnreadableRecord):
        read_snapshot(snapshot_value(Snapshot(0, 0, 0, 0, batches)))


def test_unknown_share_state_keys_and_versions_are_refused() -> None:
    for key in (b"", b"\0\2" + record_key(Kind.UPDATE, KEY)[2:], record_key(Kind.UPDATE, KEY)[:-1]):
        with pytest.raises(UnreadableRecord):
            read_key(key)
    with pytest.raises(UnreadableRecord):
        read_update(b"\0\1" + update_value(Update(0, 0, []), 0)[2:])


def test_the_log_record_of_an_acknowledgement_of_one_range_takes_at_most_160_bytes() -> None:
    one = update_value(Update(1_000_000, 0, [StateBatch(1_000_000, 1_000_049, K, 1)]), 9)
    two = update_value(Update(1_000_000, 0, [StateBatch(1_000_000, 1_000_049, K, 1)] * 2), 9)
    assert len(record_key(Kind.UPDATE, KEY)) + len(one) + 61 + 10 <= 160, "the head of a batch and of a record included"
    assert len(two) - len(one) == 20
