"""The simulated disk: what a power cut loses, the faults that a test sets, and each image that a cut can leave."""

import contextlib
import errno

import pytest
from disk_files import read, write
from fencepost.effects.disk import AlreadyLocked, DiskFull
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.effects.simulated.operations import Read, Write
from hypothesis import given, settings
from hypothesis import strategies as st
from long_runs import share_of


@pytest.fixture
def disk():
    disk = SimulatedDisk()
    disk.make_directory("/d")
    disk.sync_directory("/")
    return disk


# The first trap: what is not synced


def test_unsynced_bytes_outlive_the_process_and_not_the_power(disk):
    write(disk, "/d/f", b"good", sync=True)
    disk.sync_directory("/d")
    write(disk, "/d/f", b"later", 4)
    assert read(disk.after_process_crash(), "/d/f") == b"goodlater"
    assert read(disk.after_process_crash().after_power_cut(), "/d/f") == b"good"
    assert read(disk.after_power_cut(), "/d/f") == b"good"


def test_a_sync_after_a_restart_makes_old_bytes_durable(disk):
    write(disk, "/d/f", b"bytes")
    again = disk.after_process_crash()
    again.open("/d/f").sync()
    again.sync_directory("/d")
    assert read(again.after_power_cut(), "/d/f") == b"bytes"


def test_sync_all_has_the_effect_of_syncing_each_file(disk):
    write(disk, "/d/a", b"a")
    write(disk, "/d/b", b"b")
    disk.sync_all([disk.open("/d/a")], ["/d"])
    found = disk.after_power_cut()
    assert (read(found, "/d/a"), read(found, "/d/b")) == (b"a", b"")


def test_a_synced_file_is_lost_in_a_crash_if_its_directory_was_not_synced(disk):
    write(disk, "/d/f", b"bytes", sync=True)
    assert disk.after_power_cut().list("/d") == []
    disk.sync_directory("/d")
    assert read(disk.after_power_cut(), "/d/f") == b"bytes"


def test_a_file_with_a_synced_name_and_unsynced_bytes_is_empty_after_a_crash(disk):
    write(disk, "/d/f", b"bytes")
    disk.sync_directory("/d")
    assert read(disk.after_power_cut(), "/d/f") == b""


def test_a_new_directory_is_gone_with_all_in_it_when_its_parent_was_not_synced():
    disk = SimulatedDisk()
    disk.make_directory("/a/b")
    write(disk, "/a/b/f", b"bytes", sync=True)
    disk.sync_directory("/a/b")
    disk.sync_directory("/a")
    assert not disk.after_power_cut().exists("/a")
    disk.sync_directory("/")
    assert read(disk.after_power_cut(), "/a/b/f") == b"bytes"


def test_a_rename_is_undone_until_the_directory_is_synced(disk):
    write(disk, "/d/f", b"old", sync=True)
    disk.sync_directory("/d")
    write(disk, "/d/t", b"new", sync=True)
    disk.rename("/d/t", "/d/f")
    assert read(disk, "/d/f") == b"new"
    assert read(disk.after_power_cut(), "/d/f") == b"old"
    disk.sync_directory("/d")
    assert disk.after_power_cut().list("/d") == ["f"]
    assert read(disk.after_power_cut(), "/d/f") == b"new"


def test_an_unlink_is_undone_until_the_directory_is_synced(disk):
    write(disk, "/d/f", b"bytes", sync=True)
    disk.sync_directory("/d")
    disk.unlink("/d/f")
    assert not disk.exists("/d/f")
    assert read(disk.after_power_cut(), "/d/f") == b"bytes"
    disk.sync_directory("/d")
    assert not disk.after_power_cut().exists("/d/f")


def test_a_truncation_is_undone_by_a_crash_until_it_is_synced(disk):
    write(disk, "/d/f", b"0123456789", sync=True)
    disk.sync_directory("/d")
    file = disk.open("/d/f")
    file.truncate(3)
    file.write([b"x"], 5)
    assert read(disk, "/d/f") == b"012\0\0x"
    assert read(disk.after_power_cut(), "/d/f") == b"0123456789"
    file.sync()
    assert read(disk.after_power_cut(), "/d/f") == b"012\0\0x"


def test_a_crash_undoes_the_replacement_of_a_file_until_its_directory_is_synced(disk):
    write(disk, "/d/f", b"first", sync=True)
    disk.sync_directory("/d")
    disk.unlink("/d/f")
    write(disk, "/d/f", b"second", sync=True)
    assert read(disk.after_power_cut(), "/d/f") == b"first"
    disk.sync_directory("/d")
    assert read(disk.after_power_cut(), "/d/f") == b"second"


# The second trap: a failed sync


def test_write_blocks_synced_makes_only_the_blocks_it_writes_durable(disk):
    file = disk.open("/d/f", create=True)
    file.write([b"before"], 0)
    file.sync()
    disk.sync_directory("/d")
    file.write([b"u"], 0)
    assert file.write_blocks_synced([b"s", b"s"], 2, 2)
    assert read(disk.after_process_crash(), "/d/f") == b"uessre"
    assert read(disk.after_power_cut(), "/d/f") == b"bessre"


def test_a_disk_that_syncs_no_blocks_refuses_write_blocks_synced_also_after_a_crash(disk):
    disk.open("/d/f", create=True)
    disk.sync_directory("/d")
    disk.syncs_blocks = False
    for found in (disk, disk.after_process_crash(), disk.after_power_cut()):
        assert not found.open("/d/f").write_blocks_synced([b"s"], 0, 1)
        assert read(found, "/d/f") == b""


def test_after_a_failed_sync_bytes_are_readable_but_later_syncs_do_not_save_them(disk):
    write(disk, "/d/f", b"good", sync=True)
    disk.sync_directory("/d")
    file = disk.open("/d/f")
    file.write([b"lost"], 4)
    disk.fail_sync(lambda path: path == "/d/f")
    with pytest.raises(OSError) as raised:
        file.sync()
    assert raised.value.errno == errno.EIO
    file.sync()
    assert read(disk, "/d/f") == b"goodlost"
    assert read(disk.after_process_crash(), "/d/f") == b"goodlost"
    assert read(disk.after_power_cut(), "/d/f") == b"good"
    file.write([b"anew"], 4)
    file.sync()
    assert read(disk.after_power_cut(), "/d/f") == b"goodanew"
    assert read(disk.after_process_crash().after_power_cut(), "/d/f") == b"goodanew"


def test_after_a_failed_directory_sync_a_power_cut_loses_the_new_file_names(disk):
    write(disk, "/d/f", b"bytes", sync=True)
    disk.fail_sync(lambda path: path == "/d", times=2)
    for _ in range(2):
        with pytest.raises(OSError):
            disk.sync_directory("/d")
    disk.sync_directory("/d")
    assert disk.exists("/d/f")
    assert not disk.after_power_cut().exists("/d/f")


# Faults and space


def test_a_write_that_fills_a_simulated_disk_writes_what_fits_and_raises_disk_full(disk):
    disk.capacity_bytes = 10
    file = disk.open("/d/f", create=True)
    file.write([b"12345678"], 0)
    assert disk.free_bytes("/d") == 2
    with pytest.raises(DiskFull):
        file.write([b"abcd"], 8)
    assert file.read(100, 0) == b"12345678ab"
    file.write([b"XY"], 0)  # bytes that are there already need no space
    with pytest.raises(DiskFull):
        file.write([b"x"], 10)
    disk.unlink("/d/f")
    assert disk.free_bytes("/d") == 0  # still open
    file.close()
    assert disk.free_bytes("/d") == 10


def test_fail_operation_makes_the_nth_change_of_the_disk_fail_after_some_bytes(disk):
    first = len(disk.operations)
    disk.fail_operation(first + 2, error=errno.ENOSPC, after_bytes=-1)  # -1: after all bytes but one
    file = disk.open("/d/f", create=True)
    file.write([b"one"], 0)
    with pytest.raises(DiskFull):
        file.write([b"two"], 3)
    file.write([b"x"], 5)
    assert file.read(10, 0) == b"onetwx"


@pytest.mark.parametrize("call", ["create", "truncate", "rename", "unlink", "read", "open", "exists", "list", "size"])
def test_a_failed_simulated_operation_changes_nothing(disk, call):
    write(disk, "/d/f", b"bytes", sync=True)
    before = disk.fingerprint()
    file = disk.open("/d/f")
    fault = disk.fail(lambda one: True, error=errno.EIO)
    calls = {
        "create": lambda: disk.open("/d/g", create=True),
        "truncate": lambda: file.truncate(1),
        "rename": lambda: disk.rename("/d/f", "/d/g"),
        "unlink": lambda: disk.unlink("/d/f"),
        "read": lambda: file.read(1, 0),
        "open": lambda: disk.open("/d/f"),
        "exists": lambda: disk.exists("/d/f"),
        "list": lambda: disk.list("/d"),
        "size": lambda: disk.size("/d/f"),
    }
    with pytest.raises(OSError) as raised:
        calls[call]()
    assert raised.value.errno == errno.EIO
    assert raised.value.filename
    assert disk.fingerprint() == before
    assert fault.hits == 1


def test_fail_step_makes_the_disk_call_of_a_number_fail_and_reads_count_as_calls(disk):
    write(disk, "/d/f", b"bytes")
    for number in range(9):
        twin = disk.after_process_crash()
        fault = twin.fail_step(number, error=errno.EMFILE)
        failed = [place for place, step in enumerate(stepped(twin)) if fails(step)]
        assert (failed[0], fault.hits) == (number, 1)


def stepped(disk):
    """Yield nine functions, each of which makes one call to the disk."""
    yield lambda: disk.exists("/d/f")
    yield lambda: disk.is_directory("/d")
    yield lambda: disk.list("/d")
    yield lambda: disk.size("/d/f")
    yield lambda: disk.open("/d/f").close()
    yield lambda: disk.open("/d/new", create=True).close()
    yield lambda: disk.rename("/d/new", "/d/f")
    yield lambda: disk.unlink("/d/f")
    yield lambda: disk.sync_directory("/d")


def fails(step):
    try:
        step()
    except OSError:
        return True
    return False


def test_fail_for_reads_at_one_position_makes_no_other_simulated_read_fail(disk):
    write(disk, "/d/f", b"bytes")
    disk.fail(lambda one: isinstance(one, Read) and one.position == 2, times=None)
    file = disk.open("/d/f")
    assert file.read(2, 0) == b"by"
    for _ in range(2):
        with pytest.raises(OSError):
            file.read(2, 2)


def test_read_cached_returns_none_for_a_file_that_the_simulated_disk_marks_cold(disk):
    write(disk, "/d/f", b"bytes")
    file = disk.open("/d/f")
    assert bytes(file.read_cached(3, 1)) == b"yte"
    disk.is_cold = lambda path: path == "/d/f"
    assert file.read_cached(3, 1) is None


def test_a_write_to_a_read_only_file_changes_nothing_and_a_closed_one_reads_nothing(disk):
    write(disk, "/d/f", b"bytes")
    reader = disk.open("/d/f", read_only=True)
    with contextlib.suppress(OSError):
        reader.write([b"x"], 0)
    assert reader.read(9, 0) == b"bytes"
    reader.close()
    with pytest.raises(OSError):
        reader.read(1, 0)


def test_a_simulated_lock_ends_with_its_process(disk):
    lock = disk.lock("/d/lock")
    with pytest.raises(AlreadyLocked) as raised:
        disk.lock("d/lock")
    assert raised.value.pid == disk.pid
    disk.after_process_crash().lock("/d/lock").release()
    lock.release()
    lock.release()
    disk.lock("/d/lock")


def test_temporary_directories_are_new_each_time(disk):
    one, two = disk.make_temporary_directory("fencepost-"), disk.make_temporary_directory("fencepost-")
    assert one != two
    assert disk.is_directory(one)


# Any cut


@pytest.fixture
def five_writes(disk):
    """Return a disk with two synced writes and then three unsynced ones, and the indexes of all five."""
    file = disk.open("/d/f", create=True)
    disk.sync_directory("/d")
    for number in range(5):
        file.write([bytes([65 + number]) * 4], number * 4)
        if number == 1:
            file.sync()
    return disk, [one.index for one in disk.operations if isinstance(one, Write)]


def test_a_disk_image_at_operation_n_includes_the_operations_before_n_and_no_other(five_writes):
    disk, writes = five_writes
    assert read(disk.at(writes[3] + 1), "/d/f") == b"AAAABBBBCCCCDDDD"
    assert read(disk.at(writes[3]), "/d/f") == b"AAAABBBBCCCC"
    assert read(disk.at(writes[0] + 1, kept=()), "/d/f") == b""
    assert read(disk.at(len(disk.operations), kept=()), "/d/f") == b"AAAABBBB"
    assert disk.at(0).list("/") == []
    with pytest.raises(IndexError):
        disk.at(1000)


def test_a_crash_image_can_lack_any_chosen_unsynced_operations_but_no_synced_one(five_writes):
    disk, writes = five_writes
    end = len(disk.operations)
    assert read(disk.at(end, dropped=[writes[2]]), "/d/f") == b"AAAABBBB\0\0\0\0DDDDEEEE"
    assert read(disk.at(end, kept=[writes[3]]), "/d/f") == b"AAAABBBB\0\0\0\0DDDD"
    assert read(disk.at(end, dropped=[writes[0], writes[4]]), "/d/f") == b"AAAABBBBCCCCDDDD"  # writes[0] was synced


def test_unsynced_operations_may_reach_the_device_in_another_order(disk):
    file = disk.open("/d/f", create=True)
    file.write([b"first"], 0)
    file.write([b"second"], 0)
    first, second = (one.index for one in disk.operations if isinstance(one, Write))
    assert read(disk.at(len(disk.operations), order=[second, first]), "/d/f") == b"firstd"


def test_the_disk_after_a_power_cut_has_no_past_operations_and_its_own_later_ones(five_writes):
    disk, _ = five_writes
    found = disk.after_power_cut()
    assert list(found.operations) == []
    write(found, "/d/f", b"zz")
    assert read(found, "/d/f") == b"zzAABBBB"
    assert read(found.after_power_cut(), "/d/f") == b"AAAABBBB"
    assert read(disk, "/d/f") == b"AAAABBBBCCCCDDDDEEEE"


def test_the_next_process_continues_the_operation_history_of_a_killed_one(five_writes):
    disk, writes = five_writes
    again = disk.after_process_crash()
    write(again, "/d/f", b"FFFF", 20)
    assert len(again.operations) == len(disk.operations) + 1
    assert read(again.at(writes[2]), "/d/f") == b"AAAABBBB"
    assert read(again.at(len(again.operations), dropped=[writes[4]]), "/d/f") == b"AAAABBBBCCCCDDDD\0\0\0\0FFFF"


def test_a_crash_image_carries_the_notes_taken_before_it(disk):
    disk.note("sent")
    write(disk, "/d/f", b"x", sync=True)
    disk.note("acknowledged")
    found = disk.at(len(disk.operations) - 1)
    assert list(found.notes) == ["sent"]
    found.note("recovered")
    assert list(found.at(1).notes) == ["sent", "recovered"]
    assert list(found.after_power_cut().notes) == ["sent", "recovered"]
    assert list(disk.after_process_crash().notes) == ["sent", "acknowledged"]


def test_a_simulated_disk_without_history_cannot_be_restored_to_an_earlier_operation():
    disk = SimulatedDisk(history=False)
    write(disk, "/f", b"bytes", sync=True)
    disk.sync_directory("/")
    write(disk, "/f", b"B")
    assert len(disk.operations) == 0
    assert read(disk.after_power_cut(), "/f") == b"bytes"
    with pytest.raises(ValueError):
        disk.at(0)


# A model of what may be found: durable bytes, byte by byte


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("write"), st.integers(0, 600), st.integers(1, 700)),
            st.tuples(st.just("truncate"), st.integers(0, 900)),
            st.just(("sync",)),
        ),
        max_size=12,
    ),
    st.data(),
)
@settings(max_examples=share_of(150))
def test_after_a_simulated_power_cut_synced_bytes_and_chosen_operations_remain(steps, data):
    disk = SimulatedDisk()
    file = disk.open("/f", create=True)
    disk.sync_directory("/")
    durable, pending = b"", []

    for number, step in enumerate(steps):
        index = len(disk.operations)
        match step:
            case ("write", position, size):
                fill = bytes([number + 1]) * size
                file.write([fill], position)
                pending.append((index, position, fill))
            case ("truncate", size):
                file.truncate(size)
                pending.append((index, size, None))
            case _:
                file.sync()
                durable, pending = model(durable, pending), []

    kept = data.draw(st.sets(st.sampled_from([index for index, _, _ in pending]))) if pending else set()
    found = disk.at(len(disk.operations), kept=kept)
    assert read(found, "/f") == model(durable, [one for one in pending if one[0] in kept])
    assert read(disk.after_power_cut(), "/f") == durable


def model(content, operations):
    """Return a file's content after operations (index, position, bytes to write, or None to truncate there)."""
    for _, position, fill in operations:
        if fill is None:
            content = content[:position].ljust(position, b"\0")
        else:
            content = content.ljust(position, b"\0")
            content = content[:position] + fill + content[position + len(fill) :]
    return content


BLOCKS_OF_NULS = {
    "before": (0, 2),
    "over the first": (0, 3),
    "over all": (1, 6),
    "over the last": (4, 2),
    "behind": (9, 3),
}


@pytest.mark.parametrize(("first", "blocks"), BLOCKS_OF_NULS.values(), ids=BLOCKS_OF_NULS)
@pytest.mark.parametrize("shift", [0, 1])
def test_on_the_simulated_disk_nuls_written_over_other_bytes_read_as_nuls(disk, first, blocks, shift):
    """The simulated disk stores nothing for whole blocks of them."""
    before, position, nuls = bytes(2 * 4096) + b"x" * 4 * 4096, first * 4096 + shift, bytes(blocks * 4096)
    write(disk, "/d/f", before)
    write(disk, "/d/f", nuls, position)
    assert read(disk, "/d/f") == model(before, [(None, position, nuls)])


def test_a_copied_disk_shares_blocks_but_later_changes_stay_separate(disk):
    write(disk, "/d/f", bytes(range(256)) * 400, sync=True)
    disk.sync_directory("/d")
    one, two = disk.after_power_cut(), disk.after_power_cut()
    assert one.fingerprint() == two.fingerprint() == disk.fingerprint()
    write(one, "/d/f", b"x", 50_000)
    assert one.fingerprint() != two.fingerprint() == disk.fingerprint()
    write(two, "/d/f", b"x", 50_000)
    assert one.fingerprint() == two.fingerprint()


def test_a_process_can_be_killed_after_any_of_its_operations(disk):
    write(disk, "/d/f", b"good", sync=True)
    disk.sync_directory("/d")
    disk.note("acknowledged")
    moment = len(disk.operations)
    write(disk, "/d/f", b"later")
    disk.note("sent")
    killed = disk.killed_at(moment)
    assert read(killed, "/d/f") == b"good"
    assert list(killed.notes) == ["acknowledged"]
    later = disk.killed_at(len(disk.operations))
    assert later.fingerprint() == disk.after_process_crash().fingerprint()
    assert read(later.after_power_cut(), "/d/f") == b"good"
    write(killed, "/d/g", b"second life", sync=True)
    assert read(killed.after_process_crash(), "/d/g") == b"second life"
