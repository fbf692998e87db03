"""A journal under random rounds, syncs, checkpoints and power cuts: what it promised is there.

A unit is an entry of the journal; a round is the units of one write. Steps come in any order: units of both durability
modes; rounds that are taken, written, synced and reported; syncs of finished rounds; reuse of files that were synced or
not. After each step the power is cut in several ways.
"""

import random
from typing import NamedTuple

import pytest
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.storage.journal.format import EVERYTHING, JournalStart
from fencepost.storage.journal.scan import scan
from journal_driver import BLOCK, DIRECTORY, Driven
from long_runs import first_only
from step_writer import StepWriter

STEPS, SEEDS, CUTS = 60, 20, 2
SIZES = {"first_file_bytes": 6 * BLOCK, "largest_file_bytes": 8 * BLOCK, "max_bytes": 64 * BLOCK}


class Known(NamedTuple):
    """What a checkpoint says."""

    through_unit: int
    synced_unit: int
    start: JournalStart


class Play:
    """One history, by its seed."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.disk = SimulatedDisk()
        self.driven = Driven(self.disk, **SIZES)
        self.journal = self.driven.journal
        self.writer = StepWriter()
        self.in_flight, self.at_worker = [], []
        self.jobs, self.run_jobs = [], []
        self.stages = {}  # how far each begun write has come
        self.wants_sync = False
        self.acknowledged = 0
        self.older = self.newer = Known(0, 0, EVERYTHING)

    def append(self):
        data = bytes([self.rng.randrange(256)]) * self.rng.choice([10, 3000, 3000, 9000])
        if not self.journal.admits(len(data) + 100):
            self.driven.fill()
        if self.journal.admits(len(data) + 100):
            self.driven.append(data)
            self.wants_sync |= self.rng.random() < 0.5

    def take(self):
        sync = self.wants_sync
        alone = not (sync and all(write.sync for write in self.in_flight))
        if self.journal.pending and len(self.in_flight) < 4 and not (self.in_flight and alone):
            self._took(self.journal.take_round(sync=sync))
            self.wants_sync = False

    def seal(self):
        if not self.in_flight and (write := self.journal.take_round(sync=True)) is not None:
            self._took(write)
            self.wants_sync = False

    def _took(self, write):
        self.in_flight.append(write)
        if not write.begin(self.writer, lambda error: None):
            self.at_worker.append(write)

    def go_on(self):
        """Let a begun write make its next step (write, sync, report), or let a worker write its next round."""
        if self.at_worker and self.rng.random() < 0.4:
            self.at_worker.pop(0).run()
        elif self.writer.steps:
            step = self.rng.choice(self.writer.steps)
            stage = self.stages[step] = self.stages.get(step, 0) + 1
            (step.write, step.sync, step.tell)[stage - 1]()
            if stage == 3:
                self.writer.steps.remove(step)

    def finish(self):
        while self.in_flight and self.in_flight[0].done:
            write = self.in_flight.pop(0)
            self.journal.finished(write)
            if write.sync:
                self.acknowledged = write.through_unit

    def take_job(self):
        if len(self.jobs) < 2 and (job := self.journal.sync_job()) is not None:
            self.jobs.append(job)

    def run_job(self):
        if self.jobs:
            job = self.jobs.pop(0)
            job.run()
            self.run_jobs.append(job)

    def tell_job(self):
        if self.run_jobs:
            self.journal.synced(self.run_jobs.pop(0))

    def use_files_again(self):
        """Make a checkpoint through what is released, synced or not; make files before the older one's start ready."""
        through = self.rng.randint(self.newer.through_unit, self.journal.released_unit)
        known = Known(through, self.journal.synced_unit, self.journal.start_after(through))
        self.older, self.newer = self.newer, known
        self.journal.recycle(self.older.through_unit, self.older.start)
        self.driven.fill()

    def step(self):
        steps = [self.append] * 2 + [self.take] * 2 + [self.go_on] * 4 + [self.finish] * 2
        steps += [self.seal, self.take_job, self.run_job, self.tell_job, self.use_files_again]
        self.rng.choice(steps)()

    def come_to_rest(self):
        """End all that was begun; then check that no file is kept that no checkpoint needs."""
        while self.in_flight or self.jobs or self.run_jobs:
            if self.at_worker:
                self.at_worker.pop(0).run()
            self.go_on()
            self.finish()
            self.run_job()
            self.tell_job()
        if not self.journal.pending:
            assert self.journal._files.held[0].sequence >= self.older.start.file

    def check(self):
        """Check that a scan of what a power cut may leave now, from either checkpoint, finds every synced unit."""
        done = len(self.disk.operations)
        _, cut = next(iter(self.disk.cuts(done)))
        unsynced = [operation.index for operation in cut.unsynced()]
        images = [self.disk.after_power_cut(), self.disk.at(done)]
        for _ in range(CUTS):
            images.append(self.disk.at(done, kept=[index for index in unsynced if self.rng.random() < 0.5]))
        for image in images:
            for known in (self.newer, self.older):
                through, synced_unit, start = known
                found = scan(image, DIRECTORY, checkpointed_unit=through, synced_unit=synced_unit, start=start)
                last = max(found.last_unit, through)
                assert last >= self.journal.synced_unit
                assert last >= self.acknowledged
                assert found.first_unit <= through + 1
                assert found.highest_unit <= self.journal.last_unit
                list(found.units(through))


@pytest.mark.slow
@pytest.mark.parametrize("seed", first_only(range(0, SEEDS, 10)))
def test_released_journal_units_survive_any_random_order_of_events(seed):
    for number in range(seed, seed + 10):
        play = Play(number)
        for _ in range(STEPS):
            play.step()
            play.check()
        play.come_to_rest()


@pytest.mark.long
def test_released_journal_units_survive_2000_more_random_histories():
    for number in range(1000, 3000):
        play = Play(number)
        for _ in range(STEPS):
            play.step()
            play.check()
        play.come_to_rest()
