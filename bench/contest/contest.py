"""Runs one load after another, each against all peers alternately, so that disturbances of the machine affect all of
them.

The order of peers is reversed in every other round (A B C, C B A, …). Before each window the disk has nothing left to
write or free, and JVMs are warm. The CPU time of idle peers is measured in every window. A failure of one peer in one
scenario is reported, and the run continues without that result.
"""

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from .. import accounting, topics
from ..loads.finding import Finding
from ..loads.window import Sample
from ..peers import disk
from ..peers.names import FLOOR
from ..peers.peers import Peer

WARM_WINDOW_S = 5.0
MAX_WARM_S = 60.0
WARM_SPREAD = 0.05
WARM_WINDOWS = 3
GIVEN_RATE_SPREAD = 0.002  # rates that differ less are set by the load; then the CPU time per unit must be steady


class Scenario(Protocol):
    """A load that can be run against any peer.

    name: unique; its first word is the kind, and a JVM is warmed once for each kind. peers: the names of those it can
    be run on, None for all. client_threads: how many processors its client can use at most (Python clients: 1).
    """

    @property
    def name(self) -> str:
        """The unique name. Its first word is the scenario's kind."""
        ...

    @property
    def unit(self) -> str:
        """What is counted, such as "record" or "request"."""
        ...

    @property
    def peers(self) -> frozenset[str] | None:
        """The names of the peers that it can be run on; None for all."""
        ...

    @property
    def client_threads(self) -> int:
        """How many processors its client can use at most."""
        ...

    def prepare(self, peer: Peer) -> None:
        """Create topics and write records, before any measurement. The contest deletes the topics afterwards."""

    def window(self, peer: Peer, seconds: float) -> Sample:
        """Run the load on the peer for this many seconds, after a short warm-up, and return what was measured."""
        ...


@dataclass(frozen=True, slots=True)
class Step:
    """What the contest is about to do. doing: "prepare", "warm", or a round such as "round 2 of 3"; if the step
    failed: the reason.
    """

    scenario: str
    peer: str
    doing: str
    failed: bool = False


Progress = Callable[[Step], None]


@dataclass(slots=True)
class Warmth:
    """Records which pairs of (kind of scenario, peer) have been warmed up in this run, and whether each became
    steady.
    """

    most_s: float = MAX_WARM_S
    window_s: float = WARM_WINDOW_S
    steady: dict[tuple[str, str], bool] = field(default_factory=dict)


class Surroundings:
    """The clock, the disk and the topics, as the contest uses them between measurements. Tests replace it."""

    def now(self) -> float:
        """Return the time in seconds, from any origin, never set back."""
        return time.perf_counter()

    def wait_until_quiet(self) -> bool:
        """Wait until the disk has nothing left to write. Returns False if that took too long."""
        return disk.wait_until_quiet() < disk.PATIENCE_S

    def cpu_ns(self, peer: Peer) -> int:
        """Return the CPU time of the peer's process so far in ns; 0 if the process has ended, which is reported when
        the peer is measured next.
        """
        try:
            return accounting.usage(peer.pid).cpu_ns
        except OSError:
            return 0

    def topics(self, peer: Peer) -> set[str]:
        """Return the names of the peer's topics; empty for the C server, which has none."""
        return set() if peer.name == FLOOR else topics.names(peer.host, peer.port)

    def delete(self, peer: Peer, topic: str) -> None:
        """Delete a topic, and wait until its blocks on the disk are free."""
        topics.delete(peer.host, peer.port, topic)
        disk.wait_until_freed(peer.directory, topic)


def contest(
    scenarios: Sequence[Scenario],
    peers: Sequence[Peer],
    rounds: int,
    seconds: float,
    progress: Progress,
    warmth: Warmth | None = None,
    surroundings: Surroundings | None = None,
) -> list[Finding]:
    """Run every scenario on every peer that it can be run on. rounds: how often each is measured. seconds: of one
    measurement.

    warmth: which peers are warm, passed from one call to the next of a run. Returns a finding for each pair of scenario
    and peer that did not fail.
    """
    match = _Match(rounds, seconds, progress, warmth or Warmth(), surroundings or Surroundings())
    return [finding for scenario in scenarios for finding in match.play(scenario, peers)]


def kind(scenario: Scenario) -> str:
    """Return the scenario's kind, which is the first word of its name. A JVM is warmed up once for each kind."""
    return scenario.name.split()[0]


def turns(peers: Sequence[Peer], number: int) -> list[Peer]:
    """Return the order of the peers in round `number`: reversed in every other one."""
    return list(peers) if number % 2 == 0 else list(reversed(peers))


def steady(samples: Sequence[Sample]) -> bool:
    """Return whether the last three measurements differ by 5 % at most: by rate, or by CPU time per unit if the rates
    are all but equal because the load sets them.
    """
    last = samples[-WARM_WINDOWS:]
    if len(last) < WARM_WINDOWS or min(sample.units for sample in last) == 0:
        return False
    figures = [sample.figures() for sample in last]
    rates = [each["rate"] for each in figures]
    if _spread(rates) > GIVEN_RATE_SPREAD:
        return _spread(rates) <= WARM_SPREAD
    return _spread([each.get("cpu_us", 0.0) for each in figures]) <= WARM_SPREAD


def _spread(figures: Sequence[float]) -> float:
    """Return (largest − smallest) / median."""
    middle = statistics.median(figures)
    return (max(figures) - min(figures)) / middle if middle else 0.0


class _Match:
    """Runs scenarios, one after another, against the same peers."""

    def __init__(
        self, rounds: int, seconds: float, progress: Progress, warmth: Warmth, surroundings: Surroundings
    ) -> None:
        self._rounds = rounds
        self._seconds = seconds
        self._progress = progress
        self._warmth = warmth
        self._around = surroundings

    def play(self, scenario: Scenario, everyone: Sequence[Peer]) -> list[Finding]:
        """Run all rounds of one scenario, then delete its topics. everyone: all peers, also those that this scenario
        cannot be run on.
        """
        playing = [peer for peer in everyone if scenario.peers is None or peer.name in scenario.peers]
        there: dict[str, set[str]] = {}
        try:
            for peer in list(playing):
                with self._attempt(scenario, peer, "prepare", playing):
                    there[peer.name] = self._around.topics(peer)
                    scenario.prepare(peer)
            return self._rounds_of(scenario, playing, everyone)
        finally:
            for peer in everyone:
                if peer.name in there:
                    self._clear(peer, there[peer.name])

    def _rounds_of(self, scenario: Scenario, playing: list[Peer], everyone: Sequence[Peer]) -> list[Finding]:
        """Warm all peers, then measure them alternately. playing: the peers to measure; one that fails is removed from
        the list.
        """
        warm = {peer.name: True for peer in playing}
        for peer in list(playing):
            with self._attempt(scenario, peer, "warm", playing):
                warm[peer.name] = self._warm(scenario, peer)
        samples: dict[str, list[Sample]] = {peer.name: [] for peer in playing}
        for number in range(self._rounds):
            for peer in turns(playing, number):
                with self._attempt(scenario, peer, f"round {number + 1} of {self._rounds}", playing):
                    samples[peer.name].append(self._window(scenario, peer, everyone, number))
        return [
            Finding(
                scenario.name, scenario.unit, peer.name, samples[peer.name], scenario.client_threads, warm[peer.name]
            )
            for peer in playing
            if samples[peer.name]
        ]

    def _window(self, scenario: Scenario, peer: Peer, everyone: Sequence[Peer], number: int) -> Sample:
        """Measure one window, and add to the sample the CPU time that the idle peers used meanwhile."""
        if not self._around.wait_until_quiet():
            doing = f"round {number + 1}: measured, though the disk was still writing"
            self._progress(Step(scenario.name, peer.name, doing, failed=True))
        idle = [other for other in everyone if other.name != peer.name]
        before = [self._around.cpu_ns(other) for other in idle]
        began = self._around.now()
        sample = scenario.window(peer, self._seconds)
        elapsed = self._around.now() - began
        after = [self._around.cpu_ns(other) for other in idle]
        taken = sum(max(0, now - was) for was, now in zip(before, after, strict=True))  # 0 for a peer that has ended
        return replace(sample, others_cpu=taken / 1e9 / elapsed if elapsed else 0.0)

    def _warm(self, scenario: Scenario, peer: Peer) -> bool:
        """Run a short window; on a JVM run as many as it needs, once for each kind of scenario. Returns whether the
        peer is steady afterwards.
        """
        key = kind(scenario), peer.name
        if not peer.is_jvm or key in self._warmth.steady:
            self._around.wait_until_quiet()
            scenario.window(peer, self._seconds / 3)
            return self._warmth.steady.get(key, True)
        found: list[Sample] = []
        began = self._around.now()
        while not steady(found):
            ends = self._around.now() - began + self._warmth.window_s
            if ends > self._warmth.most_s and len(found) >= WARM_WINDOWS:
                break
            found.append(scenario.window(peer, self._warmth.window_s))
        self._warmth.steady[key] = steady(found)
        return self._warmth.steady[key]

    @contextlib.contextmanager
    def _attempt(self, scenario: Scenario, peer: Peer, doing: str, playing: list[Peer]) -> Iterator[None]:
        """Report a step, then run the block. If the block fails, report the failure and remove the peer from the
        rest of this scenario.
        """
        self._progress(Step(scenario.name, peer.name, doing))
        try:
            yield
        except Exception as error:
            playing.remove(peer)
            self._progress(Step(scenario.name, peer.name, f"{doing}: {type(error).__name__}: {error}", failed=True))

    def _clear(self, peer: Peer, kept: set[str]) -> None:
        """Delete the peer's topics, except those in `kept` and internal ones (__…). Ignores errors, since the peer may
        have ended.
        """
        with contextlib.suppress(Exception):
            for topic in self._around.topics(peer) - kept:
                if not topic.startswith("__"):
                    self._around.delete(peer, topic)
