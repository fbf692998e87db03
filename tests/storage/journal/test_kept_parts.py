"""Journal parts of a log that cannot be opened: kept outside of the log's folder, and applied once the log is whole."""

import errno
import re
from dataclasses import replace

import pytest
from failing_steps import fail_each_step
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.protocol import batches
from fencepost.protocol.records import Marker, control_marker
from fencepost.storage.checkpoints import Damaged
from fencepost.storage.journal import kept_parts
from fencepost.storage.journal.journal import APPEND, LOG_START, Part
from store_driver import DIRECTORY, SMALL, Driven, batch_of, values_of

KEPT = f"{DIRECTORY}/journal-parts"
ALL = [(0, b"a"), (1, b"b"), (2, b"acknowledged"), (3, b"too")]


def begun() -> Driven:
    """Return a store whose log t has two records in segments of a checkpoint and two in the journal only."""
    driver = Driven(SimulatedDisk())
    log = driver.create("t")
    driver.append(log, [b"a", b"b"])
    driver.round()
    driver.flush()
    driver.checkpoint()
    driver.append(log, [b"acknowledged"])
    driver.append(log, [b"too"])
    driver.round(sync=True)
    return driver


def copied(disk: SimulatedDisk, folder: str) -> dict[str, bytes]:
    """Return a copy of a folder, as an operator has one."""
    files = {}
    for name in disk.list(folder):
        file = disk.open(f"{folder}/{name}", read_only=True)
        files[name] = file.read(file.size(), 0)
        file.close()
    return files


def lose(disk: SimulatedDisk, folder: str) -> None:
    """Remove a log's folder, durably."""
    disk.remove_tree(folder)
    disk.sync_directory(f"{DIRECTORY}/logs")


def put_back(disk: SimulatedDisk, folder: str, files: dict[str, bytes]) -> None:
    """Replace the folder by the copy, whatever was in it."""
    if disk.exists(folder):
        disk.remove_tree(folder)
    disk.make_directory(folder)
    for name, content in files.items():
        file = disk.open(f"{folder}/{name}", create=True)
        file.write([content], 0)
        file.sync()
        file.close()
    disk.sync_directory(folder)
    disk.sync_directory(f"{DIRECTORY}/logs")


def test_restoring_a_logs_folder_as_the_hint_says_recovers_all_acknowledged_records():
    driver = begun()
    folder = driver.log("t").directory
    disk = driver.disk.after_power_cut()
    copy = copied(disk, folder)
    lose(disk, folder)
    offline = Driven(disk)
    assert "offsets 0 to 1 are missing; stop the broker, restore this folder from a copy" in offline.log("t").offline
    assert any("is kept in /data/journal-parts/t-0.1." in warning for warning in offline.report.warnings)
    for _ in range(2):  # several starts without the restored folder change nothing
        offline = Driven(offline.disk.after_power_cut())
        assert offline.log("t").offline
    disk = offline.disk.after_power_cut()
    put_back(disk, folder, copy)
    again = Driven(disk)
    assert again.log("t").offline is None
    assert values_of(again.log("t")) == ALL
    assert disk.list(KEPT) == []
    assert again.append(again.log("t"), [b"next"]) == 4
    again.round(sync=True)
    once_more = Driven(disk.after_power_cut())
    assert values_of(once_more.log("t")) == [*ALL, (4, b"next")]


def test_a_log_restored_from_too_old_a_copy_stays_offline_naming_missing_offsets():
    driver = begun()
    folder = driver.log("t").directory
    too_old = copied(driver.disk, folder)
    driver.flush()
    driver.checkpoint()
    driver.append(driver.log("t"), [b"newest"])
    driver.round(sync=True)
    disk = driver.disk.after_power_cut()
    copy = copied(disk, folder)
    put_back(disk, folder, too_old)
    offline = Driven(disk)
    assert "offsets 2 to 3 are missing" in offline.log("t").offline
    disk = offline.disk.after_power_cut()
    assert copied(disk, folder) == too_old
    put_back(disk, folder, copy)
    assert values_of(Driven(disk).log("t")) == [*ALL, (4, b"newest")]


def test_journal_parts_kept_for_an_offline_log_survive_a_power_cut():
    driver = begun()
    disk = driver.disk.after_power_cut()
    folder = driver.log("t").directory
    lose(disk, folder)
    cut = Driven(disk).disk.after_power_cut()
    assert not cut.exists(folder)
    (name,) = cut.list(KEPT)
    parts = kept_parts.read(cut, f"{KEPT}/{name}", 1)
    assert [(part.kind, part.offset) for part in parts] == [(APPEND, 2), (APPEND, 3)]


def delete_a_topic_that_is_offline():
    """Delete a topic whose folder was lost in a power cut. Returns the disk, and the store in which it was deleted."""
    driver = begun()
    disk = driver.disk.after_power_cut()
    lose(disk, driver.log("t").directory)
    again = Driven(disk)
    again.store.commit([again.store.drop_part(again.log("t"))])
    return disk, again


def test_deleting_the_topic_of_an_offline_log_removes_its_kept_journal_parts():
    """The hint for an offline log names deleting the topic as the alternative to a restore."""
    disk, again = delete_a_topic_that_is_offline()
    assert disk.list(KEPT)
    for _ in range(3):
        again.checkpoint()
    assert disk.list(KEPT) == []


def test_a_start_removes_kept_journal_parts_of_a_topic_deleted_before_a_power_cut():
    disk, again = delete_a_topic_that_is_offline()
    again.round(sync=True)
    cut = disk.after_power_cut()
    assert cut.list(KEPT)
    Driven(cut)
    assert cut.list(KEPT) == []


@pytest.mark.slow
def test_a_log_start_kept_in_journal_parts_applies_once_the_logs_folder_is_restored():
    """Otherwise records removed by DeleteRecords would come back."""
    driver = begun()
    driver.store.commit([driver.store.log_start_part(driver.log("t"), 3)])
    driver.round(sync=True)
    folder = driver.log("t").directory
    disk = driver.disk.after_power_cut()
    copy = copied(disk, folder)
    lose(disk, folder)
    disk = Driven(disk).disk.after_power_cut()
    put_back(disk, folder, copy)
    log = Driven(disk).log("t")
    assert (log.offline, log.start_offset, log.released_start) == (None, 3, 3)
    assert values_of(log) == [(3, b"too")]


def test_producers_and_open_transactions_are_kept_when_a_lost_folder_is_restored():
    driver = begun()
    log = driver.log("t")
    mine = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    driver.append(log, [b"mine"], base_sequence=0, **mine)
    marker = control_marker(Marker.ABORT, 7, 0, 0, 1_000)
    driver.append(log, [b"plain"])
    driver.store.commit([driver.store.append_part(log.log_id, marker)])
    driver.append(log, [b"again"], base_sequence=1, **mine)
    driver.round(sync=True)
    folder = log.directory
    disk = driver.disk.after_power_cut()
    copy = copied(disk, folder)
    lose(disk, folder)
    disk = Driven(disk).disk.after_power_cut()
    put_back(disk, folder, copy)
    found = Driven(disk).log("t")
    assert found.last_stable_offset == log.last_stable_offset == 7
    aborted = found.aborted_between(0, 7)
    assert [(each.first_offset, each.last_offset) for each in aborted.run()] == [(4, 6)]
    assert list(found.producers.describe()) == list(log.producers.describe())


@pytest.mark.slow
@pytest.mark.parametrize("found", ["after a kill", "after a power cut"])
def test_no_crash_while_a_start_keeps_journal_parts_loses_or_splits_a_unit(found):
    """A crash is simulated after each disk operation of that start. The last unit is in two logs, never synced."""
    driver = begun()
    log, other = driver.log("t"), driver.create("u")
    driver.round(sync=True)
    parts = [driver.store.append_part(each.log_id, batch_of([b"both"])) for each in (log, other)]
    driver.store.commit(parts)
    driver.round(sync=False)
    folder = log.directory
    disk = driver.disk.after_process_crash()
    copy = copied(disk, folder)
    lose(disk, folder)
    first = len(disk.operations)
    Driven(disk)
    outcomes = set()
    for number in range(first, len(disk.operations) + 1):
        image = disk.at(number, kept=()) if found == "after a power cut" else disk.killed_at(number)
        put_back(image, folder, copy)
        again = Driven(image)
        assert not again.report.offline, number
        assert values_of(again.log("t"))[:4] == ALL
        both = (values_of(again.log("t"))[4:], values_of(again.log("u")))
        # none of the unit, or all of it: it was never synced
        assert both in (([], []), ([(4, b"both")], [(0, b"both")])), number
        outcomes.add(len(both[0]))
        assert image.list(KEPT) == [] if image.exists(KEPT) else True
    assert outcomes == ({0, 1} if found == "after a power cut" else {1})


@pytest.mark.slow
def test_no_system_error_while_a_start_keeps_journal_parts_loses_a_record():
    driver = begun()
    folder = driver.log("t").directory
    disk = driver.disk.after_power_cut()
    copy = copied(disk, folder)
    lose(disk, folder)

    def judge(disk: SimulatedDisk, started: Driven | None) -> None:
        for image in (disk.after_process_crash(), disk.after_power_cut()):
            put_back(image, folder, copy)
            assert values_of(Driven(image).log("t")) == ALL

    assert fail_each_step(disk.after_process_crash, Driven, judge) > 40


@pytest.mark.slow
def test_no_system_error_while_a_start_applies_kept_parts_loses_a_record():
    disk, _ = offline_with_copy()

    def judge(disk: SimulatedDisk, started: Driven | None) -> None:
        assert started is None or not started.report.offline
        for image in (disk.after_process_crash(), disk.after_power_cut()):
            assert values_of(Driven(image).log("t")) == ALL

    assert fail_each_step(disk.after_process_crash, Driven, judge) > 40


@pytest.mark.slow
def test_no_crash_while_a_start_applies_kept_journal_parts_loses_a_record():
    disk, _ = offline_with_copy()
    first = len(disk.operations)
    Driven(disk)
    for number in range(first, len(disk.operations) + 1):
        for image in (disk.at(number, kept=()), disk.killed_at(number)):
            assert values_of(Driven(image).log("t")) == ALL, number


def test_a_log_that_misses_journal_parts_stays_offline_naming_the_missing_offsets():
    driver = Driven(SimulatedDisk())
    log = driver.create("t")
    driver.append(log, [b"a"])
    driver.round()
    batch = batches.check_produced(memoryview(batch_of([b"after a hole"])))
    driver.store.journal.append_batch(log.log_id, 5, batches.stamp_header(batch, 5), batch.buffer[16:])
    driver.round(sync=True)
    again = Driven(driver.disk.after_power_cut())
    assert "offsets 1 to 4 are missing: the journal goes on at 5" in again.log("t").offline
    for _ in range(2):
        again = Driven(again.disk.after_power_cut())
        assert f"offsets 1 to 4 are missing: {KEPT}/t-0.1." in again.log("t").offline
    assert len(again.disk.list(KEPT)) == 1


def test_an_offline_log_does_not_prevent_the_others_from_opening():
    driver = begun()
    driver.append(driver.create("u"), [b"b"])
    driver.round(sync=True)
    disk = driver.disk.after_power_cut()
    lose(disk, driver.log("t").directory)
    again = Driven(disk)
    assert again.log("t").offline
    assert values_of(again.log("u")) == [(0, b"b")]


# ---- files ---------------------------------------------------------------------------------------------------------


def offline_with_copy() -> tuple[SimulatedDisk, str]:
    """Return a disk on which the log's folder was put back from a copy and the kept parts are not applied yet; and the
    path of the file of these parts.
    """
    driver = begun()
    folder = driver.log("t").directory
    disk = driver.disk.after_power_cut()
    copy = copied(disk, folder)
    lose(disk, folder)
    disk = Driven(disk).disk.after_power_cut()
    put_back(disk, folder, copy)
    return disk, f"{KEPT}/{disk.list(KEPT)[0]}"


def test_damaged_kept_parts_keep_the_log_offline_until_their_file_is_restored():
    disk, path = offline_with_copy()
    whole = copied(disk, KEPT)
    file = disk.open(path)
    file.write([b"\xff"], file.size() - 3)
    file.sync()
    again = Driven(disk)
    assert f"{path}: it fails its checksum; restore this file from a copy" in again.log("t").offline
    disk = again.disk.after_power_cut()
    assert disk.exists(path)
    put_back(disk, KEPT, whole)
    assert values_of(Driven(disk).log("t")) == ALL


def test_unreadable_kept_parts_fail_a_start_unless_unreadable_logs_offline_is_set():
    disk, path = offline_with_copy()
    fault = disk.fail(lambda one: one.path == path, error=errno.EIO, times=None)
    with pytest.raises(OSError, match="Input/output error"):
        Driven(disk)
    again = Driven(disk, settings=replace(SMALL, unreadable_logs_offline=True))
    assert f"{path}: Input/output error; start again once the device can read it" in again.log("t").offline
    assert {log.offline for log in again.store.logs.values()} == {None, again.log("t").offline}
    disk = again.disk.after_power_cut()
    assert fault.hits
    assert values_of(Driven(disk).log("t")) == ALL


def test_after_its_damaged_kept_journal_parts_are_removed_a_log_opens_without_them():
    disk, path = offline_with_copy()
    file = disk.open(path)
    file.write([b"\xff"], file.size() - 3)
    hint = f"without {path}, removed, the log opens and the records held there are lost"
    assert Driven(disk).log("t").offline.endswith(hint)
    disk = disk.after_process_crash()
    disk.unlink(path)
    assert values_of(Driven(disk).log("t")) == ALL[:2]


def offline_with_copy_and_several_files(monkeypatch) -> tuple[SimulatedDisk, list[str]]:
    """Return what offline_with_copy() returns, but each of the two parts has a file of its own."""
    monkeypatch.setattr(kept_parts, "FILE_BYTES", 1)
    disk, _ = offline_with_copy()
    return disk, [f"{KEPT}/{name}" for name in disk.list(KEPT)]


def removed_by_the_hint(disk: SimulatedDisk, reason: str) -> SimulatedDisk:
    """Remove all files that this reason for being offline names, as it says."""
    for path in re.search(r"without (\S+(?: and \S+)*), removed, the log opens", reason)[1].split(" and "):
        disk.unlink(path)
    return disk


@pytest.mark.parametrize("number", [0, 1])
def test_the_hint_names_every_file_of_kept_parts_to_remove_to_open_the_log(number, monkeypatch):
    disk, paths = offline_with_copy_and_several_files(monkeypatch)
    assert len(paths) == 2
    file = disk.open(paths[number])
    file.write([b"\xff"], file.size() - 3)
    offline = Driven(disk)
    disk = removed_by_the_hint(offline.disk.after_process_crash(), offline.log("t").offline)
    assert disk.list(KEPT) == [path.rpartition("/")[2] for path in paths[:number]]
    assert values_of(Driven(disk).log("t")) == ALL[: 2 + number]


@pytest.mark.parametrize("restored", [True, False])
def test_a_log_that_lacks_a_file_of_kept_parts_is_offline_naming_missing_offsets(restored, monkeypatch):
    disk, paths = offline_with_copy_and_several_files(monkeypatch)
    whole = copied(disk, KEPT)
    disk.unlink(paths[0])
    offline = Driven(disk)
    reason = offline.log("t").offline
    assert f"offsets 2 to 2 are missing: {paths[1]} goes on at 3; restore the files before it from a copy" in reason
    disk = offline.disk.after_process_crash()
    if restored:
        put_back(disk, KEPT, whole)
    else:
        removed_by_the_hint(disk, reason)
    assert values_of(Driven(disk).log("t")) == (ALL if restored else ALL[:2])


def test_kept_journal_parts_in_several_files_read_back_as_they_were_written(monkeypatch):
    monkeypatch.setattr(kept_parts, "FILE_BYTES", 100)
    disk = SimulatedDisk()
    disk.make_directory(DIRECTORY)
    parts = [Part(APPEND, 3, number, (b"x" * number, b"y")) for number in range(60)]
    parts.insert(30, Part(LOG_START, 3, 17, ()))
    paths = kept_parts.write(disk, DIRECTORY, "a-b.c-12.3", 4, parts)
    assert len(paths) > 10
    found = [part for path in paths for part in kept_parts.read(disk, path, 3)]
    assert [part._replace(data=(b"".join(part.data),)) for part in found] == [
        part._replace(data=(b"".join(part.data),)) for part in parts
    ]
    files, unfinished = kept_parts.list_files(disk, DIRECTORY)
    assert ([f"{KEPT}/{each.name}" for each in files], unfinished) == (paths, [])
    assert {(each.log_id, each.incarnation) for each in files} == {(3, 4)}


@pytest.mark.parametrize("payload", [b"\x01", b"\x01" + bytes(8) + b"\0\0\0\x05abcd", b"\x09" + bytes(12)])
def test_reading_kept_journal_parts_that_do_not_parse_raises_damaged(payload):
    from fencepost.storage import checkpoints

    disk = SimulatedDisk()
    checkpoints.write_file(disk, "/f", kept_parts.KIND, kept_parts.VERSION, payload)
    with pytest.raises(Damaged, match="part 0 does not parse"):
        kept_parts.read(disk, "/f", 1)


@pytest.mark.parametrize(
    "name", ["t-0.1", "t-0.1.2", "t-0.1.02.0", "t-0.1.2.x", "t-0.01.2.0", "t-0.1.2.0.writing", "t.1.2.0", "notes.1.2"]
)
def test_parse_name_returns_none_for_names_that_no_file_of_kept_journal_parts_has(name):
    assert kept_parts.parse_name(name) is None


# ---- as older versions kept them -----------------------------------------------------------------------------------


def old_parts(disk: SimulatedDisk, folder: str, number: int, *values: tuple[int, bytes], torn: bytes = b"") -> str:
    path = f"{folder}/journal-parts-{number}"
    file = disk.open(path, create=True)
    content = b""
    for offset, value in values:
        batch = batches.check_produced(memoryview(batch_of([value])))
        content += batches.stamp_header(batch, offset) + batch.buffer[16:]
    file.write([content + torn], 0)
    file.sync()
    disk.sync_directory(folder)
    return path


def whole_log() -> tuple[SimulatedDisk, str]:
    """Return (disk, folder) of a log with two records in segments, and none in the journal only."""
    driver = Driven(SimulatedDisk())
    log = driver.create("t")
    driver.append(log, [b"a", b"b"])
    driver.round()
    driver.flush()
    driver.checkpoint()
    return driver.disk.after_power_cut(), log.directory


def test_parts_that_an_older_version_kept_in_the_logs_folder_are_applied_and_removed():
    disk, folder = whole_log()
    old_parts(disk, folder, 0, (2, b"acknowledged"), torn=b"a crash tore it")
    old_parts(disk, folder, 1, (2, b"acknowledged"), (3, b"too"))
    again = Driven(disk)
    assert values_of(again.log("t")) == ALL
    assert not any(name.startswith("journal-parts") for name in disk.list(folder))
    assert values_of(Driven(disk.after_power_cut()).log("t")) == ALL


def test_kept_files_of_an_older_version_are_applied_in_the_order_of_their_numbers():
    disk, folder = whole_log()
    old_parts(disk, folder, 10, (3, b"too"))
    old_parts(disk, folder, 9, (2, b"acknowledged"))
    assert values_of(Driven(disk).log("t")) == ALL


def test_a_damaged_batch_kept_by_an_older_version_keeps_the_log_offline():
    """The batch's header is intact, and its records are damaged."""
    disk, folder = whole_log()
    path = old_parts(disk, folder, 0, (2, b"acknowledged"), (3, b"too"))
    file = disk.open(path)
    whole = file.read(file.size(), 0)
    file.write([b"A"], whole.index(b"acknowledged"))
    file.sync()
    file.close()
    again = Driven(disk)
    assert again.log("t").offline.startswith(f"{path}: at byte 0: ")
    assert disk.exists(path)


def test_kept_parts_of_an_older_version_that_begin_above_the_log_end_keep_it_offline():
    disk, folder = whole_log()
    path = old_parts(disk, folder, 0, (5, b"after a hole"))
    again = Driven(disk)
    assert f"offsets 2 to 4 are missing: {path} goes on at 5" in again.log("t").offline
    assert disk.exists(path)


def test_damaged_kept_parts_of_an_older_version_keep_the_log_offline():
    disk, folder = whole_log()
    path = old_parts(disk, folder, 0, (2, b"acknowledged"), torn=b"rotten" * 20)
    again = Driven(disk)
    assert again.log("t").offline.startswith(f"{path}: at byte ")
    assert disk.exists(path)
