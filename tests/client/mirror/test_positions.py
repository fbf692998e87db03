"""Positions of a mirror as committed offsets."""

import pytest
from fencepost.client.errors import IllegalStateError
from fencepost.client.mirror.positions import BatchMark, Position, decode_position, encode_position
from fencepost.client.values import OffsetAndMetadata


def test_an_encoded_position_decodes_to_an_equal_position() -> None:
    position = Position(12, bytes(15) + b"\x09", BatchMark(8, 11, 77, 3, 5, 0, 8))
    committed = encode_position(position)
    assert committed.offset == 12
    assert committed.leader_epoch == -1
    assert decode_position(committed) == position


@pytest.mark.parametrize("metadata", ["", "{}", "null", '{"version":2}', '{"version":1,"topic_id":"x","mark":null}'])
def test_decoding_an_offset_that_no_mirror_committed_raises_illegal_state(metadata: str) -> None:
    with pytest.raises(IllegalStateError):
        decode_position(OffsetAndMetadata(3, metadata))
