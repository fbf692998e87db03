"""What transactions have pending in share groups, and whose windows are full because of it, as an operator sees it."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from served_broker import ServedBroker
from terminal import Terminal

import fencepost as fp

LIMIT = 100  # records of a window; as many acknowledgements are sent before the commit


@pytest.fixture(scope="module")
def terminal() -> Iterator[Terminal]:
    with ServedBroker(group_share_partition_max_record_locks=LIMIT) as broker:
        yield Terminal(broker)


@contextmanager
def pending(terminal: Terminal, transactional_id: str, topic: str, group: str) -> Iterator[None]:
    """A worker whose open transaction has acknowledged as many records as a window has."""
    done, has, failures = threading.Event(), threading.Event(), []

    async def work() -> None:
        producer = fp.Producer(terminal.bootstrap, transactional_id=transactional_id)
        queue = fp.ShareConsumer(terminal.bootstrap, topics=[topic], group_id=group, auto_offset_reset="earliest")
        async with producer, queue, producer.transaction() as tx:
            left = LIMIT
            while left:
                records = await queue.getmany(timeout_ms=5_000, max_records=left)
                await tx.acknowledge(queue, *records)
                left -= len(records)
            has.set()
            await asyncio.to_thread(done.wait, 30)

    def run() -> None:
        try:
            asyncio.run(work())
        except Exception as error:
            failures.append(error)
            has.set()

    thread = threading.Thread(target=run)
    thread.start()
    assert has.wait(30)
    try:
        assert not failures
        yield
    finally:
        done.set()
        thread.join()
    assert not failures


def test_a_window_that_is_full_of_pending_records_names_their_transaction(terminal: Terminal) -> None:
    terminal.run("topic create jobs")
    terminal.plain("jobs", *map(str, range(LIMIT + 20)))
    assert terminal.run("txn why-blocked") == "no partition is blocked\n"
    with pending(terminal, "worker-1", "jobs", "packing"):
        described = terminal.run("txn describe worker-1")
        (facts,) = terminal.objects("txn describe worker-1")
        blocked = [terminal.run(f"txn why-blocked {where}") for where in ("", "jobs", "-g packing")]
        (row,) = terminal.objects("txn why-blocked jobs:0")
        doctor = terminal.run("doctor")
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
    assert (row["share_group"], row["pending"], row["transactions"][0]["state"]) == ("packing", 100, "Ongoing")
    assert terminal.run("txn why-blocked -g packing") == "group packing is not blocked\n"
    assert terminal.objects("txn describe worker-1")[0]["pending"] == []
