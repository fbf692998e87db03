"""Several lives of one data directory: killed and then unplugged, or unplugged twice. The oracle judges the last.

What a life served is noted, so that a later cut may not take it back; and so is what it did not find, which must not
come back either. The suite samples; `make lives` looks at many more.
"""

import os
import random

import pytest
from crash_points import crash_images
from fencepost.effects.simulated.clock import SimulatedClock
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.effects.simulated.rng import SeededRng
from fencepost.storage import store_checkpoint
from fencepost.storage.recovery import open_store
from fencepost.storage.store import Store
from recovery_oracle import SETTINGS, Acknowledged, Workload, check, check_and_serve
from scripted_workloads import WORKLOADS

LIMIT = int(os.environ.get("LIVES", "18")) // 6
CUTS = 8  # of each later life
NEWCOMER = (3000, 0)


def live_on(life: Workload, name: bytes) -> None:
    """Let a recovered store work: new and known producers append, with flushes and a checkpoint; the last is not
    synced.
    """
    logs = [log for log in life.store.logs.values() if log.log_id]
    known = {topic: (producer, epoch) for topic, producer, epoch in life.sequences}
    for log in logs:
        life.send(log, name + b" first")
        life.send(log, name + b" from a newcomer", producer=NEWCOMER)
        # A producer that ended at the last epoch is forgotten, with the numbers of its batches: it never sends again.
        if log.topic in known and known[log.topic][0] in log.producers:
            producer = known[log.topic]
            is_open = log.producers.first_offset_of(producer[0]) is not None
            life.send(log, name + b" from one known", producer=producer, transactional=is_open)
    life.sync()
    life.flush()
    for log in logs:
        life.send(log, name + b" second", name + b" third", producer=NEWCOMER)
    life.sync()
    life.checkpoint()
    for log in logs:
        life.send(log, name + b" never synced")
    life.round(sync=False)


def moments(disk: SimulatedDisk) -> list[int]:
    """Return after how many operations of the disk to kill: evenly spread numbers, always with the last."""
    last = len(disk.operations)
    return [*range(0, last, max(1, last // LIMIT)), last]


@pytest.mark.requirement("S-11")
@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.__name__)
def test_acknowledged_records_survive_a_kill_at_any_moment_and_a_later_power_cut(workload):
    disk = SimulatedDisk()
    workload(disk)
    for moment in moments(disk):
        killed = disk.killed_at(moment)
        began = len(killed.operations)
        live_on(check_and_serve(killed), b"second life")
        for description, image in crash_images(killed, first=began, limit=CUTS, seed=moment):
            try:
                check(image)
            except BaseException as error:
                error.add_note(f"{workload.__name__}: killed after {moment}, then {description}")
                raise


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.__name__)
def test_journal_entries_lost_in_a_first_power_cut_do_not_return_after_a_second(workload):
    disk = SimulatedDisk()
    workload(disk)
    for description, image in crash_images(disk, limit=2 * LIMIT, seed=4):
        live_on(check_and_serve(image), b"second life")
        for again, twice in crash_images(image, limit=CUTS // 2, seed=5):
            try:
                check(twice)
            except BaseException as error:
                error.add_note(f"{workload.__name__}: {description}, then {again}")
                raise


def test_acknowledged_records_survive_six_alternating_kills_and_power_cuts():
    """Each broker starts where the one before was killed or lost power, and the same producers continue."""
    disk = SimulatedDisk()
    WORKLOADS[0](disk)
    for number in range(6):
        life = check_and_serve(disk.killed_at(len(disk.operations)) if number % 2 else disk.after_power_cut())
        live_on(life, b"life %d" % number)
        life.store.close()
        disk = life.disk
    check(disk.after_power_cut())


def test_a_data_directory_made_by_killed_starts_survives_a_power_cut():
    """Its parents may each be made by a start that was killed; the start that serves must sync them all."""
    deep = "/srv/app/data"
    disk = SimulatedDisk()
    opened(disk, deep).close()
    for moment in range(len(disk.operations) + 1):
        killed = disk.killed_at(moment)
        opened(killed, deep).close()
        after = killed.after_power_cut()
        assert after.exists(deep), f"killed after {moment}: what the second start served from is gone"
        assert store_checkpoint.numbers(after, deep)


def opened(disk: SimulatedDisk, directory: str) -> Store:
    return open_store(disk, SimulatedClock(), SeededRng(1), directory, SETTINGS)[0]


# ---- modes of durability -------------------------------------------------------------------------------------


class Mixed(Workload):
    """Topics of all three modes in the same rounds. What a round releases is noted as the mode promises it."""

    def __init__(self, disk: SimulatedDisk, *, survives: str) -> None:
        super().__init__(disk)
        self.survives = survives

    def sync(self) -> None:
        """Write a round as its units ask for it: synced if one of them is of mode fsync."""
        self.round()
        store = self.store
        self.disk.note(Acknowledged(store.released_unit if self.survives == "kill" else store.synced_unit))
        self.fill()


def mixed_traffic(disk: SimulatedDisk, survives: str) -> None:
    w = Mixed(disk, survives=survives)
    logs = [w.make(mode, durability_mode=mode) for mode in ("fsync", "interval", "os")]
    w.sync()
    draws = random.Random(survives)
    for number in range(24):
        for log in draws.sample(logs, draws.randint(1, 3)):
            w.send(log, b"%s %d" % (log.topic.encode(), number), producer=NEWCOMER)
        w.sync()
        if number % 9 == 8:
            w.flush()
            w.checkpoint()


def test_in_every_durability_mode_acknowledged_records_survive_a_kill():
    disk = SimulatedDisk()
    mixed_traffic(disk, "kill")
    for moment in range(0, len(disk.operations), 3):
        check(disk.killed_at(moment))


def test_a_power_cut_loses_no_record_acknowledged_in_durability_mode_fsync():
    disk = SimulatedDisk()
    mixed_traffic(disk, "power cut")
    for description, image in crash_images(disk, limit=60, seed=6):
        try:
            check(image)
        except BaseException as error:
            error.add_note(description)
            raise
