"""The measurements on servers of their own: start and idle memory, recovery, and growth."""

from dataclasses import replace

import pytest
from fencepost.bench import topics
from fencepost.bench.contest import growth
from fencepost.bench.contest.growth import Size
from fencepost.bench.loads import closed_loop as load
from fencepost.bench.loads.finding import Finding
from fencepost.bench.loads.window import Sample
from fencepost.bench.measured import Measured
from fencepost.bench.peers import names, peers
from long_runs import first_only

TINY = Size(rounds=2, seconds=0.1, partitions=30, ids=100, connections=80, recovered_bytes=10**6)


class RecordingProgress:
    """Stores the lines and the failures that it is given."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.failures: list[str] = []
        self.say = self.lines.append
        self.failed = self.failures.append


@pytest.fixture
def progress(monkeypatch) -> RecordingProgress:
    monkeypatch.setattr(growth, "IDLE_S", 0.0)
    monkeypatch.setattr(growth, "SETTLE_S", 0.0)
    return RecordingProgress()


def sample(cpu_us: float) -> Sample:
    return Sample(1000, 0, 1.0, int(cpu_us * 1e6), 0, 0.1)


def test_growth_is_the_ratio_of_cpu_per_request_with_many_to_few_in_each_round():
    few = Finding("growth", "request", "few", [sample(10), sample(20), sample(10)])
    busier = replace(sample(15), others_cpu=0.04)
    many = Finding("growth", "request", "many", [sample(11), sample(20), busier])
    found = growth.growth_figures("growth ids", names.OS, few, many)
    assert (found.scenario, found.unit, found.peer) == ("growth ids", "request", names.OS)
    assert found.figures["growth"] == pytest.approx((1.1, 1.0, 1.5))
    assert found.figures["cpu_us"] == pytest.approx((11, 20, 15))
    assert found.others_cpu == 0.04  # the largest of the three rounds


def test_the_start_scenario_measures_ready_time_and_idle_memory_in_each_round(progress):
    (found,) = growth.starts((names.OS,), TINY, progress)
    assert (found.scenario, found.peer) == ("start", names.OS)
    assert len(found.figures["ready_s"]) == len(found.figures["idle_mb"]) == 2
    assert min(found.figures["ready_s"]) > 0
    assert min(found.figures["idle_mb"]) > 10  # an interpreter alone takes more
    assert not progress.failures


def test_a_peer_that_cannot_start_is_reported_and_the_others_are_measured(progress, monkeypatch):
    start = peers.start

    def broken(name: str):
        if name == names.FSYNC:
            raise RuntimeError("no disk")
        return start(name)

    monkeypatch.setattr(peers, "start", broken)
    found = growth.starts((names.FSYNC, names.OS), replace(TINY, rounds=1), progress)
    assert [each.peer for each in found] == [names.OS]
    assert progress.failures == ["start, fencepost fsync: RuntimeError: no disk"]


def test_the_recovery_scenario_measures_the_start_on_files_of_a_killed_broker(progress):
    (found,) = growth.recovery(names.FSYNC, TINY, progress)
    assert len(found.figures["ready_s"]) == len(found.figures["s_per_gb"]) == 2
    assert min(found.figures["s_per_gb"]) > 0
    assert not progress.failures


@pytest.mark.parametrize("grown", first_only([growth.ids, growth.partitions, growth.connections]))
def test_each_kind_of_growth_gives_a_figure_per_round(progress, grown):
    found = list(grown(names.OS, TINY, progress))
    named = [f"growth {grown.__name__}"]
    if grown is growth.ids and load.program():
        named.append("growth ids, initialised")
    assert [each.scenario for each in found] == named
    assert all(len(each.figures["growth"]) == 2 and min(each.figures["growth"]) > 0 for each in found)
    assert {each.peer for each in found} == {names.OS}


def test_growth_of_partitions_compares_ten_partitions_with_the_configured_number(progress, monkeypatch):
    made: dict[str, list[int]] = {}
    monkeypatch.setattr(growth, "CHUNK", 20)
    monkeypatch.setattr(growth, "_growth", lambda what, name, *rest: Measured(what, "request", name, {}))
    monkeypatch.setattr(topics, "create", lambda host, port, name, count: made.setdefault(port, []).append(count))
    list(growth.partitions(names.OS, TINY, progress))
    # Four partitions are in use, so 10 - 4 and 30 - 4 unused ones are made, at most CHUNK (20) at once.
    assert list(made.values()) == [[6], [20, 6]]


def test_growth_measures_only_the_start_of_brokers_unless_the_run_is_a_full_one(monkeypatch):
    asked = []
    monkeypatch.setattr(growth, "starts", lambda names, size, progress: asked.append((names, size.rounds)) or [])
    assert growth.measurable(full=False) == ["start"]
    assert list(growth.outside(["start"], names.NAMES, False, growth.FULL, RecordingProgress())) == []
    assert asked == [([names.FSYNC, names.KAFKA], 3)]


def test_only_selected_growth_scenarios_run_and_only_on_selected_servers(monkeypatch):
    def recovery(name, size, progress):
        yield f"recovery {name}"

    def ids(name, size, progress):
        yield f"ids {name}"

    monkeypatch.setattr(growth, "recovery", recovery)
    monkeypatch.setitem(growth.GROWN, "growth ids", ids)
    wanted = [names.OS, names.KAFKA, names.MOCK]
    found = growth.outside(["recovery", "growth ids"], wanted, True, growth.QUICK, RecordingProgress())
    # Recovery is measured on servers with files, which the mock does not have; growth on fencepost only.
    assert list(found) == ["recovery fencepost os", "recovery Kafka", "ids fencepost os"]
