"""Draws plots of a run as SVG, for a light and for a dark page. matplotlib is imported only when something is drawn.

Two plots have bars, with a row for each aim, relative to Apache Kafka's default (1). One shows rates and the slowest
answers by the number of connections, and one shows the distribution of latencies. Figures that were not measured are
left out; a plot without figures is not drawn.
"""

import io
import logging
import re
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..measured import Measured
from ..peers.names import FSYNC, KAFKA, KAFKA_FLUSH, OS
from ..verdicts import Aim
from .aims import AIMS, spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FONTS = "system-ui, -apple-system, 'Segoe UI', 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif"
WIDTH = 8.6  # inches, 72 units each
LABELS = 2.95  # of that, left of the bars
BAR, GAP = 0.17, 0.2  # inches: a bar's height; between two rows
TOP, BOTTOM = 0.95, 0.25


@dataclass(frozen=True, slots=True)
class Theme:
    """The colours of a page. quiet: the colour of less important text. peers: colours by the peer's name."""

    name: str
    text: str
    quiet: str
    line: str
    peers: Mapping[str, str]


LIGHT = Theme(
    "light",
    "#1f2328",
    "#656d76",
    "#d0d7de",
    {FSYNC: "#0b62d6", OS: "#7ab8f5", KAFKA: "#8a5a00", KAFKA_FLUSH: "#c3a878"},
)
DARK = Theme(
    "dark",
    "#e6edf3",
    "#9198a1",
    "#3d444d",
    {FSYNC: "#58a6ff", OS: "#2b62a8", KAFKA: "#e3b341", KAFKA_FLUSH: "#8a6d2f"},
)
THEMES = (LIGHT, DARK)
SHOWN = {FSYNC: "fencepost (fsync)", OS: "fencepost (os)", KAFKA: "Kafka", KAFKA_FLUSH: "Kafka (flush)"}
BARS = (FSYNC, OS, KAFKA_FLUSH)  # compared with Kafka's default, which is drawn as a line at 1
NOTES = {"*": "the client was the limit", "†": "a JVM not steady"}

Found = Mapping[tuple[str, str], Measured]


@dataclass(frozen=True, slots=True)
class Bar:
    """A peer's ratio to Apache Kafka's default. low, high: of the rounds. aim: the ratio at which a tick is drawn,
    None: no tick. marks: characters that are explained in NOTES.
    """

    peer: str
    ratio: float
    low: float
    high: float
    aim: float | None
    marks: str


@dataclass(frozen=True, slots=True)
class Group:
    """The bars of one row of the table."""

    label: str
    bars: tuple[Bar, ...]


def draw(findings: Iterable[Measured], directory: Path) -> list[Path]:
    """Draw every plot that has data, in both themes. Returns the paths: NAME.light.svg, NAME.dark.svg."""
    listed = list(findings)
    written = []
    for name, plot in PLOTS.items():
        for theme in THEMES:
            text = plot(listed, theme)
            if text is not None:
                directory.mkdir(parents=True, exist_ok=True)
                written.append(directory / f"{name}.{theme.name}.svg")
                written[-1].write_text(text)
    return written


# ---- ratios to Apache Kafka ----------------------------------------------------------------------------------------


def speed(findings: Sequence[Measured], theme: Theme) -> str | None:
    """Draw rates as ratios to those of Apache Kafka. Returns SVG; None without data."""
    return _ratios(_groups(findings, ("rate", "mb_per_second")), "Speed", "longer is better", theme)


def cost(findings: Sequence[Measured], theme: Theme) -> str | None:
    """Draw costs as ratios to Apache Kafka's: CPU, latency, memory and start. Returns SVG; None without data."""
    figures = ("cpu_us", "cpu_ms_per_mb", "p50_ms", "p99_ms", "ready_s", "idle_mb")
    return _ratios(_groups(findings, figures), "Cost", "shorter is better", theme)


def _groups(findings: Sequence[Measured], figures: Sequence[str]) -> list[Group]:
    """Return a group of bars for each row of aims that has one of these figures. A row is left out if fencepost or
    Kafka's default was not measured.
    """
    found = {(each.scenario, each.peer): each for each in findings}
    rows: dict[str, list[Aim]] = {}
    for aim in AIMS:
        if aim.figure in figures and aim.theirs in (KAFKA, KAFKA_FLUSH):
            rows.setdefault(aim.row, []).append(aim)
    groups = [Group(row, tuple(_bars(found, aims))) for row, aims in rows.items()]
    return [group for group in groups if any(bar.peer != KAFKA_FLUSH for bar in group.bars)]


def _bars(found: Found, aims: Sequence[Aim]) -> Iterator[Bar]:
    """Yield a bar for each peer that was measured in the aims' scenario. Kafka's default must be measured too."""
    scenario, figure = aims[0].scenario, aims[0].figure
    ticks = {aim.ours: aim.aim for aim in aims if aim.theirs == KAFKA}
    default = found.get((scenario, KAFKA))
    below = default.figures.get(figure) if default else None
    for peer in BARS:
        measured = found.get((scenario, peer))
        above = measured.figures.get(figure) if measured else None
        if measured and above and below and min(below) > 0:
            ratio = statistics.median(above) / statistics.median(below)
            yield Bar(peer, ratio, *spread(above, below), ticks.get(peer), _marks(measured, default))


def _marks(*sides: Measured | None) -> str:
    """Return the marks of a ratio: * if a client was the bottleneck, † if a peer was not steady."""
    full = any(each is not None and each.saturated for each in sides)
    cold = any(each is not None and not each.warm for each in sides)
    return ("*" if full else "") + ("†" if cold else "")


def _ratios(groups: Sequence[Group], title: str, sense: str, theme: Theme) -> str | None:
    """Draw groups of horizontal bars. sense: the text that says which direction is better. Returns SVG; None without
    groups.
    """
    if not groups:
        return None
    bars = sum(len(group.bars) for group in groups)
    height = TOP + BOTTOM + bars * BAR + len(groups) * GAP
    figure = _figure(WIDTH, height)
    axes = figure.add_axes((LABELS / WIDTH, BOTTOM / height, 1 - LABELS / WIDTH - 0.01, 1 - (TOP + BOTTOM) / height))
    own = [max(bar.high, bar.aim or 0) for group in groups for bar in group.bars if bar.peer != KAFKA_FLUSH]
    reach = max(1.0, *own)
    limit = reach * 1.2  # room for the number at the end of a bar
    axes.set_xlim(0, limit)
    axes.set_ylim(height - TOP - BOTTOM, 0)
    axes.axis("off")
    y = 0.0
    for group in groups:
        y += GAP / 2
        middle = y + len(group.bars) * BAR / 2
        for text, above, colour in _two_lines(group.label, theme):  # each anchored at its end, whatever the font
            at = middle + above * 0.085
            axes.text(-0.015 * limit, at, text, ha="right", va="center_baseline", color=colour, size=9.5)
        for bar in group.bars:
            _bar(axes, bar, y, reach, limit, theme)
            y += BAR
        y += GAP / 2
    axes.plot([1, 1], [0, height - TOP - BOTTOM], color=theme.peers[KAFKA], linewidth=1.2, zorder=3)
    axes.text(1, -0.05, "Kafka = 1", ha="center", va="bottom", color=theme.peers[KAFKA], size=9)
    there = {bar.peer for group in groups for bar in group.bars}
    peers = [peer for peer in BARS if peer in there]
    marks = "".join(bar.marks for group in groups for bar in group.bars)
    _heading(figure, title, f"ratio to Apache Kafka as it comes; {sense}", height, theme)
    _legend(figure, peers, height, theme, aim=True, marks=marks)
    return _svg(figure, f"{title}: fencepost over Apache Kafka, {sense}")


def _two_lines(label: str, theme: Theme) -> list[tuple[str, float, str]]:
    """Split a row's label at ": " into lines: (text, place, colour). place: -1 for above the middle of the row, 0 for
    on it, 1 for below it.
    """
    load, _, figure = label.partition(": ")
    return [(load, -1, theme.text), (figure, 1, theme.quiet)] if figure else [(load, 0, theme.text)]


def _bar(axes: "Axes", bar: Bar, y: float, reach: float, limit: float, theme: Theme) -> None:
    """Draw one bar at height y. reach: where longer bars are cut off, with their number still shown. limit: the end
    of the axis.
    """
    middle, thick = y + BAR / 2, BAR * 0.86
    end = min(bar.ratio, reach)
    axes.barh(middle, end, height=thick, color=theme.peers[bar.peer], linewidth=0, zorder=2)
    last = end
    if bar.ratio <= reach and bar.high > bar.low:
        last = max(end, min(bar.high, reach))
        axes.plot([bar.low, last], [middle, middle], color=theme.text, linewidth=0.9, alpha=0.55, zorder=4)
    if bar.aim is not None and bar.aim <= reach:
        axes.plot([bar.aim, bar.aim], [y + 0.004, y + BAR - 0.004], color=theme.text, linewidth=2.2, zorder=5)
    for line in sorted((1.0, bar.aim or 1.0)):  # move the number to the right of lines that would cross it
        if last < line < last + 0.09 * limit:
            last = line
    number = f"{bar.ratio:.2f}" if bar.ratio < 10 else f"{bar.ratio:.0f}"
    number += " →" if bar.ratio > reach else ""
    number += f" {bar.marks}" if bar.marks else ""
    colour = theme.text if bar.peer != KAFKA_FLUSH else theme.quiet
    axes.text(last + 0.008 * limit, middle, number, ha="left", va="center_baseline", color=colour, size=8.5, zorder=6)


# ---- lines ---------------------------------------------------------------------------------------------------------

CONNECTIONS = (1, 16, 64, 256)
LINES = (FSYNC, OS, KAFKA, KAFKA_FLUSH)


def throughput(findings: Sequence[Measured], theme: Theme) -> str | None:
    """Draw small requests: each point is a number of connections, at its rate and p99 latency. Returns SVG; None
    without data.
    """
    found = {(each.scenario, each.peer): each for each in findings}
    panels: list[tuple[str, dict[str, list[tuple[float, float, str]]]]] = []
    for depth, title in ((1, "1 request in flight"), (5, "5 requests in flight")):
        lines: dict[str, list[tuple[float, float, str]]] = {}
        for peer in LINES:
            points = [(n, found.get((f"small {n}x{depth}", peer))) for n in CONNECTIONS]
            line = [
                (rate / 1e3, p99, str(n))
                for n, each in points
                if each and (rate := each.median("rate")) and (p99 := each.median("p99_ms"))
            ]
            if len(line) > 2:  # two points would be a straight line, whatever lies between
                lines[peer] = line
        if lines:
            panels.append((title, lines))
    subtitle = "produce of 1 × 100 B, by the number of connections; right and below is better"
    return _panels(panels, "Rate against p99", subtitle, ("1,000 requests/s", "p99, ms"), theme)


def latency(findings: Sequence[Measured], theme: Theme) -> str | None:
    """Draw latency end to end: which share of the messages had arrived after how many ms. Returns SVG; None without
    data.
    """
    panels: list[tuple[str, dict[str, list[tuple[float, float, str]]]]] = []
    through = [each for each in findings if each.scenario.startswith("end to end") and each.quantiles]
    for scenario in dict.fromkeys(each.scenario for each in through):
        lines = {}
        for peer in LINES:
            for each in through:
                if (each.scenario, each.peer) == (scenario, peer):
                    shares = sorted(share for share in each.quantiles if share < 1)
                    # x = 1 / (1 - share): on a logarithmic axis 90 %, 99 % and 99.9 % are at equal distances.
                    lines[peer] = [(1 / (1 - share), each.quantiles[share], f"{100 * share:g} %") for share in shares]
        if lines:
            panels.append((scenario.removeprefix("end to end ").replace("/s", " messages/s"), lines))
    subtitle = "from when a message was due to when its reader has it; below is better"
    return _panels(panels, "Latency, end to end", subtitle, ("share of the messages", "ms"), theme, shares=True)


def _panels(
    panels: Sequence[tuple[str, Mapping[str, Sequence[tuple[float, float, str]]]]],
    title: str,
    subtitle: str,
    units: tuple[str, str],
    theme: Theme,
    shares: bool = False,
) -> str | None:
    """Draw panels side by side, with one logarithmic scale of milliseconds. panels: (title, line by peer), a line
    being (x, y, label of the point). shares: label the x axis with the points' labels, which are shares of messages.
    Returns SVG; None without panels.
    """
    if not panels:
        return None
    height, left, between = 4.3, 0.65, 0.4
    figure = _figure(WIDTH, height)
    wide = (WIDTH - left - 0.15 - between * (len(panels) - 1)) / len(panels)
    values = [y for _, lines in panels for line in lines.values() for _, y, _ in line]
    for i, (name, lines) in enumerate(panels):
        place = ((left + i * (wide + between)) / WIDTH, 0.6 / height, wide / WIDTH, (height - 0.6 - TOP - 0.3) / height)
        axes = figure.add_axes(place)
        axes.set_yscale("log")
        axes.set_ylim(min(values) / 1.4, max(values) * 1.4)
        for peer, line in lines.items():
            axes.plot(
                [x for x, _, _ in line],
                [y for _, y, _ in line],
                color=theme.peers[peer],
                marker="" if shares else "o",
                markersize=4,
                linewidth=1.8,
            )
        axes.set_title(name, loc="left", color=theme.text, size=9.5)
        axes.set_xlabel(units[0], color=theme.quiet, size=9)
        if i == 0:
            axes.set_ylabel(units[1], color=theme.quiet, size=9)
        _scales(axes, next(iter(lines.values())) if shares else (), theme)
        if i > 0:
            axes.tick_params(axis="y", labelleft=False)
    peers = [peer for peer in LINES if any(peer in lines for _, lines in panels)]
    _heading(figure, title, subtitle, height, theme)
    _legend(figure, peers, height, theme)
    return _svg(figure, f"{title}: {subtitle}")


def _scales(axes: "Axes", shares: Sequence[tuple[float, float, str]], theme: Theme) -> None:
    """Set the scales and their labels. shares: the points whose labels become those of the x axis; empty: a plain x
    axis.
    """
    from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator

    if shares:
        axes.set_xscale("log")
        named = [(x, text) for x, _, text in shares if text in ("50 %", "90 %", "99 %", "99.9 %", "99.99 %")]
        axes.set_xticks([x for x, _ in named], [text for _, text in named])
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.set_xlim(left=0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="y", color=theme.line, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(which="both", length=0, colors=theme.quiet, labelsize=8.5)
    axes.patch.set_visible(False)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(theme.line)


# ---- around them ---------------------------------------------------------------------------------------------------


def _figure(width: float, height: float) -> "Figure":
    """Return an empty figure of this size in inches, with a transparent background."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    figure.patch.set_visible(False)  # the page shines through
    return figure


def _heading(figure: "Figure", title: str, subtitle: str, height: float, theme: Theme) -> None:
    """Write title and subtitle at the top of the figure. height: of the figure."""
    at = 0.1 / WIDTH
    figure.text(at, 1 - 0.08 / height, title, ha="left", va="top", color=theme.text, size=13, weight="bold")
    figure.text(at, 1 - 0.32 / height, subtitle, ha="left", va="top", color=theme.quiet, size=9.5)


def _legend(
    figure: "Figure", peers: Sequence[str], height: float, theme: Theme, aim: bool = False, marks: str = ""
) -> None:
    """Draw a box and a name for each peer, and the meaning of the marks that are used. aim: also explain the tick."""
    from matplotlib.patches import Rectangle

    y, x = 1 - 0.63 / height, 0.1 / WIDTH
    words = [(theme.peers[peer], SHOWN[peer], 0.13) for peer in peers]
    words += [(theme.text, "aim", 0.03)] if aim else []
    for colour, text, wide in words:
        box = Rectangle((x, y - 0.055 / height), wide / WIDTH, 0.13 / height, facecolor=colour, linewidth=0)
        box.set_transform(figure.transFigure)
        figure.add_artist(box)
        x += (wide + 0.07) / WIDTH
        figure.text(x, y, text, ha="left", va="center_baseline", color=theme.text, size=9)
        x += (0.072 * len(text) + 0.2) / WIDTH
    note = "  ".join(f"{mark} {text}" for mark, text in NOTES.items() if mark in marks)
    figure.text(x, y, note, ha="left", va="center_baseline", color=theme.quiet, size=9)


def _svg(figure: "Figure", description: str) -> str:
    """Render to SVG text; the same figures give the same bytes."""
    import matplotlib

    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
    out = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "fencepost", "font.family": "DejaVu Sans"}):
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Title": description})
    return re.sub(r"'DejaVu Sans'[^;]*", FONTS, out.getvalue())  # drawn for a wide font, shown in the reader's own


PLOTS: dict[str, Callable[[Sequence[Measured], Theme], str | None]] = {
    "speed": speed,
    "cost": cost,
    "throughput": throughput,
    "latency": latency,
}
