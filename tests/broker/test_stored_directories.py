"""A data directory that an earlier version wrote opens, and everything in it is there (tests/data)."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from damaged_directory import KINDS, kind_of
from fencepost.cli import main
from stored_directory import FOLDER, disk_of, found_in, opened, unpacked

from fencepost import __version__

ARCHIVES = sorted(FOLDER.glob("*.tar.xz"), key=lambda path: path.name)
every_archive = pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name)


def test_the_repository_stores_a_data_directory_of_the_current_version() -> None:
    assert f"{__version__}.tar.xz" in [path.name for path in ARCHIVES]


@every_archive
def test_a_stored_directory_has_files_of_every_kind_and_unflushed_journal_units(archive: Path) -> None:
    names = [name for name, _ in unpacked(archive)]
    assert {kind_of(name) for name in names} >= set(KINDS)
    assert any(name.startswith("coordinators-") for name in names)
    with opened(disk_of(archive)) as broker:
        assert broker.broker.recovery.units_replayed > 0


@pytest.mark.slow
@every_archive
def test_clients_find_the_records_offsets_and_groups_of_a_stored_directory(archive: Path) -> None:
    with opened(disk_of(archive)) as broker:
        assert broker.broker.recovery.offline == {}
        assert broker.broker.recovery.warnings == []
        found = json.loads(json.dumps(found_in(broker)))
    assert found == json.loads(archive.with_name(archive.name.replace(".tar.xz", ".json")).read_text())


@pytest.mark.slow
@every_archive
def test_log_verify_and_log_dump_read_a_stored_directory_without_errors(archive: Path, tmp_path: Path) -> None:
    for name, content in unpacked(archive):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    verified = CliRunner().invoke(main, ["log", "verify", str(tmp_path)])
    assert verified.exit_code == 0, verified.output
    shown = CliRunner().invoke(main, ["log", "dump", "-r", str(tmp_path)])
    assert shown.exit_code == 0, shown.output
    assert "codec 4codec 4" in shown.output, "the value of a record in a compressed batch"
