"""The journal's syncs: what each covers, none after a failed one, rounds beside a sync job, and empty rounds.

A unit is an entry of the journal; a round is the units of one write. An empty round records that the round before it
was synced.
"""

import errno
import threading

import pytest
from fencepost.effects.gathering import BULK_BYTES
from fencepost.effects.simulated.disk import SimulatedFile
from fencepost.storage.journal.reading import rounds
from fencepost.storage.journal.scan import scan
from journal_driver import BLOCK, DIRECTORY, Driven, recovered
from step_writer import StepWriter

ROOMY = {"first_file_bytes": 16 * BLOCK, "largest_file_bytes": 16 * BLOCK, "max_bytes": 128 * BLOCK}

# ---- what a sync covers --------------------------------------------------------------------------------------


@pytest.mark.requirement("S-11")
def test_a_synced_journal_round_covers_earlier_unsynced_rounds_of_other_files_too(disk, driven):
    for number in range(6):
        driven.append(bytes([number]) * 3000)
        driven.round(sync=False)
    driven.append(b"synced")
    driven.round(sync=True)
    assert len({unit.path for unit in scan(disk, DIRECTORY).units()}) > 2
    assert len(recovered(disk.after_power_cut())) == 7


def test_a_synced_journal_round_without_units_makes_earlier_unsynced_units_durable(disk, driven):
    driven.append(b"one")
    driven.round(sync=False)
    assert recovered(disk.after_power_cut()) == []
    driven.round(sync=True)
    assert len(recovered(disk.after_power_cut())) == 1


def test_a_large_synced_journal_round_is_written_past_the_page_cache(disk, monkeypatch):
    past = []

    def written(file, buffers, position, *, paced):
        assert not paced
        past.append((position % BLOCK, sum(map(len, buffers)) % BLOCK))
        file.write(buffers, position)

    monkeypatch.setattr(SimulatedFile, "write_past_cache", written)
    driven = Driven(disk, max_bytes=16 << 20, largest_file_bytes=2 << 20)
    driven.room(BULK_BYTES + 200_000)
    small, large = b"x" * 200_000, bytes(range(256)) * (BULK_BYTES // 256)
    driven.append(small)
    driven.round()
    assert past == []
    driven.append(large)
    driven.round()
    assert past == [(0, 0)]  # whole blocks: none is shared with a round that goes through the cache
    assert [unit.data for unit in recovered(disk.after_power_cut())] == [small, large]


def test_a_round_partly_written_by_a_synced_write_is_written_again_and_synced(disk, driven, monkeypatch):
    def part(file, buffers, position, size_bytes):
        file.write([b"".join(buffers)[: size_bytes // 2]], position)
        return False

    monkeypatch.setattr(SimulatedFile, "write_blocks_synced", part)
    data = bytes(range(256)) * 40
    driven.append(data)
    driven.round()
    assert [unit.data for unit in recovered(disk.after_power_cut())] == [data]


# ---- failed syncs, and syncs beside a round ------------------------------------------------------------------


@pytest.mark.parametrize("failing", ["write", "sync"])
def test_after_a_failed_write_or_sync_the_journal_releases_no_unit_any_more(disk, driven, failing):
    journal = driven.journal
    driven.append(b"safe")
    driven.round()
    if failing == "sync":
        disk.fail_sync(lambda path: True)
    else:
        disk.fail(lambda one: type(one).__name__ == "Write")
    driven.append(b"lost")
    write = journal.take_round(sync=True)
    with pytest.raises(OSError):
        write.run()
    with pytest.raises(RuntimeError, match="cannot be released"):
        journal.finished(write)
    with pytest.raises(RuntimeError, match="no round can begin"):
        journal.take_round(sync=True)
    assert (journal.released_unit, journal.synced_unit) == (1, 1)


def test_after_a_sync_job_failed_a_journal_round_of_the_same_file_fails_too(disk, driven):
    """The kernel reports a failed write-back only once for a descriptor: the next sync would succeed although bytes
    are lost.
    """
    driven.append(b"unsynced")
    driven.round(sync=False)
    beside = driven.journal.sync_job()
    fault = disk.fail_sync(lambda path: path.startswith(DIRECTORY))
    with pytest.raises(OSError):
        beside.run()
    assert fault.hits == 1
    driven.append(b"to be synced")
    write = driven.journal.take_round(sync=True)
    with pytest.raises(OSError):
        write.run()
    assert not write.done


def test_a_synced_journal_round_waits_for_a_running_sync_job_of_its_files(driven, monkeypatch):
    driven.append(b"unsynced")
    driven.round(sync=False)
    beside = driven.journal.sync_job()
    driven.append(b"to be synced")
    write = driven.journal.take_round(sync=True)
    ended = []

    def run():
        try:
            write.run()
        except OSError as error:
            ended.append(error)

    round_executor = threading.Thread(target=run)
    sync = SimulatedFile.sync

    def failing(file):
        monkeypatch.setattr(SimulatedFile, "sync", sync)
        round_executor.start()
        round_executor.join(0.05)  # long enough for a round that does not wait; on a slow machine this proves less
        raise OSError(errno.EIO, "lost")

    monkeypatch.setattr(SimulatedFile, "sync", failing)
    with pytest.raises(OSError):
        beside.run()
    round_executor.join()
    assert len(ended) == 1
    assert not write.done


def test_a_sync_job_covers_the_journal_rounds_that_were_finished_when_it_was_taken(disk, driven):
    journal = driven.journal
    for data in (b"one", b"two"):
        driven.append(data)
        driven.round(sync=False)
    job = journal.sync_job()
    driven.append(b"beside")
    driven.round(sync=False)
    job.run()
    assert journal.synced_unit == 0
    journal.synced(job)
    assert (journal.synced_unit, journal.released_unit) == (2, 3)
    assert [unit.data for unit in recovered(disk.after_power_cut())][:2] == [b"one", b"two"]
    rest = journal.sync_job()
    rest.run()
    journal.synced(rest)
    assert journal.synced_unit == 3
    assert journal.sync_job() is None


def test_a_journal_round_synced_beside_a_sync_job_also_syncs_the_jobs_files(disk):
    driven = Driven(disk, **ROOMY)
    journal = driven.journal
    driven.append(b"one")
    driven.round(sync=False)
    job = journal.sync_job()
    driven.append(b"two")
    driven.round(sync=True)
    assert journal.synced_unit == 2
    assert len(recovered(disk.after_power_cut())) == 2
    job.run()
    journal.synced(job)
    assert journal.synced_unit == 2
    assert journal.sync_job() is None
    driven.append(b"three")
    driven.round(sync=False)
    _, two, three = (each.header for each in rounds(disk, driven.files()[0]))
    assert three.synced_through == two.round


def test_a_sync_job_also_covers_the_files_of_an_earlier_job_that_was_not_run(disk, driven):
    driven.append(b"one")
    driven.round(sync=False)
    driven.journal.sync_job()
    job = driven.journal.sync_job()
    job.run()
    driven.journal.synced(job)
    assert driven.journal.synced_unit == 1
    assert len(recovered(disk.after_power_cut())) == 1


def test_the_next_journal_round_header_names_the_round_that_a_sync_job_synced(disk, driven):
    driven.append(b"one")
    driven.round(sync=False)
    job = driven.journal.sync_job()
    job.run()
    driven.journal.synced(job)
    driven.append(b"two")
    driven.round(sync=False)
    one, two = (each.header for each in rounds(disk, driven.files()[0]))
    assert two.synced_through == one.round


def test_the_newer_of_two_sync_jobs_covers_journal_rounds_between_them(disk, driven):
    """The older job ends first and must not be counted as the newer one."""
    driven.append(b"one")
    driven.round(sync=False)
    older = driven.journal.sync_job()
    older.run()
    driven.append(b"two")
    driven.round(sync=False)
    newer = driven.journal.sync_job()
    driven.journal.synced(older)
    driven.append(b"three")
    write = driven.journal.take_round(sync=True)
    assert not write.begin(StepWriter(), lambda error: None)
    write.run()
    driven.journal.finished(write)
    assert len(recovered(disk.after_power_cut())) == 3
    newer.run()
    driven.journal.synced(newer)
    assert driven.journal.synced_unit == 3


def test_a_sync_job_does_not_cover_a_journal_round_that_is_not_written_yet(disk):
    driven = Driven(disk, **ROOMY)
    driven.append(b"one")
    driven.round(sync=False)
    driven.append(b"two")
    write = driven.journal.take_round(sync=False)
    job = driven.journal.sync_job()
    job.run()
    driven.journal.synced(job)
    assert driven.journal.synced_unit == 1
    write.run()
    driven.journal.finished(write)
    driven.append(b"three")
    driven.round(sync=False)
    one, _, three = (each.header for each in rounds(disk, driven.files()[0]))
    assert three.synced_through == one.round


def test_bytes_of_a_running_sync_count_as_unsynced_for_the_next_journal_round(disk):
    """Otherwise the loop would take the round for a small one and block until the sync job has ended."""
    driven = Driven(disk, **ROOMY)
    driven.append(b"x" * 7000)
    driven.round(sync=False)
    job = driven.journal.sync_job()
    for _ in range(2):
        driven.append(b"y")
        driven.round(sync=False)
    driven.append(b"z")
    write = driven.journal.take_round(sync=True)
    assert write.to_sync_bytes == 2 * BLOCK + 2 * BLOCK + write.size_bytes
    assert not job.ended


@pytest.mark.parametrize("by", ["a round", "a job"])
def test_a_journal_file_that_a_worker_is_about_to_sync_is_not_reused(driven, by):
    """Reuse would close the file before the worker syncs it."""
    while len({unit.path for unit in scan(driven.disk, DIRECTORY).units()}) < 2:
        driven.append(b"x" * 3000)
        driven.round(sync=False)
    job = driven.journal.sync_job()
    other = None if by == "a round" else driven.journal.sync_job()
    driven.append(b"y")
    write = driven.journal.take_round(sync=True) if by == "a round" else None
    job.run()
    driven.journal.synced(job)
    driven.journal.recycle(job.through_unit - 1)
    driven.fill()
    for late in filter(None, (write, other)):
        late.run()  # raises if its file was closed to be reused
    if write is not None:
        driven.journal.finished(write)
    before = driven.files()
    driven.journal.recycle(job.through_unit - 1)
    driven.fill()
    assert driven.files() != before


def test_a_journal_file_before_a_round_that_is_not_written_yet_is_not_reused(disk, driven):
    driven.append(b"a" * 3000)
    driven.round(sync=False)
    driven.append(b"b" * 3000)  # which ends the first file
    driven.journal.recycle(1, driven.journal.start_after(1))
    driven.fill()
    driven.round(sync=False)
    assert [unit.number for unit in scan(disk, DIRECTORY).units()] == [1, 2]


@pytest.mark.parametrize("unreported", [False, True], ids=["no sync job", "a sync job ran, synced() was not called"])
def test_reused_journal_files_are_not_synced_for_their_earlier_contents(driven, unreported):
    """A file given up for reuse is closed, so a later synced round must leave it out."""
    for _ in range(12):
        driven.append(b"x" * 3000)
        driven.round(sync=False)
    if unreported:
        driven.journal.sync_job().run()
    given_up = driven.files()[0]
    driven.journal.recycle(8, driven.journal.start_after(8))
    driven.fill()
    driven.append(b"y")
    write = driven.round(sync=True)
    assert given_up not in [file.path for file in write.files]
    assert len(write.files) > 1


@pytest.mark.parametrize("by", ["a round", "a job"])
def test_a_journal_file_not_needed_any_more_during_a_sync_is_reused_after_the_sync(driven, by):
    """Perhaps no further checkpoint releases it, and then the journal would stay full."""
    for _ in range(12):
        driven.append(b"x" * 3000)
        driven.round(sync=False)
    work = driven.journal.sync_job() if by == "a job" else driven.journal.take_round(sync=True)
    driven.journal.recycle(8, driven.journal.start_after(8))
    assert driven.journal._files.held[0].sequence == 1
    work.run()
    if by == "a job":
        driven.journal.synced(work)
    else:
        driven.journal.finished(work)
    assert driven.journal._files.held[0].sequence > 2
    assert driven.journal.may_fill


def test_an_unsynced_journal_round_touches_no_file_but_those_it_writes_units_to(driven):
    for _ in range(6):
        driven.append(b"x" * 3000)
        driven.round(sync=False)
    driven.append(b"y")
    write = driven.journal.take_round(sync=False)
    assert [file for file, _ in write.sizes] == list(write.files)


# ---- the empty round -----------------------------------------------------------------------------------------


def test_of_repeated_syncs_of_an_idle_journal_only_the_first_writes_an_empty_round(disk, driven):
    driven.append(b"one")
    driven.round()
    assert driven.round(sync=True).size_bytes > 0
    assert [one.header.units for one in rounds(disk, driven.files()[0])] == [1, 0]
    assert driven.round(sync=True).size_bytes == 0


def test_a_sync_of_a_synced_journal_writes_an_empty_round_naming_the_last_synced(disk, driven):
    driven.append(b"one")
    driven.round(sync=True)
    driven.round(sync=True)
    assert [one.header.synced_through for one in rounds(disk, driven.files()[0])] == [0, 1]


def test_a_sync_of_a_new_journal_writes_no_empty_round(driven):
    assert driven.round(sync=True).size_bytes == 0


def test_a_sync_of_unsynced_units_writes_no_empty_round(disk, driven):
    driven.append(b"one")
    driven.round(sync=False)
    assert driven.round(sync=True).size_bytes == 0
    assert [one.header.units for one in rounds(disk, driven.files()[0])] == [1]


def test_a_full_journal_file_still_has_space_for_a_seal_and_a_round_that_ends_it(disk, driven):
    driven.append(bytes(4048 - 61))  # with its round header exactly the one block this file has for units
    driven.round()
    assert driven.journal._room < 0
    driven.seal()
    driven.append(b"next")
    driven.round()
    headers = [one.header for path in driven.files() for one in rounds(disk, path)]
    assert [(one.units, one.ends_file) for one in headers] == [(1, False), (0, False), (0, True), (1, False)]
    assert [unit.data for unit in recovered(disk)] == [bytes(4048 - 61), b"next"]
