"""The settings of a topic's logs in checkpoints: a setting that a later version added is refused by name."""

import msgpack
import pytest
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.storage import store_checkpoint
from fencepost.storage.checkpoints import NewerFormat
from fencepost.storage.journal.journal import CREATE, Part
from fencepost.storage.log.settings import LogSettings
from store_driver import DIRECTORY, Driven

NEWER = {"segment_bytes": 1_000, "from_the_future": 7}


def test_log_settings_unpack_to_what_was_packed():
    for settings in (
        LogSettings(),
        LogSettings(cleanup_policy="compact", retention_ms=5, min_cleanable_dirty_ratio=0.1),
    ):
        assert LogSettings.unpack(msgpack.unpackb(msgpack.packb(settings.pack()))) == settings


def test_an_unknown_log_setting_in_a_checkpoint_fails_the_start_and_changes_nothing():
    driven = Driven(SimulatedDisk())
    driven.append(driven.create("t"), [b"value"])
    driven.round(sync=True)
    driven.flush()
    driven.checkpoint()
    driven.store.close()
    disk = driven.disk
    number = max(store_checkpoint.numbers(disk, DIRECTORY))
    content = store_checkpoint.read(disk, DIRECTORY, number)
    content.logs[-1].settings = NEWER
    store_checkpoint.write(disk, DIRECTORY, number + 1, content)
    before = disk.fingerprint()
    with pytest.raises(NewerFormat, match="t-0 has the setting from_the_future"):
        Driven(disk)
    assert disk.fingerprint() == before


def test_an_unknown_log_setting_in_the_journal_raises_newer_format():
    driven = Driven(SimulatedDisk())
    log_id = driven.store.new_log_id()
    part = Part(CREATE, log_id, 0, (msgpack.packb(["t", b"t" * 16, 0, NEWER]),))
    with pytest.raises(NewerFormat, match="t-0 has the setting from_the_future"):
        driven.store.commit([part])
    driven.round(sync=True)
    driven.store.close()
    with pytest.raises(NewerFormat, match="t-0 has the setting from_the_future"):
        Driven(driven.disk.after_process_crash())
