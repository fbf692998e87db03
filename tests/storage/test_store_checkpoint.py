"""The checkpoint of a store: what was written is read back, and contents of another shape are damage."""

import msgpack
import pytest
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.storage import store_checkpoint
from fencepost.storage.checkpoints import Damaged, write_file
from fencepost.storage.store_checkpoint import KIND, VERSION, LogEntry, StoreCheckpoint

HEAD = (1, 1, 10, 11, 12, 2, 1_000)
ROW = [1, "t", bytes(16), 0, {"segment_bytes": 7}, None]


@pytest.fixture
def disk():
    disk = SimulatedDisk()
    disk.make_directory("/data")
    return disk


def test_what_was_written_is_read_back(disk):
    content = StoreCheckpoint(*HEAD, logs=[LogEntry(*ROW)])
    store_checkpoint.write(disk, "/data", 1, content)
    assert store_checkpoint.read(disk, "/data", 1) == content


@pytest.mark.parametrize(
    "payload",
    [
        [HEAD, [], 1],
        [HEAD[1:], []],
        ["1234567", []],
        [(*HEAD[:6], "1000"), []],
        [(*HEAD[:6], True), []],
        [HEAD, 3],
        [HEAD, [ROW[:5]]],
        *([HEAD, [[*ROW[:at], None, *ROW[at + 1 :]]]] for at in range(5)),
    ],
)
def test_contents_of_another_shape_are_damage(disk, payload):
    write_file(disk, "/data/checkpoint-1", KIND, VERSION, msgpack.packb(payload))
    with pytest.raises(Damaged):
        store_checkpoint.read(disk, "/data", 1)
