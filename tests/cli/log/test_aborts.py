"""What `log verify` derives of aborted transactions agrees with logs' indexes, also after compaction and deletion."""

import random

import pytest
from fencepost.cli.log.aborts import AbortCheck
from fencepost.protocol.records import Marker
from fencepost.storage.log.segment import scan
from fencepost.storage.producers.aborted import AbortedTransaction, unpack
from log_driver import DIRECTORY, LogDriver, keyed

PRODUCERS = 4


class World:
    """Random transactions in one log, with compaction, DeleteRecords and restarts among them."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.driver = LogDriver(
            cleanup_policy="compact,delete" if seed % 2 else "delete",
            segment_bytes=self.rng.choice([200, 600]),
            min_cleanable_dirty_ratio=0.0,
            delete_retention_ms=self.rng.choice([0, 3]),
        )
        self.sequences = [0] * PRODUCERS
        self.open: set[int] = set()

    def write(self) -> None:
        producer = self.rng.randrange(PRODUCERS)
        batch = keyed(
            [(b"k%d" % self.rng.randrange(3), self.rng.choice([b"v", None]))],
            producer_id=producer,
            producer_epoch=0,
            base_sequence=self.sequences[producer],
            transactional=True,
        )
        self.driver.append(batch)
        self.sequences[producer] += 1
        self.open.add(producer)

    def end(self) -> None:
        producer = self.rng.randrange(PRODUCERS)  # perhaps of one that has nothing open
        self.open.discard(producer)
        self.driver.marker(producer, 0, self.rng.choice([Marker.ABORT, Marker.ABORT, Marker.COMMIT]))

    def tidy(self) -> None:
        self.driver.advance(1)
        self.driver.settle()
        self.driver.compact()
        self.driver.checkpoint()

    def delete(self) -> None:
        log = self.driver.log
        self.driver.start_at(min(log.start_offset + self.rng.randrange(8), log.last_stable_offset))

    def restart(self) -> None:
        self.driver.reopen()

    def step(self) -> None:
        self.rng.choices([self.write, self.end, self.tidy, self.delete, self.restart], [50, 30, 10, 5, 2])[0]()


def differences(driver: LogDriver) -> list[str]:
    check, found = AbortCheck(), []
    for state in driver.log.segments:
        for _, batch in scan(driver.disk.open(f"{DIRECTORY}/{state.stem}.log"), state):
            check.follow(batch)
        path, entries = f"{DIRECTORY}/{state.stem}.txnindex", list[AbortedTransaction]()
        if state.txn_index.entries:
            entries = unpack(driver.disk.open(path).read(state.txn_index.entries * 34, 0))
        found += check.compare(entries)
    return found


@pytest.mark.parametrize("seed", range(12))
def test_log_verify_finds_no_difference_in_aborted_transactions_of_a_sound_log(seed: int) -> None:
    """After random transactions, compaction, DeleteRecords and restarts, the indexes of aborted transactions match the
    log.
    """
    world = World(seed)
    for _ in range(25):
        for _ in range(8):
            world.step()
        world.driver.flush()
        assert differences(world.driver) == []
    assert world.driver.log.end_offset > 100  # the random steps have written something
