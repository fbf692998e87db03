"""Law 4: state replayed from nothing equals state from snapshots, whichever checkpoint a recovery begins at.

The same random history runs on several disks: on one without flush, checkpoint or snapshot, so that recovery applies
every unit there ever was; on the others with them at random places, and lives that end in between. `make lives` runs
HISTORIES of them, the suite a few.
"""

import os
import random

import pytest
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.protocol import batches
from fencepost.protocol.errors import KafkaError
from fencepost.protocol.records import Marker, Record, build, control_marker
from fencepost.storage import store_checkpoint
from fencepost.storage.producers.producers import RETIRED_EPOCH
from fencepost.storage.store import StoreSettings
from store_driver import DIRECTORY, Driven
from store_dump import dump

SETTINGS = StoreSettings(journal_max_bytes=16 << 20, tail_max_bytes=1 << 20, min_free_bytes=0, max_open_files=64)
STEPS = 120


class History:
    """A store to which random things happen, the same for the same seed whatever upkeep is done in between."""

    def __init__(self, seed: int, *, upkeep_seed: int | None = None) -> None:
        self.rng = random.Random(f"history {seed}")
        self.upkeep_rng = random.Random(f"upkeep {upkeep_seed}")
        self.with_upkeep = upkeep_seed is not None
        self.driven = Driven(SimulatedDisk(history=False), settings=SETTINGS)
        self.driven.fill()
        self.sequences: dict[tuple[int, int], int] = {}  # (log id, producer) → next
        self.epochs: dict[int, int] = {}
        self.open: set[tuple[int, int]] = set()
        self.topics = 0
        self.producers = 100
        self.once_id = self.driven.create("once", segment_bytes=1_500).log_id
        self._create()
        self._create()

    def run(self, steps: int = STEPS) -> "History":
        actions = (
            [self._append] * 5 + [self._idempotent] * 8 + [self._transactional] * 5 + [self._end] * 3 + [self._once] * 5
        )
        actions += [self._epoch, self._together, self._trim, self._create, self._drop]
        for _ in range(steps):
            self.rng.choice(actions)()
            if self.rng.random() < 0.5:
                self.driven.round(sync=True)
            if self.with_upkeep:
                self._upkeep()
        self.driven.round(sync=True)
        return self

    # ---- what happens --------------------------------------------------------------------------------------

    @property
    def once(self):
        return self.driven.store.logs[self.once_id]

    def _log(self):
        logs = [log for log in self.driven.store.logs.values() if log.log_id and log is not self.once]
        return self.rng.choice(sorted(logs, key=lambda log: log.log_id))

    def _values(self) -> list[bytes]:
        return [self.rng.randbytes(self.rng.choice((0, 3, 200))) for _ in range(self.rng.randint(1, 4))]

    def _put(self, log, data: bytes) -> None:
        batch = batches.read(memoryview(data))
        try:
            duplicate = log.producers.judge(batch)
        except KafkaError:
            return
        if duplicate is None:
            while not self.driven.store.admits(batch.size):
                self.driven.round(sync=True)
                self.driven.fill()
            self.driven.store.commit([self.driven.store.append_part(log.log_id, data)])

    def _append(self) -> None:
        self._put(self._log(), build([Record(n, 1_000 + n, None, v) for n, v in enumerate(self._values())]))

    def _produce(self, *, transactional: bool) -> None:
        log, producer = self._log(), self.rng.randrange(4) + (10 if transactional else 0)
        values = self._values()
        key = log.log_id, producer
        sequence = self.sequences.get(key, 0)
        data = build(
            [Record(n, 2_000 + n, b"k", value) for n, value in enumerate(values)],
            producer_id=producer,
            producer_epoch=self.epochs.get(producer, 0),
            base_sequence=sequence,
            transactional=transactional,
        )
        self._put(log, data)
        self.sequences[key] = sequence + len(values)
        if transactional:
            self.open.add(key)

    def _idempotent(self) -> None:
        self._produce(transactional=False)

    def _transactional(self) -> None:
        self._produce(transactional=True)

    def _end(self) -> None:
        """Commit or abort what one producer has open, in one unit over all its logs."""
        keys = sorted(key for key in self.open if key[0] in self.driven.store.logs and key[0] != self.once_id)
        if not keys:
            return
        producer = self.rng.choice(keys)[1]
        kind = self.rng.choice((Marker.COMMIT, Marker.ABORT))
        marker = control_marker(kind, producer, self.epochs.get(producer, 0), 0, 3_000)
        logs = [log_id for log_id, one in keys if one == producer]
        self.driven.store.commit([self.driven.store.append_part(log_id, marker) for log_id in logs])
        self.open.difference_update((log_id, producer) for log_id in logs)

    def _once(self) -> None:
        """Begin or end the transaction of a producer id that is used only once: its marker forgets it."""
        log = self.once
        mine = sorted(key for key in self.open if key[0] == log.log_id)
        if not mine:
            self.producers += 1
            fields = {"producer_epoch": RETIRED_EPOCH - 1, "base_sequence": 0, "transactional": True}
            self._put(log, build([Record(0, 4_000, None, b"once")], producer_id=self.producers, **fields))
            self.open.add((log.log_id, self.producers))
            return
        kind = self.rng.choice((Marker.COMMIT, Marker.ABORT))
        marker = control_marker(kind, mine[0][1], RETIRED_EPOCH, 0, 3_000)
        self.driven.store.commit([self.driven.store.append_part(log.log_id, marker)])
        self.open.remove(mine[0])

    def _epoch(self) -> None:
        """Let a producer come back with a newer epoch; it begins with sequence number 0 everywhere."""
        producer = self.rng.randrange(4)
        self.epochs[producer] = self.epochs.get(producer, 0) + 1
        for key in [key for key in self.sequences if key[1] == producer]:
            del self.sequences[key]

    def _together(self) -> None:
        store = self.driven.store
        logs = {self._log().log_id for _ in range(3)}
        store.commit([store.append_part(log_id, build([Record(0, 5, None, b"one unit")])) for log_id in sorted(logs)])

    def _trim(self) -> None:
        self.driven.round(sync=True)
        log = self._log()
        first_open = log.producers.first_open_offset()
        most = log.high_watermark if first_open is None else min(first_open, log.high_watermark)
        if most > log.start_offset:
            start = self.rng.randint(log.start_offset, most)
            self.driven.store.commit([self.driven.store.log_start_part(log, start)])

    def _create(self) -> None:
        self.topics += 1
        self.driven.create(f"t{self.topics}", segment_bytes=1_500, index_interval_bytes=300)

    def _drop(self) -> None:
        log = self._log()
        if len(self.driven.store.logs) > 4:
            self.driven.store.commit([self.driven.store.drop_part(log)])

    # ---- what is done beside it ----------------------------------------------------------------------------

    def _upkeep(self) -> None:
        draw = self.upkeep_rng.random()
        if draw < 0.15:
            self.driven.flush()
        elif draw < 0.25:
            self.driven.flush()
            self.driven.checkpoint()
        elif draw < 0.32:
            self._snapshot()
        elif draw < 0.34:
            self._restart()

    def _snapshot(self) -> None:
        for log in self.driven.store.logs.values():
            while log.prepare_snapshot():
                pass
            job = log.snapshot_job()
            if job is not None:
                job.run()
                log.snapshotted(job)

    def _restart(self) -> None:
        """Sync what was appended, end the process, and recover its directory, so that the history goes on from
        there.
        """
        self.driven.round(sync=True)
        self.driven.store.close()
        self.driven = Driven(self.driven.disk, settings=SETTINGS)
        self.driven.fill()


def recovered(disk: SimulatedDisk) -> Driven:
    return Driven(disk, settings=SETTINGS)


@pytest.mark.parametrize("seed", range(int(os.environ.get("HISTORIES", "3"))))
@pytest.mark.requirement("S-132")
def test_a_store_replayed_from_nothing_equals_one_recovered_from_any_checkpoint(seed):
    plain = History(seed).run()
    live = dump(plain.driven.store)
    from_nothing = recovered(plain.driven.disk.after_process_crash())
    assert from_nothing.report.units_replayed > 50
    assert dump(from_nothing.store) == live
    assert dump(recovered(plain.driven.disk.after_power_cut()).store) == live
    for upkeep_seed in range(3):
        kept = History(seed, upkeep_seed=upkeep_seed).run()
        assert dump(kept.driven.store) == live
        assert dump(recovered(kept.driven.disk.after_process_crash()).store) == live
        assert dump(recovered(kept.driven.disk.after_power_cut()).store) == live


@pytest.mark.parametrize("seed", range(int(os.environ.get("HISTORIES", "3"))))
def test_recovery_from_the_older_checkpoint_gives_the_same_state_as_from_the_newest(seed):
    history = History(seed, upkeep_seed=seed)
    for _ in range(5):
        history.run(STEPS // 5)
        live = dump(history.driven.store)
        disk = history.driven.disk.after_power_cut()
        newest, older = store_checkpoint.numbers(disk, DIRECTORY)[:2]
        from_newest = recovered(history.driven.disk.after_power_cut())
        disk.unlink(f"{DIRECTORY}/checkpoint-{newest}")
        from_older = recovered(disk)
        assert from_newest.report.checkpoint == newest
        assert from_older.report.checkpoint == older
        assert dump(from_newest.store) == dump(from_older.store) == live
