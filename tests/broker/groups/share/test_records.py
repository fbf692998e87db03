"""The records of share groups, byte for byte as Apache Kafka 4.3.1 wrote them, and read back whatever they hold."""

import json
from pathlib import Path

import pytest
from fencepost.broker.groups.share import records
from fencepost.broker.groups.share.records import (
    Change,
    Current,
    GroupEpoch,
    Kind,
    Member,
    SharedTopic,
    StatePartitions,
)
from fencepost.broker.groups.targets import Target, TargetEpoch
from fencepost.protocol.record_fields import UnreadableRecord
from hypothesis import given
from hypothesis import strategies as st

RECORDED = json.loads((Path(__file__).parents[3] / "data/kafka-4.3.1-share-group-records.json").read_text())
ROWS = [(bytes.fromhex(key), None if value is None else bytes.fromhex(value)) for key, value in RECORDED]

int32, int64 = st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 63), (1 << 63) - 1)
text, ids = st.text(max_size=9), st.binary(min_size=16, max_size=16)
texts = st.lists(text, max_size=3).map(tuple)
numbers = st.frozensets(st.integers(0, 50))
partitions = st.dictionaries(ids, numbers, max_size=3)
topics = st.dictionaries(ids, st.builds(SharedTopic, text, numbers), max_size=3)
VALUES = {
    Kind.MEMBER: st.builds(Member, st.none() | text, text, text, texts),
    Kind.EPOCH: st.builds(GroupEpoch, int32, int64),
    Kind.TARGET_EPOCH: st.builds(TargetEpoch, int32, int64),
    Kind.TARGET: st.builds(Target, partitions),
    Kind.CURRENT: st.builds(Current, int32, int32, partitions, st.integers(0, 3)),
    Kind.STATE_PARTITIONS: st.builds(StatePartitions, topics, topics, st.dictionaries(ids, text, max_size=3)),
}
kinds = st.sampled_from(sorted(VALUES))


def test_records_of_kafka_are_read_and_written_again_byte_for_byte():
    changes = [records.read(key, value) for key, value in ROWS]
    assert [records.record(group, change) for group, change in changes] == ROWS
    assert {change.kind for _, change in changes} == set(VALUES)
    assert {change.kind for _, change in changes if change.value is None} == set(VALUES)


def test_initializing_initialized_and_deleting_topics_in_kafkas_records_are_decoded():
    found = [change.value for _, change in (records.read(*row) for row in ROWS)]
    listed = [value for value in found if isinstance(value, StatePartitions)]
    assert [any(getattr(each, which) for each in listed) for which in StatePartitions._fields] == [True, True, True]


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


@given(kind=kinds, value=st.binary(max_size=60))
def test_arbitrary_bytes_decode_as_a_record_or_are_refused(kind, value):
    try:
        group, change = records.read(records.key("g", kind, "m"), value)
    except UnreadableRecord:
        return
    assert (group, change.kind) == ("g", kind)


def test_a_share_group_record_of_a_newer_version_is_refused():
    with pytest.raises(UnreadableRecord, match="version 1"):
        records.read(records.key("g", Kind.EPOCH, ""), b"\x00\x01" + bytes(13))
