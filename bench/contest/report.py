"""Shows the result of a run: as JSON, as tables in Markdown, as plots; and writes results into the documents.

`python -m fencepost.bench.contest.report RESULT` prints the table. With --docs it writes the results into README.md and
docs/benchmarks.md, between their markers, and draws docs/images.
"""

import contextlib
import importlib.util
import itertools
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from ..measured import LESS, MORE, Measured, format_value, title
from ..peers.names import FSYNC, KAFKA, KAFKA_FLUSH, OS
from ..result_file import NotAResult, Result, as_json, read
from ..verdicts import Outcome, Verdict
from .aims import AIMS

ROOT = Path(__file__).resolve().parents[2]
IMAGES = "docs/images"
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
MARKS = {
    Outcome.MET: "✔",
    Outcome.MUST: "○",
    Outcome.MISSED: "✘",
    Outcome.UNDECIDED: "?",
    Outcome.ABSENT: "absent",
}
_SENSES = {MORE: "≥", LESS: "≤"}
LEGEND = (
    "✔ the aim holds in every round; ○ the minimum holds in every round, the aim does not; ✘ missed; ? undecided: "
    "rounds differ, or there is only one. In brackets: the lowest and the highest ratio of a round."
)
COLUMNS = (("fsync ÷ Kafka", FSYNC, KAFKA), ("fsync ÷ Kafka flush", FSYNC, KAFKA_FLUSH), ("os ÷ Kafka", OS, KAFKA))
BOUND_TITLES = ["bound", "ratio, or the value itself"]
TITLES = {
    "speed": "Rates over those of Apache Kafka",
    "cost": "CPU, latency, memory and start over those of Apache Kafka",
    "throughput": "Rate against p99, by the number of connections",
    "latency": "Latency end to end, by share of the messages",
}


def write(
    findings: Iterable[Measured],
    verdicts: Iterable[Verdict],
    facts: Mapping[str, Any],
    directory: Path,
) -> Path:
    """Write <time>.json, table.md and the plots into the directory. Returns the JSON's path."""
    result = Result(facts, tuple(findings), tuple(verdicts))
    directory.mkdir(parents=True, exist_ok=True)
    path = _new(directory, time.strftime("%Y%m%dT%H%M%S"))
    path.write_text(json.dumps(as_json(result), indent=1, ensure_ascii=False) + "\n")
    (directory / "table.md").write_text(table(result))
    draw(result, directory)
    return path


def _new(directory: Path, name: str) -> Path:
    """Create and return a file that did not exist, also if another run ended in the same second."""
    for number in itertools.count(1):
        path = directory / (f"{name}.json" if number == 1 else f"{name}-{number}.json")
        with contextlib.suppress(FileExistsError):
            path.touch(exist_ok=False)
            break
    return path


def draw(result: Result, directory: Path) -> list[Path]:
    """Draw the plots, if matplotlib is installed. Returns their paths."""
    if importlib.util.find_spec("matplotlib") is None:
        click.echo("no plots: matplotlib is not installed (pip install 'fencepost[bench]')", err=True)
        return []
    from . import plots

    return plots.draw(result.findings, directory)


# ---- the table -----------------------------------------------------------------------------------------------------


def table(result: Result) -> str:
    """Return a run as Markdown: the aims, the bounds, notes, all values, the machine."""
    parts = [aims(result), bounds(result), remarks(result), "### Measured", values(result), machine(result.facts)]
    return "\n\n".join(part for part in parts if part) + "\n"


def aims(result: Result) -> str:
    """Return a Markdown table with a row for each aim compared with Apache Kafka; empty if there are none."""
    rows: dict[str, list[Verdict]] = {}
    for verdict in result.verdicts:
        if verdict.aim.theirs in (KAFKA, KAFKA_FLUSH):
            rows.setdefault(verdict.aim.row, []).append(verdict)
    lines = []
    for row, verdicts in rows.items():
        by = {(each.aim.ours, each.aim.theirs): each for each in verdicts}
        cells = [_cell(by.get((ours, theirs))) for _, ours, theirs in COLUMNS]
        lines.append([row, *cells, _slowest(result.findings, verdicts[0].aim.scenario)])
    titles = ["", *(name for name, _, _ in COLUMNS), "p99, ms: fsync / os · Kafka / flush"]
    return "\n".join([*_markdown(titles, lines), "", LEGEND]) if lines else ""


def bounds(result: Result) -> str:
    """Return a Markdown table of every aim that is not a ratio to Apache Kafka, and which of them were not measured."""
    rows = {each.aim.row: each for each in result.verdicts if each.aim.theirs not in (KAFKA, KAFKA_FLUSH)}
    lines = [[row, _cell(verdict)] for row, verdict in rows.items() if verdict.outcome is not Outcome.ABSENT]
    tables = ["\n".join(_markdown(BOUND_TITLES, lines))] if lines else []
    return "\n\n".join([*tables, *_absent(result, rows)])


def _absent(result: Result, rows: Mapping[str, Verdict]) -> list[str]:
    """Return lines about the bounds that were not measured: by name if their load was run, else only how many."""
    run = {each.scenario for each in result.findings}
    absent = {row: each.aim.scenario for row, each in rows.items() if each.outcome is Outcome.ABSENT}
    named = [row for row, scenario in absent.items() if scenario in run]
    lines = [f"Absent: {'; '.join(named)}."] if named else []
    others = len(absent) - len(named)
    return [*lines, f"{others} more bounds are of loads that were not run."] if others else lines


def sought() -> str:
    """Return Markdown tables of all aims, not of what was measured, for docs/benchmarks.md."""
    rows: dict[str, dict[tuple[str, str | None], str]] = {}
    for aim in AIMS:
        rows.setdefault(aim.row, {})[aim.ours, aim.theirs] = f"{_SENSES[aim.sense]} {aim.aim:g}"
    against = [row for row, found in rows.items() if {KAFKA, KAFKA_FLUSH} & {theirs for _, theirs in found}]
    lines = [[row, *(rows[row].get((ours, theirs), "–") for _, ours, theirs in COLUMNS)] for row in against]
    bound = [[row, *found.values()] for row, found in rows.items() if row not in against]
    titles = ["", *(name for name, _, _ in COLUMNS)]
    return "\n".join([*_markdown(titles, lines), "", *_markdown(BOUND_TITLES, bound)])


def _cell(verdict: Verdict | None) -> str:
    """Return a verdict as a cell of the table: outcome, ratio, its range over the rounds, and the aim."""
    if verdict is None:
        return "–"
    aim = f"{_SENSES[verdict.aim.sense]} {verdict.aim.aim:g}"
    if verdict.ratio is None or verdict.low is None or verdict.high is None:
        return f"absent ({aim})"
    remark = (" \\*" if verdict.full else "") + (" †" if verdict.cold else "")
    ratio, low, high = (_ratio(each) for each in (verdict.ratio, verdict.low, verdict.high))
    return f"{MARKS[verdict.outcome]} **{ratio}**{remark} [{low}, {high}] {aim}"


def _ratio(value: float) -> str:
    """Return a ratio as text, with three digits after the point if it is small."""
    return f"{value:.2f}" if value >= 0.2 else f"{value:.3f}"


def _slowest(findings: Sequence[Measured], scenario: str) -> str:
    """Return the p99 latencies of this scenario as a cell: ours, then Kafka's. A dash if none was measured."""
    by = {each.peer: each.median("p99_ms") for each in findings if each.scenario == scenario}
    if all(value is None for value in by.values()):
        return "–"
    ours, theirs = (
        " / ".join(format_value(by.get(peer)) for peer in pair) for pair in ((FSYNC, OS), (KAFKA, KAFKA_FLUSH))
    )
    return f"{ours} · {theirs}"


def remarks(result: Result) -> str:
    """Return the notes on single figures as a Markdown list: saturated clients, peers not steady, high p99,
    idle CPU.
    """
    lines = []
    full = [(each.peer, each.scenario) for each in result.findings if each.saturated]
    if full:
        lines.append(f"- \\* The client was the limit, not the broker. {_list_scenarios(full)}.")
    cold = [(each.peer, each.scenario) for each in result.findings if not each.warm]
    if cold:
        lines.append(f"- † Not yet steady at the end of the warm-up. {_list_scenarios(cold)}.")
    above = [(f"{v.aim.ours} against {v.aim.theirs}", v.aim.scenario) for v in result.verdicts if v.p99_above]
    if above:
        lines.append(f"- The p99 of fencepost is higher. {_list_scenarios(above)}.")
    idle = max((each.others_cpu for each in result.findings), default=0.0)
    lines.append(f"- All idle brokers together took at most {100 * idle:.1f} % of a processor in a round.")
    return "\n".join(lines)


def _list_scenarios(pairs: Iterable[tuple[str, str]]) -> str:
    """Return each name with its scenarios as text. pairs: (name, scenario)."""
    scenarios: dict[str, dict[str, None]] = {}
    for who, scenario in pairs:
        scenarios.setdefault(who, {})[scenario] = None
    return "; ".join(f"{who}: {', '.join(listed)}" for who, listed in scenarios.items())


_VALUES = ("rate", "mb_per_second", "cpu_us", "cpu_ms_per_mb", "p50_ms", "p99_ms", "p999_ms", "rss_mb")


def values(result: Result) -> str:
    """Return the medians of everything that was measured, as Markdown. Those without a rate are in a second table."""
    scenarios = dict.fromkeys(each.scenario for each in result.findings)
    found = [each for scenario in scenarios for each in _findings_of(result.findings, scenario)]
    titles = ["", "server", "per second", "MB/s", "CPU, µs each", "CPU, ms/MB", "p50, ms", "p99", "p99.9", "memory, MB"]
    lines = [
        [
            each.scenario,
            each.peer + (" \\*" if each.saturated else ""),
            *(_value(each, name) for name in _VALUES),
        ]
        for each in found
        if "rate" in each.figures
    ]
    more = [
        [each.scenario, each.peer, title(name, each.unit), format_value(each.median(name))]
        for each in found
        for name in each.figures
        if "rate" not in each.figures
    ]
    tables = [_markdown(titles, lines)] if lines else []
    tables += [_markdown(["", "server", "figure", "median"], more)] if more else []
    return "\n\n".join("\n".join(each) for each in tables)


def _value(each: Measured, name: str) -> str:
    """Return the median of a figure as text; of the p99, which differs most between rounds, with the least and the
    greatest.
    """
    median, spread = format_value(each.median(name)), each.spread(name)
    if name != "p99_ms" or spread is None:
        return median
    return f"{median} [{format_value(spread[0])}, {format_value(spread[1])}]"


def _findings_of(findings: Iterable[Measured], scenario: str) -> list[Measured]:
    """Return what was measured in this scenario."""
    return [each for each in findings if each.scenario == scenario]


def machine(facts: Mapping[str, Any]) -> str:
    """Return one paragraph about the machine, the versions and the date."""
    versions = {**facts.get("peers", {}), **facts.get("clients", {})}
    named = ", ".join(f"{name} {version}" for name, version in versions.items())
    return _escape(
        f"{facts.get('cpu')}, {facts.get('cores')} cores, {facts.get('memory_gb')} GB, {facts.get('file_system')}, "
        f"{facts.get('kernel')}, {facts.get('python')}; {named}; commit {facts.get('commit')}, {facts.get('time')}"
        f"{', ' + facts['run'] if 'run' in facts else ''}."
    )


def _markdown(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table."""
    lines = [list(titles), ["---"] * len(titles), *([each.replace("|", "\\|") for each in row] for row in rows)]
    return [f"| {' | '.join(line)} |" for line in lines]


def _escape(text: str) -> str:
    """Replace the characters that have a meaning in Markdown tables and HTML."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|")


# ---- the documents -------------------------------------------------------------------------------------------------


class NoMarkers(ValueError):
    """Raised if a document has no markers between which results are written."""


def between(document: str, part: str) -> str:
    """Return the document with the text between its two markers replaced by `part`. Raises: NoMarkers."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise NoMarkers(f"there is no place for results: {BEGIN} … {END}")
    return f"{before}{begin}\n{part.strip()}\n{end}{after}"


def readme_part(result: Result, images: Sequence[str]) -> str:
    """Return the results for the README: the plot of rates, and the machine. images: names of the plots."""
    shown = [picture(name, IMAGES) for name in images if name == "speed"]
    peers = result.facts.get("peers", {})
    where = _escape(f"{result.facts.get('cpu')}, {result.facts.get('cores')} cores, {result.facts.get('file_system')}")
    summary = (
        f"Apache Kafka {peers.get('Kafka', '')} does not sync by default, fencepost does. In one run, on {where}: "
    )
    summary += "[all results](docs/benchmarks.md), and where we lose."
    return "\n\n".join([*shown, " ".join(summary.split())])


def docs_part(result: Result, images: Sequence[str]) -> str:
    """Return the results for docs/benchmarks.md: plots, then tables. images: names of the plots."""
    shown = [picture(name, "images") for name in images]
    everything = "<details><summary>Everything that was measured</summary>\n\n" + values(result) + "\n\n</details>"
    parts = [machine(result.facts), *shown, aims(result), bounds(result), remarks(result), everything]
    return "\n\n".join(part for part in parts if part)


def picture(name: str, folder: str) -> str:
    """Return HTML that shows the light or the dark variant of a plot, as the reader's browser prefers."""
    return (
        "<picture>\n"
        f'  <source media="(prefers-color-scheme: dark)" srcset="{folder}/{name}.dark.svg">\n'
        f'  <img alt="{TITLES[name]}" src="{folder}/{name}.light.svg">\n'
        "</picture>"
    )


def write_documents(result: Result, root: Path = ROOT) -> list[Path]:
    """Draw docs/images, and write the results into README.md and docs/benchmarks.md. Returns the paths that were
    written. Raises: NoMarkers.
    """
    paths = draw(result, root / IMAGES)
    names = list(dict.fromkeys(path.name.split(".")[0] for path in paths))
    parts: dict[str, Callable[[Result, Sequence[str]], str]] = {
        "README.md": readme_part,
        "docs/benchmarks.md": docs_part,
    }
    texts = {root / name: between((root / name).read_text(), part(result, names)) for name, part in parts.items()}
    for path, text in texts.items():
        path.write_text(text)
    return [*texts, *paths]


@click.command()
@click.argument("result", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--docs", is_flag=True, help="Write it into README, docs/benchmarks.md and docs/images.")
def main(result: Path, docs: bool) -> None:
    """Show a result of make bench."""
    try:
        found = read(result)
    except NotAResult as error:
        raise click.ClickException(f"{result}: {error}") from None
    if not docs:
        click.echo(table(found), nl=False)
        return
    for path in write_documents(found):
        click.echo(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
