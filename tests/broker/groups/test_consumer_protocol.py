"""The consumer protocol as the broker reads and writes it, beside the client's own reader and writer."""

import pytest
from fencepost.broker.groups.consumer_protocol import (
    Subscribed,
    UnreadableMetadata,
    assignment_for,
    read_assignment,
    read_subscription,
)
from fencepost.client.assignors.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from fencepost.client.values import TopicPartition

OWNED = (TopicPartition("t", 0), TopicPartition("t", 2), TopicPartition("u", 1))
WHOLE = encode_subscription(Subscription(("t", "u"), b"data", OWNED, 5, "rack"))


def older(version):
    """Return the subscription as a member of an older version writes it."""
    plain = encode_subscription(Subscription(("t",), b"data", OWNED, 5))
    ends = {0: len(plain) - 2 - 4 - len(_partitions()), 1: len(plain) - 2 - 4, 2: len(plain) - 2}
    return version.to_bytes(2, "big") + plain[2 : ends[version]]


def _partitions():
    return encode_assignment(Assignment(OWNED))[2:-4]


def test_a_subscription_is_read_as_clients_write_it():
    assert read_subscription(WHOLE) == Subscribed(("t", "u"), {"t": [0, 2], "u": [1]}, "rack")


@pytest.mark.parametrize(("version", "owned"), [(0, {}), (1, {"t": [0, 2], "u": [1]}), (2, {"t": [0, 2], "u": [1]})])
def test_subscriptions_of_older_versions_decode_without_newer_fields(version, owned):
    assert read_subscription(older(version)) == Subscribed(("t",), owned, None)


def test_an_assignment_is_encoded_in_the_version_of_the_members_subscription():
    for version in (0, 1, 3, 9):
        written = assignment_for(version.to_bytes(2, "big"), {"t": [2, 0], "u": [1]})
        assert written[:2] == min(version, 3).to_bytes(2, "big")
        assert decode_assignment(written).partitions == OWNED
        assert read_assignment(written) == {"t": [0, 2], "u": [1]}
    assert read_assignment(encode_assignment(Assignment(OWNED, b"data"))) == {"t": [0, 2], "u": [1]}


def test_an_empty_assignment_reads_as_no_partitions():
    assert read_assignment(b"") == {}


@pytest.mark.parametrize("cut", range(len(WHOLE)))
def test_a_consumer_protocol_subscription_that_is_cut_short_is_refused(cut):
    with pytest.raises(UnreadableMetadata):
        read_subscription(WHOLE[:cut])


@pytest.mark.parametrize("bytes_", [b"\xff\xff", b"\0\3" + b"\x7f" * 4, b"\0\3\0\0\0\1\0\1\xff", b"x"])
def test_malformed_bytes_of_a_subscription_or_assignment_raise_unreadable_metadata(bytes_):
    for read in (read_subscription, read_assignment):
        with pytest.raises(UnreadableMetadata):
            read(bytes_)
