"""Writes a run as JSON, and reads it back. A figure has the name that the OpenMessaging Benchmark gives it, if there
is one: publishRate, publishLatency99pct, endToEndLatency99pct, aggregated…Quantiles. A figure is a list with a value
for each round.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .measured import Measured
from .verdicts import Aim, Outcome, Verdict

FORMAT = 1

# Latencies are of what the scenario's client waits for: a record's way to its reader, or an answer.
_READING, _THROUGH = ("consume", "read "), ("end to end", "copy", "commit to visible")
_NAMES = {
    "mb_per_second": "mbPerSecond",
    "cpu_us": "brokerCpuMicrosPerUnit",
    "cpu_ms_per_mb": "brokerCpuMillisPerMb",
    "rss_mb": "brokerMemoryMb",
    "ready_s": "readySeconds",
    "idle_mb": "idleMemoryMb",
    "s_per_gb": "recoverySecondsPerGb",
    "growth": "growth",
    "connections_mb": "connectionsMemoryMb",
    "idle_cpu": "idleCpuPercent",
    "stall_ms": "longestStallMillis",
    "took_ms": "tookMillis",
}
_PERCENT = {"p50_ms": "50pct", "p99_ms": "99pct", "p999_ms": "999pct"}


class NotAResult(ValueError):
    """Raised for a file that no run of the benchmarks wrote."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a run: facts about the machine, what was measured, and how far the aims were reached."""

    facts: Mapping[str, Any]
    findings: tuple[Measured, ...]
    verdicts: tuple[Verdict, ...]


def read(path: Path) -> Result:
    """Read a result file. Raises: NotAResult, OSError."""
    try:
        return from_json(json.loads(path.read_text()))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, NotAResult):
            raise
        raise NotAResult("it is no result of the benchmarks") from error


def as_json(result: Result) -> dict[str, Any]:
    """Return the JSON document of a result file."""
    return {
        "format": FORMAT,
        "facts": dict(result.facts),
        "findings": [_finding(each) for each in result.findings],
        "verdicts": [_verdict(each) for each in result.verdicts],
    }


def from_json(document: Any) -> Result:
    """Read a document made by as_json(). Raises: NotAResult."""
    if not isinstance(document, dict) or "findings" not in document:
        raise NotAResult("it is no result of the benchmarks")
    if document.get("format") != FORMAT:
        raise NotAResult(f"its format is {document.get('format')}, and this reads {FORMAT}")
    return Result(
        dict(document["facts"]),
        tuple(_read_measured(each) for each in document["findings"]),
        tuple(_read_verdict(each) for each in document["verdicts"]),
    )


def _latency(scenario: str) -> str:
    """Return the OpenMessaging Benchmark's name of the latency that this scenario measures."""
    return "endToEndLatency" if scenario.startswith(_THROUGH) else "publishLatency"


def _name(figure: str, scenario: str) -> str:
    """Return the name of a figure in a result file: the OpenMessaging Benchmark's, if it has one."""
    if figure == "rate":
        return "consumeRate" if scenario.startswith(_READING) else "publishRate"
    if figure in _PERCENT:
        return _latency(scenario) + _PERCENT[figure]
    return _NAMES.get(figure, figure)


def _quantiles_name(scenario: str) -> str:
    """Return the name of the latency quantiles of this scenario in a result file."""
    latency = _latency(scenario)
    return f"aggregated{latency[0].upper()}{latency[1:]}Quantiles"


def _finding(each: Measured) -> dict[str, Any]:
    """Return what was measured in one scenario on one peer as JSON."""
    document: dict[str, Any] = {"workload": each.scenario, "unit": each.unit, "driver": each.peer}
    document["figures"] = {_name(name, each.scenario): list(values) for name, values in each.figures.items()}
    document |= {
        "clientSaturated": each.saturated,
        "warm": each.warm,
        "clientCpu": each.client_share,
        "othersCpu": each.others_cpu,
    }
    if each.quantiles:
        document[_quantiles_name(each.scenario)] = {f"{100 * share:g}": ms for share, ms in each.quantiles.items()}
    if each.histogram:
        document["histogram"] = each.histogram
    return document


def _read_measured(document: Mapping[str, Any]) -> Measured:
    """Read what _finding() has written. Raises NotAResult, or KeyError or TypeError if it has not written this."""
    scenario = document["workload"]
    own = {_name(name, scenario): name for name in ("rate", *_PERCENT, *_NAMES)}
    quantiles = document.get(_quantiles_name(scenario), {})
    return Measured(
        scenario,
        document["unit"],
        document["driver"],
        {own.get(name, name): tuple(map(_number, values)) for name, values in document["figures"].items()},
        document["clientSaturated"],
        document["warm"],
        document["clientCpu"],
        document["othersCpu"],
        {round(float(percent) / 100, 9): ms for percent, ms in quantiles.items()},
        document.get("histogram", ""),
    )


def _number(value: Any) -> float:
    """Return the value if it is a number. Raises: NotAResult, also for NaN and infinities, which JSON texts may
    contain.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise NotAResult(f"a figure of it is {value!r}")
    return value


def _verdict(each: Verdict) -> dict[str, Any]:
    """Return a verdict as JSON."""
    return asdict(each) | {"full": list(each.full), "cold": list(each.cold)}


def _read_verdict(document: Mapping[str, Any]) -> Verdict:
    """Read what _verdict() has written."""
    rest = {"aim": Aim(**document["aim"]), "outcome": Outcome(document["outcome"]), "full": tuple(document["full"])}
    return Verdict(**{**document, **rest, "cold": tuple(document["cold"])})
