"""Units (journal entries) for several logs: which need a sync, several batches for one log, and a dropped log."""

import pytest
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.protocol.batches import read
from fencepost.protocol.records import Marker, Record, build, control_marker
from fencepost.storage.layout import CATALOGUE_LOG_ID
from store_driver import Driven, batch_of, values_of


@pytest.fixture
def driven():
    return Driven(SimulatedDisk(history=False))


@pytest.mark.parametrize("mode", ["os", "interval"])
def test_a_journal_unit_only_for_logs_without_fsync_durability_wants_no_sync(driven, mode):
    logs = [driven.create(name, durability_mode=mode) for name in ("a", "b")]
    driven.round()
    store = driven.store
    store.commit([store.append_part(log.log_id, batch_of([b"x"])) for log in logs])
    assert not store.sync_wanted
    assert store.interval_wanted == (mode == "interval")


def test_last_joint_unit_is_the_newest_unit_that_is_not_a_clients_lone_batch(driven):
    """A checkpoint waits for the sync of the journal at most up to this unit."""
    log = driven.create("a", durability_mode="os")
    store, journal = driven.store, driven.store.journal
    assert journal.last_joint_unit == store.last_unit
    driven.append(log, [b"a client's"])
    rest = memoryview(batch_of([b"a client's next"]))[16:]
    store.append_next(log, rest, 0, 1_000, -1, -1)
    assert journal.last_joint_unit == store.last_unit - 2
    store.append_together([(log, read(memoryview(batch_of([b"a marker, say"]))))])
    assert journal.last_joint_unit == store.last_unit
    store.commit([store.append_part(log.log_id, batch_of([b"an offset, say"]))])
    assert journal.last_joint_unit == store.last_unit


def test_a_commit_to_an_os_log_and_an_fsync_log_wants_the_journal_synced(driven):
    lazy, strict = driven.create("a", durability_mode="os"), driven.create("b")
    driven.round()
    store = driven.store
    store.commit([store.append_part(log.log_id, batch_of([b"x"])) for log in (lazy, strict)])
    assert store.sync_wanted


def test_an_append_to_the_catalogue_a_log_start_and_a_drop_want_a_sync_in_every_mode(driven):
    log = driven.create("a", durability_mode="os")
    store = driven.store
    store.logs[CATALOGUE_LOG_ID].settings = log.settings  # durability mode os
    for part in (
        store.append_part(CATALOGUE_LOG_ID, build([Record(0, 1, b"k", b"v")])),
        store.log_start_part(log, 0),
        store.drop_part(log),
    ):
        driven.round()
        assert not store.sync_wanted
        store.commit([part])
        assert store.sync_wanted


def test_one_journal_unit_may_append_to_several_logs_and_twice_to_one_of_them(driven):
    logs = [driven.create(name) for name in "abc"]
    store = driven.store
    for log in logs:
        fields = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
        driven.append(log, [log.topic.encode()], base_sequence=0, **fields)
    marker = read(memoryview(control_marker(Marker.COMMIT, 7, 1, 0, 5)))
    store.commit([store.append_part(log.log_id, marker) for log in (*logs, logs[0])])
    driven.round()
    again = Driven(driven.disk.after_power_cut())
    for each in (driven, again):
        assert [each.log(name).end_offset for name in "abc"] == [3, 2, 2]
        assert [each.log(name).last_stable_offset for name in "abc"] == [3, 2, 2]
        assert [values_of(each.log(name))[0] for name in "abc"] == [(0, b"a"), (0, b"b"), (0, b"c")]


def test_committing_to_a_dropped_log_raises_key_error_and_writes_nothing(driven):
    """If the drop were noticed only when the unit is applied, the journal would have all of the unit, memory a part."""
    kept, dropped = driven.create("a"), driven.create("b")
    store = driven.store
    store.commit([store.drop_part(dropped)])
    before = store.last_unit
    with pytest.raises(KeyError):
        store.commit([store.append_part(log.log_id, batch_of([b"x"])) for log in (kept, dropped)])
    assert store.last_unit == before
    assert kept.end_offset == 0
