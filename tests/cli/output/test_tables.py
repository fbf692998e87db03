"""What commands print: tables for people, objects for programs."""

import json

import click
import pytest
from click.testing import CliRunner
from fencepost.cli.output.tables import Column, Output, count, duration, number, table, width
from fencepost.cli.output.writing import Cell

ROWS = [{"name": "a", "lag": 5}, {"name": "longer", "lag": 1_234_567}]
COLUMNS = (Column("NAME", "name"), number("LAG", "lag", count))


def printed(output: Output, rows: list[dict[str, object]]) -> tuple[str, str]:
    @click.command()
    def command() -> None:
        output.rows(rows, COLUMNS, "nothing there")

    result = CliRunner().invoke(command, [])
    return result.stdout, result.stderr


def test_columns_line_up_texts_by_their_beginning_and_numbers_by_their_end() -> None:
    lines = [click.unstyle(line) for line in table(ROWS, COLUMNS)]
    assert lines == ["NAME          LAG", "a               5", "longer  1,234,567"]


def test_coloured_and_wide_cells_are_aligned_by_their_terminal_width() -> None:
    columns = (Column("N", "n", lambda text: Cell(str(text), "red")), Column("V", "v"))
    lines = [click.unstyle(line) for line in table([{"n": "注文", "v": 1}, {"n": "ab", "v": 2}], columns)]
    assert [width(line) for line in lines] == [7, 7, 7]
    assert width("e\u0301") == 1


def test_programs_get_an_object_a_line_and_nothing_else() -> None:
    out, err = printed(Output(json=True), ROWS)
    assert [json.loads(line) for line in out.splitlines()] == ROWS
    assert err == ""
    assert printed(Output(json=True), []) == ("", "")


def test_people_are_told_that_there_is_nothing_beside_the_table_that_is_not_there() -> None:
    assert printed(Output(), []) == ("", "nothing there\n")
    assert printed(Output(quiet=True), []) == ("", "")


def test_no_colour_goes_into_a_pipe() -> None:
    assert "\x1b" not in printed(Output(), ROWS)[0]


@pytest.mark.parametrize(
    ("ms", "words"),
    [(None, "-"), (0, "0 ms"), (999, "999 ms"), (41_000, "41 s"), (200_000, "3 min 20 s"), (7_500_000, "2 h 5 min"),
     (259_200_000, "3 d"), (60_000, "1 min")],
)  # fmt: skip
def test_durations_have_two_units_at_most(ms: int | None, words: str) -> None:
    assert duration(ms) == words
