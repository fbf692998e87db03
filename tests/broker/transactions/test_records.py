"""Records of __transaction_state: the same bytes as Apache Kafka's, ours beside them, and nothing guessed."""

import struct

import pytest
from fencepost.broker.transactions import records
from fencepost.broker.transactions.records import DamagedTransactionRecord, NewerTransactionRecord, key, read, value
from fencepost.broker.transactions.states.transaction import TWO_PHASE_TIMEOUT_MS, Prepared, Status, Transaction
from fencepost.protocol.primitives import read_uvarint, uvarint
from hypothesis import given
from hypothesis import strategies as st
from transaction_states import in_state

NAME = "px-1795234289-one"
KEY = "0000001170782d313739353233343238392d6f6e65"
A, B = "px-a", "px-b"

# Fetched from __transaction_state of Apache Kafka 4.3.1: an id through TV1 (commit) and TV2 (abort).
BY_KAFKA = {
    "Empty": (
        "0001000000000000003800000000ea600000000001a1fc4d5eacffffffffffffffff0100080000000000000038",
        Transaction(NAME, 56, 0, 60000, Status.EMPTY, {}, -1, 1795234291372, previous_producer_id=56),
    ),
    "Ongoing": (
        "0001000000000000003800000000ea6001030570782d61030000000000000002000570782d620200000001000000"
        "01a1fc4d5eae000001a1fc4d5eae0100080000000000000038",
        Transaction(
            NAME,
            56,
            0,
            60000,
            Status.ONGOING,
            {(A, 0): -1, (A, 2): -1, (B, 1): -1},
            1795234291374,
            1795234291374,
            previous_producer_id=56,
        ),
    ),
    "CompleteCommit of TV1": (
        "0001000000000000003800000000ea600401000001a1fc4d5eb0000001a1fc4d5eae0100080000000000000038",
        Transaction(
            NAME, 56, 0, 60000, Status.COMPLETE_COMMIT, {}, 1795234291374, 1795234291376, previous_producer_id=56
        ),
    ),
    "PrepareAbort of TV2": (
        "0001000000000000003800010000ea6003020570782d62020000000000000001a1fc4d60a9000001a1fc4d60a7"
        "020008000000000000003802020002",
        Transaction(
            NAME,
            56,
            1,
            60000,
            Status.PREPARE_ABORT,
            {(B, 0): -1},
            1795234291879,
            1795234291881,
            previous_producer_id=56,
            client_version=2,
        ),
    ),
    "CompleteAbort of TV2": (
        "0001000000000000003800010000ea600501000001a1fc4d60a9000001a1fc4d60a7020008000000000000003802020002",
        Transaction(
            NAME,
            56,
            1,
            60000,
            Status.COMPLETE_ABORT,
            {},
            1795234291879,
            1795234291881,
            previous_producer_id=56,
            client_version=2,
        ),
    ),
}


def without_ours(written: bytes) -> bytes:
    """Return the value without our tagged fields. What is left must be Kafka's, byte for byte."""
    _, end = records._partitions(written, records._HEAD.size)
    end += 16
    tags, _ = records._tags(written, end)
    theirs = {tag: content for tag, content in tags.items() if tag < 10000}
    fields = b"".join(uvarint(tag) + uvarint(len(content)) + content for tag, content in theirs.items())
    return written[:end] + uvarint(len(theirs)) + fields


@pytest.mark.requirement("S-59", "S-64")
@pytest.mark.parametrize("name", BY_KAFKA)
def test_a_record_written_by_kafka_is_read_and_written_in_the_same_bytes(name):
    written, txn = bytes.fromhex(BY_KAFKA[name][0]), BY_KAFKA[name][1]
    expected = txn._replace(updated_age_ms=77, started_age_ms=-1 if txn.start_ms < 0 else 77)
    assert read(bytes.fromhex(KEY), written, age_ms=77) == (NAME, expected)
    assert key(NAME).hex() == KEY
    assert without_ours(value(txn)) == written


def test_transaction_records_of_version_0_are_decoded():
    """They are from before KIP-890; the test writes them with the layout of Kafka's message definition."""
    old = struct.pack(">hqhib", 0, 56, 3, 60000, 1)
    old += struct.pack(">ih4sii", 1, 4, b"px-a", 2, 0) + struct.pack(">i", 2) + struct.pack(">qq", 2000, 1000)
    txn = Transaction(NAME, 56, 3, 60000, Status.ONGOING, {(A, 0): -1, (A, 2): -1}, 1000, 2000)
    assert read(key(NAME), old) == (NAME, txn._replace(started_age_ms=0))
    empty = struct.pack(">hqhibiqq", 0, 56, 3, 60000, 0, -1, 2000, -1)
    assert read(key(NAME), empty)[1].status is Status.EMPTY


@pytest.mark.requirement("S-113")
def test_a_null_value_means_that_the_transactional_id_was_removed():
    assert read(key("gone"), None) == ("gone", None)


NUMBERS = st.integers(-1, 2**63 - 1)
TOPICS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=8)
TRANSACTIONS = st.builds(
    Transaction,
    st.text(min_size=1, max_size=20),
    NUMBERS,
    st.integers(-1, 32767),
    st.integers(1, 2**31 - 1) | st.just(TWO_PHASE_TIMEOUT_MS),
    st.sampled_from([status for status in Status if status is not Status.EMPTY]),
    st.dictionaries(st.tuples(TOPICS, st.integers(0, 2**31 - 1)), NUMBERS, max_size=6),
    NUMBERS,
    NUMBERS,
    NUMBERS,
    NUMBERS,
    st.integers(-1, 32767),
    NUMBERS,
    NUMBERS,
    st.integers(-1, 32767),
    st.integers(0, 2),
    st.booleans(),
    st.none() | st.builds(Prepared, st.text(max_size=200), NUMBERS, st.integers(-1, 2**31 - 1), NUMBERS),
    NUMBERS,
).map(lambda txn: txn._replace(timeout_ms=TWO_PHASE_TIMEOUT_MS) if txn.enable_2pc else txn)


@pytest.mark.slow
@given(TRANSACTIONS)
def test_a_transaction_reads_back_as_it_was_written(txn):
    name, found = read(key(txn.transactional_id), value(txn))
    assert (name, found) == (txn.transactional_id, txn)


def test_without_the_2pc_field_a_timeout_of_2_to_31_minus_1_means_two_phase_commit():
    """Kafka, and older versions of fencepost, do not write the field: they mark two-phase commit by this timeout. Where
    the field is present its value counts, and 2**31 - 1 is an ordinary timeout.
    """
    plain = in_state("ONGOING")._replace(timeout_ms=TWO_PHASE_TIMEOUT_MS)
    written = value(plain)
    assert read(key("id"), written)[1].enable_2pc is False
    flag = uvarint(10003) + b"\x01\x00"
    assert written.count(flag) == 1
    _, end = records._partitions(written, records._HEAD.size)
    count, after = read_uvarint(written, end + 16)
    before = written[: end + 16] + uvarint(count - 1) + written[after:].replace(flag, b"")
    assert read(key("id"), before)[1] == plain._replace(enable_2pc=True)


def test_10_000_partitions_of_a_transaction_read_back_with_their_log_ids():
    partitions = {(f"topic-{n % 100}", n): n * 7 for n in range(10_000)}
    txn = in_state("ONGOING")._replace(partitions=partitions)
    assert read(key("id"), value(txn))[1].partitions == partitions


def test_unknown_tagged_fields_of_a_transaction_record_are_skipped():
    txn = in_state("ONGOING")
    written = value(txn)
    _, end = records._partitions(written, records._HEAD.size)
    count, after = read_uvarint(written, end + 16)
    more = written[: end + 16] + uvarint(count + 1) + written[after:] + uvarint(20000) + uvarint(3) + b"new"
    assert read(key("id"), more)[1] == txn


@pytest.mark.parametrize(
    ("key_bytes", "value_bytes", "says"),
    [
        (b"\x00\x01" + key("id")[2:], value(in_state("EMPTY")), "the key has version 1"),
        (key("id"), b"\x00\x03" + value(in_state("EMPTY"))[2:], "'id': the value has version 3, 2 is known"),
        (key("id"), b"\x00\x02" + value(in_state("PREPARED"))[2:], "'id': version 2 of the value is another one here"),
        (key("id"), b"\x00\x01" + value(in_state("HELD"))[2:], "'id': version 1 of the value is another one here"),
    ],
)
def test_newer_transaction_records_raise_an_error_naming_the_version(key_bytes, value_bytes, says):
    with pytest.raises(NewerTransactionRecord, match=says):
        read(key_bytes, value_bytes)


@pytest.mark.parametrize(("version", "error"), [(3, NewerTransactionRecord), (-1, DamagedTransactionRecord)])
def test_a_transaction_record_with_an_unknown_client_version_is_refused(version, error):
    txn = in_state("EMPTY")
    written = value(txn._replace(client_version=2))
    at = written.index(b"\x02\x02\x00\x02") + 2
    with pytest.raises(error, match=f"version is {version}"):
        read(key("id"), written[:at] + version.to_bytes(2, "big", signed=True) + written[at + 2 :])


@pytest.mark.parametrize("topics", [1, 1000, 2**31 - 1])
@pytest.mark.parametrize("size", [-1, -6, -(2**15), 2**15 - 1])
def test_a_topic_name_length_that_is_negative_or_too_large_is_refused(topics, size):
    head = b"\x00\x00" + value(in_state("ONGOING"))[2 : records._HEAD.size]
    array = topics.to_bytes(4, "big") + size.to_bytes(2, "big", signed=True) + bytes(30)
    with pytest.raises(DamagedTransactionRecord, match="the length of a name is"):
        read(key("id"), head + array)


def test_a_transaction_record_with_a_null_topic_name_is_refused():
    head = value(in_state("ONGOING"))[: records._HEAD.size]
    with pytest.raises(DamagedTransactionRecord, match="the length of a name is"):
        read(key("id"), head + b"\x02\x00" + bytes(30))


def test_a_transaction_record_with_an_unknown_status_is_refused():
    written = bytearray(value(in_state("EMPTY")))
    written[16] = 8
    with pytest.raises(DamagedTransactionRecord, match="8 is not a status"):
        read(key("id"), bytes(written))


@pytest.mark.parametrize("state", ["EMPTY", "ONGOING", "PREPARED"])
def test_a_transaction_record_cut_short_or_too_long_is_refused(state):
    """What is left of a record may look like one of a newer version."""
    whole = value(in_state(state))
    for size in range(len(whole)):
        with pytest.raises((DamagedTransactionRecord, NewerTransactionRecord)):
            read(key("id"), whole[:size])
    for damaged in (whole + b"\x00", key("id")):
        with pytest.raises((DamagedTransactionRecord, NewerTransactionRecord)):
            read(key("id"), damaged)
    for size in range(len(key("id"))):
        with pytest.raises(DamagedTransactionRecord):
            read(key("id")[:size], whole)


@given(st.data())
def test_a_record_with_a_changed_byte_is_read_or_raises_a_record_error(data):
    whole = bytearray(value(in_state("PREPARED")))
    whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        read(key("id"), bytes(whole))
    except (DamagedTransactionRecord, NewerTransactionRecord):
        pass
