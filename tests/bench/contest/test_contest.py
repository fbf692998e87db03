"""A contest with simulated loads and servers: order, warm-up, CPU time of idle peers, failures, spread, saturation."""

import subprocess
from dataclasses import dataclass, field, replace

import pytest
from fencepost.bench.contest.contest import Step, Surroundings, Warmth, contest, steady, turns
from fencepost.bench.loads.finding import Finding
from fencepost.bench.loads.window import Latencies, Sample
from fencepost.bench.peers.peers import Peer

A, B = (Peer(name, "nowhere", 1, number) for number, name in enumerate("AB"))
JVM = Peer("JVM", "nowhere", 1, 7, is_jvm=True)


def sample(units: int = 1000, cpu_ns: int = 1_000_000, client_share: float = 0.5, seconds: float = 1.0) -> Sample:
    return Sample(units, 100 * units, seconds, cpu_ns, 50_000_000, client_share)


class Nowhere(Surroundings):
    """A simulated machine. Its clock moves only during windows, and each peer uses half a processor all the time."""

    def __init__(self) -> None:
        self.clock = 0.0
        self.quieted = 0
        self.loud: set[int] = set()  # which waits for a quiet disk time out: 2 is the second
        self.ended: set[str] = set()  # peers whose process has ended
        self.there: dict[str, set[str]] = {}

    def now(self) -> float:
        return self.clock

    def wait_until_quiet(self) -> bool:
        self.quieted += 1
        return self.quieted not in self.loud

    def cpu_ns(self, peer: Peer) -> int:
        return 0 if peer.name in self.ended else int(self.clock * 5e8)

    def topics(self, peer: Peer) -> set[str]:
        return set(self.there.setdefault(peer.name, {"kept"}))

    def delete(self, peer: Peer, topic: str) -> None:
        self.there[peer.name].remove(topic)


@dataclass
class Load:
    """A scenario that does nothing but store which peer was measured for how many seconds."""

    around: Nowhere
    name: str = "load 1"
    unit: str = "request"
    peers: frozenset[str] | None = None
    client_threads: int = 1
    rates: list[int] = field(default_factory=list)  # of the windows to come; 1000 when they are used up
    fails: dict[str, int] = field(default_factory=dict)  # by the peer's name: from which of its windows on
    windows: list[tuple[str, float]] = field(default_factory=list)

    def prepare(self, peer: Peer) -> None:
        self.around.there[peer.name].add(f"{self.name} topic")

    def window(self, peer: Peer, seconds: float) -> Sample:
        self.windows.append((peer.name, seconds))
        self.around.clock += seconds
        if sum(name == peer.name for name, _ in self.windows) >= self.fails.get(peer.name, 1 << 30):
            raise ConnectionError("gone")
        return sample(self.rates.pop(0) if self.rates else 1000)


@pytest.fixture
def around() -> Nowhere:
    return Nowhere()


def played(load: Load, peers, rounds=3, warmth=None) -> tuple[list[Finding], list[Step]]:
    steps: list[Step] = []
    return contest([load], peers, rounds, 3.0, steps.append, warmth, load.around), steps


def test_peers_are_measured_in_reversed_order_in_every_other_round(around):
    load = Load(around)
    played(load, [A, B, JVM], warmth=Warmth(steady={("load", "JVM"): True}))
    measured = [name for name, seconds in load.windows if seconds == 3.0]
    assert measured == ["A", "B", "JVM", "JVM", "B", "A", "A", "B", "JVM"]
    assert turns([A, B], 1) == [B, A]


def test_a_peer_without_a_jvm_is_warmed_for_a_third_of_a_windows_seconds(around):
    load = Load(around)
    played(load, [A], rounds=1)
    assert load.windows == [("A", 1.0), ("A", 3.0)]


def test_a_jvm_is_warm_when_three_windows_lie_within_5_percent(around):
    load = Load(around, rates=[500, 800, 950, 1000, 990, 1010])
    found, _ = played(load, [JVM], rounds=1)
    assert [seconds for _, seconds in load.windows] == [5.0] * 6 + [3.0]
    assert found[0].warm


def test_a_jvm_not_steady_after_60_seconds_is_measured_and_reported_as_cold(around):
    load = Load(around, rates=[100, 200] * 50)
    found, _ = played(load, [JVM], rounds=1)
    assert [seconds for _, seconds in load.windows].count(5.0) == 12
    assert not found[0].warm


def test_a_jvm_is_warmed_in_three_windows_even_if_that_exceeds_the_warming_time(around):
    load = Load(around, rates=[1000, 1000, 1000])
    found, _ = played(load, [JVM], 1, Warmth(most_s=1.0))
    assert [seconds for _, seconds in load.windows].count(5.0) == 3
    assert found[0].warm


def test_a_jvm_is_warmed_once_for_each_kind_of_load(around):
    warmth = Warmth()
    first, second, other = Load(around), Load(around, "load 2"), Load(around, "other")
    for load in (first, second, other):
        played(load, [JVM], 1, warmth)
    # Three windows warm up a new kind, one short window warms up a known kind; then one window is measured.
    assert [len(load.windows) for load in (first, second, other)] == [4, 2, 4]
    assert set(warmth.steady) == {("load", "JVM"), ("other", "JVM")}


def test_a_load_of_a_fixed_rate_is_warm_when_its_cpu_cost_is_steady():
    falling, level = ([sample(2000, cpu_ns=cpu) for cpu in costs] for costs in ((900, 700, 600), (600, 610, 590)))
    assert not steady(falling)
    assert steady(level)
    assert not steady(level[:2])


def test_three_measured_windows_without_any_work_do_not_count_as_a_warm_jvm():
    assert not steady([sample(0)] * 3)


def test_a_contest_waits_for_a_quiet_disk_before_each_warming_or_measured_window(around):
    played(Load(around), [A, B], rounds=2)
    assert around.quieted == 2 + 4  # two to warm up, and two rounds for each of two peers


def test_a_sample_has_the_cpu_time_of_the_idle_peers_as_others_cpu(around):
    found, _ = played(Load(around, peers=frozenset({"A"})), [A, B, JVM], rounds=1)
    assert [finding.peer for finding in found] == ["A"]
    assert found[0].samples[0].others_cpu == pytest.approx(1.0)  # two of them, half a processor each


def test_an_idle_peer_that_ended_counts_no_cpu_and_others_are_still_measured(around):
    class Ending(Load):
        def window(self, peer: Peer, seconds: float) -> Sample:
            taken = super().window(peer, seconds)
            if len(self.windows) == 3:
                around.ended.add("JVM")
            return taken

    found, steps = played(Ending(around, peers=frozenset({"A"})), [A, B, JVM], rounds=3)
    assert [sample.others_cpu for sample in found[0].samples] == pytest.approx([1.0, 0.5, 0.5])
    assert not [step for step in steps if step.failed]


def test_the_cpu_time_of_a_process_that_ended_is_0():
    with subprocess.Popen(["true"]) as process:
        process.wait()
    assert Surroundings().cpu_ns(replace(A, pid=process.pid)) == 0


def test_a_window_measured_on_a_busy_disk_counts_and_is_reported(around):
    around.loud = {2}
    found, steps = played(Load(around), [A], rounds=2)
    assert len(found[0].samples) == 2
    assert [step.doing for step in steps if step.failed] == ["round 1: measured, though the disk was still writing"]


def test_a_failing_peer_is_reported_without_a_finding_and_others_are_measured(around):
    load = Load(around, fails={"A": 3})
    found, steps = played(load, [A, B])
    assert [finding.peer for finding in found] == ["B"]
    assert len(found[0].samples) == 3
    failed = [step for step in steps if step.failed]
    assert [(step.peer, step.doing) for step in failed] == [("A", "round 2 of 3: ConnectionError: gone")]


def test_a_peer_whose_preparation_fails_is_reported_and_gets_no_finding(around):
    class Unprepared(Load):
        def prepare(self, peer: Peer) -> None:
            if peer is A:
                raise RuntimeError("no")
            super().prepare(peer)

    found, steps = played(Unprepared(around), [A, B], rounds=1)
    assert [finding.peer for finding in found] == ["B"]
    assert [step.peer for step in steps if step.failed] == ["A"]


def test_after_a_load_only_its_own_topics_are_deleted(around):
    around.there["A"] = {"kept", "__consumer_offsets"}
    played(Load(around), [A], rounds=1)
    assert around.there["A"] == {"kept", "__consumer_offsets"}


def test_a_finding_of_a_contest_has_the_median_of_its_rounds_and_their_spread():
    found = Finding("load", "request", "A", [sample(900), sample(1000), sample(1200)]).as_measured()
    assert found.median("rate") == 1000
    assert found.spread("rate") == (900, 1200)
    assert found.median("mb_per_second") == pytest.approx(0.1)
    assert found.median("cpu_us") == pytest.approx(1.0)
    assert found.median("cpu_ms_per_mb") == pytest.approx(10.0)
    assert found.median("rss_mb") == 50
    assert found.median("p99_ms") is None  # no latencies were taken


def test_the_latencies_of_a_finding_are_those_of_all_rounds():
    slow, quick = Latencies(), Latencies()
    slow.record_us(5000)
    quick.record_us(1000, 2)
    finding = Finding("l", "r", "A", [Sample(1, 1, 1.0, 1, 1, 0.0, each) for each in (slow, quick)])
    assert finding.latencies.count == 3
    assert finding.as_measured().median("p50_ms") == pytest.approx(3.0, rel=0.01)  # median of the rounds' 5 and 1
    assert finding.latencies.percentile_ms(0.5) == pytest.approx(1.0, rel=0.01)  # median of 1, 1, 5


@pytest.mark.parametrize(
    ("share", "threads", "full"),
    [(0.94, 1, False), (0.96, 1, True), (0.96, 2, False)],  # share: of one core; two threads could use 2.0
)
def test_a_client_that_uses_95_percent_of_its_threads_cores_is_saturated(share, threads, full):
    finding = Finding("l", "r", "A", [sample(client_share=share)], threads)
    assert finding.saturated is full
