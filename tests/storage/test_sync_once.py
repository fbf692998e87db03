"""The error of a failed sync is raised again for every later caller, and the sync is never tried again."""

import errno

import pytest
from fencepost.effects.disk import CannotOpen, DiskFull
from fencepost.storage.sync_once import SyncOnce


def failing(error: OSError):
    def sync() -> None:
        raise error

    return sync


@pytest.mark.parametrize("error", [OSError(errno.EIO, "failed", "/log"), DiskFull(errno.ENOSPC, "full", "/log")])
def test_after_a_failed_sync_every_further_sync_raises_its_error_without_syncing(error):
    syncs, tried = SyncOnce(), []
    for sync in (failing(error), lambda: tried.append(True)):
        with pytest.raises(OSError) as raised:
            syncs.run(sync)
        assert type(raised.value) is OSError  # and not DiskFull, after which callers try again
        assert (raised.value.errno, raised.value.filename) == (error.errno, "/log")
    assert not tried


def test_a_sync_is_made_again_after_one_that_raised_cannot_open():
    syncs, tried = SyncOnce(), []
    with pytest.raises(CannotOpen):
        syncs.run(failing(CannotOpen(errno.EMFILE, "too many", "/logs")))
    syncs.run(lambda: tried.append(True))
    assert tried
