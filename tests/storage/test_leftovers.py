"""A start removes only files with exactly our names from a data directory; it leaves others alone and names them."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from fencepost.effects.disk import SystemDisk
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.effects.simulated.operations import Unlink
from fencepost.storage import layout
from fencepost.storage.recovery import RecoveryReport, StoreDamaged, open_store
from fencepost.storage.store import Store, StoreSettings
from store_driver import DIRECTORY, Driven, values_of

pytestmark = pytest.mark.slow


class RealDisk(Driven):
    """A store in a real folder, because the simulated disk has no symbolic links."""

    def __init__(self, directory: Path) -> None:
        from fencepost.effects.simulated.clock import SimulatedClock
        from fencepost.effects.simulated.rng import SeededRng
        from fencepost.storage.upkeep import Upkeep

        self.disk = SystemDisk()
        self.clock = SimulatedClock()
        settings = StoreSettings(journal_max_bytes=1 << 20, min_free_bytes=0, max_open_files=64)
        self.store: Store
        self.report: RecoveryReport
        self.store, self.report = open_store(self.disk, self.clock, SeededRng(1), str(directory), settings)
        self.upkeep = Upkeep(self.store)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return the data directory of a closed store, whose log `t` has one record in a segment and one in the journal."""
    driver = RealDisk(tmp_path / "data")
    log = driver.create("t")
    driver.append(log, [b"a"])
    driver.round()
    driver.flush()
    driver.checkpoint()
    driver.append(log, [b"b"])
    driver.round(sync=True)
    driver.store.close()
    return tmp_path / "data"


def a_file(path: Path) -> None:
    path.write_bytes(b"mine")


def an_empty_folder(path: Path) -> None:
    path.mkdir()


def a_folder(path: Path) -> None:
    path.mkdir()
    (path / "00000000000000000000.0.log").write_bytes(b"mine")


def a_link_to_nothing(path: Path) -> None:
    path.symlink_to("nowhere at all")


def target_of(path: Path) -> Path:
    """Return the path beside the data directory that links point to."""
    return next(parent for parent in path.parents if parent.name == "data").parent / "target"


def a_link_to_a_file(path: Path) -> None:
    target_of(path).write_bytes(b"mine")
    path.symlink_to(target_of(path))


def a_link_to_a_folder(path: Path) -> None:
    target_of(path).mkdir(exist_ok=True)
    path.symlink_to(target_of(path))


STRANGE = [a_file, an_empty_folder, a_folder, a_link_to_nothing, a_link_to_a_file, a_link_to_a_folder]
Make = Callable[[Path], None]


def check_left_alone(directory: Path, *paths: Path, named: bool = True) -> None:
    """Check that two starts leave these paths as they are and find all records. named: whether a warning must name each
    path; otherwise none may.
    """
    before = [seen(path) for path in paths]
    for _ in range(2):
        driver = RealDisk(directory)
        assert not driver.report.offline
        assert values_of(driver.log("t")) == [(0, b"a"), (1, b"b")]
        driver.checkpoint()
        driver.checkpoint()
        driver.store.close()
        assert [seen(path) for path in paths] == before
        warnings = [warning for warning in driver.report.warnings if "not made by fencepost" in warning]
        assert all(any(path.name in each for each in warnings) == named for path in paths), driver.report.warnings


def make_each(make: Make, folder: Path, names: list[str]) -> list[Path]:
    for name in names:
        make(folder / name)
    return [folder / name for name in names]


def seen(path: Path) -> object:
    """Return what is at this path, links not followed, to be compared later."""
    if path.is_symlink():
        return path.readlink()
    if path.is_dir():
        return sorted((each.name, seen(each)) for each in path.iterdir())
    return path.read_bytes()


@pytest.mark.parametrize("half", [0, 1])  # half of the names, because a warning names only five
@pytest.mark.parametrize("make", STRANGE)
def test_foreign_files_in_the_logs_directory_are_not_removed(directory: Path, make: Make, half: int) -> None:
    names = [
        "a backup",
        "t-0.1.bak",
        "t-0.01",
        "t-00.1",
        "t-0",
        "t.7",
        "ü-0.7",
        "t-0.7 (copy)",
        ".DS_Store",
        "lost+found",
    ]
    check_left_alone(directory, *make_each(make, directory / "logs", names[half::2]))


@pytest.mark.parametrize("make", [a_file, a_link_to_nothing, a_link_to_a_file])
def test_a_file_with_the_name_of_a_logs_folder_is_not_removed(directory: Path, make: Make) -> None:
    make(directory / "logs" / "gone-0.7")
    check_left_alone(directory, directory / "logs" / "gone-0.7")


@pytest.mark.parametrize("make", STRANGE)
def test_foreign_files_in_the_journal_directory_are_not_removed(directory: Path, make: Make) -> None:
    names = ["notes.txt", "notes.preparing", "1.journal", "٠" * 20 + ".journal", "old.journal"]
    check_left_alone(directory, *make_each(make, directory / "journal", names))


@pytest.mark.parametrize("make", [an_empty_folder, a_folder])
def test_a_directory_with_the_name_of_a_journal_file_is_not_removed(directory: Path, make: Make) -> None:
    path = directory / "journal" / f"{9:020d}.journal"
    make(path)
    check_left_alone(directory, path, named=False)


@pytest.mark.parametrize("make", STRANGE)
def test_foreign_files_with_names_similar_to_checkpoints_are_not_removed(directory: Path, make: Make) -> None:
    names = ["checkpoint-07", "checkpoint-²", "checkpoint-٣", "checkpoint-5.bak", "checkpoint-"]
    check_left_alone(directory, *make_each(make, directory, names))


@pytest.mark.parametrize("make", [an_empty_folder, a_folder])
def test_a_directory_with_the_name_of_a_checkpoint_is_not_removed(directory: Path, make: Make) -> None:
    make(directory / "checkpoint-99")
    check_left_alone(directory, directory / "checkpoint-99", named=False)


def test_a_checkpoint_that_is_a_link_to_nothing_counts_as_damaged(directory: Path) -> None:
    a_link_to_nothing(directory / "checkpoint-99")
    driver = RealDisk(directory)
    assert "checkpoint 99 is a link to nothing, using the one before" in driver.report.warnings
    assert values_of(driver.log("t")) == [(0, b"a"), (1, b"b")]


@pytest.mark.parametrize("make", STRANGE)
def test_foreign_files_in_the_journal_parts_directory_are_not_removed(directory: Path, make: Make) -> None:
    (directory / "journal-parts").mkdir()
    names = ["notes.txt", "t-0.1.2", "t-0.1.02.0", "t-0.1.2.0.bak"]
    check_left_alone(directory, *make_each(make, directory / "journal-parts", names))


@pytest.mark.parametrize("half", [0, 1])  # half of the names, because a warning names only five
@pytest.mark.parametrize("make", STRANGE)
def test_foreign_files_in_the_folder_of_a_log_are_not_removed(directory: Path, make: Make, half: int) -> None:
    folder = next((directory / "logs").glob("t-0.*"))
    names = [
        "notes.writing",
        "notes.txt",
        "00000000000000000000.01.log",
        "00000000000000000007.0.log.bak",
        "0000000000000000007.0.log",
        "٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٧.0.log",
        "00000000000000000007.producers.bak",
        "journal-parts-x",
    ]
    check_left_alone(directory, *make_each(make, folder, names[half::2]))


def test_a_directory_with_the_name_of_a_segment_is_not_removed(directory: Path) -> None:
    folder = next((directory / "logs").glob("t-0.*"))
    a_folder(folder / "00000000000000000007.1.log")
    check_left_alone(directory, folder / "00000000000000000007.1.log")


def test_folders_of_deleted_logs_are_removed(directory: Path) -> None:
    a_folder(directory / "logs" / "gone-0.7")
    RealDisk(directory)
    assert not (directory / "logs" / "gone-0.7").exists()


def test_of_a_symbolic_link_named_like_a_deleted_log_only_the_link_is_removed(directory: Path) -> None:
    a_link_to_a_folder(directory / "logs" / "gone-0.7")
    target = (directory / "logs" / "gone-0.7").resolve()
    before = seen(target)
    RealDisk(directory)
    assert not (directory / "logs" / "gone-0.7").is_symlink()
    assert seen(target) == before


@pytest.mark.parametrize("name", ["thesis.txt", "00000000000000000000.0.log.bak", "00000000000000000007.1.log/"])
@pytest.mark.parametrize("make", [a_folder, a_link_to_a_folder])
def test_the_folder_of_a_deleted_log_with_a_foreign_file_in_it_is_not_removed(
    directory: Path, make: Make, name: str
) -> None:
    folder = directory / "logs" / "mine-0.77"
    make(folder)
    (a_folder if name.endswith("/") else a_file)(folder / name)
    check_left_alone(directory, folder)


def test_a_log_whose_folder_is_a_link_is_served_and_its_target_outlives_a_delete(directory: Path) -> None:
    """An administrator moved a partition to another disk and left a symbolic link."""
    folder = next((directory / "logs").glob("t-0.*"))
    elsewhere = directory.parent / "elsewhere"
    folder.rename(elsewhere)
    folder.symlink_to(elsewhere)
    driver = RealDisk(directory)
    assert values_of(driver.log("t")) == [(0, b"a"), (1, b"b")]
    driver.store.commit([driver.store.drop_part(driver.log("t"))])
    for _ in range(3):
        driver.checkpoint()
    assert not folder.is_symlink()
    assert elsewhere.is_dir()


def test_of_nine_foreign_files_one_warning_names_five_and_counts_the_others(directory: Path) -> None:
    for number in range(9):
        a_file(directory / "logs" / f"stray{number}")
    reported = [w for w in RealDisk(directory).report.warnings if "not made by fencepost" in w]
    names = "stray0, stray1, stray2, stray3, stray4 and 4 more"
    assert reported == [f"{directory}/logs: not made by fencepost, left alone: {names}"]


def test_a_leftover_that_cannot_be_removed_is_a_warning_and_the_start_succeeds() -> None:
    disk = SimulatedDisk()
    disk.make_directory(DIRECTORY)
    Driven(disk)
    disk = disk.after_process_crash()
    disk.make_directory(f"{DIRECTORY}/logs/gone-0.7")
    disk.fail(lambda one: isinstance(one, Unlink) and "gone" in one.path, error=errno.EACCES)
    report = Driven(disk).report
    assert report.warnings == [
        f"{DIRECTORY}/logs/gone-0.7 is not needed any more and cannot be removed: Permission denied"
    ]


@pytest.mark.parametrize("name", ["logs/.DS_Store", "journal/notes.txt", "logs/backup"])
def test_a_data_directory_with_only_foreign_files_is_opened_as_a_new_store(tmp_path: Path, name: str) -> None:
    path = tmp_path / "data" / name
    path.parent.mkdir(parents=True)
    a_file(path)
    assert list(RealDisk(tmp_path / "data").store.logs) == [layout.CATALOGUE_LOG_ID]
    assert path.read_bytes() == b"mine"


@pytest.mark.parametrize("name", ["logs/t-0.3", f"journal/{3:020d}.journal"])
def test_a_data_directory_with_logs_or_a_journal_but_no_checkpoint_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "data" / name
    path.parent.mkdir(parents=True)
    a_file(path)
    with pytest.raises(StoreDamaged, match="no checkpoint"):
        RealDisk(tmp_path / "data")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("t-0.1", ("t", 0, 1)),
        ("a-b.c-12.34", ("a-b.c", 12, 34)),
        ("__consumer_offsets-49.100", ("__consumer_offsets", 49, 100)),
        ("t-0.1-2.3", ("t-0.1", 2, 3)),
        ("-0.1", None),
        ("t-0.1\n", None),
        ("t-0.x", None),
        ("t-.1", None),
        ("a b-0.1", None),
    ],
)
def test_the_name_of_a_logs_folder_is_parsed_to_topic_partition_and_id_or_none(
    name: str, found: tuple[str, int, int] | None
) -> None:
    assert layout.parse_log_directory_name(name) == found
    assert found is None or layout.log_directory_name(*found) == name
