"""A failed sync is told to everybody who comes after it, and never tried again."""

import errno

import pytest
from fencepost.effects.disk import CannotOpen, DiskFull
from fencepost.storage.sync_once import SyncOnce


def failing(error: OSError):
    def sync() -> None:
        raise error

    return sync


@pytest.mark.parametrize("error", [OSError(errno.EIO, "failed", "/log"), DiskFull(errno.ENOSPC, "full", "/log")])
def test_no_sync_is_tried_after_one_that_failed(error):
    syncs, tried = SyncOnce(), []
    for sync in (failing(error), lambda: tried.append(True)):
        with pytest.raises(OSError) as raised:
            syncs.run(sync)
        assert type(raised.value) is OSError  # a full disk may be tried again: this may not
        assert (raised.value.errno, raised.value.filename) == (error.errno, "/log")
    assert not tried


def test_a_directory_that_cannot_be_opened_is_tried_again():
    syncs, tried = SyncOnce(), []
    with pytest.raises(CannotOpen):
        syncs.run(failing(CannotOpen(errno.EMFILE, "too many", "/logs")))
    syncs.run(lambda: tried.append(True))
    assert tried
