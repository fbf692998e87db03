"""`fencepost bench compare`: the ratios of two results of `make bench`. The exit code is 1 after a regression."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..output.failures import WRONG_USAGE, Failure
from ..output.writing import Cell, show, show_json, show_styled

if TYPE_CHECKING:
    from ...bench.comparison import Change
    from ...bench.result_file import Result

REGRESSION = 1
_HINT = "make bench writes bench/results/*.json"
_MACHINE = ("cpu", "cores", "memory_gb", "kernel", "file_system", "python")


@click.command("compare")
@click.argument("before", metavar="A", type=click.Path(dir_okay=False, path_type=Path))
@click.argument("after", metavar="B", type=click.Path(dir_okay=False, path_type=Path))
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option("-a", "--all", "everything", is_flag=True, help="Also unchanged figures.")
@click.pass_context
def compare(ctx: click.Context, before: Path, after: Path, output: str, everything: bool) -> None:
    """What changed from result A to result B.

    A and B are files that make bench wrote. Exit code 1: a figure of fencepost is worse in B by more than 10 %, and by
    more than the rounds of either run differ. Figures of fencepost that B lacks are listed. Figures of other brokers
    are shown, because they show whether the machine has changed, but do not affect the exit code.
    """
    from ...bench import comparison

    one, other = _read(before), _read(after)
    changes = comparison.compare(one.findings, other.findings)
    if not changes:
        raise Failure(
            "the two results have no scenario in common", "compare results of the same scenarios", WRONG_USAGE
        )
    if output == "json":
        for change in changes:
            show_json(_facts(change))
    else:
        _print_changes(changes, everything, _differences(one, other))
    for line in comparison.missing(one.findings, other.findings):
        show(Cell(f"not measured in B: {line}", "yellow"), err=True)
    if any(change.regression for change in changes):
        ctx.exit(REGRESSION)


def _read(path: Path) -> "Result":
    """Read a result file. Raises Failure if it cannot be read or is not a result."""
    from ...bench.result_file import NotAResult, read

    try:
        return read(path)
    except OSError as error:
        raise Failure(f"{path} cannot be read: {error.strerror or error}", _HINT, WRONG_USAGE) from None
    except NotAResult as error:
        raise Failure(f"{path}: {error}", _HINT, WRONG_USAGE) from None


def _facts(change: "Change") -> dict[str, Any]:
    """Return one comparison as a JSON object, with rounded numbers and a word for the change."""
    found = {k: round(v, 6) if isinstance(v, float) else v for k, v in asdict(change).items()}
    return found | {"change": _word(change), "regression": change.regression}


def _word(change: "Change") -> str:
    """Return `worse`, `better` or `same` for a change."""
    return "worse" if change.worse else "better" if change.better else "same"


def _differences(one: "Result", other: "Result") -> list[str]:
    """Return a line for each fact about the machine in which the two results differ."""
    return [
        f"{name}: {one.facts.get(name)} in A, {other.facts.get(name)} in B"
        for name in _MACHINE
        if one.facts.get(name) != other.facts.get(name)
    ]


def _print_changes(changes: "list[Change]", everything: bool, differences: list[str]) -> None:
    """Print the table of changes: all of them, or those that are better or worse."""
    from ...bench.measured import format_value, title
    from ...effects.counts import count_text
    from ..output.tables import Column, number, table

    colours = {"worse": "red", "better": "green"}
    shown = [each for each in changes if everything or _word(each) != "same"]
    rows = [
        {
            "scenario": each.scenario,
            "peer": each.peer,
            "figure": title(each.figure, each.unit),
            "A": format_value(each.before),
            "B": format_value(each.after),
            "ratio": f"{each.ratio:.2f}",
            "spread": f"{each.low:.2f} to {each.high:.2f}",
            "change": _word(each),
        }
        for each in shown
    ]
    columns = [Column(name, name) for name in ("scenario", "peer", "figure")]
    columns += [number(name, name) for name in ("A", "B")]
    columns += [number("B/A", "ratio"), Column("spread", "spread")]
    columns += [Column("", "change", lambda word: Cell(word, colours.get(word)))]
    if rows:
        show_styled(table(rows, columns))
    for line in differences:
        show(Cell(f"not the same machine: {line}", "yellow"), err=True)
    same = sum(_word(each) == "same" for each in changes)
    regressions = count_text(sum(each.regression for each in changes), "regression")
    show(f"{count_text(len(changes), 'figure')} compared, {same:,} the same, {regressions}")
