"""What `fencepost serve` does in its process: garbage collection, standard files, the directory of --ephemeral."""

import gc
import os
import shlex
import weakref
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from fencepost.cli import main
from fencepost.cli.serve import serving
from fencepost.cli.serve.serving import (
    DELETED_LOGS,
    FIRST_FULL_COLLECTION_S,
    FULL_COLLECTION_INTERVALS,
    REMOVAL_MS,
    GcFreezer,
    no_users_text,
    remove_scratch,
)
from fencepost.effects.clock import SystemClock


@pytest.fixture
def store():
    yield SimpleNamespace(next_log_id=1, logs={})
    gc.unfreeze()


def freezing(store, *now_s):
    return GcFreezer(SimpleNamespace(store=store), *now_s)


def test_serve_freezes_the_objects_that_a_garbage_collection_left(store):
    gc.unfreeze()
    watched = freezing(store)
    watched.collected("start", {"generation": 1})
    assert gc.get_freeze_count() == 0
    watched.collected("stop", {"generation": 1})
    assert gc.get_freeze_count() > 0


class Circle:
    def __init__(self):
        self.itself = self


def test_deleting_many_partitions_makes_serve_collect_all_garbage_once(store):
    watched = freezing(store)
    circle = Circle()
    gone = weakref.ref(circle)
    thresholds, enabled = gc.get_threshold(), gc.isenabled()
    gc.callbacks.append(watched.collected)
    try:
        gc.enable()  # a test that ran `serve` in this process may have left it off
        gc.set_threshold(100, 0, 0)
        gc.freeze()
        gc.collect()  # leaves the oldest generation empty: Python collects it again when it has grown by a quarter
        del circle
        kept = [[] for _ in range(1_000)]
        assert gone() is not None
        store.next_log_id += DELETED_LOGS
        for _ in range(100):
            kept += [[] for _ in range(1_000)]
        assert gone() is None
        assert gc.get_freeze_count() > 0
    finally:
        gc.callbacks.remove(watched.collected)
        gc.set_threshold(*thresholds)
        if not enabled:
            gc.disable()


def test_the_longer_full_garbage_collections_take_the_rarer_serve_makes_them(store):
    clock = SimpleNamespace(s=1000.0)
    watched = freezing(store, lambda: clock.s)

    def collection(generation: int, took_s: float = 0.0) -> bool:
        """Report a garbage collection of this generation that took so long. Return whether objects are frozen after
        it.
        """
        watched.collected("start", {"generation": generation})
        clock.s += took_s
        watched.collected("stop", {"generation": generation})
        return gc.get_freeze_count() > 0

    assert collection(1)
    clock.s += FIRST_FULL_COLLECTION_S
    assert not collection(1)  # a full collection is due: nothing is frozen until one of generation 2
    assert not collection(1)
    assert collection(2, took_s=0.05)
    clock.s += 0.05 * FULL_COLLECTION_INTERVALS - 1
    assert collection(1)
    clock.s += 1
    assert not collection(1)


@pytest.mark.parametrize("closed", [[1], [2], [0, 1, 2]], ids=str)
def test_closed_standard_files_are_replaced_by_the_null_device(closed):
    child = os.fork()
    if not child:
        try:
            for number in closed:
                os.close(number)
            serving._open_standard_files()
            null = os.stat(os.devnull).st_rdev
            os._exit(int(any(os.fstat(number).st_rdev != null for number in closed)))
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_printed_command_to_add_a_first_user_works(tmp_path):
    line = no_users_text(str(tmp_path / "a b"), ephemeral=False).partition("fencepost ")[2]
    words = shlex.split(line.replace("NAME", "alice"))
    result = CliRunner().invoke(main, [*words, "--password-stdin"], input=b"secret\n")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("alice added")
    assert (tmp_path / "a b" / "journal").exists()


def test_the_hint_to_add_users_to_an_ephemeral_broker_suggests_data_dir():
    assert no_users_text("/tmp/x", ephemeral=True).endswith("use --data-dir DIR instead of --ephemeral")


class Ticking(SystemClock):
    """Each look at it takes so long."""

    def __init__(self, ms):
        self.now, self._ms = 0, ms

    def monotonic_ms(self):
        self.now += self._ms
        return self.now


def of_many_files(path):
    for number in range(20):
        (path / "logs" / f"t-{number}").mkdir(parents=True)
        (path / "logs" / f"t-{number}" / "0.log").write_bytes(b"x")
    return str(path)


def test_remove_scratch_removes_a_directory_of_many_files_silently(tmp_path, capsys):
    remove_scratch(of_many_files(tmp_path / "scratch"), SystemClock())
    assert not (tmp_path / "scratch").exists()
    assert capsys.readouterr().err == ""


def test_remove_scratch_stops_after_removal_ms_and_warns_with_the_directorys_name(tmp_path, capsys):
    path = of_many_files(tmp_path / "scratch")
    remove_scratch(path, Ticking(REMOVAL_MS // 10))
    assert 0 < len(list((tmp_path / "scratch" / "logs").glob("*/*"))) < 20, "some files are removed, and some left"
    assert f"removing {path} takes long" in capsys.readouterr().err
