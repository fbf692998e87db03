"""After every crash the journal has all released units, complete and in order. What was cut off does not come back.

A unit is an entry of the journal; a round is the units of one write. A unit is released once its round is written, and
synced if the round asks for that.
"""

import os
from collections.abc import Callable
from itertools import permutations

import pytest
from crash_points import crash_images
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.storage.journal.format import BATCH_HEAD_BYTES, BATCH_UNIT_BYTES
from fencepost.storage.journal.scan import JournalDamaged, scan
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from journal_driver import BLOCK, DIRECTORY, Driven, found_units, patch, recovered
from long_runs import share_of
from step_writer import StepWriter

pytestmark = pytest.mark.slow
LIMIT = int(os.environ.get("CRASH_LIMIT", "200")) or None  # crash images of each workload; None: all of them

FORMAT_EDGES = (1, 47, 48, 49, 108, 511, 512, 513, 4095, 4096, 4097, -1)


class Noted(Driven):
    """Notes on the disk what it sends and what it promises, so that any image of it can be judged.

    ("sent", unit, bytes) before the unit is framed; ("synced", unit) when a sync through it has returned;
    ("safe", unit) when the store would have a checkpoint through it; ("started", incarnation, unit): all before that
    unit is safe.
    """

    def __init__(self, disk, **sizes):
        super().__init__(disk, **sizes)
        disk.note(("started", self.journal.incarnation, self.journal.next_unit))

    def append(self, data):
        self.disk.note(("sent", self.journal.next_unit, data))
        return super().append(data)

    def commit(self, *datas):
        self.disk.note(("sent", self.journal.next_unit, b"|".join(datas)))
        return super().commit(*datas)

    def round(self, *, sync=True):
        write = super().round(sync=sync)
        if sync:
            self.disk.note(("synced", self.journal.synced_unit))
        return write

    def checkpoint(self, through):
        self.disk.note(("safe", through))
        self.journal.recycle(through)
        self.fill()


def check(image, description):
    """Check that recovery finds units without a gap in their numbers, each as it was sent, among them all that are
    synced and not safe; and that a second recovery finds the same. Returns what the first found.
    """
    sent: dict[int, bytes] = {}
    synced = safe = 0
    started = (0, 1)
    for note in image.notes:
        match note:
            case ("sent", number, data):
                sent[number] = data
            case ("synced", number):
                synced = number
            case ("safe", number):
                safe = max(safe, number)
            case ("started", incarnation, number):
                started = (incarnation, number)
                safe = max(safe, number - 1)
    result = scan(image, DIRECTORY)  # JournalDamaged here is a failure: nothing was damaged
    found = found_units(result)
    numbers = [unit.number for unit in found]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else True, description
    assert all(sent[unit.number] == unit.data for unit in found), description
    if result.incarnation == started[0]:
        needed = set(range(safe + 1, synced + 1))
        assert needed <= set(numbers), (description, safe, synced, numbers)
    assert result.highest_unit >= result.last_unit
    assert found_units(scan(image, DIRECTORY)) == found
    return result


def begin_anew(image, description):
    """Begin again on the image, write a unit, and check that it alone is there after the next power cut."""
    again = Driven(image, fill=False)
    number = again.append(b"of the new life")
    again.round()
    assert recovered(image.after_power_cut()) == [(number, b"of the new life")], description


def each_crash(disk, *, limit=None, seed=0, anew_every=5):
    count = 0
    for description, image in crash_images(disk, limit=limit, seed=seed, torn_at=FORMAT_EDGES):
        count += 1
        check(image, description)
        if count % anew_every == 0:
            begin_anew(image, description)
    return count


def new_disk():
    """Return a disk whose history begins with the journal's directory in place."""
    disk = SimulatedDisk()
    disk.make_directory(DIRECTORY)
    disk.sync_directory("/")
    return disk.after_power_cut()


# ---- workloads -----------------------------------------------------------------------------------------------


def small_rounds(driven):
    for number in range(4):
        driven.append(b"first %d" % number)
        driven.append(b"second %d" % number * 30)
        driven.round()
    driven.seal()


def rounds_of_several_blocks(driven):
    for number in range(3):
        for unit in range(3):
            driven.append(bytes([number, unit]) * 1000)
        driven.round()


def rounds_over_several_files(driven):
    for number in range(3):
        for unit in range(3):
            driven.append(bytes([number, unit]) * 1700)
        driven.round()


def unsynced_rounds_and_then_a_sync(driven):
    for number in range(6):
        driven.append(bytes([number]) * (900 * number))
        driven.round(sync=number == 3)
    driven.round(sync=True)
    driven.append(b"last")
    driven.round(sync=False)


def units_larger_than_files(driven):
    driven.append(b"small")
    driven.round()
    driven.append(b"l" * (9 * BLOCK))
    driven.append(b"beside")
    driven.round()
    driven.commit(b"p" * 3000, b"q" * 3000, b"")
    driven.round()


def reuse(driven):
    for lap in range(7):
        for number in range(3):
            driven.append(bytes([lap, number]) * 1500)
            driven.round(sync=number != 1)
        driven.checkpoint(driven.journal.synced_unit - 1)
    driven.seal()


def files_of_many_sizes(driven):
    for number in range(9):
        driven.append(bytes([number]) * 3500)
        driven.round()
    driven.checkpoint(8)
    driven.append(b"l" * (20 * BLOCK))
    driven.round()
    driven.checkpoint(10)
    driven.append(b"end")
    driven.round()


def rounds_in_flight_together(driven):
    """For each order of three rounds in flight: write them in this order, and sync them in its reverse. A unit is noted
    as synced when its round and all rounds before it have ended.
    """
    driven.append(b"before")
    driven.round()
    for order in permutations(range(3)):
        writer, writes = StepWriter(), []
        for number in range(3):
            driven.append(bytes([number]) * 1500)
            writes.append(driven.journal.take_round(sync=True))
            if not writes[-1].begin(writer, lambda error: None):  # it is in two files: a worker writes it, first of all
                writes[-1].run()
        for step in [writer.steps[number] for number in order if number < len(writer.steps)]:
            step.write()
        for step in [writer.steps[number] for number in reversed(order) if number < len(writer.steps)]:
            step.sync()
            step.tell()
            while writes and writes[0].done:
                driven.journal.finished(writes.pop(0))
                driven.disk.note(("synced", driven.journal.synced_unit))
        driven.checkpoint(driven.journal.synced_unit - 4)
    driven.seal()


def syncs_beside_rounds(driven):
    """Sync the journal by jobs while rounds are written, as checkpoints do with durability mode os."""
    for number in range(5):
        driven.append(bytes([number]) * 1200)
        driven.round(sync=False)
        job = driven.journal.sync_job()
        driven.append(bytes([number]) * 1700)
        driven.round(sync=number == 2)
        job.run()
        driven.journal.synced(job)
        driven.disk.note(("synced", driven.journal.synced_unit))
        driven.checkpoint(driven.journal.synced_unit - 2)
    driven.seal()


WORKLOADS: list[Callable[[Noted], None]] = [
    syncs_beside_rounds,
    rounds_in_flight_together,
    small_rounds,
    rounds_of_several_blocks,
    rounds_over_several_files,
    unsynced_rounds_and_then_a_sync,
    units_larger_than_files,
    reuse,
    files_of_many_sizes,
]


@pytest.mark.requirement("S-11")
@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda one: one.__name__)
def test_after_any_crash_the_journal_has_every_synced_unit_in_order_without_a_gap(workload):
    disk = new_disk()
    large = workload in (files_of_many_sizes, rounds_in_flight_together)
    sizes = {"largest_file_bytes": 16 * BLOCK, "max_bytes": 128 * BLOCK} if large else {}
    workload(Noted(disk, **sizes))
    assert each_crash(disk, limit=LIMIT) >= 150


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_any_crash_around_journal_units_as_large_as_a_file_loses_no_synced_unit(more):
    """The first unit is as large as the space left in the current file, the second as the largest prepared file; both
    also with one byte less and one more.
    """
    disk = new_disk()
    driven = Noted(disk, first_file_bytes=6 * BLOCK)
    driven.append(b"before")
    driven.round()
    journal = driven.journal
    assert journal._room > BLOCK
    driven.append(bytes([1]) * (journal._room - BATCH_UNIT_BYTES - BATCH_HEAD_BYTES + more))
    driven.round()
    largest = max(file.capacity for file in journal._files.ready)
    driven.append(bytes([2]) * (largest - BATCH_UNIT_BYTES - BATCH_HEAD_BYTES + more))
    driven.append(b"after")
    driven.round()
    driven.checkpoint(journal.synced_unit - 1)
    driven.append(b"in a file used again")
    driven.round()
    assert each_crash(disk, limit=LIMIT) >= 150


def test_journal_recovery_loses_nothing_if_it_is_cut_off_by_another_crash():
    """The workload ends in a crash, and so does the recovery after it; the next recovery has every synced unit."""
    disk = new_disk()
    unsynced_rounds_and_then_a_sync(Noted(disk))
    done = len(disk.operations)
    again = disk.after_process_crash()
    driven = Noted(again)
    driven.append(b"after")
    driven.round()
    for description, image in crash_images(again, first=done):
        check(image, description)
        begin_anew(image, description)


def test_journal_units_dropped_by_a_recovery_do_not_come_back_after_a_second_crash():
    disk = new_disk()
    first = Noted(disk)
    first.append(b"acknowledged")
    first.round()
    first.append(b"tail one")
    first.append(b"tail two" * 700)
    first.round(sync=False)
    cuts = 0
    for description, image in crash_images(disk, first=len(disk.operations) - 1, limit=60):
        kept = [unit.data for unit in recovered(image)]
        second = Noted(image)
        second.append(b"new")
        second.round()
        second.append(b"new tail" * 500)
        second.round(sync=False)
        for again, cut in crash_images(image, limit=25, seed=cuts):
            cuts += 1
            result = check(cut, f"{description}; then {again}")
            found = [unit.data for unit in found_units(result)]
            if result.incarnation == 2:
                assert found == [b"new", b"new tail" * 500][: len(found)]
            else:  # the second start has not begun its journal
                assert found == kept
    assert cuts > 500


def test_a_journal_begun_after_a_kill_replaces_the_one_whose_units_were_recovered():
    """The new process recovers what the old one wrote, synced or not. A store has it all in a checkpoint before it
    begins the new journal.
    """
    disk = new_disk()
    driven = Noted(disk)
    driven.append(b"synced")
    driven.round()
    driven.append(b"only written")
    driven.round(sync=False)
    again = disk.after_process_crash()
    restarted = Noted(again)
    assert restarted.recovered == [(1, b"synced"), (2, b"only written")]
    restarted.append(b"later")
    restarted.round()
    assert recovered(again.after_power_cut()) == [(3, b"later")]


def test_journal_units_of_a_failed_sync_are_never_released_and_may_be_lost():
    disk = new_disk()
    driven = Noted(disk)
    driven.append(b"synced")
    driven.round()
    disk.fail_sync(lambda path: path.endswith(".journal"))
    driven.append(b"readable, but lost")
    with pytest.raises(OSError):
        driven.round()
    assert driven.journal.released_unit == 1
    assert len(recovered(disk.after_process_crash())) == 2
    assert recovered(disk.after_power_cut()) == [(1, b"synced")]


def test_a_journal_round_with_a_failed_sync_of_one_of_its_files_releases_no_unit():
    disk = new_disk()
    driven = Noted(disk)
    driven.append(b"a" * 3000)
    driven.append(b"b" * 3000)
    driven.append(b"c" * 3000)
    fault = disk.fail_sync(lambda path: path.endswith("1.journal"))
    with pytest.raises(OSError):
        driven.round()
    assert fault.hits == 1
    assert driven.journal.released_unit == 0
    each_crash(disk)


def test_after_a_new_journal_file_failed_to_be_prepared_a_crash_loses_no_synced_unit():
    disk = new_disk()
    driven = Noted(disk)
    for number in range(3):
        driven.append(bytes([number]) * 3000)
        driven.round()
    disk.note(("safe", 1))
    driven.journal.recycle(1)
    job = driven.journal.fill_job()
    assert job is not None
    disk.fail_sync(lambda path: path.endswith(DIRECTORY.strip("/")))
    with pytest.raises(OSError):
        job.run()
    each_crash(disk)


def test_damage_to_a_synced_journal_round_is_found_after_any_later_crash():
    """Rot and a crash together: a damaged synced round before an unsynced one must not be cut off with it."""
    disk = new_disk()
    driven = Noted(disk, first_file_bytes=8 * BLOCK)
    for number in range(3):
        driven.append(b"%d" % number * 50)
        driven.round()
    driven.append(b"tail" * 1000)
    driven.round(sync=False)
    cuts = 0
    for _, image in crash_images(disk, first=len(disk.operations) - 1, limit=200):
        cuts += 1
        patch(image, driven.files()[0], 2 * BLOCK + 70, b"rot")
        with pytest.raises(JournalDamaged):
            scan(image, DIRECTORY)
    assert cuts > 20


# ---- a model -------------------------------------------------------------------------------------------------

STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(0, 9000)),
    st.tuples(st.just("commit"), st.lists(st.integers(0, 2000), min_size=1, max_size=4)),
    st.tuples(st.just("round"), st.booleans()),
    st.tuples(st.just("seal"), st.none()),
    st.tuples(st.just("checkpoint"), st.integers(0, 3)),
    st.tuples(st.just("kill"), st.none()),
    st.tuples(st.just("power"), st.none()),
)


def run_model(steps, seed, limit):
    """Run these steps, some of which are crashes; after each of these, and after a crash at any disk operation, the
    journal must have what the notes on the disk promise.
    """
    disk = new_disk()
    driven = Noted(disk)
    for step, (kind, value) in enumerate(steps):
        fresh = bytes([step % 256])
        if kind == "append":
            driven.append(fresh * value)
        elif kind == "commit":
            driven.commit(*(fresh * size for size in value))
        elif kind == "round":
            driven.round(sync=value)
        elif kind == "seal":
            driven.seal()
        elif kind == "checkpoint":
            if driven.journal.synced_unit - value >= driven.scan.highest_unit:
                driven.checkpoint(driven.journal.synced_unit - value)
        else:
            released = driven.journal.released_unit if kind == "kill" else driven.journal.synced_unit
            disk = disk.after_process_crash() if kind == "kill" else disk.after_power_cut()
            result = check(disk, kind)
            assert result.last_unit >= released
            driven = Noted(disk)
    each_crash(disk, limit=limit, seed=seed, anew_every=3)


@settings(max_examples=share_of(60), derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.lists(STEPS, min_size=1, max_size=25), st.integers(0, 1000))
def test_the_journal_agrees_with_its_model_in_any_order_of_events_and_crashes(steps, seed):
    run_model(steps, seed, limit=25)


@pytest.mark.long
@settings(max_examples=3000, suppress_health_check=list(HealthCheck))
@given(st.lists(STEPS, min_size=1, max_size=60), st.integers(0, 1000))
def test_the_journal_agrees_with_its_model_in_long_histories_with_crashes(steps, seed):
    run_model(steps, seed, limit=50)
