"""The checkpoint of a store: what was written is read back, and contents of another shape are damage."""

import msgpack
import pytest
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.storage import store_checkpoint
from fencepost.storage.checkpoints import Damaged, write_file
from fencepost.storage.journal.format import JournalStart
from fencepost.storage.store_checkpoint import KIND, VERSION, LogEntry, StoreCheckpoint

HEAD_1 = (1, 1, 10, 11, 12, 2, 1_000)  # of version 1
HEAD = (*HEAD_1, 9, 3, 7)
ROW = [1, "t", bytes(16), 0, {"segment_bytes": 7}, None]


@pytest.fixture
def disk():
    disk = SimulatedDisk()
    disk.make_directory("/data")
    return disk


def test_a_store_checkpoint_reads_back_as_it_was_written(disk):
    content = StoreCheckpoint(*HEAD[:8], JournalStart(3, 7), logs=[LogEntry(*ROW)])
    store_checkpoint.write(disk, "/data", 1, content)
    assert store_checkpoint.read(disk, "/data", 1) == content


def test_a_version_1_checkpoint_replays_the_journal_from_its_beginning(disk):
    write_file(disk, "/data/checkpoint-1", KIND, 1, msgpack.packb([HEAD_1, [ROW]]))
    content = store_checkpoint.read(disk, "/data", 1)
    assert content == StoreCheckpoint(*HEAD_1, synced_unit=10, logs=[LogEntry(*ROW)])
    assert content.journal_start == JournalStart(0, 0)


@pytest.mark.parametrize(
    "payload",
    [
        [HEAD, [], 1],
        [HEAD[1:], []],
        [HEAD[:8], []],
        [HEAD_1[1:], []],
        [(*HEAD, 1), []],
        [[], []],
        ["1234567", []],
        [(*HEAD[:9], "1000"), []],
        [(*HEAD[:9], True), []],
        [(*HEAD_1[:6], "1000"), []],
        [HEAD, 3],
        [HEAD, [ROW[:5]]],
        *([HEAD, [[*ROW[:at], None, *ROW[at + 1 :]]]] for at in range(5)),
    ],
)
def test_reading_a_store_checkpoint_with_wrong_fields_raises_damaged(disk, payload):
    write_file(disk, "/data/checkpoint-1", KIND, VERSION, msgpack.packb(payload))
    with pytest.raises(Damaged):
        store_checkpoint.read(disk, "/data", 1)
