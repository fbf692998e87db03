"""Parts of files from a few bytes on, so that small tests have them."""

import pytest
from fencepost.broker.net import connection
from fencepost.storage.log import file_parts
from fencepost.storage.log.open_files import OpenFiles

FROM_BYTES = 200


def leave_small_parts(patch: pytest.MonkeyPatch, from_bytes: int = FROM_BYTES) -> None:
    patch.setattr(file_parts, "FILE_PART_FROM_BYTES", from_bytes)
    patch.setattr(connection, "JOIN_BELOW_BYTES", from_bytes)


def uses(files: OpenFiles) -> int:
    """Return how many uses of open files have not ended."""
    assert not files._abandoned
    return sum(entry.pins for entry in files._entries.values())
