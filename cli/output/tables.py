"""The output of commands: a table or a line for people, JSON for programs (one object on each line).

The rule: a command gathers facts (values by name), and both forms show the same facts. The layout of a table depends
only on its contents, not on the terminal, and a pipe gets no colour.
"""

import time
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .writing import Cell, show, show_json, show_styled, styled, visible

Facts = Mapping[str, Any]
GAP = "  "
NOTHING = "-"


Form = Callable[[Any], "str | Cell"]


def plain(value: Any) -> str:
    """Return a value as text: the default form in a table."""
    if value is None or value == "":
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value)) or NOTHING
    return str(value)


def count(value: int | None) -> str:
    """Return a number with separators: 1,234,567."""
    return NOTHING if value is None else f"{value:,}"


@dataclass(frozen=True, slots=True)
class Column:
    """One fact of each row, below a title. form: a function that formats its value."""

    title: str
    fact: str
    form: Form = plain
    right: bool = False


def number(title: str, fact: str, form: Form = plain) -> Column:
    """Return a column of numbers, aligned at the right."""
    return Column(title, fact, form, right=True)


@dataclass(frozen=True, slots=True)
class Output:
    """How to print. json: one JSON object on each line. quiet: only results, no remarks."""

    json: bool = False
    quiet: bool = False

    def rows(self, rows: Iterable[Facts], columns: Sequence[Column], empty: str = "") -> None:
        """Print rows as a table, or each as a JSON object. empty: the text to print if there are no rows."""
        listed = list(rows)
        if self.json:
            for row in listed:
                self.object(row)
        elif listed:
            show_styled(table(listed, columns))
        elif empty:
            self.remark(empty)

    def object(self, facts: Facts) -> None:
        """Print one JSON object, for programs."""
        show_json(facts)

    def result(self, text: str, facts: Facts) -> None:
        """Print a result: a line for people, or its facts for programs."""
        if self.json:
            self.object(facts)
        elif not self.quiet:
            show(text)

    def heading(self, text: str) -> None:
        """Print a heading for the table below it; for people only."""
        if not self.json:
            show(Cell(text, bold=True))

    def line(self, text: str = "") -> None:
        """Print a line; for people only."""
        if not self.json:
            show(text)

    def remark(self, text: str) -> None:
        """Print a remark on the error stream."""
        if not self.json and not self.quiet:
            show(Cell(text, dim=True), err=True)


def table(rows: Sequence[Facts], columns: Sequence[Column]) -> list[str]:
    """Return the lines of a table: titles, then one line for each row."""
    titles = [Cell(each.title, dim=True) for each in columns]
    cells = [titles, *([_cell(each.form(row.get(each.fact))) for each in columns] for row in rows)]
    widths = [max(width(row[i].text) for row in cells) for i in range(len(columns))]
    return [_line(row, columns, widths) for row in cells]


def _cell(written: str | Cell) -> Cell:
    """Return a cell whose text is exactly what the terminal will show, so that its width is known."""
    cell = written if isinstance(written, Cell) else Cell(written)
    return cell._replace(text=visible(cell.text))


def _line(cells: Sequence[Cell], columns: Sequence[Column], widths: Sequence[int]) -> str:
    """Return the cells of one row, padded to the widths of their columns."""
    parts = []
    for i, (cell, column) in enumerate(zip(cells, columns, strict=True)):
        padding = " " * (widths[i] - width(cell.text))
        last = i == len(cells) - 1
        parts.append(padding + styled(cell) if column.right else styled(cell) + ("" if last else padding))
    return GAP.join(parts)


def width(text: str) -> int:
    """Return how many columns a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in text
    )


# ---- text of values ------------------------------------------------------------------------------------------------

_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))


def duration(ms: int | None) -> str:
    """Return the two largest units of a time: 41 s, 3 min 20 s, 2 h 5 min, 3 d."""
    if ms is None:
        return NOTHING
    if ms < 1_000:
        return f"{max(0, ms)} ms"
    for i, (size, unit) in enumerate(_UNITS):
        if ms >= size:
            whole, rest = divmod(ms, size)
            smaller = _UNITS[i + 1 : i + 2]
            second = rest // smaller[0][0] if smaller else 0
            return f"{whole} {unit}" + (f" {second} {smaller[0][1]}" if second else "")
    raise AssertionError("unreachable")


def when(ms: int | None) -> str:
    """Return a time in the local time zone, as text."""
    from datetime import datetime

    if ms is None or ms < 0:
        return NOTHING
    return datetime.fromtimestamp(ms / 1000).astimezone().isoformat(sep=" ", timespec="seconds")


def now_ms() -> int:
    """Return this machine's wall clock in ms since 1970."""
    return time.time_ns() // 1_000_000
