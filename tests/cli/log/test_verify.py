"""`fencepost log verify`: what it compares with what. A broker in memory has written the directories."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import fencepost.cli.log.verify as verification
import pytest
from click.testing import CliRunner
from fencepost.broker.config.settings import BrokerSettings
from fencepost.cli import main
from fencepost.effects.disk import SystemDisk
from fencepost.protocol.errors import ErrorCode
from fencepost.storage import store_checkpoint
from fencepost.storage.log.index import IndexRow
from fencepost.storage.log.manifest import Manifest
from fencepost.storage.producers.aborted import TXN_ENTRY, AbortedTransaction, pack, unpack
from fencepost.storage.store_checkpoint import scan_journal
from left_directory import left_in
from produce_requests import batch, create, idempotent, produce
from simulated_broker import SimulatedBroker
from txn_client import Txn

Entries = list[AbortedTransaction]


def verify(directory: Path) -> tuple[int, list[dict[str, str]]]:
    """Run `fencepost log verify`, and return its exit code and its lines about damage."""
    found = CliRunner().invoke(main, ["log", "verify", str(directory), "-o", "json"])
    facts = [json.loads(line) for line in found.output.splitlines()]
    return found.exit_code, [fact for fact in facts if fact["is"] == "damage"]


# ---- aborted transactions ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def transactions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with topic t, in one segment that a checkpoint names.

    Offsets: 0 x's record and 1 its commit marker; 2 x's record and 3 y's; 4 y's abort marker and 5 x's.
    """
    with SimulatedBroker(BrokerSettings(log_dir="/d")) as broker:
        broker.ask(create("t"))
        x, y = Txn(broker, "x", 2), Txn(broker, "y", 2)
        for txn in (x, y):
            assert txn.init() == ErrorCode.NONE
        x.write("t", b"committed", 0)
        assert x.end(True) == ErrorCode.NONE
        x.write("t", b"aborted", 0)
        y.write("t", b"aborted", 0)
        for txn in (y, x):
            assert txn.end(False) == ErrorCode.NONE
        broker.wait(60)
        return left_in(tmp_path_factory.mktemp("txn") / "copy", broker.disk, "/d")


def change_index(directory: Path, change: Callable[[Entries], Entries]) -> str:
    """Change the entries in t's index of aborted transactions, and its checksum in the checkpoint. Return its path."""
    disk, path = SystemDisk(), ""
    number = store_checkpoint.numbers(disk, str(directory))[0]
    content = store_checkpoint.read(disk, str(directory), number)
    for entry in content.logs:
        if entry.topic == "t":
            manifest = Manifest.from_row(entry.manifest)
            (state,) = manifest.segments
            (index,) = directory.glob(f"logs/t-0.*/{state.stem}.txnindex")
            path = str(index)
            written = pack(change(unpack(index.read_bytes())))
            index.write_bytes(written)
            changed = state._replace(txn_index=IndexRow.of(written, TXN_ENTRY.size))
            entry.manifest = manifest._replace(segments=(changed,))
    store_checkpoint.write(disk, str(directory), number, content)
    return path


def replaced(number: int, **fields: int) -> Callable[[Entries], Entries]:
    return lambda entries: [
        entry._replace(**fields) if position == number else entry for position, entry in enumerate(entries)
    ]


@pytest.fixture
def copy(transactions: Path, tmp_path: Path) -> Path:
    disk = SystemDisk()
    return left_in(tmp_path / "copy", disk, str(transactions))


def test_verify_accepts_an_index_that_matches_its_segment(copy: Path) -> None:
    found: Entries = []
    change_index(copy, lambda entries: found.extend(entries) or entries)  # type: ignore[func-returns-value]
    assert [entry[1:] for entry in found] == [(3, 4, 2), (2, 5, 6)]
    assert verify(copy) == (0, [])


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda entries: [], "is not in it"),
        (lambda entries: entries[:1], "from offset 2 to 5 is not in it"),
        (lambda entries: entries[1:], "from offset 3 to 4 is not in it"),
        (replaced(0, first_offset=4), "began at offset 3"),
        (replaced(1, first_offset=1), "began after offset 1"),
        (replaced(1, first_offset=0), "began after offset 1"),
        (replaced(0, last_stable_offset=5), "last stable offset 5 instead of 2"),
        (
            lambda entries: [entries[0], entries[1], entries[1]._replace(first_offset=0, last_offset=1)],
            "no abort marker",
        ),
        (replaced(0, producer_id=77), "no abort marker"),
    ],
)
def test_verify_reports_an_index_that_differs_from_its_segment_despite_a_valid_crc(
    copy: Path, change: Callable[[Entries], Entries], what: str
) -> None:
    path = change_index(copy, change)
    code, damage = verify(copy)
    assert code == 1
    assert {fact["path"] for fact in damage} == {path}
    assert any(what in fact["what"] for fact in damage), damage


def test_verify_exits_with_0_if_an_index_is_broken_or_missing(copy: Path) -> None:
    (index,) = copy.glob("logs/t-0.*/*.txnindex")
    index.write_bytes(b"\0" * index.stat().st_size)
    assert verify(copy) == (0, [])
    index.unlink()
    assert verify(copy) == (0, [])


def test_verify_counts_an_unreadable_segment_as_damage_but_not_an_unreadable_index(copy: Path) -> None:
    (index,) = copy.glob("logs/t-0.*/*.txnindex")
    index.unlink()
    index.mkdir()
    assert verify(copy) == (0, [])
    (segment,) = copy.glob("logs/t-0.*/*.log")
    segment.unlink()
    segment.mkdir()
    code, damage = verify(copy)
    assert (code, damage[0]["path"]) == (1, str(segment))


# ---- producers, and the journal ---------------------------------------------------------------------------------


def test_verify_reports_damage_in_either_of_a_logs_two_producer_snapshots(tmp_path: Path) -> None:
    with SimulatedBroker(BrokerSettings(log_dir="/d")) as broker:
        broker.ask(create("c", cleanup_policy="compact"))
        for sequence in range(3):
            broker.ask(produce("c", idempotent(sequence, key=b"k")), 9)
            broker.wait(30)
        copy = left_in(tmp_path / "copy", broker.disk, "/d")
    older, newer = sorted(copy.glob("logs/c-0.*/*.producers"))
    assert verify(copy) == (0, [])
    for path in (older, newer):
        sound = path.read_bytes()
        path.write_bytes(sound[:-1] + bytes([sound[-1] ^ 1]))
        code, damage = verify(copy)
        assert (code, [fact["path"] for fact in damage]) == (1, [str(path)])
        path.write_bytes(sound)


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_verify_reports_a_gap_of_even_one_offset_between_segments_and_journal(missing: int, tmp_path: Path) -> None:
    with SimulatedBroker(BrokerSettings(log_dir="/d")) as broker:
        broker.ask(create("t"))
        broker.ask(produce("t", batch(3)), 9)
        broker.wait(60)  # in a segment now
        broker.broker.topics.by_name["t"].partitions[0].log.end_offset += missing
        broker.ask(produce("t", batch(3)), 9)
        copy = left_in(tmp_path / "copy", broker.disk, "/d")
    code, damage = verify(copy)
    assert (code, len(damage)) == (int(missing > 0), int(missing > 0))
    assert all(f"continues at offset {3 + missing}, but ends at 3" in fact["what"] for fact in damage), damage


# ---- what stands where a folder is to be -------------------------------------------------------------------------


def test_verify_reports_a_file_where_a_log_folder_belongs(transactions: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(transactions, tmp_path / "copy"))
    (folder,) = copy.glob("logs/t-0.*")
    shutil.rmtree(folder)
    folder.touch()
    code, damage = verify(copy)
    assert code == 1
    assert {str(Path(fact["path"]).parent) for fact in damage} == {str(folder)}


def test_verify_says_the_broker_removes_an_unknown_folder_but_not_a_file_or_link(
    transactions: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(transactions, tmp_path / "copy"))
    (copy / "logs" / "gone-0.900").mkdir()
    (copy / "logs" / "file-0.901").touch()
    (copy / "logs" / "link-0.902").symlink_to("/nowhere")
    found = CliRunner().invoke(main, ["log", "verify", str(copy), "-o", "json"])
    facts = [json.loads(line) for line in found.output.splitlines()]
    notes = {Path(fact["path"]).name: fact["what"] for fact in facts if fact["is"] == "note"}
    assert {name: "removes it" in notes[name] for name in ("gone-0.900", "file-0.901", "link-0.902")} == {
        "gone-0.900": True,
        "file-0.901": False,
        "link-0.902": False,
    }


def test_verify_exits_with_1_if_the_journal_is_a_file_and_not_a_directory(transactions: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(transactions, tmp_path / "copy"))
    shutil.rmtree(copy / "journal")
    (copy / "journal").touch()
    found = CliRunner().invoke(main, ["log", "verify", str(copy)])
    assert found.exit_code == 1
    assert found.stderr.splitlines()[0] == f"error: {copy}/journal: Not a directory"


# ---- beside a broker --------------------------------------------------------------------------------------------


class Busy:
    """A directory beside which a broker seems to run, which writes checkpoints and removes segments during a pass.

    missing: called with the number of the pass, from 1; returns which of `segments` is removed in it, or None.
    """

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.segments = [next(directory.glob(f"logs/{topic}-0.*/*.log")) for topic in "ab"]
        self.checkpoints_a_pass = 2
        self.passes = 0
        self.missing: Callable[[int], Path | None] = lambda number: None
        self._looked = self._newest = 0
        self._content = {path: path.read_bytes() for path in self.segments}
        monkeypatch.setattr(verification, "PAUSE_S", 0)
        monkeypatch.setattr(verification, "_broker_seems_to_run", lambda disk, directory: True)
        monkeypatch.setattr(verification, "_newest", self.newest)
        monkeypatch.setattr(verification, "judge_beside", lambda disk, path, start, _: scan_journal(disk, path, start))

    def newest(self, _disk: object, _directory: str) -> int:
        """Return the number of the newest checkpoint, in place of verification._newest().

        A pass calls it three times: at its beginning, when the segments are put back and the missing one is removed;
        for the journal; and at its end, when the broker has written checkpoints.
        """
        self._looked += 1
        if self._looked % 3 == 1:
            self.passes += 1
            for path, content in self._content.items():
                path.write_bytes(content)
            gone = self.missing(self.passes)
            if gone is not None:
                gone.unlink()
        elif self._looked % 3 == 0:
            self._newest += self.checkpoints_a_pass
        return self._newest


@pytest.fixture
def busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Busy:
    with SimulatedBroker(BrokerSettings(log_dir="/d")) as broker:
        for topic in "ab":
            broker.ask(create(topic))
            broker.ask(produce(topic, batch()))
        broker.wait(60)
        left_in(tmp_path / "d", broker.disk, "/d")
    return Busy(tmp_path / "d", monkeypatch)


def test_verify_makes_a_second_pass_if_a_running_broker_removed_a_file(busy: Busy, tmp_path: Path) -> None:
    busy.missing = lambda number: busy.segments[0] if number == 1 else None
    assert verify(tmp_path / "d") == (0, [])
    assert busy.passes == 2


def test_verify_reports_no_damage_for_files_that_a_running_broker_keeps_removing(busy: Busy, tmp_path: Path) -> None:
    busy.missing = lambda number: busy.segments[number % 2]
    assert verify(tmp_path / "d") == (0, [])
    assert busy.passes == verification.PASSES_BESIDE_A_BROKER
    found = CliRunner().invoke(main, ["log", "verify", str(tmp_path / "d")])
    assert "not checked: it was removed or used again meanwhile" in found.output


def test_verify_reports_damage_that_is_found_in_three_passes_beside_a_broker(busy: Busy, tmp_path: Path) -> None:
    busy.missing = lambda number: busy.segments[0]
    code, damage = verify(tmp_path / "d")
    assert (code, [each["what"] for each in damage], busy.passes) == (1, ["it is missing"], 3)


def test_verify_reports_damage_at_once_if_fewer_than_two_checkpoints_were_written(busy: Busy, tmp_path: Path) -> None:
    busy.missing, busy.checkpoints_a_pass = lambda number: busy.segments[0], 1
    code, damage = verify(tmp_path / "d")
    assert (code, len(damage), busy.passes) == (1, 1, 1)
