"""`fencepost txn`: what is open and whom it blocks, and ending it by hand."""

import asyncio
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException
from fencepost.broker.transactions.deciding import Deciding
from fencepost.broker.transactions.ledger import Item, Proposal
from fencepost.broker.transactions.ledger_log import Preparation
from fencepost.cli.output.writing import Cell
from fencepost.cli.txn.blocking import sentence
from fencepost.cli.txn.facts import age
from fencepost.cli.txn.watch import BAR, View, bar
from fencepost.client.admin.admin import Admin
from fencepost.client.admin.values import TransactionDescription
from served_broker import ServedBroker
from terminal import FENCEPOST, Terminal


@pytest.fixture(scope="module")
def terminal() -> Iterator[Terminal]:
    with ServedBroker() as broker:
        yield Terminal(broker)


def test_txn_why_blocked_names_the_transaction_at_the_lso_in_one_line(terminal: Terminal) -> None:
    terminal.run("topic create held -p 2")
    terminal.plain("held", "a")
    producer = terminal.open_transaction("holder", "held", "b", "c")
    (reported,) = terminal.run("txn why-blocked held").splitlines()
    assert reported.startswith("held-0 is blocked at 1 (2 offsets wait) by transaction holder of producer ")
    assert reported.endswith(" of 1 min")
    (facts,) = terminal.objects("txn why-blocked held:0")
    assert (facts["transactional_id"], facts["lso"], facts["hw"], facts["hangs"]) == ("holder", 1, 3, False)
    assert terminal.run("txn why-blocked held:1") == "held:1 is not blocked\n"
    assert terminal.objects("txn why-blocked held:1") == []
    producer.commit_transaction()
    assert terminal.run("txn why-blocked") == "no partition is blocked\n"


def hold(broker: Any, name: str) -> Any:
    """Let the open transaction of an id wait for decision 7 of the ledger key sql:db:NAME, held. Returns its Item."""
    txn = broker.transactions.transactions[name]
    item = Item(name, txn.producer_id, txn.producer_epoch)
    assert not broker.ledger.prepare(Preparation(item, f"sql:db:{name}", 7, 60_000, hold=True)).error
    return item


def test_a_transaction_waiting_for_a_ledger_decision_cannot_be_aborted_or_fenced(terminal: Terminal) -> None:
    terminal.run("topic create waits")
    terminal.open_transaction("orders-1", "waits", "a")
    item = terminal.broker.inside(lambda broker: hold(broker, "orders-1"))
    says = "decision 7 of database db, and nothing else ends it (held); to ask that: fencepost txn resolve --db URL"
    assert f"Held for 0 ms: it waits for {says}" in re.sub(
        r"for \d+ m?s", "for 0 ms", terminal.run("txn why-blocked waits")
    )
    assert f"waits for {says}" in terminal.run("txn describe orders-1")
    assert [each["state"] for each in terminal.objects("txn list")] == ["Held"]
    for command in ("abort", "fence"):
        code, cause, _ = terminal.refused(f"txn {command} orders-1")
        assert (code, cause) == (5, f"orders-1 waits for {says}")
    proposal = Proposal(f"sql:db:{item.transactional_id}", 7, "", b"", True, False, (item,))
    terminal.broker.inside(lambda broker: Deciding(broker.ledger, proposal).finish())
    assert terminal.run("txn why-blocked waits") == "waits is not blocked\n"


def test_txn_list_shows_open_transactions_and_with_all_also_ended_ones(terminal: Terminal) -> None:
    terminal.run("topic create listed")
    done = terminal.open_transaction("done", "listed", "a")
    done.abort_transaction()
    producer = terminal.open_transaction("open", "listed", "b")
    assert [each["transactional_id"] for each in terminal.objects("txn list")] == ["open"]
    (row,) = terminal.objects("txn list --state Ongoing")
    assert (row["state"], row["partitions"], row["timeout_ms"]) == ("Ongoing", ["listed-0"], 60_000)
    assert {"done", "open"} <= {each["transactional_id"] for each in terminal.objects("txn list --all")}
    assert terminal.objects("txn list --older-than 1h") == []
    assert "open: Ongoing" in terminal.run("txn describe open")
    known = terminal.objects("txn producers listed:0 --open")
    assert [(each["producer_id"], each["txn_start_offset"]) for each in known] == [(row["producer_id"], 2)]
    assert len(terminal.objects("txn producers listed")) == 2
    producer.abort_transaction()
    assert terminal.run("txn list") == ""
    assert "no transactions are open" in terminal.err


def test_txn_abort_ends_an_open_transaction_and_its_producers_commit_fails(terminal: Terminal) -> None:
    terminal.run("topic create ended")
    producer = terminal.open_transaction("to-end", "ended", "a")
    assert terminal.run("txn abort to-end").startswith("aborted to-end: it was open for ")
    with pytest.raises(KafkaException):
        producer.commit_transaction(10)
    code, cause, hint = terminal.refused("txn abort to-end")
    assert (code, "no open transaction" in cause, "txn fence" in hint) == (5, True, True)
    assert terminal.run("txn fence to-end").startswith("fenced to-end: producer ")


def test_txn_abort_does_not_end_a_transaction_begun_after_the_lookup(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between lookup and abort the id gets a new producer, which ends the transaction that was to be aborted."""
    terminal.run("topic create began")
    terminal.open_transaction("successor", "began", "a")
    describe, producers = Admin.describe_transactions, []

    async def described(admin: Admin, ids: str) -> dict[str, TransactionDescription]:
        found = await describe(admin, ids)
        if not producers:
            producers.append(await asyncio.to_thread(terminal.open_transaction, "successor", "began", "b"))
        return found

    monkeypatch.setattr(Admin, "describe_transactions", described)
    code, cause, _ = terminal.refused("txn abort successor")
    assert (code, cause) == (5, "transactional id successor: A newer producer uses this transactional id.")
    (described_now,) = terminal.objects("txn describe successor")
    assert described_now["state"] == "Ongoing"
    assert f"transaction {described_now['transaction_id']}" in terminal.run("txn describe successor")
    producers[0].commit_transaction(10)


def test_txn_abort_by_partition_and_start_offset_ends_the_transaction(terminal: Terminal) -> None:
    terminal.run("topic create marked")
    terminal.open_transaction("hangs", "marked", "a")
    assert terminal.objects("txn find-hanging marked --older-than 0s") == []  # its coordinator knows it
    assert terminal.refused("txn abort marked:0 --start-offset 5")[0] == 5
    assert "marked-0 from offset 0 on" in terminal.run("txn abort marked:0 --start-offset 0")
    assert terminal.objects("txn producers marked --open") == []


@pytest.mark.parametrize(
    ("line", "code"),
    [("txn describe nope", 3), ("txn abort nope", 3), ("txn producers nope", 3), ("txn why-blocked nope", 3),
     ("txn list --state Sleeping", 2), ("txn abort marked --start-offset 1", 2)],
)  # fmt: skip
def test_txn_commands_with_unknown_names_exit_with_3_and_with_wrong_options_with_2(
    terminal: Terminal, line: str, code: int
) -> None:
    assert terminal.refused(line)[0] == code


def test_txn_watch_shows_a_transaction_while_it_is_open_and_how_it_ended(terminal: Terminal) -> None:
    terminal.run("topic create watched")
    producer = terminal.open_transaction("watched", "watched", "a", "b")
    view = View()

    async def look() -> dict[str, Any]:
        async with Admin(terminal.bootstrap) as admin:
            await view.look(admin)
        (row,) = view.rows
        return row

    row = asyncio.run(look())
    assert (row["transactional_id"], row["open"], row["blocks"]) == ("watched", True, 2)
    producer.commit_transaction()
    row = asyncio.run(look())
    assert (row["state"], row["open"], row["blocks"]) == ("CompleteCommit", False, 0)


def test_txn_watch_ends_silently_when_its_output_pipe_closes(terminal: Terminal) -> None:
    command = f"{FENCEPOST} txn watch --every 10ms -b {terminal.bootstrap} | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=60)
    assert (done.stdout, done.stderr) == (b"no transactions are open\n", b"")


def test_ctrl_c_ends_txn_watch_silently(terminal: Terminal) -> None:
    command = [sys.executable, "-m", "fencepost", "txn", "watch", "-b", terminal.bootstrap]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"no transactions are open\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (130, b"")


FACTS = {
    "topic": "t", "partition": 0, "transactional_id": None, "state": None, "producer_id": 7, "producer_epoch": 1,
    "age_ms": 1_200_000, "timeout_ms": None, "start_offset": 5, "lso": 5, "hw": 6, "hangs": True,
}  # fmt: skip


def test_why_blocked_names_the_command_that_ends_a_hanging_transaction() -> None:
    reported = sentence(FACTS)
    assert "(1 offset waits) by a hanging transaction of producer 7 epoch 1" in reported
    assert reported.endswith("fencepost txn abort t:0 --start-offset 5 ends it")


def test_a_transaction_near_its_timeout_is_shown_in_red() -> None:
    young, old = ({"age_ms": ms, "timeout_ms": 60_000} for ms in (10_000, 50_000))
    assert (age(young), age(old)) == (Cell("10 s"), Cell("50 s", "red"))
    assert bar(young) == Cell("██░░░░░░░░░░", "green")
    assert bar(old) == Cell("█" * 10 + "░░", "red")
    assert bar({"age_ms": 10**9, "timeout_ms": 60_000}).text == "█" * BAR
