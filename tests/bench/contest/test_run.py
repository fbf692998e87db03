"""A run of all loads: how it fits into its time, what it prints, and what an interrupted run returns."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from click.testing import CliRunner
from fencepost.bench.contest import run
from fencepost.bench.contest.aims import AIMS
from fencepost.bench.contest.contest import Step
from fencepost.bench.contest.run import TABLE, Ahead, ahead, fit_effort
from fencepost.bench.loads.finding import Finding
from fencepost.bench.loads.window import Sample
from fencepost.bench.measured import Measured
from fencepost.bench.peers import names, peers
from long_runs import first_only


@dataclass(frozen=True)
class Load:
    name: str
    peers: frozenset[str] | None = None


LOADS = [Load("small 64x1"), Load("small 16x5"), Load("consume", frozenset({names.FSYNC, names.KAFKA}))]


def test_ahead_counts_the_windows_still_to_measure_and_one_warming_per_kind_and_jvm():
    # Two loads on three peers and one on two: 8 pairs. Kafka is the only JVM, and the loads are of two kinds.
    found = ahead(LOADS, [names.FSYNC, names.KAFKA, names.MOCK], 3, frozenset())
    assert (found.preparations, found.warmings) == (8, 2)
    assert found.openings == 8 * 3 + 6  # six pairs are warmed by a third of a window each
    assert found.windows == 8 * 3 + 6 / 3
    again = ahead(LOADS, [names.KAFKA], 3, frozenset({("small", names.KAFKA)}))
    assert (again.openings, again.warmings) == (3 * 3 + 2, 1)


def test_fit_effort_returns_its_effort_unchanged_if_the_remaining_time_is_enough():
    assert fit_effort(TABLE, 10_000, Ahead(100, 120, 10, 40)) == TABLE


def test_fit_effort_shortens_windows_to_fit_after_the_usual_warming_times():
    left = Ahead(100, 120, 10, 40)
    shorter = fit_effort(TABLE, left.around_s() + 100 * 3.0 + 10 * run.WARM_MOSTLY_S, left)
    assert shorter.seconds == pytest.approx(3.0)


def test_fit_effort_gives_jvms_the_time_left_beside_the_shortest_windows():
    left = Ahead(100, 120, 10, 40)
    least = left.around_s() + 100 * run.SHORTEST_S + 8 * run.WARM_LEAST_S  # the rest is for two of the ten warmings
    assert fit_effort(TABLE, least + 2 * 50.0, left).warm_most_s == pytest.approx(50.0)
    assert fit_effort(TABLE, least + 2 * 500.0, left).warm_most_s == TABLE.warm_most_s
    assert fit_effort(TABLE, least, left).warm_most_s == run.WARM_LEAST_S


def test_fit_effort_without_time_returns_the_shortest_windows_and_warming():
    least = fit_effort(TABLE, -5.0, Ahead(100, 120, 10, 40))
    assert (least.seconds, least.warm_most_s) == (run.SHORTEST_S, run.WARM_LEAST_S)
    assert least.rounds == TABLE.rounds


def test_every_aim_is_for_a_load_of_the_table_or_for_start_growth_or_a_bound():
    table = {scenario.name: scenario.peers for scenario in run.scenarios(False, [])}
    for aim in AIMS:
        if aim.scenario.split()[0] not in ("start", "growth", "bound"):
            playing = table[aim.scenario]
            assert playing is None or {aim.ours, aim.theirs} - {None} <= playing


def test_a_full_run_has_unique_load_names_and_contains_the_tables_loads():
    full = [scenario.name for scenario in run.scenarios(True, [])]
    assert len(full) == len(set(full))
    assert {scenario.name for scenario in run.scenarios(False, [])} <= set(full)


def test_scenarios_returns_only_loads_whose_names_contain_a_given_text(monkeypatch):
    class Module:
        table = staticmethod(lambda: [Load("small 64x1"), Load("small 16x5")])
        full = staticmethod(lambda: [Load("small 64x1"), Load("small 256x5")])

    monkeypatch.setattr(run, "MODULES", (Module,))
    assert [load.name for load in run.scenarios(False, [])] == ["small 64x1", "small 16x5"]
    assert [load.name for load in run.scenarios(True, ["256", "nothing"])] == ["small 256x5"]


def test_a_run_ended_by_keyboard_interrupt_returns_the_findings_made_so_far(monkeypatch, capsys):
    def findings(*_: object) -> Iterator[Measured]:
        yield Measured("one", "request", "A", {})
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "run", findings)
    progress = run.ProgressLines()
    found = run.measured(LOADS, [], TABLE, None, None, progress)
    assert [finding.scenario for finding in found] == ["one"]
    assert progress.interrupted
    assert "interrupted" in capsys.readouterr().err


def test_measured_runs_the_contest_before_the_other_measurements(monkeypatch):
    monkeypatch.setattr(run, "run", lambda *_: iter(["contest"]))
    assert run.measured(LOADS, [], TABLE, None, lambda progress: iter(["start", "growth"]), run.ProgressLines()) == [
        "contest",
        "start",
        "growth",
    ]


def test_a_server_that_does_not_start_is_reported_and_the_others_are_measured(monkeypatch, capsys):
    class Started:
        def __init__(self, name: str) -> None:
            self.name = name

        def __enter__(self) -> peers.Peer | None:
            if self.name == names.KAFKA:
                raise RuntimeError("Kafka did not become ready")
            return None if self.name == names.FLOOR else peers.Peer(self.name, "nowhere", 1, 1)

        def __exit__(self, *_: object) -> None:
            pass

    asked = []

    def contest(scenarios, up, *_):
        asked.append([peer.name for peer in up])
        return [Finding(scenarios[0].name, "request", peer.name, [Sample(1, 0, 1.0, 0, 0, 0.0)]) for peer in up]

    monkeypatch.setattr(run.peers, "start", Started)
    monkeypatch.setattr(run, "contest", contest)
    progress = run.ProgressLines()
    found = list(run.run(LOADS[:1], [names.KAFKA, names.OS, names.FLOOR], TABLE, 900.0, progress))
    assert [finding.peer for finding in found] == [names.OS]
    assert asked == [[names.OS]]
    assert len(progress.failures) == 1
    assert "Kafka did not become ready" in progress.failures[0]
    assert "FAILED" in capsys.readouterr().err


def test_progress_shows_the_load_the_time_left_and_every_failure(monkeypatch, capsys):
    progress = run.ProgressLines()
    progress.expect(300)
    for step in (Step("load", "A", "prepare"), Step("load", "B", "prepare"), Step("load", "B", "x: gone", True)):
        progress.step(step)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2  # a line for the load, however many steps it has, and one for the failure
    assert "load · about 5 min left" in lines[0]
    assert "FAILED load · B · x: gone" in lines[1]
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    live = run.ProgressLines()
    live.expect(60)
    live.step(Step("load", "A", "round 1 of 3"))
    assert capsys.readouterr().err == "\r\033[Kload · A · round 1 of 3 · about 1 min left"


@pytest.mark.parametrize("name", names.NAMES)
def test_each_server_name_of_the_list_can_be_started(name, monkeypatch):
    for starts in ("fencepost", "kafka", "mock", "floor"):
        monkeypatch.setattr(peers, starts, lambda *_, **__: contextlib.nullcontext("started"))
    with peers.start(name) as started:
        assert started


def test_a_failure_outside_the_contest_is_printed_and_kept_in_progress_failures(monkeypatch, capsys):
    def outside(progress):
        progress.say("start · A")
        progress.failed("start, B: no disk")
        return iter(())

    monkeypatch.setattr(run, "run", lambda *_: iter(()))
    progress = run.ProgressLines()
    run.measured([], [], TABLE, None, outside, progress)
    assert progress.failures == ["start, B: no disk"]
    assert [line.split(" ", 1)[1] for line in capsys.readouterr().err.splitlines()] == [
        "start · A",
        "FAILED start, B: no disk",
    ]


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        (["--only", "nothing"], "no load has nothing in its name"),
        (["--only", "growth"], "no load has growth in its name"),  # it takes --full
        (["--seconds", "nan"], "nan"),
        (["--seconds", "0"], "0"),
        (["--rounds", "0"], "0"),
        (["--peer", "Pulsar"], "Pulsar"),
    ],
)
def test_wrong_options_are_reported_before_anything_is_started(options, cause, monkeypatch):
    monkeypatch.setattr(run, "play", None)
    found = CliRunner().invoke(run.main, options)
    assert (found.exit_code, cause in found.stderr) == (2, True)


def test_results_and_data_directories_that_cannot_be_created_are_reported(tmp_path):
    (tmp_path / "file").touch()
    for options in (["--results", str(tmp_path / "file" / "in it")], ["--data-dir", str(tmp_path / "file" / "in it")]):
        found = CliRunner().invoke(run.main, ["--only", "64x1", "--results", str(tmp_path / "results"), *options])
        assert (found.exit_code, found.stderr.count("\n"), found.stderr[:7]) == (1, 1, "Error: ")


def test_list_prints_the_tables_loads_and_with_full_also_bounds_and_growth():
    table, full = (
        CliRunner().invoke(run.main, ["--list", *options]).stdout.split("\n") for options in ([], ["--full"])
    )
    assert {"small 64x1", "start"} <= set(table)
    assert {"small 256x5", "recovery", "growth partitions", "growth ids", "growth connections"} <= set(full)
    assert set(run.bounds.BOUNDS) <= set(full)
    assert {"delivery at most once, 100 each", "delivery exactly once, 1000 each"} <= set(full)


def test_the_rounds_and_quick_options_also_set_the_rounds_of_growth(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(
        run.growth, "outside", lambda wanted, names, full, size, progress: asked.append((wanted, size.rounds)) or []
    )
    for options in ([], ["--rounds", "2"], ["--quick"]):
        named = ["--full", "--only", "growth", "--results", str(tmp_path), "--data-dir", str(tmp_path)]
        CliRunner().invoke(run.main, [*named, *options])
    growing = ["growth partitions", "growth ids", "growth connections"]
    assert asked == [(growing, 3), (growing, 2), (growing, 1)]


def test_only_a_full_run_measures_bounds_in_the_rounds_and_seconds_given(tmp_path, monkeypatch):
    def outside(wanted, names, size, say, failed):
        asked.append((wanted, size.rounds, size.seconds))
        yield Measured("bound idle", "start", names[0], {"ready_s": (0.3, 0.2)})

    asked = []
    monkeypatch.setattr(run.bounds, "outside", outside)
    named = ["--full", "--only", "bound idle", "--only", "bound stalls", "--results", str(tmp_path)]
    for options in ([], ["--rounds", "2", "--seconds", "7"], ["--quick"]):
        found = CliRunner().invoke(run.main, [*named, "--data-dir", str(tmp_path), *options])
        assert "| serve ready, s | ✔ **0.25** [0.20, 0.30] ≤ 0.4 |" in found.stdout
    both = ["bound idle", "bound stalls"]
    assert asked == [(both, 3, 4.0), (both, 2, 7.0), (both, 1, 0.5)]
    assert "bound" not in CliRunner().invoke(run.main, ["--list"]).stdout


INTERRUPTED_TWICE = """
import os, signal
from fencepost.bench.contest import run
run.tidy_when_interrupted()
try:
    signal.raise_signal(signal.{name})
except KeyboardInterrupt:
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGTERM)
    print("tidied up")
"""


@pytest.mark.parametrize("name", first_only(["SIGINT", "SIGTERM", "SIGHUP"]))
def test_a_second_interrupt_does_not_stop_the_cleanup(name):
    script = INTERRUPTED_TWICE.replace("{name}", name)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "tidied up\n"
