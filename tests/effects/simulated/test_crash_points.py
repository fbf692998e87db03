"""The crash-point enumerator: it finds the classic mistakes, and nothing in protocols that make none."""

import zlib
from itertools import islice

import pytest
from crash_points import Moment, TwoMissing, Variant, crash_images
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.effects.simulated.operations import Sync, Write

SYNCED, NAMED = "synced", "named"


def framed(payload):
    return len(payload).to_bytes(4, "big") + zlib.crc32(payload).to_bytes(4, "big") + payload


def scanned(content, *, with_crc=True):
    """Return the payloads up to the first that is torn, and where they end."""
    payloads, position = [], 0
    while size := int.from_bytes(content[position : position + 4], "big"):
        payload = content[position + 8 : position + 8 + size]
        crc = int.from_bytes(content[position + 4 : position + 8], "big")
        if len(payload) < size or (with_crc and zlib.crc32(payload) != crc):
            break
        payloads.append(payload)
        position += 8 + size
    return payloads, position


def contents(disk, path):
    """Return the bytes of a file; none if it does not exist."""
    if not disk.exists(path):
        return b""
    file = disk.open(path)
    content = file.read(1 << 30, 0)
    file.close()
    return content


class Log:
    """Records appended to one file, each acknowledged when it is safe; leave out a step and it is not."""

    steps = frozenset({"sync", "name", "crc", "ack after sync"})

    def __init__(self, *without):
        self.does = self.steps - set(without)

    def run(self, disk, count=3):
        file = disk.open("/log", create=True)
        if "name" in self.does:
            disk.sync_directory("/")
        self.append(disk, file, 0, [f"first {number}" for number in range(count)])

    def append(self, disk, file, position, texts):
        for text in texts:
            payload = text.encode().ljust(700, b"x")
            disk.note(("sent", payload))
            if "ack after sync" not in self.does:
                disk.note(("acknowledged", payload))
            file.write([framed(payload)[:8], payload], position)
            if "sync" in self.does:
                file.sync()
            if "ack after sync" in self.does:
                disk.note(("acknowledged", payload))
            position += 708

    def recover(self, disk, text):
        _, end = scanned(contents(disk, "/log"))
        file = disk.open("/log", create=True)
        file.truncate(end)
        file.sync()
        disk.sync_directory("/")
        self.append(disk, file, end, [text])

    def check(self, image):
        found, _ = scanned(contents(image, "/log"), with_crc="crc" in self.does)
        acknowledged = [payload for kind, payload in image.notes if kind == "acknowledged"]
        sent = [payload for kind, payload in image.notes if kind == "sent"]
        return [one for one in found if one in acknowledged] == acknowledged and set(found) <= set(sent)


class Checkpoint:
    """A small file replaced whole: temp, sync, rename, sync directory."""

    steps = frozenset({"sync", "name", "temp"})

    def __init__(self, *without):
        self.does = self.steps - set(without)

    def run(self, disk, count=3):
        for number in range(count):
            payload = bytes([number + 1]) * (9000 - number)
            disk.note(payload)
            path = "/temp" if "temp" in self.does else "/checkpoint"
            file = disk.open(path, create=True)
            file.truncate(0)
            file.write([payload], 0)
            if "sync" in self.does:
                file.sync()
            file.close()
            if "temp" in self.does:
                disk.rename("/temp", "/checkpoint")
            if "name" in self.does:
                disk.sync_directory("/")
            disk.note("done")

    def check(self, image):
        content = contents(image, "/checkpoint")
        payloads = [b"", *(note for note in image.notes if note != "done")]
        done = sum(note == "done" for note in image.notes)
        return content in payloads and payloads.index(content) >= done


def broken(protocol, **options):
    """Return the descriptions of the crash images after which the protocol's check fails."""
    disk = SimulatedDisk()
    protocol.run(disk)
    return [description for description, image in crash_images(disk, **options) if not protocol.check(image)]


@pytest.mark.parametrize("protocol", [Log(), Checkpoint()])
def test_a_protocol_with_every_sync_survives_every_simulated_crash(protocol):
    assert broken(protocol) == []


@pytest.mark.parametrize("missing", sorted(Log.steps))
def test_the_simulator_detects_a_log_that_omits_a_sync(missing):
    assert broken(Log(missing))


@pytest.mark.parametrize("missing", sorted(Checkpoint.steps))
def test_the_simulator_detects_a_checkpoint_that_omits_a_sync(missing):
    assert broken(Checkpoint(missing))


@pytest.mark.parametrize("protocol", [*map(Log, sorted(Log.steps)), *map(Checkpoint, sorted(Checkpoint.steps))])
def test_sampled_crashes_also_detect_the_omitted_syncs(protocol):
    assert broken(protocol, limit=60)


def test_crashes_during_recovery_and_during_the_next_recovery_lose_nothing():
    log, depths = Log(), [0, 0, 0]
    disk = SimulatedDisk()
    log.run(disk, count=2)

    def crash(disk, depth, limit):
        for description, image in crash_images(disk, limit=limit):
            assert log.check(image), description
            depths[depth] += 1
            if depth < 2:
                log.recover(image, f"recovered {depth}")
                crash(image, depth + 1, 12)

    crash(disk, 0, 12)
    assert depths[0] > 5
    assert depths[2] > 60


def test_crash_images_include_operations_of_earlier_killed_processes():
    log, disk = Log(), SimulatedDisk()
    log.run(disk)
    file = disk.open("/log")
    file.write([framed(b"unsynced")], 3 * 708)
    again = disk.after_process_crash()
    assert scanned(contents(again, "/log"))[0][-1] == b"unsynced"
    before = len(disk.operations)
    again.open("/log").write([b"x"], 5000)
    found = [scanned(contents(image, "/log"))[0] for _, image in crash_images(again, first=before)]
    assert {len(payloads) for payloads in found} == {3, 4}  # without and with the unsynced one


def test_crash_images_are_distinct_and_the_same_in_every_run():
    disk = SimulatedDisk()
    Checkpoint().run(disk)
    for limit in (None, 40):
        once, again = [
            [(text, (image.fingerprint(), len(image.notes))) for text, image in crash_images(disk, limit=limit)]
            for _ in range(2)
        ]
        assert once == again
        assert len({image for _, image in once}) == len(once)
    assert len(once) <= 40
    other = [text for text, _ in crash_images(disk, limit=40, seed=1)]
    assert other != [text for text, _ in once]


@pytest.mark.parametrize("limit", [1, 2, 5, 100])
def test_crash_images_yields_at_most_limit_images(limit):
    disk = SimulatedDisk()
    Log("sync").run(disk)
    assert 1 <= len(list(crash_images(disk, limit=limit))) <= limit


def test_every_subset_of_the_sectors_of_an_unsynced_write_is_a_possible_crash_image():
    disk = SimulatedDisk()
    file = disk.open("/f", create=True)
    file.write([bytes(2048)], 0)
    file.sync()
    disk.sync_directory("/")
    file.write([b"".join(bytes([number]) * 512 for number in (1, 2, 3, 4))], 0)
    found = {contents(image, "/f")[::512] for _, image in crash_images(disk, first=len(disk.operations))}
    subsets = {bytes(number if mask >> number - 1 & 1 else 0 for number in (1, 2, 3, 4)) for mask in range(16)}
    assert subsets <= found


def test_after_a_crash_a_file_may_be_longer_than_the_bytes_that_survived():
    disk = SimulatedDisk()
    file = disk.open("/f", create=True)
    disk.sync_directory("/")
    file.write([b"g" * 5000], 0)
    file.sync()
    file.write([b"x" * 5000], 5000)
    found = [contents(image, "/f") for _, image in crash_images(disk, first=len(disk.operations))]
    assert b"g" * 5000 + bytes(3192) in found  # up to a multiple of 4,096, as seen on ext4
    assert b"g" * 5000 + bytes(5000) in found
    assert b"g" * 5000 in found
    assert b"g" * 5000 + b"x" in found
    assert b"g" * 5000 + b"x" * 4999 in found


def test_overlapping_unsynced_writes_may_reach_the_device_in_either_order():
    disk = SimulatedDisk()
    file = disk.open("/f", create=True)
    disk.sync_directory("/")
    file.write([b"AA"], 0)
    file.write([b"BB"], 1)
    found = {contents(image, "/f") for _, image in crash_images(disk, first=len(disk.operations), torn_at=())}
    assert {b"", b"AA", b"\0BB", b"ABB", b"AAB"} <= found


def test_bytes_of_a_failed_sync_may_or_may_not_be_on_the_device():
    disk = SimulatedDisk()
    file = disk.open("/f", create=True)
    disk.sync_directory("/")
    file.write([b"lost"], 0)
    disk.fail_sync(lambda path: True)
    with pytest.raises(OSError):
        file.sync()
    file.write([b"later"], 10)
    file.sync()
    found = {contents(image, "/f") for _, image in crash_images(disk, first=len(disk.operations), torn_at=())}
    assert {b"\0" * 10 + b"later", b"lost" + b"\0" * 6 + b"later"} <= found


def test_the_description_of_a_crash_image_names_what_was_lost_or_torn():
    disk = SimulatedDisk()
    disk.open("/f", create=True).write([b"bytes"], 3)
    texts = [text for text, _ in crash_images(disk)]
    assert "cut after 2/2 (#1 write /f 3+5); without #0 link /f" not in texts  # the same image as without any operation
    assert any("#1 write /f 3+5 torn to Prefix(length=1)" in text for text in texts)


def test_the_pairs_of_1500_droppable_syncs_are_counted_without_building_each_pair():
    syncs = [Sync(index, "", 0) for index in range(1500)]
    pairs = TwoMissing(Moment(0, syncs, (), 0))
    assert len(pairs) == 1500 * 1499 // 2
    few = TwoMissing(Moment(0, syncs[:6], (), 0))
    assert sorted(few) == sorted(Variant(dropped=(a, b)) for b in range(6) for a in range(b))
    assert len(list(islice(pairs, 10))) == 10


def test_of_the_crashes_of_many_unsynced_operations_at_most_limit_are_sampled():
    disk = SimulatedDisk()
    file = disk.open("/f", create=True)
    for number in range(300):
        file.write([b"x" * 100], number * 100)
    assert sum(isinstance(one, Write) for one in disk.operations) == 300
    assert len(list(crash_images(disk, limit=30))) > 20
