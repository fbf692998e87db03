"""A small data directory with a file of every kind, ways to damage it, and what became of it.

`examine` opens a directory as a broker does and reads all of it as clients do. `verdict` compares that with what was
there before the damage: refused by name, offline by name, refused at reading, or nothing lost. Anything else is a
silent loss, and raises.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from broker_lives import kill, small
from disk_files import all_durable
from fencepost.broker.topics.catalogue import Catalogue
from fencepost.broker.topics.catalogue_log import CatalogueDamaged, CatalogueLog
from fencepost.effects.disk import Disk
from fencepost.effects.simulated.clock import SimulatedClock
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.effects.simulated.rng import SeededRng
from fencepost.protocol.batches import CorruptBatch
from fencepost.protocol.errors import KafkaError
from fencepost.protocol.messages.transactions import InitProducerIdRequest
from fencepost.protocol.records import Marker, Record, build, control_marker
from fencepost.storage import store_checkpoint
from fencepost.storage.checkpoints import Damaged, NewerFormat
from fencepost.storage.journal.scan import JournalDamaged
from fencepost.storage.recovery import RecoveryReport, StoreDamaged, open_store
from fencepost.storage.store import Store, StoreSettings
from produce_requests import batch, create, idempotent, produce
from simulated_broker import SimulatedBroker
from store_dump import dump_log

ROOT = "/.fencepost"
SETTINGS = StoreSettings(journal_max_bytes=4 << 20, tail_max_bytes=1 << 20, min_free_bytes=0, max_open_files=64)
REFUSALS = (StoreDamaged, JournalDamaged, NewerFormat, Damaged, CatalogueDamaged)
KINDS = ("journal", "log", "index", "timeindex", "txnindex", "producers", "checkpoint")
TIMES = (0, 1_001, 2_000, 1_700_000_000_000, 2**62)


def small_directory() -> SimulatedDisk:
    """Return the disk that a broker left when it was killed, after a moment without requests: all units are synced, and
    the journal's seal says so.

    It has topics, idempotent producers, a committed and an aborted transaction, several segments, two producer
    snapshots, two checkpoints, and units in the journal that are in no segment yet.
    """
    broker = SimulatedBroker(small(log_checkpoint_interval_ms=500), disk=SimulatedDisk(history=False))
    broker.ask(create("plain", 2))
    broker.ask(create("mixed", segment_ms=3_000, index_interval_bytes=100))
    for number in range(6):
        broker.ask(produce("plain", batch(2, value=b"value %d" % number)), 11)
        broker.ask(produce("mixed", idempotent(number, timestamp=2_000 + number, value=bytes([number]) * 60)), 11)
        if number in (1, 3):
            _transaction(broker, number)
        broker.wait(2.2)
        if number in (3, 5):
            _snapshot(broker)
    broker.ask(InitProducerIdRequest(transaction_timeout_ms=0))
    broker.wait(3)
    for number in range(3):
        broker.ask(produce("plain", batch(value=b"only in the journal %d" % number)), 11)
        broker.ask(produce("mixed", idempotent(6 + number)), 11)
    broker.wait(0.3)  # the last round is synced, and the seal after it says so
    while len(store_checkpoint.numbers(broker.disk, broker.broker.store.directory)) > 2:
        broker.wait(0.01)  # the one before is just being removed
    return all_durable(kill(broker))


def _log(broker: SimulatedBroker, topic: str) -> Any:
    return next(one for one in broker.broker.store.logs.values() if (one.topic, one.partition) == (topic, 0))


def _transaction(broker: SimulatedBroker, number: int) -> None:
    """Write a batch in a transaction and its marker to topic mixed, without a coordinator. Number 1 is aborted, others
    are committed.
    """
    store, log = broker.broker.store, _log(broker, "mixed")
    data = build(
        [Record(0, 2_000, b"in a transaction", b"%d" % number)],
        producer_id=50,
        producer_epoch=number,
        base_sequence=0,
        transactional=True,
    )
    kind = Marker.ABORT if number == 1 else Marker.COMMIT
    for part in (data, control_marker(kind, 50, number, 0, 2_500)):
        store.commit([store.append_part(log.log_id, part)])


def _snapshot(broker: SimulatedBroker) -> None:
    log = _log(broker, "mixed")
    job = log.snapshot_job()
    assert job is not None
    job.run()
    log.snapshotted(job)


# ---- damage --------------------------------------------------------------------------------------------------


def files_of(disk: Disk, folder: str = ROOT) -> Iterator[str]:
    for name in disk.list(folder):
        path = f"{folder}/{name}"
        if disk.is_directory(path):
            yield from files_of(disk, path)
        elif name != "lock":
            yield path


def kind_of(path: str) -> str:
    """Return which of KINDS a file is, by its name."""
    name = path.rpartition("/")[2]
    return "checkpoint" if name.startswith("checkpoint-") else name.rpartition(".")[2]


def copy_of(disk: SimulatedDisk) -> SimulatedDisk:
    return disk.after_power_cut()


def content_of(disk: Disk, path: str) -> bytes:
    file = disk.open(path, read_only=True)
    try:
        return file.read(file.size(), 0)
    finally:
        file.close()


def used_bytes(content: bytes) -> int:
    """Return the length of a file up to its last byte that is not NUL: files of the journal are mostly NUL."""
    return len(content.rstrip(b"\0"))


def places(content: bytes) -> list[int]:
    """Return the position of every byte of a file to damage; of long runs of NULs only the first and last few."""
    return [at for at in range(len(content)) if any(content[max(0, at - 8) : at + 9])]


def overwrite(disk: SimulatedDisk, path: str, position: int, data: bytes) -> SimulatedDisk:
    damaged = copy_of(disk)
    file = damaged.open(path)
    file.write([data], position)
    file.close()
    return damaged.found(damaged._seen)


def flipped(disk: SimulatedDisk, path: str, bit: int) -> SimulatedDisk:
    byte = content_of(disk, path)[bit // 8]
    return overwrite(disk, path, bit // 8, bytes([byte ^ 1 << bit % 8]))


def truncated(disk: SimulatedDisk, path: str, size: int) -> SimulatedDisk:
    damaged = copy_of(disk)
    file = damaged.open(path)
    file.truncate(size)
    file.close()
    return damaged.found(damaged._seen)


def removed(disk: SimulatedDisk, path: str) -> SimulatedDisk:
    damaged = copy_of(disk)
    if damaged.is_directory(path):
        damaged.remove_tree(path)
    else:
        damaged.unlink(path)
    return damaged.found(damaged._seen)


# ---- what became of it ---------------------------------------------------------------------------------------


@dataclass
class Found:
    """What opening and reading a directory showed: its contents, or the refusal to open it."""

    catalogue: Catalogue | None = None
    logs: dict[tuple[str, int], Any] = field(default_factory=dict)  # their dumps
    refused: dict[tuple[str, int], str] = field(default_factory=dict)  # offline, or damage found by reading
    refusal: str = ""  # of the whole directory


class SilentLoss(AssertionError):
    """Raised if something is missing or changed, and nothing reports that."""


def examine(disk: SimulatedDisk) -> Found:
    """Open the directory and read everything in it. A refusal to open it is returned; any other error is raised."""
    found = Found()
    try:
        store, report = open_store(disk, SimulatedClock(), SeededRng(1), ROOT, SETTINGS)
    except REFUSALS as refusal:
        found.refusal = str(refusal)
        return found
    try:
        _read_all(store, report, found)
    finally:
        store.close()
    return found


def _read_all(store: Store, report: RecoveryReport, found: Found) -> None:
    catalogue = CatalogueLog(store, SimulatedClock())
    try:
        catalogue.load()
    except REFUSALS as refusal:
        found.refusal = str(refusal)
        return
    found.catalogue = catalogue.catalogue
    for log in store.logs.values():
        place = log.topic, log.partition
        if log.offline is not None:
            assert log.offline in report.offline.values()
            found.refused[place] = log.offline
            continue
        try:
            found.logs[place] = dump_log(log, TIMES)
        except (KafkaError, CorruptBatch) as refusal:
            found.refused[place] = str(refusal)


def verdict(before: Found, after: Found, path: str) -> str:
    """Compare a damaged directory with the original. Returns "refused", "offline" or "harmless". path: the damaged
    file, which a refusal must name, or its folder. Raises SilentLoss.
    """
    folder, _, name = path.rpartition("/")
    if after.refusal:
        if name not in after.refusal and (folder or name) not in after.refusal:
            raise SilentLoss(f"the refusal does not name {path}: {after.refusal}")
        return "refused"
    if after.catalogue != before.catalogue:
        raise SilentLoss(f"the catalogue is {after.catalogue}")
    if missing := before.logs.keys() - after.logs.keys() - after.refused.keys():
        raise SilentLoss(f"gone without a word: {missing}")
    for place, dump in after.logs.items():
        for what, value in dump.items():
            if before.logs[place][what] != value:
                raise SilentLoss(f"{what} of {place} is {value!r:.300}, it was {before.logs[place][what]!r:.300}")
    return "offline" if after.refused else "harmless"
