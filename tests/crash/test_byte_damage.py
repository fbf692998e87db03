"""Byte damage anywhere in a data directory is found or harmless, never a silent loss.

Every bit of every file flipped, every file cut at every byte, every file and folder deleted: the suite takes a sample,
`make damage` all of them. A power cut is not damage: what was written last, and nobody was told of, may go.
"""

import os
import random
from collections import Counter
from contextlib import suppress

import pytest
from crash_points import crash_images
from damaged_directory import (
    KINDS,
    ROOT,
    SETTINGS,
    content_of,
    copy_of,
    examine,
    files_of,
    flipped,
    kind_of,
    overwrite,
    places,
    removed,
    small_directory,
    truncated,
    used_bytes,
    verdict,
)
from fencepost.effects.simulated.clock import SimulatedClock
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.effects.simulated.rng import SeededRng
from fencepost.protocol.errors import KafkaError
from fencepost.storage import store_checkpoint
from fencepost.storage.recovery import StoreDamaged, open_store
from long_runs import share_of
from recovery_oracle import check
from scripted_workloads import WORKLOADS

pytestmark = pytest.mark.sampled

SAMPLE = int(os.environ.get("DAMAGE", share_of(8)))  # of each kind of file and of damage; 0: all there is
SEED = int(os.environ.get("SEED", "1"))


@pytest.fixture(scope="module")
def disk():
    return small_directory()


@pytest.fixture(scope="module")
def before(disk):
    found = examine(copy_of(disk))
    assert not found.refused
    assert not found.refusal
    return found


def paths(disk, kind):
    return [path for path in files_of(disk) if kind_of(path) == kind]


def sample(what, count, random_):
    return what if not SAMPLE or len(what) <= count else random_.sample(what, count)


def judged(before, damaged, path, what):
    """Return the verdict on a directory in which `what` of the file at `path` is damaged; see verdict()."""
    try:
        found = verdict(before, examine(damaged), path)
    except BaseException as error:
        error.add_note(f"{what} of {path}, seed {SEED}")
        raise
    return found


def test_the_data_directory_of_the_damage_tests_has_a_file_of_every_kind(disk, before):
    assert {kind_of(path) for path in files_of(disk)} == set(KINDS)
    assert len(paths(disk, "checkpoint")) == 2
    assert len(paths(disk, "producers")) == 2
    assert len(paths(disk, "log")) >= 4
    assert before.logs["plain", 0]["end"] == 15
    assert before.logs["mixed", 0]["producers"].keys() == {7, 50}
    assert before.catalogue is not None
    assert before.catalogue.next_producer_id == 1000


@pytest.mark.parametrize("kind", KINDS)
def test_every_flipped_bit_of_a_data_directory_is_detected_or_changes_no_data(disk, before, kind):
    random_ = random.Random(f"{SEED} bits {kind}")
    seen = Counter()
    bits = [
        (path, 8 * place + bit)
        for path in paths(disk, kind)
        for place in places(content_of(disk, path))
        for bit in range(8)
    ]
    assert bits
    for path, bit in sample(bits, SAMPLE, random_):
        seen[judged(before, flipped(disk, path, bit), path, f"bit {bit}")] += 1
    print(f"{kind}: {dict(seen)}")


def served(log):
    """Read a log to its end, as for a consumer that checks no CRC."""
    offset = log.start_offset
    while offset < log.high_watermark:
        found = log.read(offset, 1 << 20, log.high_watermark, at_least_one=True)
        found = found.run() if hasattr(found, "run") else found
        if not found.size_bytes:
            break  # compaction took what was here
        offset = found.next_offset


def said_of(damaged):
    """Open a directory with one damaged file and read all logs. Return the reason why the start or one log was
    refused.
    """
    try:
        store, _ = open_store(damaged, SimulatedClock(), SeededRng(1), ROOT, SETTINGS)
    except StoreDamaged as refusal:
        return str(refusal)
    try:
        for log in store.logs.values():
            if log.offline is None:
                with suppress(KafkaError):
                    served(log)
        (reason,) = (log.offline for log in store.logs.values() if log.offline is not None)
    finally:
        store.close()
    return reason


def test_every_flipped_bit_of_a_segment_is_detected_by_the_broker_itself(disk, before):
    """Not every consumer checks CRCs, so the broker must not return bytes that differ from those written."""
    random_ = random.Random(f"{SEED} bits that consumers do not look at")
    bits = [(path, bit) for path in paths(disk, "log") for bit in range(8 * len(content_of(disk, path)))]
    assert len(bits) > 10_000
    for path, bit in sample(bits, 4 * SAMPLE, random_):
        assert path in said_of(flipped(disk, path, bit)), (bit, SEED)


@pytest.mark.parametrize("kind", KINDS)
def test_every_truncation_of_a_file_is_detected_or_changes_no_recovered_data(disk, before, kind):
    random_ = random.Random(f"{SEED} cuts {kind}")
    seen = Counter()
    cuts = []
    for path in paths(disk, kind):
        content = content_of(disk, path)
        cuts += [(path, size) for size in places(content)]
        cuts += [(path, size) for size in (len(content) - 1, len(content) // 2) if 0 <= size < len(content)]
    assert cuts
    for path, size in sample(cuts, SAMPLE, random_):
        seen[judged(before, truncated(disk, path, size), path, f"the first {size} bytes")] += 1
    print(f"{kind}: {dict(seen)}")


def seal_of(content):
    """Return where the last round begins: the empty one, which says that the round before it was synced.

    Damage to both the seal and the round before it cannot be told from a write that was never finished. The seal is
    alone in the last block of 4,096 bytes that is used, so one bad block cannot do that.
    """
    return (used_bytes(content) - 1) // 4096 * 4096


@pytest.mark.parametrize("kind", KINDS)
def test_overwritten_runs_of_bytes_are_detected_or_change_no_recovered_data(disk, before, kind):
    """Runs of 1 to 4,096 bytes, aligned or not, of zeros, random bytes or bytes from another place in the file."""
    random_ = random.Random(f"{SEED} runs {kind}")
    found = paths(disk, kind)
    for _ in range(SAMPLE or 400):
        path = random_.choice(found)
        content = content_of(disk, path)
        size = min(random_.choice((1, 7, 512, 4096)), len(content))
        position = random_.randrange(max(1, min(len(content), used_bytes(content) + 600) - size + 1))
        if random_.random() < 0.5:
            position -= position % 512
        source = random_.randrange(len(content) - size + 1)
        data = random_.choice((bytes(size), random_.randbytes(size), content[source : source + size]))
        if kind == "journal" and position < seal_of(content) < position + size:
            continue
        judged(before, overwrite(disk, path, position, data), path, f"{size} bytes at {position}")


def test_every_deleted_file_is_reported_at_the_start_or_changes_no_recovered_data(disk, before):
    seen = {}
    for path in files_of(disk):
        seen.setdefault(kind_of(path), set()).add(judged(before, removed(disk, path), path, "all"))
    assert "harmless" not in seen["log"]
    assert seen["checkpoint"] == {"harmless"}, "the other one gives the same logs, producers and catalogue"
    assert seen["index"] | seen["timeindex"] | seen["txnindex"] == {"harmless"}


@pytest.mark.parametrize("folder", ["journal", "logs"])
def test_a_deleted_journal_or_logs_folder_is_reported_missing(disk, before, folder):
    assert judged(before, removed(disk, f"{ROOT}/{folder}"), f"{ROOT}/{folder}", "all") != "harmless"


def test_deleting_all_files_of_one_kind_is_reported_or_changes_no_recovered_data(disk, before):
    for kind in KINDS:
        damaged = disk
        for path in paths(disk, kind):
            damaged = removed(damaged, path)
        name = {"journal": "journal", "checkpoint": ROOT}.get(kind, "." + kind)
        found = judged(before, damaged, name, "all")
        assert (found == "harmless") == (kind in ("index", "timeindex", "txnindex", "producers")), (kind, found)


def test_with_one_damaged_log_the_logs_of_other_partitions_are_opened(disk, before):
    (path, *_) = [path for path in paths(disk, "log") if "/mixed-0." in path]
    after = examine(truncated(disk, path, 10))
    assert after.refused.keys() == {("mixed", 0)}
    assert after.logs["plain", 0] == before.logs["plain", 0]
    assert after.logs["plain", 1] == before.logs["plain", 1]


def test_a_start_refused_for_journal_damage_changes_no_file_and_a_second_is_refused(disk):
    """Putting back the undamaged file therefore restores the whole directory."""
    where = [(path, content_of(disk, path).find(b"only in the journal")) for path in paths(disk, "journal")]
    ((journal, position),) = [found for found in where if found[1] >= 0]
    for damaged in (flipped(disk, journal, 8 * position), removed(disk, journal)):
        again = []
        for _ in range(2):
            again.append(examine(damaged).refusal)
            assert {one.path for one in damaged.operations} <= {f"{ROOT}/lock"}
        assert again[0] == again[1] != ""


def test_a_damaged_catalogue_log_is_refused_at_every_start_and_not_overwritten(disk):
    (path, *_) = [path for path in paths(disk, "log") if "/__catalogue-0." in path]
    damaged = truncated(disk, path, 10)
    first, second = examine(damaged).refusal, examine(damaged.after_power_cut()).refusal
    assert path in first
    assert path in second
    assert content_of(damaged.after_power_cut(), path) == content_of(disk, path)[:10]


# ---- the two checkpoints -------------------------------------------------------------------------------------


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.__name__)
def test_with_a_damaged_newest_checkpoint_the_older_one_restores_all_records(workload):
    """After a power cut at any moment of a workload, and another one during the recovery: all acknowledged records."""
    disk = SimulatedDisk()
    workload(disk)
    count = 0
    for description, image in crash_images(disk, limit=12 if SAMPLE else 60, seed=SEED):
        check(image)
        for again, twice in crash_images(image, limit=8 if SAMPLE else 20, seed=SEED):
            count += _without_the_newest(twice, f"{workload.__name__}: {description}, then {again}")
    assert count


def _without_the_newest(image, description):
    if not image.exists("/data"):
        return False
    numbers = store_checkpoint.numbers(image, "/data")
    if len(numbers) < 2:
        return False
    path = f"/data/checkpoint-{numbers[0]}"
    file = image.open(path)
    file.write([b"\0"], file.size() - 1)
    file.write([b"rotten"], 3)
    file.close()
    try:
        check(image)
    except BaseException as error:
        error.add_note(description)
        raise
    return True
