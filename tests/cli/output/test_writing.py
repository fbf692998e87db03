"""What is printed or logged: no control characters, and no line end that comes from a name."""

import ast
import io
import json
import logging
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from fencepost.cli import main
from fencepost.cli.output.failures import Failure
from fencepost.cli.output.record_text import form_of
from fencepost.cli.output.tables import Column, Output, table, width
from fencepost.cli.output.writing import Cell, LineFormatter, as_json, styled, visible
from fencepost.client.values import Record

CLI = Path(__file__).resolve().parents[3] / "cli"
HOSTILE = "a\nb\rc\x1b[2J\x07\x9b2J\x7f\u202ed\u2066e\u2028f\ud800"
SHOWN = "a�b�c�[2J��2J��d�e�f�"


def test_unprintable_characters_are_shown_as_replacement_characters() -> None:
    assert visible(HOSTILE) == SHOWN
    assert visible("orders-1 注文 e\u0301") == "orders-1 注文 e\u0301"
    assert click.unstyle(styled(Cell(HOSTILE, "red"))) == SHOWN


def test_a_name_with_line_ends_stays_one_row_and_keeps_the_columns_straight() -> None:
    rows = [{"n": HOSTILE, "v": 1}, {"n": "x", "v": 2}]
    lines = [click.unstyle(each) for each in table(rows, (Column("N", "n"), Column("V", "v")))]
    assert lines[1] == f"{SHOWN}  1"
    assert len({width(each) for each in lines}) == 1


def test_json_output_escapes_control_characters_without_changing_values() -> None:
    text = as_json({HOSTILE: [HOSTILE, "é\U000e0001"]})
    assert text.isprintable()
    assert json.loads(text) == {HOSTILE: [HOSTILE, "é\U000e0001"]}
    assert "é" in text


@pytest.mark.parametrize("kind", ["line", "heading", "remark", "result"])
def test_output_lines_of_every_kind_contain_no_line_break(kind: str) -> None:
    @click.command()
    def command() -> None:
        more = ({},) if kind == "result" else ()
        getattr(Output(), kind)(HOSTILE, *more)

    assert CliRunner().invoke(command, []).output == SHOWN + "\n"


def test_an_error_with_a_line_end_in_a_name_is_printed_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    Failure(f"no group x{HOSTILE}", f"look at {HOSTILE}").show()
    assert [line[:6] for line in capsys.readouterr().err.split("\n")] == ["error:", "hint: ", ""]


def test_arguments_quoted_in_usage_errors_are_made_printable() -> None:
    error = CliRunner().invoke(main, [f"x{HOSTILE[:-1]}"]).stderr
    assert set(map(str.isprintable, error.splitlines())) == {True}
    assert "x" + SHOWN[:-1] in error


def test_a_format_for_a_terminal_replaces_control_characters_and_for_a_pipe_none() -> None:
    record = Record("t", 0, 0, 0, 0, b"k\n", b"\xff\x1b[2J", (("h\r", b"\x07"),))
    assert form_of(r"%k %s %h\n")(record) == b"k\n \xff\x1b[2J h\r=\x07\n"
    assert form_of(r"%k %s %h\n", shown=True)(record).decode() == "k� ��[2J h�=�\n"


def test_a_log_record_is_one_line_apart_from_its_traceback() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LineFormatter())
    logger = logging.Logger("of a test")
    logger.addHandler(handler)
    try:
        raise ValueError(HOSTILE[1:-1])
    except ValueError as error:
        logger.error("group %s failed", HOSTILE[:-1], exc_info=error)
    first, *rest = stream.getvalue().splitlines()
    assert first.endswith(f"ERROR group {SHOWN[:-1]} failed")
    assert all(map(str.isprintable, rest))
    assert rest[0] == "Traceback (most recent call last):"


def test_log_to_standard_error_writes_a_message_with_a_line_break_on_one_line() -> None:
    code = "import logging; from fencepost.cli.output.writing import log_to_standard_error as begin; begin()"
    done = subprocess.run([sys.executable, "-c", f"{code}; logging.info('a\\nb')"], capture_output=True, text=True)
    assert done.stderr.endswith(" INFO a�b\n")


PRINTS = {"click.echo", "click.secho", "click.style", "click.prompt", "click.confirm", "print", "sys.stdout.write"}
PRINTS |= {"sys.stderr.write", "sys.stdout.buffer.write", "logging.basicConfig", "click.echo_via_pager"}
# These are programs of other processes: what they print goes into a pipe.
OF_OTHER_PROCESSES = {
    "demo/copier.py",
    "demo/victim.py",
    "demo/worker.py",
    "spark/demo_query.py",
}


def test_in_the_cli_only_modules_of_its_output_package_call_print() -> None:
    found, looked_at = set(), 0
    for path in CLI.rglob("*.py"):
        name = str(path.relative_to(CLI))
        if name.startswith("output/") or name in OF_OTHER_PROCESSES:
            continue
        looked_at += 1
        calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        found |= {f"{name}:{each.lineno}" for each in calls if ast.unparse(each.func) in PRINTS}
    assert looked_at > 60  # else the search for modules has failed
    assert found == set()
