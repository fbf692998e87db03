"""A log's row in a checkpoint: it reads back as it was written, or is refused with the wrong field named."""

import msgpack
import pytest
from fencepost.storage.log.index import IndexRow
from fencepost.storage.log.manifest import Manifest
from fencepost.storage.log.producer_snapshots import Snapshot
from fencepost.storage.log.segment import SegmentState


def test_a_manifest_reads_back_from_msgpack():
    segment = SegmentState(0, 1, 200, 9, offset_index=IndexRow(3, 4))
    manifest = Manifest(1, 9, 0, (Snapshot(0, True), Snapshot(5, False, 1)), (segment, segment))
    assert Manifest.from_row(msgpack.unpackb(msgpack.packb(manifest))) == manifest


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ([0, "0", 0, [], []], "the offsets of a manifest must be whole numbers"),
        ([0, 0, 0, [["0", False, 0]], []], "each snapshot of a manifest must be"),
        ([0, 0, 0, [[0, 0, 0]], []], "each snapshot of a manifest must be"),
        ([0, 0, 0, [], [[0, 0, 0, None]]], "a segment is described by numbers"),
        ([0, 0, 0, [], [[0, 0, 0, 5, 0, 0, 0, 0, [0, "0"]]]], "a segment is described by numbers"),
    ],
)
def test_a_manifest_row_with_wrong_types_raises_an_error_naming_the_field(row, why):
    with pytest.raises(TypeError, match=why):
        Manifest.from_row(row)
