"""The ledger's rules without a broker: what stands against what is asked, who waits, and records byte by byte."""

from itertools import product

import pytest
from fencepost.broker.transactions import ledger
from fencepost.broker.transactions.ledger import (
    DamagedLedgerRecord,
    Entry,
    Item,
    NewerLedgerRecord,
    PreparedIds,
    Proposal,
    Verdict,
    judge,
    read_record,
    record_key,
    record_value,
    wrong_with,
)
from fencepost.broker.transactions.states.transaction import Status
from fencepost.protocol.errors import ErrorCode
from hypothesis import given
from hypothesis import strategies as st
from transaction_states import EPOCH, PRODUCER, prepared, transaction

STANDS = Entry(5, "A", b"d", True, 1000)
ITEM = Item("id", PRODUCER, EPOCH)


def asked(number=5, owner="A", digest=b"d", commit=True, takeover=False, items=()):
    return Proposal("sink", number, owner, digest, commit, takeover, items)


def test_each_proposed_decision_gets_the_documented_verdict_of_the_ledger():
    """The verdict follows from number, owner, digest and outcome, compared with the entry of the key."""
    for number, owner, digest, commit, takeover in product((4, 5, 6), "AB", (b"d", b"e"), (True, False), (True, False)):
        verdict = judge(STANDS, asked(number, owner, digest, commit, takeover))
        if number == 6 and (owner == "A" or takeover):
            assert verdict is Verdict.DECIDE
        elif (number, owner, digest, commit) == (5, "A", b"d", True):
            assert verdict is Verdict.ALREADY_DECIDED
        else:
            assert verdict is Verdict.CONFLICT


def test_for_a_key_without_a_ledger_entry_a_decision_with_any_number_is_accepted():
    assert judge(None, asked(0, takeover=True)) is Verdict.DECIDE
    assert judge(None, asked(10**15)) is Verdict.DECIDE


@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.sampled_from("AB"), st.sampled_from([b"d", b"e"]), st.booleans()), max_size=20
    )
)
def test_a_ledger_number_never_decreases_and_is_decided_only_once(calls):
    entry, decided = None, {}
    for number, owner, digest, takeover in calls:
        proposal = asked(number, owner, digest, takeover=takeover)
        verdict = judge(entry, proposal)
        if verdict is Verdict.DECIDE:
            assert number not in decided
            assert entry is None or number > entry.number
            entry = Entry(number, owner, digest, True, 0)
            decided[number] = (owner, digest)
        elif verdict is Verdict.ALREADY_DECIDED:
            assert decided[number] == (owner, digest)


@pytest.mark.parametrize(
    ("txn", "code"),
    [
        (None, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (transaction(Status.ONGOING), ErrorCode.INVALID_TXN_STATE),
        (transaction(), ErrorCode.INVALID_TXN_STATE),
        (prepared(EPOCH + 1), ErrorCode.PRODUCER_FENCED),
        (prepared(number=2), ErrorCode.INVALID_TXN_STATE),
        (prepared(), ErrorCode.NONE),
    ],
)
def test_a_listed_transaction_that_is_not_prepared_for_this_decision_gets_an_error(txn, code):
    assert wrong_with(ITEM, txn, asked(3), lambda _: True) is code


def test_a_transaction_with_a_deleted_partition_can_only_be_aborted():
    def is_there(log_id):
        return log_id != 12

    assert wrong_with(ITEM, prepared(), asked(3), is_there) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert wrong_with(ITEM, prepared(), asked(3, commit=False), is_there) is ErrorCode.NONE


def test_prepared_transactional_ids_are_found_by_ledger_key_and_highest_number():
    ids = PreparedIds()
    for name, number in (("a", 1), ("b", 2), ("c", 3)):
        ids.follow(name, prepared(number=number))
    assert (len(ids), ids.up_to("sink", 2), dict(ids.on("sink"))) == (3, ["a", "b"], {"a": 1, "b": 2, "c": 3})
    ids.follow("b", transaction())
    ids.follow("c", None)
    ids.follow("nobody", None)
    ids.follow("a", prepared(number=9))
    assert (list(ids.keys()), list(ids.all()), ids.up_to("sink", 2)) == (["sink"], ["a"], [])
    ids.follow("a", None)
    assert (len(ids), list(ids.keys()), ids.up_to("sink", 99)) == (0, [], [])


def test_a_ledger_record_has_the_documented_bytes():
    assert record_key("sink").hex() == "0000" + b"sink".hex()
    assert record_value(STANDS).hex() == "000000000000000000050100000000000003e800014164"


@given(
    st.text(min_size=1, max_size=50),
    st.builds(
        Entry,
        st.integers(0, 2**63 - 1),
        st.text(max_size=300),
        st.binary(max_size=256),
        st.booleans(),
        st.integers(0, 2**62),
    ),
)
def test_a_ledger_record_reads_back_as_it_was_written(key, entry):
    assert read_record(record_key(key), record_value(entry)) == (key, entry)
    assert read_record(record_key(key), None) == (key, None)


def test_newer_and_damaged_ledger_records_raise_their_own_errors():
    with pytest.raises(NewerLedgerRecord, match="version 1, 0 is known"):
        read_record(b"\x00\x01sink", None)
    with pytest.raises(NewerLedgerRecord):
        read_record(record_key("sink"), b"\x00\x01" + record_value(STANDS)[2:])
    whole = record_value(STANDS)
    for cut in range(len(whole) - len(STANDS.digest) - 1):  # the digest is the rest of the value: it may be shorter
        with pytest.raises(DamagedLedgerRecord):
            read_record(record_key("sink"), whole[:cut])
    for key in (b"", b"\x00", b"\x00\x00", b"\x00\x00\xff"):
        with pytest.raises(DamagedLedgerRecord):
            read_record(key, whole)


@pytest.mark.parametrize(
    ("proposal", "reason"),
    [
        (asked()._replace(key=""), "between 1 and 1000"),
        (asked()._replace(key="ü" * 501), "between 1 and 1000"),
        (asked(-1), "not negative"),
        (asked(owner="ü" * 501), "at most"),
        (asked(digest=bytes(257)), "at most"),
        (asked(items=(ITEM, ITEM._replace(producer_epoch=9))), "named twice"),
        (asked(items=(ITEM,)), None),
    ],
)
def test_wrong_in_returns_why_a_proposed_ledger_decision_is_invalid_or_none(proposal, reason):
    found = ledger.wrong_in(proposal)
    assert (reason in found) if reason else found is None
