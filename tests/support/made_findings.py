"""Made findings, in the shape that a contest gives them, and made results: nothing here was measured."""

from collections.abc import Sequence

from fencepost.bench.contest.aims import judge
from fencepost.bench.loads.window import Latencies
from fencepost.bench.measured import Measured
from fencepost.bench.peers.names import FLOOR, FSYNC, KAFKA, KAFKA_FLUSH, OS
from fencepost.bench.result_file import Result

FACTS = {
    "time": "2026-01-02T03:04:05Z",
    "cpu": "A processor <of> 2 & more",
    "cores": 2,
    "memory_gb": 24.0,
    "kernel": "Linux 6.18 x86_64",
    "file_system": "ext4",
    "python": "CPython 3.11.7",
    "clients": {"confluent-kafka": "2.16.1"},
    "peers": {"fencepost": "0.1.0", "Kafka": "4.3.1"},
    "commit": "0123456789ab",
}


def latencies(*ms: float) -> Latencies:
    found = Latencies()
    for each in ms:
        found.record_us(each * 1000)
    return found


def rates(scenario: str, peer: str, *each: float, figure: str = "rate", **others: Sequence[float]) -> Measured:
    return Measured(scenario, "request", peer, {figure: each, **{name: tuple(v) for name, v in others.items()}})


# Of each peer, over Apache Kafka's default: rates, CPU, latencies. Round numbers, near to what one would expect.
_SPEED = {FSYNC: 0.9, OS: 1.6, KAFKA: 1.0, KAFKA_FLUSH: 0.12}
_COST = {FSYNC: 0.7, OS: 0.4, KAFKA: 1.0, KAFKA_FLUSH: 5.6}
_WAIT = {FSYNC: 1.3, OS: 0.8, KAFKA: 1.0, KAFKA_FLUSH: 2.7}


def _about(value: float, spread: float = 0.04, turned: bool = False) -> tuple[float, ...]:
    rounds = (value * (1 - spread), value, value * (1 + spread))
    return rounds[::-1] if turned else rounds


def _load(scenario: str, unit: str, peer: str, rate: float, size: float, cpu: float, p50: float) -> Measured:
    speed, cost, wait = rate * _SPEED[peer], cpu * _COST[peer], p50 * _WAIT[peer]
    figures = {
        "rate": _about(speed, 0.3 if "1p" in scenario else 0.04, turned=peer == KAFKA),
        "mb_per_second": _about(speed * size / 1e6),
        "cpu_us": _about(cost),
        "cpu_ms_per_mb": _about(cost * 1e3 / size),
        "p50_ms": _about(wait),
        "p99_ms": _about(wait * 6),
        "p999_ms": _about(wait * 30),
        "rss_mb": _about(60.0 if peer in (FSYNC, OS) else 900.0, 0.01),
    }
    shares = (0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9999, 1.0)
    growth = (1, 1.3, 1.8, 2.4, 6, 8, 30, 60, 90)
    quantiles = {share: wait * by for share, by in zip(shares, growth, strict=True)}
    return Measured(scenario, unit, peer, figures, peer == OS, True, 0.97 if peer == OS else 0.6, 0.01, quantiles)


def made_result() -> Result:
    """Return the result of a whole run of the benchmark, with numbers that are made up."""
    found: list[Measured] = []
    for peer in (FSYNC, OS, KAFKA, KAFKA_FLUSH):
        for connections, rate in ((1, 14_000), (16, 60_000), (64, 80_000), (256, 84_000)):
            found.append(_load(f"small {connections}x1", "request", peer, rate, 100, 18.5, connections / rate * 1e3))
            found.append(
                _load(f"small {connections}x5", "request", peer, rate * 1.6, 100, 12, connections / rate * 3e3)
            )
        found.append(_load("produce 100 B", "record", peer, 1_330_000, 100, 0.38, 3))
        found.append(_load("produce 1 KB", "record", peer, 239_000, 1000, 2.8, 5))
        found.append(_load("batch 100 KB", "request", peer, 5_500, 100_000, 305, 1.2))
        found.append(_load("transactions 1p 4x1", "transaction", peer, 578, 100, 497, 1.7))
        found.append(_load("transactions 16p 4x1", "transaction", peer, 3_980, 100, 233, 4))
        found.append(_load("end to end 2,000/s", "record", peer, 2_000, 1000, 130, 0.18))
        found.append(_load("end to end 20,000/s", "record", peer, 20_000, 1000, 30, 0.3))
        found.append(_load("consume 1 KB", "record", peer, 1_050_000, 1000, 0.17, 0.1))
        ours = peer in (FSYNC, OS)
        start = {"ready_s": _about(0.25 if ours else 1.9), "idle_mb": _about(48 if ours else 375)}
        found.append(Measured("start", "", peer, start))
    found.append(Measured("small 64x1", "request", FLOOR, {"cpu_us": _about(4.4)}))
    found.append(Measured("growth ids", "request", OS, {"growth": _about(1.07)}))
    return Result(FACTS, tuple(found), tuple(judge(found)))
