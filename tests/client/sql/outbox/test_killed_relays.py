"""A relay is killed, stopped for a while or left without an answer at each of its calls to database and broker, in
three ways, and another one goes on: each row is sent once, and those of a key in their order.
"""

import asyncio

import pytest
from fencepost.client.sql import sqlite
from fencepost.client.sql.outbox.relaying import Way
from reading import make
from relays import Where, relay_with_trouble
from txn_world import within

WAYS = [way.value for way in Way]
LEAST = {"hold": 25, "names": 20, "offsets": 30}


@pytest.fixture(autouse=True)
def no_waiting_for_locks_or_disks(monkeypatch):
    monkeypatch.setattr(sqlite, "LOCK_TIMEOUT_S", 0)
    monkeypatch.setattr(sqlite, "_check_durable", lambda adapter: asyncio.sleep(0))
    connected = sqlite._connected

    def unsynced(*arguments):
        connection = connected(*arguments)
        connection.execute("pragma synchronous = off")
        return connection

    monkeypatch.setattr(sqlite, "_connected", unsynced)


def relay(path, by, at=-1, how=""):
    """Kill or stop a relay at call `at`, or leave that call unanswered (`how`: see Fate), and compare the rows with the
    records after other relays went on. Returns the names of its calls.
    """

    async def main(world):
        await make(world)
        return await relay_with_trouble(Where(world.world.environment), path, by, at, how, world.values)

    return within(main, 2, transaction_two_phase_commit_enable=True)


def relay_all_calls(tmp_path, by, how, every):
    """Run relay() for each call of a relay (every: 1), or for every second, third, … one of them (every: 2, 3, …)."""
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
