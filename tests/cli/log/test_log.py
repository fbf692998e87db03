"""`fencepost log`: what it shows of a data directory that a broker has written, and which damage it reports."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from fencepost.broker.config.settings import BrokerSettings
from fencepost.cli import main
from fencepost.effects.clock import SystemClock
from fencepost.effects.disk import SystemDisk
from fencepost.effects.rng import SystemRng
from fencepost.protocol.messages.produce import ProduceRequest
from fencepost.protocol.messages.topics import CreateTopicsRequest, DeleteRecordsRequest, DeleteTopicsRequest
from fencepost.protocol.messages.transactions import InitProducerIdRequest
from fencepost.protocol.records import Marker, Record, build, control_marker
from fencepost.storage import layout
from fencepost.storage.checkpoints import write_file
from fencepost.storage.recovery import open_store
from fencepost.storage.store import StoreSettings
from left_directory import left_in
from offset_requests import commit
from produce_requests import create
from simulated_broker import SimulatedBroker

AT = 1_700_000_000_000


class Directory:
    """A data directory in memory, and the broker that writes it."""

    def __init__(self) -> None:
        self.broker = SimulatedBroker(BrokerSettings(log_dir="/d"))

    def produce(self, topic: str, values: int, sequence: int = -1, producer: int = -1) -> None:
        records = [Record(offset, AT, b"k%d" % offset, b"v", (("h", b"\xff"),)) for offset in range(values)]
        epoch = 0 if producer >= 0 else -1
        batch = build(records, codec=1, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
        partition = ProduceRequest.Topic.Partition(index=0, records=memoryview(batch))
        data = [ProduceRequest.Topic(name=topic, partition_data=[partition])]
        response = self.broker.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=data), 9)
        assert response.responses[0].partition_responses[0].error_code == 0

    def create(self, *names: str) -> None:
        self.broker.ask(CreateTopicsRequest(topics=[CreateTopicsRequest.Topic(name=name) for name in names]))

    def left_in(self, target: Path) -> Path:
        """Write the files as a killed process would leave them to a folder on the real disk."""
        return left_in(target, self.broker.disk, "/d")


@pytest.fixture(scope="module")
def written() -> Iterator[Directory]:
    """A directory with two topics, of which one was deleted: batches and a marker, in segments and in the journal."""
    directory = Directory()
    directory.create("a", "gone")
    producer = directory.broker.ask(InitProducerIdRequest(transaction_timeout_ms=1000)).producer_id
    directory.produce("a", 3, 0, producer)
    directory.broker.ask(DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(name="gone")], timeout_ms=1000))
    directory.broker.wait(60)  # a checkpoint names what was flushed
    directory.produce("a", 2, 3, producer)
    broker = directory.broker.broker
    marker = control_marker(Marker.ABORT, producer, 0, 7, AT)
    broker.store.commit([broker.store.append_part(broker.topics.by_name["a"].partitions[0].log.log_id, marker)])
    directory.broker.wait(1)
    directory.produce("a", 1)  # the last round: nothing on disk says yet that it was synced
    yield directory
    directory.broker.stop()


@pytest.fixture
def copy(written: Directory, tmp_path: Path) -> Path:
    return written.left_in(tmp_path / "copy")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["log", *map(str, arguments)])


def facts(*arguments: object) -> list[dict[str, Any]]:
    found = run(*arguments, "-o", "json")
    assert found.exception is None, found.output
    return [json.loads(line) for line in found.output.splitlines()]


def trim(topic: str, offset: int) -> DeleteRecordsRequest:
    made = DeleteRecordsRequest.Topic
    parts = [made.Partition(partition_index=0, offset=offset)]
    return DeleteRecordsRequest(topics=[made(name=topic, partitions=parts)], timeout_ms=1000)


def only(path: Path, pattern: str) -> Path:
    (found,) = path.glob(pattern)
    return found


# ---- dump ----------------------------------------------------------------------------------------------------


def test_log_dump_shows_batches_of_a_segment_with_producer_epoch_and_sequences(copy: Path) -> None:
    found = facts("dump", only(copy, "logs/a-0.*/*.log"))
    batch = next(fact for fact in found if fact["is"] == "batch")
    assert (batch["base_offset"], batch["last_offset"], batch["records"], batch["codec"]) == (0, 2, 3, "gzip")
    assert (batch["producer_id"], batch["producer_epoch"]) == (0, 0)
    assert (batch["base_sequence"], batch["last_sequence"], batch["crc"]) == (0, 2, "ok")
    assert batch["time"] == "2023-11-14T22:13:20.000Z"


def test_log_dump_shows_records_on_request(copy: Path) -> None:
    found = facts("dump", "-r", only(copy, "logs/a-0.*/*.log"))
    records = [fact for fact in found if fact["is"] == "record"]
    assert [(record["offset"], record["key"], record["value"]) for record in records[:2]] == [
        (0, "k0", "v"),
        (1, "k1", "v"),
    ]
    assert records[0]["headers"] == [["h", "0xff"]]


def test_log_dump_shows_the_journals_rounds_units_and_parts(copy: Path) -> None:
    found = facts("dump", copy)
    rounds = [fact for fact in found if fact["is"] == "round"]
    assert [one["round"] for one in rounds] == list(range(1, len(rounds) + 1))
    units = [fact["unit"] for fact in found if fact["is"] == "unit"]
    assert units == list(range(1, len(units) + 1))
    parts = [(fact["kind"], fact["log"]) for fact in found if fact["is"] == "part"]
    for expected in (("create", "a-0"), ("create", "gone-0"), ("drop", "gone-0"), ("append", "a-0")):
        assert expected in parts
    assert ("append", "__catalogue-0") in parts


def test_log_dump_shows_markers_as_commit_or_abort(copy: Path) -> None:
    found = [fact["batch"] for fact in facts("dump", copy / "journal") if "batch" in fact]
    (marker,) = [batch for batch in found if "control" in batch]
    assert (marker["control"], marker["coordinator_epoch"], marker["transactional"]) == ("abort", 7, True)
    assert "CONTROL abort (coordinator epoch 7)" in run("dump", copy / "journal").output


def test_log_dump_shows_checkpoints_and_the_catalogue(copy: Path) -> None:
    found = facts("dump", "-r", copy)
    checkpoint = [fact for fact in found if fact["is"] == "checkpoint"][-1]
    assert checkpoint["next_unit"] > checkpoint["through_unit"] > 0
    named = [fact for fact in found if fact["is"] == "log" and fact["topic"] == "a"][-1]
    assert (named["partition"], named["end_offset"]) == (0, 3)
    assert len(named["topic_id"]) == 22
    catalogue = [fact for fact in found if fact["is"] == "record" and isinstance(fact["key"], list)]
    assert any(record["key"] == ["producer ids"] and record["value"] == {"next": 1000} for record in catalogue)
    assert any(record["key"][0] == "topic" and record["value"] is None for record in catalogue)


@pytest.fixture
def coordinated(tmp_path: Path) -> Path:
    """A directory with a coordinator snapshot, which has a group's committed offset."""
    world = SimulatedBroker(BrokerSettings(log_dir="/d", offsets_topic_num_partitions=1))
    world.ask(create("a"))
    commit(world, "g", "a", {0: 0})
    world.stop()
    directory = Directory()
    directory.broker.stop()
    directory.broker = world
    return directory.left_in(tmp_path / "coordinated")


def test_log_dump_shows_a_coordinator_snapshot_and_verify_calls_it_sound(coordinated: Path) -> None:
    path = only(coordinated, "coordinators-*")
    (fact,) = facts("dump", path)
    assert (fact["is"], fact["path"]) == ("coordinators", str(path))
    ((partition, _, offset),) = fact["positions"]["__consumer_offsets"]
    assert (partition, offset) == (0, 1)
    none = dict.fromkeys(
        ("__transaction_state", "__fencepost_ledger", "__fencepost_producers", "__share_group_state"), 0
    )
    assert fact["entries"] == {"__consumer_offsets": 1, **none}
    assert fact in facts("dump", coordinated)
    assert f"{path}\n  coordinators: positions " in run("dump", coordinated).output
    assert "1 coordinator snapshot" in run("verify", coordinated).output


def test_log_verify_notes_a_damaged_coordinator_snapshot_without_calling_it_damage(coordinated: Path) -> None:
    path = only(coordinated, "coordinators-*")
    _flip(path, 60)
    found = run("verify", coordinated)
    assert found.exit_code == 0, found.output
    (note,) = [line for line in found.output.splitlines() if line.startswith("note")]
    assert f"{path}: it fails its checksum" in note
    assert (
        "it is not used: the previous one is, or, without one, all records of the coordinators' logs are read" in note
    )
    assert "damage" in run("dump", path).output


def test_log_verify_reports_a_coordinator_snapshot_of_a_newer_version_as_damage(coordinated: Path) -> None:
    path = only(coordinated, "coordinators-*")
    write_file(SystemDisk(), str(path), "coordinators", 2, b"")
    found = run("verify", coordinated)
    assert found.exit_code == 1, found.output
    assert f"damage   {path}: " in found.output


def test_log_dump_prints_aligned_text_or_one_json_object_per_line(copy: Path) -> None:
    text = run("dump", copy).output
    assert "producer 0 epoch 0 sequences 0…2" in text
    assert f"{copy}/logs/" in text
    assert len(facts("dump", copy)) > 20  # each line was an object, and there are many


def test_log_dump_reports_bytes_after_the_last_batch(copy: Path) -> None:
    segment = only(copy, "logs/a-0.*/*.log")
    size = segment.stat().st_size
    segment.write_bytes(segment.read_bytes() + b"\0" * 100)
    rest = facts("dump", segment)[-1]
    assert (rest["is"], rest["position"], rest["size_bytes"]) == ("rest", size, 100)


@pytest.mark.parametrize(
    ("name", "content", "code", "cause"),
    [
        ("x.txt", b"hello", 1, "x.txt is not a fencepost file"),
        ("checkpoint-9", b"hello", 0, "checkpoint-9: its size of 5 bytes is too small or too large"),
        ("empty", None, 1, "empty has no fencepost data"),
        ("nope", b"", 1, "nope does not exist"),
    ],
)
def test_log_dump_of_a_path_that_is_missing_or_not_fenceposts_prints_the_cause(
    tmp_path: Path, name: str, content: bytes | None, code: int, cause: str
) -> None:
    path = tmp_path / name
    if content is None:
        path.mkdir()
    elif content:
        path.write_bytes(content)
    found = run("dump", path)
    assert (found.exit_code, cause in found.output) == (code, True), found.output


# ---- verify --------------------------------------------------------------------------------------------------


def test_log_verify_of_an_undamaged_directory_prints_sound_and_exits_with_0(copy: Path) -> None:
    found = run("verify", copy)
    assert found.exit_code == 0, found.output
    assert found.output.splitlines()[-1].startswith("sound: ")


def test_log_verify_and_log_dump_change_no_file(copy: Path) -> None:
    before = _everything(copy)
    for path in (*copy.rglob("*"), copy):
        os.chmod(path, 0o500 if path.is_dir() else 0o400)
    assert run("verify", copy).exit_code == 0
    assert run("dump", "-r", copy).exit_code == 0
    assert _everything(copy) == before
    for path in (copy, *copy.rglob("*")):
        os.chmod(path, 0o700)


def _everything(path: Path) -> list[tuple[str, bytes, int]]:
    files = sorted(each for each in path.rglob("*") if each.is_file())
    return [(str(each), each.read_bytes(), each.stat().st_mtime_ns) for each in files]


def _flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 0x10
    path.write_bytes(content)


Harm = Callable[[Path], Path]


def _in_a_batch(copy: Path) -> Path:
    segment = only(copy, "logs/a-0.*/*.log")
    _flip(segment, 80)
    return segment


def _a_short_segment(copy: Path) -> Path:
    segment = only(copy, "logs/a-0.*/*.log")
    os.truncate(segment, segment.stat().st_size - 1)
    return segment


def _a_lost_segment(copy: Path) -> Path:
    segment = only(copy, "logs/a-0.*/*.log")
    segment.unlink()
    return segment


def _in_the_catalogue(copy: Path) -> Path:
    segment = only(copy, "logs/__catalogue-0.*/*.log")
    _flip(segment, 70)
    return segment


def _in_a_checkpoint(copy: Path) -> Path:
    newest = max(copy.glob("checkpoint-*"), key=lambda path: layout.checkpoint_number(path.name) or 0)
    _flip(newest, 50)
    return newest


def _in_a_journal_header(copy: Path) -> Path:
    first = min(copy.glob("journal/*.journal"))
    _flip(first, 20)
    return first


def _in_an_old_round(copy: Path) -> Path:
    first = min(copy.glob("journal/*.journal"))
    _flip(first, 4096 + 60)
    return first


@pytest.mark.parametrize(
    "harm",
    [
        _in_a_batch,
        _a_short_segment,
        _a_lost_segment,
        _in_the_catalogue,
        _in_a_checkpoint,
        _in_a_journal_header,
        _in_an_old_round,
    ],
)
def test_log_verify_prints_the_path_of_each_damaged_file_and_exits_with_1(copy: Path, harm: Harm) -> None:
    path = harm(copy)
    found = run("verify", copy)
    assert found.exit_code == 1, found.output
    assert any(line.startswith("damage") and str(path) in line for line in found.output.splitlines()), found.output
    assert found.output.splitlines()[-1].startswith("DAMAGED: ")
    damage = [fact for fact in facts_even_if_damaged(copy) if fact["is"] == "damage"]
    assert any(fact["path"] == str(path) for fact in damage)


def facts_even_if_damaged(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run("verify", path, "-o", "json").output.splitlines()]


def start_once(directory: Path) -> dict[str, str]:
    """Open the directory as a broker does at its start, and close it. Return the reasons of logs that are offline."""
    store, report = open_store(SystemDisk(), SystemClock(), SystemRng(), str(directory), StoreSettings())
    store.close()
    return report.offline


def test_log_dump_shows_and_verify_notes_journal_parts_of_an_offline_log(copy: Path, tmp_path: Path) -> None:
    folder = only(copy, "logs/a-0.*")
    shutil.copytree(folder, tmp_path / "a copy of it")
    shutil.rmtree(folder)
    assert list(start_once(copy)) == [str(folder)]
    kept = only(copy, "journal-parts/a-0.*")
    shown = [fact for fact in facts("dump", kept) if fact["is"] == "part"]
    assert [(fact["kind"], fact["offset"]) for fact in shown] == [("append", 3), ("append", 5), ("append", 6)]
    damaged = run("verify", copy)
    assert damaged.exit_code == 1
    assert "parts of the journal for a-0." in damaged.output
    shutil.copytree(tmp_path / "a copy of it", folder)
    whole = run("verify", copy)
    assert (whole.exit_code, str(kept) in whole.output) == (0, True), whole.output
    assert start_once(copy) == {}
    assert str(kept) not in run("verify", copy).output


def test_verify_reports_damage_in_the_journal_parts_kept_for_an_offline_log(copy: Path) -> None:
    shutil.rmtree(only(copy, "logs/a-0.*"))
    start_once(copy)
    kept = only(copy, "journal-parts/a-0.*")
    _flip(kept, 80)
    assert any(fact["path"] == str(kept) for fact in facts_even_if_damaged(copy) if fact["is"] == "damage")


def test_verify_names_an_unknown_folder_among_the_logs_and_exits_with_0(copy: Path) -> None:
    (copy / "logs" / "my notes").mkdir()
    found = run("verify", copy)
    assert (found.exit_code, "my notes: not made by fencepost" in found.output) == (0, True)


@pytest.fixture
def trimmed(tmp_path: Path) -> Path:
    """A directory with a log whose start was moved above a segment: at one offset it has two copies of a producer
    snapshot.
    """
    directory = Directory()
    directory.broker.ask(create("a", segment_ms=1000))
    for sequence in range(0, 6, 2):
        directory.produce("a", 2, sequence, 7)
        directory.broker.wait(30)
    directory.broker.ask(trim("a", 4))
    directory.broker.wait(30)
    directory.broker.stop()
    return directory.left_in(tmp_path / "trimmed")


def test_verify_reports_damage_in_the_second_copy_of_a_producer_snapshot(trimmed: Path) -> None:
    copy = only(trimmed, "logs/a-0.*/*.copy.producers")
    assert run("verify", trimmed).exit_code == 0
    _flip(copy, 50)
    found = run("verify", trimmed)
    assert found.exit_code == 1, found.output
    assert f"damage   {copy}: " in found.output


def test_verify_exits_with_0_if_only_never_synced_bytes_of_a_journal_are_bad(copy: Path) -> None:
    last = max(path for path in copy.glob("journal/*.journal") if _rounds(path))
    content = bytearray(last.read_bytes())
    newest = max(fact["position"] for fact in facts("dump", last) if fact["is"] == "round")
    content[newest + 60] ^= 1  # nothing after this round says that it was synced
    last.write_bytes(content)
    found = run("verify", copy)
    assert found.exit_code == 0, found.output
    assert "never synced" in found.output


def _rounds(path: Path) -> int:
    return sum(fact["is"] == "round" for fact in facts("dump", path))


def test_log_verify_exits_with_0_if_only_time_indexes_are_bad(copy: Path) -> None:
    for index in copy.glob("logs/*/*.timeindex"):
        index.write_bytes(b"\xff" * index.stat().st_size)
    found = run("verify", copy)
    assert found.exit_code == 0, found.output


@pytest.mark.parametrize("name", ["nope", "file", "empty"])
def test_verify_refuses_a_path_that_is_not_a_data_directory(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "empty").mkdir()
    found = run("verify", tmp_path / name)
    assert found.exit_code == 1
    assert "hint: DIR must be a data directory" in found.stderr


@pytest.mark.parametrize("inside", [["sub/x.txt"], ["sub/"], []])
def test_the_error_about_a_foreign_directory_shows_the_path_as_it_was_typed(tmp_path, inside):
    for name in inside:
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).mkdir() if name.endswith("/") else (tmp_path / name).write_text("x")
    found = CliRunner().invoke(main, ["log", "dump", str(tmp_path)])
    assert found.exit_code == 1
    assert found.stderr.splitlines()[0] == f"error: {tmp_path} has no fencepost data"
