"""What transactions have pending in share groups, and whose windows are full because of it, as an operator sees it."""

from collections.abc import Iterator

import pytest
from fencepost.broker.config.security_settings import STANDARD_AUTHORIZER
from pending_shares import LIMIT, pending
from served_broker import ServedBroker
from terminal import Terminal


@pytest.fixture(scope="module")
def terminal() -> Iterator[Terminal]:
    with ServedBroker(group_share_partition_max_record_locks=LIMIT) as broker:
        yield Terminal(broker)


def test_txn_describe_shows_pending_share_records_without_a_right_to_the_state_topic() -> None:
    """A user with rights on the group and the transactional id has none on the broker's own topics."""
    rules = {"authorizer_class_name": STANDARD_AUTHORIZER, "allow_everyone_if_no_acl_found": True}
    with ServedBroker(group_share_partition_max_record_locks=LIMIT, **rules) as broker:
        terminal = Terminal(broker)
        terminal.run("topic create jobs")
        terminal.plain("jobs", *map(str, range(LIMIT)))
        # A topic with a rule is closed to everybody whom the rule does not name.
        terminal.run("acl add --allow somebody --operation describe --topic __share_group_state")
        with pending(terminal.bootstrap, "worker-1", "jobs", "packing"):
            (facts,) = terminal.objects("txn describe worker-1")
            described = terminal.run("txn describe worker-1")
            (row,) = terminal.objects("txn why-blocked -g packing")
    assert (facts["state"], facts["partitions"]) == ("Ongoing", [])
    assert described.splitlines()[1].startswith("  open for ")
    assert "  pending in share group packing: jobs-0 0 to 99, of member " in described
    assert row["transactions"][0]["age_ms"] >= 0


def test_txn_commands_name_the_transaction_that_fills_a_share_groups_window(terminal: Terminal) -> None:
    """While it is open, the share group cannot be deleted."""
    terminal.run("topic create jobs")
    terminal.plain("jobs", *map(str, range(LIMIT + 20)))
    assert terminal.run("txn why-blocked") == "no partition is blocked\n"
    with pending(terminal.bootstrap, "worker-1", "jobs", "packing"):
        described = terminal.run("txn describe worker-1")
        (facts,) = terminal.objects("txn describe worker-1")
        blocked = [terminal.run(f"txn why-blocked {where}") for where in ("", "jobs", "-g packing")]
        (row,) = terminal.objects("txn why-blocked jobs:0")
        doctor = terminal.run("doctor")
        shown = terminal.run("share-group describe packing").splitlines()
        code, cause, hint = terminal.refused("share-group delete packing")
        terminal.run("topic create elsewhere")
        assert terminal.run("txn why-blocked elsewhere") == "elsewhere is not blocked\n"
    (first, *_), last = facts["pending"], facts["pending"][-1]
    assert (first["group"], first["topic"], first["first_offset"], last["last_offset"]) == ("packing", "jobs", 0, 99)
    assert f"  pending in share group packing: jobs-0 0 to 99, of member {first['member_id']}\n" in described
    told = (
        "share group packing gets nothing new of jobs-0: its window of 100 records from 0 on is full, and 100 of them"
        f" are pending in transaction worker-1 of producer {facts['producer_id']} epoch {facts['producer_epoch']}, "
    )
    assert [each.splitlines()[-1].startswith(told) for each in blocked] == [True] * 3, blocked
    assert [len(each.splitlines()) for each in blocked[1:]] == [1, 1]  # the first names the log of acknowledgements too
    assert told in doctor
    assert "100 records of jobs-0 are acknowledged in open transactions: worker-1" in shown
    assert (code, "or open transactions have acknowledged records of it" in cause) == (5, True)
    assert "fencepost share-group describe" in hint
    assert (row["share_group"], row["pending"], row["transactions"][0]["state"]) == ("packing", 100, "Ongoing")
    assert terminal.run("txn why-blocked -g packing") == "group packing is not blocked\n"
    assert terminal.objects("txn describe worker-1")[0]["pending"] == []
