"""The record of a group beside the bytes that Apache Kafka 4.3.1 wrote, and the errors for damaged ones."""

import pytest
from fencepost.broker.groups import group_records
from fencepost.broker.groups.group_records import KeptGroup, KeptMember, UnreadableGroup
from hypothesis import given
from hypothesis import strategies as st

KEY = "0002001667726f7570732d7265636f72642d70726f62652d6131"
ID = "inst-1-fccf2938-ad02-45a6-a3fe-18b3dc91969c"
STABLE = (
    "00030008636f6e73756d657200000001000572616e6765002b696e73742d312d66636366323933382d616430322d343561362d613366652d"
    "313862336463393139363963000001a1fc60aa9f00000001002b696e73742d312d66636366323933382d616430322d343561362d61336665"
    "2d3138623364633931393639630006696e73742d310003726563000a2f3132372e302e302e310000ea600000271000000003737562000000"
    "03617373"
)
EMPTY = "00030008636f6e73756d657200000002ffffffff000001a1fc60aaa300000000"
NEW = "0003000000000000ffffffff000001a1fc60aa9e00000000"

MEMBER = KeptMember(ID, "inst-1", "rec", "/127.0.0.1", 60_000, 10_000, b"sub", b"ass")
GROUP = KeptGroup("consumer", 1, "range", ID, (MEMBER,), 1_795_235_555_999)


def test_group_records_have_the_same_bytes_as_kafkas() -> None:
    assert group_records.key("groups-record-probe-a1").hex() == KEY
    assert group_records.value(GROUP).hex() == STABLE
    assert group_records.value(KeptGroup("consumer", 2, None, None, (), 1_795_235_556_003)).hex() == EMPTY
    assert group_records.value(KeptGroup("", 0, None, None, (), 1_795_235_555_998)).hex() == NEW


def test_group_records_written_by_kafka_are_decoded() -> None:
    assert group_records.read_key(bytes.fromhex(KEY)) == "groups-record-probe-a1"
    assert group_records.read_value(bytes.fromhex(STABLE)) == GROUP
    assert group_records.read_value(bytes.fromhex(EMPTY)).generation == 2


@pytest.mark.parametrize("version", [0, 1, 2])
def test_group_records_of_older_versions_are_decoded(version: int) -> None:
    text = lambda t: len(t).to_bytes(2, "big") + t.encode()  # noqa: E731
    value = version.to_bytes(2, "big") + text("consumer") + (7).to_bytes(4, "big") + text("range") + text("m")
    value += (5).to_bytes(8, "big") if version >= 2 else b""
    value += (1).to_bytes(4, "big") + text("m") + text("client") + text("/host")
    value += (60_000).to_bytes(4, "big") if version >= 1 else b""
    value += (10_000).to_bytes(4, "big") + b"\0\0\0\1s" + b"\0\0\0\1a"
    # Before version 1, the session timeout was also the rebalance timeout.
    rebalance_ms = 60_000 if version >= 1 else 10_000
    member = KeptMember("m", None, "client", "/host", rebalance_ms, 10_000, b"s", b"a")
    assert group_records.read_value(value) == KeptGroup(
        "consumer", 7, "range", "m", (member,), 5 if version == 2 else -1
    )


def test_the_must_rebalance_flag_of_a_downgraded_group_is_in_its_record() -> None:
    group = GROUP._replace(must_rebalance=True)
    value = group_records.value(group)
    assert value[:2] == b"\0\4"
    assert group_records.read_value(value) == group
    assert group_records.read_value(value[:-4] + b"\0") == GROUP  # without the tag


def test_the_record_of_an_empty_group_has_the_data_directory_age_at_which_it_emptied() -> None:
    """Also with a tagged field that this version does not know, which is skipped."""
    group = KeptGroup("consumer", 9, None, None, (), 1_700_000_000_000, 123_456_789)
    value = group_records.value(group)
    assert value[:2] == b"\0\4"
    assert group_records.read_value(value) == group
    unknown_tag = value[:-12] + b"\2" + bytes.fromhex("e8070161") + value[-11:]
    assert group_records.read_value(unknown_tag) == group


texts = st.text(max_size=20)
members = st.builds(
    KeptMember,
    texts,
    st.none() | texts,
    texts,
    texts,
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**31 - 1),
    st.binary(max_size=50),
    st.binary(max_size=50),
)
groups = st.builds(
    KeptGroup,
    texts,
    st.integers(0, 2**31 - 1),
    st.none() | texts,
    st.none() | texts,
    st.lists(members, min_size=1, max_size=4).map(tuple),
    st.integers(-1, 2**62),
    st.just(group_records.UNKNOWN_AGE),
)


@pytest.mark.slow
@given(groups)
def test_a_group_reads_back_as_it_was_written(group: KeptGroup) -> None:
    assert group_records.read_value(group_records.value(group)) == group


@pytest.mark.parametrize("value", [STABLE, EMPTY])
def test_a_record_that_ends_early_is_refused(value: str) -> None:
    whole = bytes.fromhex(value)
    for size in range(len(whole)):
        with pytest.raises(UnreadableGroup):
            group_records.read_value(whole[:size])


@pytest.mark.parametrize("length", [b"\xff" * 6, b"\xff\xff\xff\xff\x7f"])
def test_a_group_record_with_an_invalid_varint_length_is_refused(length: bytes) -> None:
    with pytest.raises(UnreadableGroup):
        group_records.read_value(b"\0\4" + length + bytes(40))


@given(st.binary(max_size=80))
def test_arbitrary_bytes_decode_as_a_record_or_are_refused(value: bytes) -> None:
    for read in (group_records.read_value, group_records.read_key):
        try:
            read(value)
        except UnreadableGroup:
            pass


def test_a_group_record_of_a_newer_version_raises_an_error_with_the_version() -> None:
    with pytest.raises(UnreadableGroup, match="version 5"):
        group_records.read_value(b"\0\5" + bytes(100))
