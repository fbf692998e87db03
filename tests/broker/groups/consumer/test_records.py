"""The records of consumer groups, byte for byte as Apache Kafka 4.3.1 wrote them, and read back whatever they hold."""

import json
from pathlib import Path

import pytest
from fencepost.broker.groups.consumer import records
from fencepost.broker.groups.consumer.records import (
    Change,
    Classic,
    Current,
    GroupEpoch,
    Kind,
    MemberState,
    Resolved,
    Subscription,
)
from fencepost.broker.groups.targets import Target, TargetEpoch
from fencepost.protocol.record_fields import UnreadableRecord
from hypothesis import given
from hypothesis import strategies as st

RECORDED = json.loads((Path(__file__).parents[3] / "data/kafka-4.3.1-consumer-group-records.json").read_text())
ROWS = [(bytes.fromhex(key), None if value is None else bytes.fromhex(value)) for key, value in RECORDED]

int32, int64 = st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 63), (1 << 63) - 1)
text, ids = st.text(max_size=9), st.binary(min_size=16, max_size=16)
texts = st.lists(text, max_size=3).map(tuple)
partitions = st.integers(0, 50)
held = st.dictionaries(ids, st.dictionaries(partitions, st.integers(0, 99), min_size=1), max_size=3)
classic = st.builds(Classic, int32, st.lists(st.tuples(text, st.binary(max_size=9)), max_size=3).map(tuple))
maybe = st.none() | text
VALUES = {
    Kind.EPOCH: st.builds(GroupEpoch, int32, int64, st.none() | int64),
    Kind.SUBSCRIPTION: st.builds(
        Subscription, maybe, maybe, text, text, texts, maybe, int32, maybe, st.none() | classic
    ),
    Kind.TARGET_EPOCH: st.builds(TargetEpoch, int32, int64),
    Kind.TARGET: st.builds(Target, st.dictionaries(ids, st.frozensets(partitions), max_size=3)),
    Kind.CURRENT: st.builds(Current, int32, int32, st.sampled_from(MemberState), held, held),
    Kind.REGEX: st.builds(Resolved, texts, int64, int64),
}
kinds = st.sampled_from(sorted(VALUES))


def test_records_of_kafka_are_read_and_written_again_byte_for_byte():
    changes = [records.read(key, value) for key, value in ROWS]
    assert [records.record(group, change) for group, change in changes] == ROWS
    assert {change.kind for _, change in changes} == set(VALUES)
    assert {change.kind for _, change in changes if change.value is None} == {
        Kind.SUBSCRIPTION,
        Kind.TARGET,
        Kind.CURRENT,
        Kind.REGEX,
    }


@given(group=text, name=text, data=st.data(), kind=kinds)
def test_any_record_reads_back_as_the_change_that_was_written(group, name, data, kind):
    change = Change(kind, "" if kind in records.OF_THE_GROUP else name, data.draw(VALUES[kind] | st.none()))
    assert records.read(*records.record(group, change)) == (group, change)


@given(data=st.data(), kind=kinds, cut=st.integers(0, 200))
def test_a_record_that_is_cut_short_is_refused(data, kind, cut):
    key, value = records.record("g", Change(kind, "m", data.draw(VALUES[kind])))
    assert value is not None
    if cut < len(value):
        with pytest.raises(UnreadableRecord):
            records.read(key, value[:cut])
    with pytest.raises(UnreadableRecord):
        records.read(key[: -1 - cut], value)


@pytest.mark.parametrize(("kind", "value"), [(Kind.REGEX, Resolved((), 0, 0)), (Kind.TARGET, Target({}))])
def test_a_record_without_its_last_byte_is_refused(kind, value):
    key, written = records.record("g", Change(kind, "m", value))
    assert written is not None
    with pytest.raises(UnreadableRecord):
        records.read(key, written[:-1])


@given(kind=kinds, value=st.binary(max_size=60))
def test_arbitrary_bytes_decode_as_a_record_or_are_refused(kind, value):
    key = records.key("g", kind, "m")
    try:
        group, change = records.read(key, value)
    except UnreadableRecord:
        return
    assert (group, change.kind) == ("g", kind)


def test_assigned_partitions_without_epochs_get_the_members_epoch():
    """Kafka before 4.3 wrote no epochs of partitions."""
    value = bytes.fromhex("0000 00000005 00000004 00 02" + "aa" * 16 + "02 00000003 00 01 00")
    _, change = records.read(records.key("g", Kind.CURRENT, "m"), value)
    assert change.value == Current(5, 4, MemberState.STABLE, {b"\xaa" * 16: {3: 5}})


def test_a_consumer_group_record_of_a_newer_version_is_refused():
    with pytest.raises(UnreadableRecord, match="version 1"):
        records.read(records.key("g", Kind.EPOCH, ""), b"\x00\x01" + bytes(5))


def test_partition_metadata_records_of_older_kafkas_are_ignored():
    key = records.key("g", Kind.PARTITION_METADATA, "")
    assert records.read(key, b"anything") == ("g", Change(Kind.PARTITION_METADATA, "", None))
