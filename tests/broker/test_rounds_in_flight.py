"""Rounds beside each other on a simulated loop: what is begun when, and what is released in which order."""

import asyncio
import errno
import os
from unittest import mock

import pytest
from fencepost.broker import rounds
from fencepost.broker.rounds import Rounds
from fencepost.effects.simulated import loop as simulated
from fencepost.effects.simulated.disk import SimulatedDisk
from step_writer import StepWriter
from store_driver import Driven


class Reply:
    """A connection whose reply waits for the newest unit."""

    def __init__(self, rounds, driven, left):
        self.unit = driven.store.last_unit
        self._left = left
        rounds.touch(self)

    def flush(self, released_unit):
        if released_unit < self.unit:
            return True
        if self.unit not in self._left:
            self._left.append(self.unit)
        return False


class World:
    """A store with a log of mode fsync and one of mode os, rounds whose writes the test ends (StepWriter), and the
    units whose replies have left.
    """

    def __init__(self, disk, writer):
        self.disk = disk
        self.writer = writer
        self.driven = Driven(disk)
        self.fsync = self.driven.create("a", durability_mode="fsync")
        self.os = self.driven.create("b", durability_mode="os")
        self.driven.round(sync=True)
        self.driven.fill()
        self.rounds = Rounds(
            self.driven.store, disk.executor("journal"), asyncio.get_running_loop(), sync_every_ms=100, writer=writer
        )
        self.left = []
        self.first_unit = self.driven.store.last_unit + 1

    async def send(self, log=None, data=b"x"):
        """Append a unit, with a reply that waits for it, and let the loop take it. Returns the number of the unit, from
        0.
        """
        self.driven.append(log or self.fsync, [data])
        reply = Reply(self.rounds, self.driven, self.left)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return reply.unit - self.first_unit

    @property
    def answered(self):
        return [unit - self.first_unit for unit in self.left]


def in_world(scenario):
    def test():
        async def main():
            await scenario(World(SimulatedDisk(latency=lambda: (0.02, 0.0)), StepWriter()))

        simulated.run(main())

    test.__name__ = scenario.__name__
    test.__doc__ = scenario.__doc__
    return test


@in_world
async def test_three_journal_rounds_are_written_at_once_and_answered_in_their_order(world):
    for number in range(3):
        assert await world.send() == number
    assert len(world.writer.steps) == 3
    world.writer.steps[2].end()
    world.writer.steps[1].end()
    assert world.answered == []
    assert world.fsync.high_watermark == 0
    world.writer.steps[0].end()
    assert world.answered == [0, 1, 2]
    assert world.fsync.high_watermark == 3
    assert world.driven.store.synced_unit == world.driven.store.last_unit


@in_world
async def test_a_round_begun_while_others_are_in_flight_does_not_wait_for_more_clients(world):
    await world.send()
    world.driven.append(world.fsync, [b"x"])
    Reply(world.rounds, world.driven, world.left)
    await asyncio.sleep(0)
    assert len(world.writer.steps) == 2


@in_world
async def test_units_of_a_journal_round_that_is_still_being_written_are_not_answered(world):
    await world.send()
    await world.send()
    world.writer.steps[0].end()
    assert world.answered == [0]
    assert world.fsync.high_watermark == 1
    world.writer.steps[1].end()
    assert world.answered == [0, 1]


@in_world
async def test_at_most_4_journal_rounds_are_in_flight_and_later_units_share_the_next(world):
    for _ in range(7):
        await world.send()
    assert len(world.writer.steps) == 4
    world.writer.steps[0].end()
    await asyncio.sleep(0)
    assert len(world.writer.steps) == 5
    for step in world.writer.steps[1:]:
        step.end()
    assert world.answered == list(range(7))


@in_world
async def test_a_small_journal_round_waits_for_the_round_in_flight(world):
    await world.send(data=b"x" * 5000)
    world.writer.from_bytes = 5000
    for _ in range(3):
        await world.send()
    assert len(world.writer.steps) == 1
    await world.send(data=b"x" * 5000)
    assert len(world.writer.steps) == 2
    world.writer.steps[0].end()
    world.writer.steps[1].end()
    assert world.answered == [0, 1, 2, 3, 4]


@in_world
async def test_journal_units_in_mode_os_wait_for_a_round_in_flight_that_is_synced(world):
    await world.send()
    await world.send(world.os)
    assert len(world.writer.steps) == 1
    assert world.answered == []
    world.writer.steps[0].end()
    await asyncio.sleep(0.1)
    assert world.answered == [0, 1]


@in_world
async def test_unsynced_journal_units_are_synced_with_the_next_round_by_a_worker(world):
    await world.send(world.os)
    assert world.answered == [0]
    await world.send()
    assert world.writer.steps == []
    await asyncio.sleep(0.03)  # before the empty round that an idle journal writes
    assert world.answered == [0, 1]
    assert world.driven.store.synced_unit == world.driven.store.last_unit
    await world.send()
    assert len(world.writer.steps) == 1


@pytest.mark.parametrize("failing", range(3))
def test_a_failed_journal_round_halts_and_no_later_round_is_answered(failing):
    @in_world
    async def test(world):
        halted = []
        world.rounds.on_halt.append(halted.append)
        for _ in range(3):
            await world.send()
        for number in range(failing):
            world.writer.steps[number].end()
        world.writer.steps[failing].tell(OSError(errno.EIO, os.strerror(errno.EIO)))
        for step in world.writer.steps[failing + 1 :]:
            step.end()
        await asyncio.sleep(1)
        assert world.answered == list(range(failing))
        assert world.fsync.high_watermark == failing
        assert [error.errno for error in halted] == [errno.EIO]

    test()


@in_world
async def test_after_a_failed_journal_round_rounds_before_it_are_not_answered_either(world):
    """After a failed write, nobody can know what is on the disk."""
    for _ in range(3):
        await world.send()
    world.writer.steps[2].tell(OSError(errno.EIO, os.strerror(errno.EIO)))
    world.writer.steps[0].end()
    world.writer.steps[1].end()
    assert world.answered == []
    assert world.rounds.finished == 0


@in_world
async def test_when_synced_calls_back_even_if_journal_units_arrive_without_a_pause(world):
    """The next round is not begun while others are in flight, so that there is a moment when all are synced."""
    synced = []
    await world.send()
    await world.send()
    unit = world.driven.store.last_unit
    world.rounds.when_synced(unit, lambda: synced.append(unit))
    await world.send()
    assert len(world.writer.steps) == 2
    world.writer.steps[0].end()
    await world.send()
    assert (len(world.writer.steps), synced) == (2, [])
    world.writer.steps[1].end()
    assert synced == [unit]
    await asyncio.sleep(0)
    assert len(world.writer.steps) == 3


@in_world
async def test_the_journal_is_idle_when_no_round_is_in_flight(world):
    idle = []
    await world.send()
    await world.send()
    world.rounds.when_idle(lambda: idle.append(True))
    world.writer.steps[0].end()
    await asyncio.sleep(0)
    assert idle == []
    world.writer.steps[1].end()
    assert idle == [True]


@in_world
async def test_a_journal_round_the_async_writer_refuses_is_written_by_a_worker_in_order(world):
    await world.send()
    world.writer.begin = lambda *arguments: False
    await world.send()
    await asyncio.sleep(0.1)
    assert world.answered == []
    world.writer.steps[0].end()
    assert world.answered == [0, 1]


@in_world
async def test_a_log_dropped_while_its_journal_round_is_written_keeps_its_high_watermark(world):
    await world.send()
    store = world.driven.store
    store.commit([store.drop_part(world.fsync)])
    world.writer.steps[0].end()
    await asyncio.sleep(0)
    world.writer.steps[-1].end()
    assert world.fsync not in store.unflushed
    assert world.fsync.high_watermark == 0


@in_world
async def test_the_sync_time_of_each_journal_round_in_flight_is_counted_in_the_metrics(world):
    for _ in range(2):
        await world.send()
    for step in world.writer.steps:
        step.end()
    assert world.rounds._metrics.sync_ns.total == 2  # StepWriter reports 1 ns for each


@in_world
async def test_unsynced_journal_rounds_are_answered_while_earlier_ones_are_synced(world):
    await world.send(world.os)
    job, synced = world.driven.store.journal.sync_job(), []
    await world.send(world.os)
    assert world.answered == [0, 1]
    world.rounds.when_synced(job.through_unit, lambda: synced.append(world.driven.store.synced_unit))
    job.run()
    world.rounds.note_end_of_sync(job)
    assert synced == [job.through_unit]


@in_world
async def test_an_idle_journal_records_once_on_disk_which_rounds_a_sync_job_synced(world):
    await world.send(world.os)
    job = world.driven.store.journal.sync_job()
    job.run()
    world.rounds.note_end_of_sync(job)
    journal = world.driven.store.journal
    await asyncio.sleep(0.06)
    world.writer.steps[-1].end()
    assert journal._durable_synced_through == journal._last_unit_round
    before = journal.next_round
    await asyncio.sleep(5)
    assert journal.next_round == before


@in_world
async def test_an_idle_journal_writes_a_seal_although_a_round_came_after_the_last_sync(world):
    """A seal is an empty round that has the number of the last synced round."""
    await world.send(world.os)
    journal = world.driven.store.journal
    job = journal.sync_job()
    await world.send(world.os)
    job.run()
    world.rounds.note_end_of_sync(job)
    for _ in range(50):
        await asyncio.sleep(0.1)
        while world.writer.steps:
            world.writer.steps.pop().end()
    assert not journal.lacks_seal


@in_world
async def test_when_released_calls_back_at_once_for_a_released_journal_unit(world):
    """A unit is released when it may be answered and read."""
    await world.send(world.os)
    told = []
    world.rounds.when_released(world.driven.store.released_unit, lambda: told.append(True))
    assert told == [True]


@in_world
async def test_no_journal_round_is_begun_beside_one_that_a_worker_writes(world):
    """A worker writes unsynced rounds one at a time; a round begun meanwhile could not be released before it."""
    halted = []
    world.rounds.on_halt.append(halted.append)
    with mock.patch.object(rounds, "WRITTEN_HERE_BYTES", 0):
        await world.send(world.os)
        await world.send()
        await asyncio.sleep(0.06)
    assert (halted, world.answered, world.writer.steps) == ([], [0, 1], [])


@in_world
async def test_a_round_too_large_for_the_async_writer_waits_and_gathers_later_units(world):
    await world.send()
    world.writer.largest_bytes = 100
    for _ in range(3):
        await world.send()
    before = world.driven.store.journal.next_round
    world.writer.steps[0].end()
    world.writer.largest_bytes = 1 << 20
    await asyncio.sleep(0)
    await asyncio.sleep(0)  # the turn in which the round waits for the client just answered
    assert len(world.writer.steps) == 2
    world.writer.steps[1].end()
    assert world.answered == [0, 1, 2, 3]
    assert world.driven.store.journal.next_round == before + 1


@in_world
async def test_without_an_async_writer_journal_units_gather_in_one_round_at_a_time(world):
    world.writer.at_once = 0
    world.writer.begin = lambda *arguments: False
    before = world.driven.store.journal.next_round
    for _ in range(10):
        await world.send()
    await asyncio.sleep(0.06)
    assert world.answered == list(range(10))
    assert world.driven.store.journal.next_round == before + 2, "a round of the first unit, and one of all others"


@in_world
async def test_the_error_of_an_asynchronously_written_journal_round_names_the_round(world):
    halted = []
    world.rounds.on_halt.append(halted.append)
    await world.send()
    world.writer.steps[0].tell(OSError(errno.EIO, os.strerror(errno.EIO)))
    assert "rounds through" in halted[0].__notes__[0]
