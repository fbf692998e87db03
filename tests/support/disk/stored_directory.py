"""A small data directory with everything a broker keeps, as a file that later versions have to open.

`python tests/support/disk/stored_directory.py VERSION` writes it into tests/data as the present code does, and
beside it what is to be found in it. A version that was released is never written again.
"""

import io
import json
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[:0] = map(str, Path(__file__).resolve().parents[1].glob("**/"))

from broker_lives import kill, small
from damaged_directory import ROOT, content_of, files_of
from disk_files import all_durable
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.protocol.messages.configs import DescribeConfigsRequest
from fencepost.protocol.messages.topics import DeleteRecordsRequest, DeleteTopicsRequest
from fencepost.protocol.messages.transactions import InitProducerIdRequest
from ledger_client import decide, last_number, prepare, waiting
from offset_requests import commit
from produce_requests import answers, batch, create, idempotent, produce
from simulated_broker import SimulatedBroker
from txn_client import Txn, begun, offset_of, state, values

FOLDER = Path(__file__).resolve().parents[2] / "data"
PLACES = [("plain", 0), ("plain", 1), ("mixed", 0), ("latest", 0)]
GROUPS = ("readers", "copiers")
IDS = ("old", "new", "open", "task-1", "task-2")
SETTINGS = {"offsets_topic_num_partitions": 2, "transaction_state_log_num_partitions": 2}


def written() -> SimulatedDisk:
    """Return a disk as a killed broker leaves it: after two starts, with files of every kind, and journal entries that
    are in no segment yet.
    """
    broker = SimulatedBroker(small(log_checkpoint_interval_ms=500, **SETTINGS))
    broker.ask(create("plain", 2))
    broker.ask(create("mixed", segment_ms=3_000, index_interval_bytes=100))
    broker.ask(create("latest", cleanup_policy="compact"))
    broker.ask(create("gone"))
    _write(broker, 0)
    broker.ask(DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(name="gone")], timeout_ms=1000))
    broker.wait(60)
    broker = broker.again()
    _write(broker, 1)
    _trim(broker, "plain", 2)
    broker.wait(60)
    _write(broker, 2)
    begun(broker, name="open").write("mixed", b"open")
    broker.wait(0.3)
    return all_durable(kill(broker))


def _write(broker: SimulatedBroker, number: int) -> None:
    for codec in range(5):
        broker.ask(produce("plain", batch(2, value=b"codec %d" % codec * 9, codec=codec)), 11)
    broker.ask(produce("plain", batch(3, value=b"of time %d" % number), partition=1), 11)
    for sequence in range(3):
        broker.ask(produce("mixed", idempotent(3 * number + sequence, value=b"idempotent")), 11)
        broker.ask(produce("latest", batch(key=b"k%d" % sequence, value=b"%d" % number)), 11)
    commit(broker, "readers", "plain", {0: 4 + number, 1: number})
    broker.wait(4)
    for version, name in ((1, "old"), (2, "new")):
        for ending in (False, True):
            txn = begun(broker, version, name)
            txn.write("mixed", b"%s %d %s" % (name.encode(), number, b"aborted committed".split()[ending]))
            txn.write_offset("plain", 10 * number + version, "copiers")
            assert txn.end(ending) == 0
    _prepare(broker, number)
    broker.ask(InitProducerIdRequest(transaction_timeout_ms=0))


def _prepare(broker: SimulatedBroker, number: int) -> None:
    """Let two tasks prepare a transaction each, and decide the first."""
    for task in (1, 2):
        txn: Txn = begun(broker, 2, f"task-{task}")
        txn.write("mixed", b"task %d of %d" % (task, number))
        assert prepare(txn, number + 1, f"sink-{task}").error_code == 0
        if task == 1:
            assert decide(broker, txn, number=number + 1, key="sink-1").error_code == 0


def _trim(broker: SimulatedBroker, topic: str, offset: int) -> None:
    made = DeleteRecordsRequest.Topic
    parts = [made.Partition(partition_index=0, offset=offset)]
    broker.ask(DeleteRecordsRequest(topics=[made(name=topic, partitions=parts)], timeout_ms=1000))


def found_in(broker: SimulatedBroker) -> dict[str, Any]:
    """Return what clients find in the broker, as JSON."""
    logs = {(log.topic, log.partition): log for log in broker.broker.store.logs.values()}
    return {
        "topics": sorted(broker.broker.topics.by_name),
        "starts": {f"{t}-{p}": logs[t, p].start_offset for t, p in PLACES},
        "ends": {f"{t}-{p}": logs[t, p].end_offset for t, p in PLACES},
        "values": {f"{t}-{p}": [one.decode() for one in _values(broker, logs[t, p])] for t, p in PLACES},
        "offsets": {f"{g}: plain-{p}": offset_of(broker, "plain", g, p) for g in GROUPS for p in (0, 1)},
        "transactions": {name: state(broker, name) for name in IDS},
        "ledger": {key: [last_number(broker, key), waiting(broker, key)] for key in ("sink-1", "sink-2")},
        "retry": answers(broker.ask(produce("mixed", idempotent(6, value=b"idempotent")), 11)),
        "configs": _configs(broker),
        "next producer": broker.ask(InitProducerIdRequest(transaction_timeout_ms=0)).producer_id,
    }


def _values(broker: SimulatedBroker, log: Any) -> list[bytes]:
    return values(broker, log.topic, log.partition, first=log.start_offset)


def _configs(broker: SimulatedBroker) -> dict[str, str | None]:
    resource = DescribeConfigsRequest.Resource(resource_type=2, resource_name="mixed", configuration_keys=None)
    (found,) = broker.ask(DescribeConfigsRequest(resources=[resource])).results
    return {each.name: each.value for each in found.configs if each.config_source == 1}


# ---- the file ------------------------------------------------------------------------------------------------


def packed(disk: SimulatedDisk) -> bytes:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w:xz", format=tarfile.USTAR_FORMAT) as archive:
        for path in sorted(files_of(disk)):
            content = content_of(disk, path)
            entry = tarfile.TarInfo(path.removeprefix(f"{ROOT}/"))
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return whole.getvalue()


def unpacked(archive: Path) -> Iterator[tuple[str, bytes]]:
    """Yield (path in the data directory, content) of each file in the archive."""
    with tarfile.open(archive) as whole:
        for entry in whole:
            file = whole.extractfile(entry)
            assert file is not None
            yield entry.name, file.read()


def disk_of(archive: Path) -> SimulatedDisk:
    """Return a disk with the archived directory, where a broker with default settings looks for it."""
    disk = SimulatedDisk(history=False)
    for path, content in unpacked(archive):
        folders = [ROOT, *(f"{ROOT}/{part}" for part in _parents(path))]
        for folder in folders:
            if not disk.exists(folder):
                disk.make_directory(folder)
        file = disk.open(f"{ROOT}/{path}", create=True)
        file.write([content], 0)
        file.close()
    return all_durable(disk)


def _parents(path: str) -> list[str]:
    parts = path.split("/")[:-1]
    return ["/".join(parts[: end + 1]) for end in range(len(parts))]


def opened(disk: SimulatedDisk) -> SimulatedBroker:
    """Return a broker of the present version on this disk."""
    return SimulatedBroker(small(**SETTINGS), disk=disk)


def main(version: str) -> None:
    FOLDER.mkdir(exist_ok=True)
    archive = FOLDER / f"{version}.tar.xz"
    archive.write_bytes(packed(written()))
    with opened(disk_of(archive)) as broker:
        found = json.dumps(found_in(broker), indent=1, sort_keys=True)
    archive.with_name(f"{version}.json").write_text(found + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
