"""What members tell each other: Kafka's bytes, and what is refused of others'."""

import pytest
from fencepost.client.assignors.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from fencepost.client.values import TopicPartition
from fencepost.protocol.errors import MalformedFrame
from hypothesis import given
from hypothesis import strategies as st

PLACES = st.lists(st.builds(TopicPartition, st.sampled_from(["a", "b", "ü"]), st.integers(0, 9)), unique=True)
SUBSCRIPTIONS = st.builds(
    Subscription,
    st.lists(st.text(max_size=5), max_size=3).map(lambda topics: tuple(sorted(topics))),
    st.none() | st.binary(max_size=9),
    PLACES.map(lambda places: tuple(sorted(places))),
    st.integers(-1, 9),
    st.none() | st.text(max_size=5),
)


@given(SUBSCRIPTIONS)
def test_decoding_an_encoded_subscription_returns_an_equal_subscription(subscription):
    assert decode_subscription(encode_subscription(subscription)) == subscription


@given(PLACES, st.none() | st.binary(max_size=9))
def test_decoding_an_encoded_assignment_returns_its_partitions_and_user_data(places, user_data):
    read = decode_assignment(encode_assignment(Assignment(tuple(places), user_data)))
    assert sorted(read.partitions) == sorted(places)
    assert read.user_data == user_data


def test_an_encoded_subscription_has_the_same_bytes_as_kafkas():
    owned = (TopicPartition("b", 1), TopicPartition("a", 7), TopicPartition("b", 0))
    written = encode_subscription(Subscription(("b", "a"), b"\x01", owned, 5, "r"))
    assert written.hex() == (
        "0003" "00000002" "000161" "000162" "00000001" "01"
        "00000002" "000161" "00000001" "00000007" "000162" "00000002" "00000000" "00000001"
        "00000005" "000172"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("hexed", "read"),
    [
        ("0000" "00000001" "000161" "ffffffff", Subscription(("a",), None, (), None)),
        ("0001" "00000001" "000161" "ffffffff" "00000000", Subscription(("a",), None, (), None)),
        ("0002" "00000001" "000161" "ffffffff" "00000000" "00000007", Subscription(("a",), None, (), 7)),
        ("0009" "00000001" "000161" "ffffffff" "00000000" "00000007" "ffff" "beef", Subscription(("a",), None, (), 7)),
    ],
)  # fmt: skip
def test_subscriptions_of_other_versions_decode_to_the_known_fields(hexed, read):
    assert decode_subscription(bytes.fromhex(hexed)) == read


@given(SUBSCRIPTIONS, st.integers(0, 60))
def test_a_truncated_subscription_is_malformed(subscription, kept):
    written = encode_subscription(subscription)
    if kept < len(written):
        with pytest.raises(MalformedFrame):
            decode_subscription(written[:kept])


@given(st.binary(max_size=40))
def test_arbitrary_bytes_decode_or_raise_malformed_frame_and_nothing_else(content):
    for read in (decode_subscription, decode_assignment):
        try:
            read(content)
        except MalformedFrame:
            pass


def test_an_assignment_with_a_count_above_its_bytes_raises_malformed_frame():
    with pytest.raises(MalformedFrame):
        decode_assignment(bytes.fromhex("0003" "7fffffff"))  # fmt: skip
