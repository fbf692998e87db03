"""Rounds on a simulated loop and disk: what is released when, in each durability mode."""

import asyncio
from unittest import mock

import pytest
from fencepost.broker.rounds import LOOK_AGAIN_BYTES, SYNCED_HERE_BYTES, Rounds
from fencepost.broker.second_look import PAUSE_ROUNDS, SecondLook
from fencepost.effects.simulated import loop as simulated
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.storage.store import BrokerHalted
from store_driver import Driven


class Client:
    """A connection that waits for a unit. told_at: when it was told that the unit is released (may be answered and
    read).
    """

    def __init__(self, rounds, unit):
        self.unit = unit
        self.told_at = None
        self.rounds = rounds
        rounds.touch(self)

    def flush(self, released_unit):
        if released_unit < self.unit:
            return True
        if self.told_at is None:
            self.told_at = asyncio.get_running_loop().time()
        return False


def syncs(disk, path="/data/journal"):
    return [one for one in disk.operations if type(one).__name__ == "Sync" and path in str(one)]


def driven_by(mode, *, quick=False):
    """Make a test of a coroutine. It gets a disk, a store with one log of this mode, that log, and its rounds. quick:
    whether the disk syncs fast enough for the loop to do it itself.
    """

    def decorate(scenario):
        def test():
            async def main():
                disk = SimulatedDisk(latency=lambda: (0.02, 0.0))
                driven = Driven(disk)
                log = driven.create("a", durability_mode=mode)
                driven.round(sync=True)
                disk.quick = quick
                executor = disk.executor("journal")
                rounds = Rounds(driven.store, executor, asyncio.get_running_loop(), sync_every_ms=100)
                await scenario(disk, driven, log, rounds)

            simulated.run(main())

        test.__name__ = scenario.__name__
        return test

    return decorate


@driven_by("os")
async def test_in_mode_os_a_reply_leaves_at_the_end_of_the_turn_without_a_sync(disk, driven, log, rounds):
    before = len(syncs(disk))
    driven.append(log, [b"x"])
    client = Client(rounds, driven.store.last_unit)
    await asyncio.sleep(0.01)
    assert client.told_at is not None
    assert len(syncs(disk)) == before
    assert log.high_watermark == 1


@driven_by("os")
async def test_in_mode_os_answered_journal_units_do_not_count_as_synced(disk, driven, log, rounds):
    """A checkpoint may name only synced units, because a power cut must not undo what it names."""
    driven.append(log, [b"x"])
    unit = driven.store.last_unit
    await asyncio.sleep(0.01)
    assert driven.store.released_unit == unit > driven.store.synced_unit
    reported = []
    rounds.when_synced(unit, lambda: reported.append(driven.store.synced_unit))
    assert reported == []
    await asyncio.sleep(1)
    assert reported == [unit]


@driven_by("interval")
async def test_in_mode_interval_all_journal_units_are_synced_within_the_interval(disk, driven, log, rounds):
    for _ in range(40):
        driven.fill()
        driven.append(log, [b"x"])
        await asyncio.sleep(0.01)
    # A unit comes each 10 ms; the interval is 100 ms, and a sync takes 20 ms.
    assert driven.store.synced_unit >= driven.store.last_unit - 20
    await asyncio.sleep(0.3)
    assert driven.store.synced_unit == driven.store.last_unit


@driven_by("fsync")
async def test_in_mode_fsync_no_journal_unit_is_answered_or_readable_before_its_sync(disk, driven, log, rounds):
    driven.append(log, [b"x"])
    client = Client(rounds, driven.store.last_unit)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert client.told_at is None
    assert log.high_watermark == 0
    await asyncio.sleep(0.2)
    assert client.told_at is not None
    assert log.high_watermark == 1


@driven_by("fsync")
async def test_journal_units_that_arrive_during_a_sync_share_the_next_one(disk, driven, log, rounds):
    driven.append(log, [b"first"])
    await asyncio.sleep(0.001)
    before = len(syncs(disk))
    clients = []
    for _ in range(5):
        driven.append(log, [b"x"])
        clients.append(Client(rounds, driven.store.last_unit))
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.045)
    assert all(client.told_at is not None for client in clients)
    assert len(syncs(disk)) - before <= 2, "that of the first unit, and one for all others"


@driven_by("fsync")
async def test_an_idle_journal_records_once_on_disk_that_its_last_round_was_synced(disk, driven, log, rounds):
    driven.append(log, [b"x"])
    await asyncio.sleep(1)
    rounds_written = driven.store.journal.next_round
    await asyncio.sleep(5)
    assert driven.store.journal.next_round == rounds_written
    journal = driven.store.journal
    assert journal._durable_synced_through == journal._last_unit_round


@pytest.mark.parametrize("quick", [False, True])
def test_a_failed_sync_of_the_journal_halts_and_sends_no_reply(quick):
    @driven_by("fsync", quick=quick)
    async def test(disk, driven, log, rounds):
        halted = []
        rounds.on_halt.append(halted.append)
        disk.fail_sync(lambda path: "journal" in path)
        driven.append(log, [b"x"])
        client = Client(rounds, driven.store.last_unit)
        await asyncio.sleep(1)
        assert client.told_at is None
        assert log.high_watermark == 0
        assert isinstance(halted[0], OSError)
        with pytest.raises(BrokerHalted):
            driven.append(log, [b"y"])

    test()


@pytest.mark.parametrize("halt", [Rounds.halt, Rounds.halt_unheard])
def test_a_halt_calls_callbacks_that_wait_for_an_idle_journal(halt):
    @driven_by("fsync")
    async def test(disk, driven, log, rounds):
        driven.append(log, [b"x"])
        idle = []
        rounds.when_idle(lambda: idle.append(True))
        halt(rounds, RuntimeError("broken"))
        assert idle == [True]

    test()


@driven_by("fsync")
async def test_a_journal_round_that_succeeds_after_a_halt_is_not_answered_or_readable(disk, driven, log, rounds):
    """A killed broker halts while a write is under way; its success must not be reported."""
    driven.append(log, [b"x"])
    unit = driven.store.last_unit
    client, heard = Client(rounds, unit), []
    rounds.when_released(unit, lambda: heard.append("released"))
    rounds.when_synced(unit, lambda: heard.append("synced"))
    await asyncio.sleep(0.001)
    rounds.halt_unheard(RuntimeError("killed"))
    await asyncio.sleep(1)
    assert (client.told_at, heard, log.high_watermark, rounds.finished) == (None, [], 0, 0)


@driven_by("os")
async def test_a_journal_that_is_about_to_be_synced_is_not_idle(disk, driven, log, rounds):
    driven.append(log, [b"x"])
    await asyncio.sleep(0.01)
    idle = []
    rounds.when_idle(lambda: idle.append(driven.store.synced_unit))
    assert idle == [driven.store.synced_unit] != [driven.store.last_unit]
    rounds.sync_soon()
    rounds.when_idle(lambda: idle.append(driven.store.synced_unit))
    assert len(idle) == 1
    await asyncio.sleep(0.2)
    assert idle[1:] == [driven.store.last_unit]


@driven_by("fsync")
async def test_a_connection_given_to_touch_first_gets_its_reply_before_those_that_waited(disk, driven, log, rounds):
    """touch_first() is used for the leader of a group, whose SyncGroup answer goes out before those of followers that
    wait already.
    """
    reported = []

    class Replying:
        def __init__(self, name):
            self.name, self.unit = name, driven.store.last_unit

        def flush(self, released_unit):
            if released_unit >= self.unit and self.name not in reported:
                reported.append(self.name)
            return released_unit < self.unit

    driven.append(log, [b"x"])
    follower, leader = Replying("follower"), Replying("leader")
    rounds.touch(follower)
    await asyncio.sleep(0.001)
    driven.append(log, [b"y"])
    follower.unit = leader.unit = driven.store.last_unit
    rounds.touch(follower)
    rounds.touch_first(leader)
    await asyncio.sleep(0.2)
    assert reported == ["leader", "follower"]


@pytest.mark.parametrize("mode", ["fsync", "interval"])
def test_without_its_timers_a_journal_writes_appended_units_but_nothing_while_idle(mode):
    @driven_by(mode)
    async def test(disk, driven, log, rounds):
        rounds.end()
        driven.append(log, [b"x"])
        client = Client(rounds, driven.store.last_unit)
        await asyncio.sleep(0.045)
        assert client.told_at is not None
        before = len(disk.operations)
        await asyncio.sleep(5)
        assert len(disk.operations) == before

    test()


@driven_by("fsync")
async def test_when_released_calls_back_as_soon_as_its_own_journal_unit_is_released(disk, driven, log, rounds):
    """A unit is released when it may be answered and read."""
    released = []
    for data in (b"x", b"y", b"z"):
        driven.append(log, [data])
        unit = driven.store.last_unit
        rounds.when_released(unit, lambda unit=unit: released.append((unit, driven.store.released_unit)))
        await asyncio.sleep(0.1)
    assert released == [(unit, unit) for unit in (unit - 2, unit - 1, unit)]


# ---- a device that is quick --------------------------------------------------------------------------------------


async def end_of_turn():
    await asyncio.sleep(0)
    await asyncio.sleep(0)


@driven_by("fsync", quick=True)
async def test_on_a_fast_device_a_small_journal_round_is_synced_at_the_end_of_the_turn(disk, driven, log, rounds):
    before = len(syncs(disk))
    driven.append(log, [b"x"])
    client = Client(rounds, driven.store.last_unit)
    await end_of_turn()
    assert client.told_at is not None
    assert len(syncs(disk)) == before + 1
    assert driven.store.synced_unit == driven.store.last_unit


@driven_by("fsync", quick=True)
async def test_a_large_journal_round_is_written_by_a_worker_even_on_a_fast_device(disk, driven, log, rounds):
    driven.append(log, [b"x" * SYNCED_HERE_BYTES])
    client = Client(rounds, driven.store.last_unit)
    await end_of_turn()
    assert client.told_at is None
    await asyncio.sleep(0.2)
    assert client.told_at is not None


@pytest.mark.parametrize("records", [1, SYNCED_HERE_BYTES // 1_000])
def test_the_number_of_unsynced_bytes_decides_if_the_loop_or_a_worker_syncs(records):
    @driven_by("os", quick=True)
    async def test(disk, driven, log, rounds):
        for _ in range(records):
            driven.append(log, [b"x" * 1_000])
            await end_of_turn()
        rounds.sync_soon()
        await end_of_turn()
        assert (driven.store.synced_unit == driven.store.last_unit) == (records == 1)
        await asyncio.sleep(0.2)
        assert driven.store.synced_unit == driven.store.last_unit
        rounds.sync_soon()
        driven.append(log, [b"x"])
        await end_of_turn()
        assert driven.store.synced_unit == driven.store.last_unit

    test()


# ---- a second look at the sockets ----------------------------------------------------------------------------


def ask(driven, log, rounds, client=None, data=b"x"):
    """Append a record and have a client wait for its unit: a new client, or this one once more."""
    driven.fill()
    driven.append(log, [data])
    if client is None:
        return Client(rounds, driven.store.last_unit)
    client.unit, client.told_at = driven.store.last_unit, None
    rounds.touch(client)
    return client


@driven_by("fsync", quick=True)
async def test_a_small_journal_round_waits_one_turn_for_a_client_that_was_just_answered(disk, driven, log, rounds):
    one = ask(driven, log, rounds)
    await end_of_turn()
    before = len(syncs(disk))
    two = ask(driven, log, rounds)
    await asyncio.sleep(0)
    assert two.told_at is None
    ask(driven, log, rounds, one)
    await asyncio.sleep(0)
    assert None not in (one.told_at, two.told_at)
    assert len(syncs(disk)) == before + 1


@driven_by("fsync", quick=True)
async def test_answers_that_need_no_sync_leave_before_sockets_are_read_once_more(disk, driven, log, rounds):
    """Before it syncs a small round, the loop reads its sockets once more, for clients just answered."""
    ask(driven, log, rounds)
    await end_of_turn()
    waits = ask(driven, log, rounds)
    reads = Client(rounds, driven.store.released_unit)
    await asyncio.sleep(0)
    assert waits.told_at is None
    assert reads.told_at is not None


@driven_by("fsync", quick=True)
async def test_request_times_of_answers_that_need_no_sync_end_before_the_second_look(disk, driven, log, rounds):
    """The second look: before it syncs a small round, the loop reads its sockets once more."""
    ask(driven, log, rounds)
    await end_of_turn()
    rounds._times = times = mock.Mock()
    ask(driven, log, rounds)
    Client(rounds, driven.store.released_unit)  # an answer that needs no sync
    await asyncio.sleep(0)
    turn = [mock.call.begin_turn(), mock.call.end_turn(True), mock.call.count_answers()]
    assert times.mock_calls == [*turn, mock.call.begin_turn()]


@driven_by("fsync", quick=True)
async def test_the_only_client_is_answered_without_a_turn_of_waiting_for_others(disk, driven, log, rounds):
    client = None
    for _ in range(3):
        client = ask(driven, log, rounds, client)
        await asyncio.sleep(0)
        assert client.told_at is not None


@driven_by("fsync", quick=True)
async def test_a_journal_round_does_not_wait_for_a_client_that_disconnected(disk, driven, log, rounds):
    gone = ask(driven, log, rounds)
    await end_of_turn()
    rounds.forget(gone)
    client = ask(driven, log, rounds)
    await asyncio.sleep(0)
    assert client.told_at is not None


@driven_by("fsync", quick=True)
async def test_a_large_journal_round_does_not_wait_a_turn_for_clients_just_answered(disk, driven, log, rounds):
    ask(driven, log, rounds)
    await end_of_turn()
    client = ask(driven, log, rounds, data=b"x" * LOOK_AGAIN_BYTES)
    await asyncio.sleep(0)
    assert client.told_at is not None


@driven_by("fsync", quick=True)
async def test_sync_soon_does_not_wait_a_turn_for_clients_just_answered(disk, driven, log, rounds):
    ask(driven, log, rounds)
    await end_of_turn()
    client = ask(driven, log, rounds)
    rounds.sync_soon()
    await asyncio.sleep(0)
    assert client.told_at is not None


@driven_by("fsync", quick=True)
async def test_an_unsynced_round_does_not_wait_for_clients_nor_make_the_next_round_wait(disk, driven, log, rounds):
    """A log with durability os needs no sync; a round for such logs only is not synced."""
    unsynced = driven.create("b", durability_mode="os")
    synced = ask(driven, log, rounds)
    await end_of_turn()
    client = ask(driven, unsynced, rounds)
    await asyncio.sleep(0)
    assert client.told_at is not None
    ask(driven, log, rounds, synced)
    await asyncio.sleep(0)
    assert synced.told_at is not None


@driven_by("fsync")
async def test_clients_that_send_during_a_workers_sync_need_no_second_look_to_be_seen(disk, driven, log, rounds):
    """They count as present (clients one and three) when the next round decides whether to take a second look."""
    one, two = ask(driven, log, rounds), ask(driven, log, rounds)
    await asyncio.sleep(0.01)
    three = ask(driven, log, rounds)
    await asyncio.sleep(0.001)
    ask(driven, log, rounds, one)
    await asyncio.sleep(0.001)
    asked = []
    with mock.patch.object(SecondLook, "is_wanted", lambda look, here: asked.append(set(here))):
        await asyncio.sleep(0.02)
    assert asked == [{one, three}]
    assert rounds._second_look._last == {one, three}
    assert two.told_at is not None


@driven_by("fsync", quick=True)
async def test_if_clients_do_not_send_again_at_once_most_journal_rounds_do_not_wait(disk, driven, log, rounds):
    """A round that waited a turn for clients in vain is followed by PAUSE_ROUNDS rounds that do not wait."""
    waited = []
    for number in range(2 * PAUSE_ROUNDS):
        client = ask(driven, log, rounds)
        await asyncio.sleep(0)
        if client.told_at is None:
            waited.append(number)
        await end_of_turn()
    assert waited == [1, PAUSE_ROUNDS + 2]
