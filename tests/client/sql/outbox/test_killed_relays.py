"""A relay is killed, stopped for a while or left without an answer at each of its calls to database and broker, in
three ways, and another one goes on: each row is sent once, and those of a key in their order.
"""

import asyncio
import contextlib
import sqlite3

import pytest
from fencepost.client.sql import sqlite
from fencepost.client.sql.outbox.relaying import Way
from reading import make
from relays import Fate, insert, live, outbox_at, relay_all, rows_left
from txn_world import within

WAYS = [way.value for way in Way]
LEAST = {"hold": 25, "names": 20, "offsets": 30}


@pytest.fixture(autouse=True)
def no_waiting_for_locks_or_disks(monkeypatch):
    monkeypatch.setattr(sqlite, "LOCK_TIMEOUT_S", 0)
    monkeypatch.setattr(sqlite, "_check_connection", lambda connection: None)
    connected = sqlite._connected

    def unsynced(*arguments):
        connection = connected(*arguments)
        connection.execute("pragma synchronous = off")
        return connection

    monkeypatch.setattr(sqlite, "_connected", unsynced)


def check(values, *written):
    """Compare what readers got with the rows: each once, and those of a key in their order."""
    assert sorted(values) == sorted(written)
    for key in (b"a", b"b"):
        assert [value for value in values if value[:1] == key] == [value for value in written if value[:1] == key]


def relay(path, by, at=-1, how=""):
    """Let this happen to a relay, let others go on, and compare. Returns the names of its calls."""
    first, later, last = (b"a1", b"b1", b"a2"), (b"b2", b"a3"), (b"a4",)

    async def main(world):
        written = list(first)

        async def go_on():
            with contextlib.suppress(sqlite3.OperationalError, TimeoutError):  # the stopped relay has a lock
                insert(path, *later)
                written.extend(later)
                await asyncio.wait_for(relay_all(world, path, by), 30)

        await make(world)
        outbox_at(path)
        insert(path, *first)
        fate = Fate(at, how, go_on)
        await live(world, path, by, fate)
        await asyncio.sleep(10)
        insert(path, *last)
        await relay_all(world, path, by)
        check(await world.values(), *written, *last)
        assert rows_left(path) == 0
        return fate.names

    return within(main, 2, transaction_two_phase_commit_enable=True)


def relay_all_calls(tmp_path, by, how, every):
    """Let this happen to a relay at each of its calls, or at each of so many."""
    names = relay(str(tmp_path / "untouched.db"), by)
    assert len(names) >= LEAST[by], names
    for at in range(every // 2, len(names), every):
        relay(str(tmp_path / f"{at}.db"), by, at, how)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["killed", "stopped", "unanswered"])
@pytest.mark.parametrize("by", WAYS)
def test_each_row_is_sent_once_whatever_happens_to_a_relay_at_some_of_its_calls(tmp_path, by, how):
    relay_all_calls(tmp_path, by, how, 9)


@pytest.mark.long
@pytest.mark.parametrize("how", ["killed", "stopped", "unanswered"])
@pytest.mark.parametrize("by", WAYS)
def test_each_row_is_sent_once_whatever_happens_to_a_relay_at_any_of_its_calls(tmp_path, by, how):
    relay_all_calls(tmp_path, by, how, 1)
