"""Every bit flipped, every truncation, on a small instance of each file of a log: detected or harmless, never silent.

A batch's CRC leaves out its first 16 bytes, so this is where order and index entries have to catch it. Detected means:
the log is offline, at its opening or when it is read. No reader is given a batch whose CRC does not match.
"""

from collections.abc import Callable, Iterator

import pytest
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.effects.simulated.operations import Operation, Read
from fencepost.protocol import batches, records
from fencepost.protocol.batches import CorruptBatch
from fencepost.protocol.errors import ErrorCode, KafkaError
from fencepost.protocol.records import Marker
from fencepost.storage.log.partition_log import PartitionLog
from log_driver import DIRECTORY, LogDriver, keyed

Seen = list[tuple[int, bytes]]


def plain() -> LogDriver:
    """Return a log of two segments, with keyed and aborted batches and a producer snapshot older than its end."""
    driver = LogDriver(segment_bytes=450, index_interval_bytes=150)
    for number in range(3):
        driver.append(keyed([(b"k%d" % number, b"v")], producer_id=7, producer_epoch=0, base_sequence=number))
    driver.append(keyed([(b"t", b"dead")], producer_id=8, producer_epoch=0, base_sequence=0, transactional=True))
    driver.marker(8, 0, Marker.ABORT)
    driver.settle()
    driver.append(keyed([(b"k", b"1"), (b"l", b"2")], producer_id=7, producer_epoch=0, base_sequence=3))
    driver.append(keyed([(b"m", b"3")]))
    driver.flush()
    driver.checkpoint()
    return driver


def compacted() -> LogDriver:
    """Return a log with a compacted segment that has gaps, and one as appended."""
    driver = LogDriver(cleanup_policy="compact", segment_bytes=300, min_cleanable_dirty_ratio=0.0)
    for number in range(8):
        driver.append(keyed([(b"k%d" % (number % 3), b"v%d" % number)]))
    driver.settle()
    driver.compact()
    driver.settle()
    return driver


def consumed(log: PartitionLog, driver: LogDriver) -> Seen:
    """Return all that a read_committed consumer gets, as it would check it. Raises if anything is refused."""
    found: Seen = []
    aborted = log.aborted_between(log.start_offset, log.last_stable_offset)
    spans = aborted if isinstance(aborted, list) else aborted.run()
    for batch in driver.batches(200):
        records.read_marker(batch) if batch.is_control else None
        dead = any(e.producer_id == batch.producer_id and e.first_offset <= batch.base_offset for e in spans)
        if not batch.is_control and not (batch.is_transactional and dead):
            found += [(record.offset, record.value or b"") for record in records.records(batch)]
    return found


def opened(made: LogDriver, disk: SimulatedDisk) -> LogDriver:
    driver = LogDriver(disk)
    driver.settings = made.settings
    driver.rows = made.rows
    driver.reopen(replay=False)
    return driver


def outcome(made: LogDriver, disk: SimulatedDisk, expected: Seen, producers: object) -> str:
    """Return what becomes of a damaged copy: "harmless" (nothing is lost), "offline", or "silent…" (something is lost
    or refused, and the log is online nevertheless).
    """
    driver = opened(made, disk)
    if driver.log.offline is not None:
        return "offline"
    if sorted(driver.log.producers.describe()) != producers:
        return "silent: other producers"
    try:
        found = consumed(driver.log, driver)
    except KafkaError:
        return "silent: refused, and the log is online" if driver.log.offline is None else "offline"
    except CorruptBatch:
        return "silent: given to the reader"
    if found != expected:
        return f"silent: {found}"
    driver.checkpoint()  # writes anew what was damaged and could be derived
    again = opened(driver, driver.disk)  # type: ignore[arg-type]
    return "harmless" if consumed(again.log, again) == expected else "silent after repair"


def names(driver: LogDriver) -> list[str]:
    return list(driver.disk.list(DIRECTORY))


def flip(position: int, bit: int) -> Callable[[bytearray], None]:
    def damage(content: bytearray) -> None:
        content[position] ^= 1 << bit

    return damage


def flips(size: int, step: int) -> Iterator[tuple[str, Callable[[bytearray], None]]]:
    for number in range(0, size * 8, step):
        yield f"bit {number % 8} of byte {number // 8}", flip(number // 8, number % 8)


def truncations(size: int, step: int) -> Iterator[tuple[str, Callable[[bytearray], None]]]:
    def cut(length: int) -> Callable[[bytearray], None]:
        def damage(content: bytearray) -> None:
            del content[length:]

        return damage

    for length in range(0, size, step):
        yield f"cut to {length}", cut(length)


def damaged(made: LogDriver, name: str, damage: Callable[[bytearray], None]) -> SimulatedDisk:
    disk: SimulatedDisk = made.disk.after_process_crash()
    path = f"{DIRECTORY}/{name}"
    file = disk.open(path)
    content = bytearray(file.read(file.size(), 0))
    damage(content)
    file.truncate(0)
    file.write([bytes(content)], 0)
    file.close()
    return disk


def check_all(made: LogDriver, step: int) -> dict[str, set[str]]:
    """Return the outcomes of all damages by the suffix of the damaged file. Fails at the first silent one."""
    whole = opened(made, made.disk.after_process_crash())
    expected, producers = consumed(whole.log, whole), sorted(whole.log.producers.describe())
    assert expected
    outcomes: dict[str, set[str]] = {}
    for name in names(made):
        size = made.disk.size(f"{DIRECTORY}/{name}")
        for cases in (flips(size, step), truncations(size, max(1, step // 8))):
            for what, damage in cases:
                result = outcome(made, damaged(made, name, damage), expected, producers)
                assert not result.startswith("silent"), (name, what, result)
                outcomes.setdefault(name.rsplit(".", 1)[1], set()).add(result)
    return outcomes


@pytest.mark.slow
@pytest.mark.parametrize("make", [plain, compacted])
def test_sampled_flipped_bits_and_truncations_of_a_log_are_detected(make: Callable[[], LogDriver]) -> None:
    made = make()
    outcomes = check_all(made, step=7)
    kinds = {"log", "index", "timeindex"} | ({"txnindex", "producers"} if make is plain else set())
    assert set(outcomes) == kinds
    assert outcomes["log"] == {"offline"}
    for derived in kinds - {"log"}:
        assert outcomes[derived] == {"harmless"}, derived


@pytest.mark.long
@pytest.mark.parametrize("make", [plain, compacted])
def test_each_flipped_bit_and_each_truncation_of_a_logs_files_is_detected(make: Callable[[], LogDriver]) -> None:
    check_all(make(), step=1)


@pytest.mark.slow
@pytest.mark.parametrize("make", [plain, compacted])
def test_a_flipped_bit_in_the_16_batch_header_bytes_outside_the_crc_is_detected(
    make: Callable[[], LogDriver],
) -> None:
    """Each bit of base offset, length and leader epoch of each batch, whether it is the first, a middle or the last
    one of a read.
    """
    made = make()
    whole = opened(made, made.disk.after_process_crash())
    expected, producers = consumed(whole.log, whole), sorted(whole.log.producers.describe())
    for state in made.log.segments:
        name = f"{state.stem}.log"
        file = made.disk.open(f"{DIRECTORY}/{name}")
        position = 0
        found = list(batches.walk(memoryview(file.read(state.size_bytes, 0))))
        for batch in found:
            if batch in (found[0], found[len(found) // 2], found[-1]):
                for number in range(0, 16 * 8, 3):
                    result = outcome(
                        made, damaged(made, name, flip(position + number // 8, number % 8)), expected, producers
                    )
                    assert result == "offline", (name, batch, number, result)
            position += batch.size


def test_a_bit_flipped_below_the_checkpoint_puts_the_log_offline_and_cuts_nothing() -> None:
    """Kafka's recovery would cut the log at the first damaged batch; here nothing is cut, and the partition reports a
    storage error.
    """
    made = plain()
    name = made.log.segments[0].stem + ".log"
    size = made.disk.size(f"{DIRECTORY}/{name}")

    def flip_base_offset(content: bytearray) -> None:
        content[7] ^= 1

    driver = opened(made, damaged(made, name, flip_base_offset))
    with pytest.raises(KafkaError) as refused:
        driver.read(0)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert driver.log.offline is not None
    assert driver.disk.size(f"{DIRECTORY}/{name}") == size


def test_deleting_all_index_files_changes_no_read_and_no_lookup_by_time() -> None:
    for make in (plain, compacted):
        made = make()
        disk = made.disk.after_process_crash()
        for name in names(made):
            if name.endswith("index"):
                disk.unlink(f"{DIRECTORY}/{name}")
        whole, bare = opened(made, made.disk.after_process_crash()), opened(made, disk)
        assert consumed(bare.log, bare) == consumed(whole.log, whole)
        for offset in range(whole.log.end_offset):
            assert b"".join(bare.read(offset, 1).buffers) == b"".join(whole.read(offset, 1).buffers)
        for timestamp in range(995, 1010):
            lookups = [driver.log.offset_for_time(timestamp, 99) for driver in (whole, bare)]
            assert len({None if lookup is None else lookup.run() for lookup in lookups}) == 1
        bare.checkpoint()
        again = opened(bare, bare.disk)  # type: ignore[arg-type]
        assert [name for name in names(again) if name.endswith("index")]
        assert consumed(again.log, again) == consumed(whole.log, whole)


def test_a_false_batch_length_does_not_make_a_read_load_the_whole_segment() -> None:
    driver = LogDriver(segment_bytes=1 << 20, index_interval_bytes=1000)
    for _ in range(100):
        driver.values(b"x" * 500)
    driver.settle()
    name = driver.log.segments[0].stem + ".log"

    def lie(content: bytearray) -> None:
        content[10] |= 0x40  # 16 KiB longer

    broken = opened(driver, damaged(driver, name, lie))
    sizes: list[int] = []

    def note_read(operation: Operation) -> bool:
        if isinstance(operation, Read):
            sizes.append(operation.size)
        return False

    broken.disk.fail(note_read)  # matches nothing, so no read fails
    with pytest.raises(KafkaError) as refused:
        broken.read(0, 1000)
    assert sum(sizes) < 10_000 < broken.log.size_bytes // 5
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert broken.log.offline is not None
    assert "into the next batch" in broken.log.offline
