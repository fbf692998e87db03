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


def test_tables_align_text_left_and_numbers_right() -> None:
    lines = [click.unstyle(line) for line in table(ROWS, COLUMNS)]
    assert lines == ["NAME          LAG", "a               5", "longer  1,234,567"]


def test_coloured_and_wide_cells_are_aligned_by_their_terminal_width() -> None:
    columns = (Column("N", "n", lambda text: Cell(str(text), "red")), Column("V", "v"))
    lines = [click.unstyle(line) for line in table([{"n": "注文", "v": 1}, {"n": "ab", "v": 2}], columns)]
    assert [width(line) for line in lines] == [7, 7, 7]
    assert width("e\u0301") == 1


def test_json_output_prints_one_object_per_line_and_nothing_else() -> None:
    out, err = printed(Output(json=True), ROWS)
    assert [json.loads(line) for line in out.splitlines()] == ROWS
    assert err == ""
    assert printed(Output(json=True), []) == ("", "")


def test_an_empty_table_prints_its_text_for_no_rows_to_stderr_unless_quiet() -> None:
    assert printed(Output(), []) == ("", "nothing there\n")
    assert printed(Output(quiet=True), []) == ("", "")


def test_output_into_a_pipe_has_no_colour() -> None:
    assert "\x1b" not in printed(Output(), ROWS)[0]


@pytest.mark.parametrize(
    ("ms", "words"),
    [(None, "-"), (0, "0 ms"), (999, "999 ms"), (41_000, "41 s"), (200_000, "3 min 20 s"), (7_500_000, "2 h 5 min"),
     (259_200_000, "3 d"), (60_000, "1 min")],
)  # fmt: skip
def test_durations_are_printed_in_at_most_two_units(ms: int | None, words: str) -> None:
    assert duration(ms) == words
