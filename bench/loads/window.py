"""The result of one measurement (window) of a load: what the load did, what it cost the broker and the client, and
how long its answers took.
"""

import resource
import time
from dataclasses import dataclass, field

from hdrh.histogram import HdrHistogram

from .. import accounting
from ..peers.peers import Peer

SHORTEST_US = 1
LONGEST_US = 60_000_000
DIGITS = 3
PERCENTILES = {"p50_ms": 0.5, "p99_ms": 0.99, "p999_ms": 0.999}  # figure → share of the answers


class Latencies:
    """A histogram of latencies, 1 µs to 60 s with an error of 0.1 % (HDR). A value outside counts as the nearest one
    inside.
    """

    def __init__(self, text: str | None = None) -> None:
        """Make an empty histogram, or one from the text that encode() has returned."""
        self._histogram = HdrHistogram(SHORTEST_US, LONGEST_US, DIGITS)
        if text:
            self._histogram.decode_and_add(text)

    def record_us(self, value: float, count: int = 1) -> None:
        """Add `count` answers that took `value` microseconds each."""
        self._histogram.record_value(min(max(round(value), SHORTEST_US), LONGEST_US), count)

    def add(self, other: "Latencies") -> None:
        """Add all values of another histogram."""
        self._histogram.add(other._histogram)

    def percentile_ms(self, share: float) -> float:
        """Return the time in ms within which `share` (0 to 1) of the answers came; 0.0 for an empty histogram."""
        return float(self._histogram.get_value_at_percentile(100 * share)) / 1000 if self.count else 0.0

    @property
    def count(self) -> int:
        return int(self._histogram.get_total_count())

    def encode(self) -> str:
        """Return the histogram as text (base64 of the compressed HDR format), for another process or a file."""
        return bytes(self._histogram.encode()).decode()

    @classmethod
    def decode(cls, text: str) -> "Latencies":
        """Make a histogram from the text that encode() returned."""
        return cls(text)


@dataclass(frozen=True, slots=True)
class Sample:
    """What one window of one scenario on one peer measured.

    units: requests, records or transactions, as the scenario's unit; bytes: of payload, 0 if unknown; cpu_ns,
    rss_bytes: of the broker; client_share: how many processors the client used, 1.0 for one busy thread; others_cpu:
    how many processors the idle peers used meanwhile, set by the contest.
    """

    units: int
    bytes: int
    seconds: float
    cpu_ns: int
    rss_bytes: int
    client_share: float
    latencies: Latencies = field(default_factory=Latencies)
    others_cpu: float = 0.0

    def figures(self) -> dict[str, float]:
        """Return the figures of this window by their names in measured.FIGURES. Those that are unknown are left out,
        such as CPU time of a broker whose process cannot be read.
        """
        found: dict[str, float] = {}
        if self.units and self.seconds > 0:
            found["rate"] = self.units / self.seconds
            if self.cpu_ns:
                found["cpu_us"] = self.cpu_ns / 1e3 / self.units
        if self.bytes and self.seconds > 0:
            found["mb_per_second"] = self.bytes / 1e6 / self.seconds
            if self.cpu_ns:
                found["cpu_ms_per_mb"] = self.cpu_ns / self.bytes  # ns per byte = ms per MB
        if self.latencies.count:
            found |= {name: self.latencies.percentile_ms(share) for name, share in PERCENTILES.items()}
        if self.rss_bytes:
            found["rss_mb"] = self.rss_bytes / 1e6
        return found


class Books:
    """Reads the time, the broker's CPU time and memory, and this process's CPU time, at the beginning and the end of
    the window.
    """

    def __init__(self, peer: Peer) -> None:
        self._pid = peer.pid
        self._before = self._after = (0.0, 0, accounting.Usage(0, 0))

    def begin(self) -> None:
        """Take the readings at the beginning of the window."""
        self._before = self._read()

    def end(self) -> None:
        """Take the readings at the end of the window."""
        self._after = self._read()

    def sample(
        self,
        units: int,
        payload: int,
        latencies: Latencies,
        seconds: float | None = None,
        client_cpu_ns: int | None = None,
    ) -> Sample:
        """Return the window as a Sample. payload: in bytes.

        seconds: as the client measured them; None: the time between begin() and end(). client_cpu_ns: of a client in a
        separate process that reported it; None: this process counts, and its children that ended within the window.
        """
        (began, own_before, before), (ended, own_after, after) = self._before, self._after
        seconds = ended - began if seconds is None else seconds
        client = own_after - own_before if client_cpu_ns is None else client_cpu_ns
        cost = after.since(before)
        return Sample(units, payload, seconds, cost.cpu_ns, cost.rss_bytes, client / 1e9 / seconds, latencies)

    def _read(self) -> tuple[float, int, accounting.Usage]:
        """Return the time in s, this process's CPU time with its ended children's in ns, and the broker's usage."""
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        own = time.process_time_ns() + int(1e9 * (ended.ru_utime + ended.ru_stime))
        return time.perf_counter(), own, accounting.usage(self._pid)
