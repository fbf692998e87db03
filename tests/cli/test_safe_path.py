"""Processes of Python that commands start import no module of the working directory: `-P` keeps them from it."""

import ast
from pathlib import Path

CLI = Path(__file__).resolve().parents[2] / "cli"


def commands(path: Path) -> list[tuple[int, str]]:
    """Return (line, source of the second element) of each list in a module whose first element is sys.executable."""
    lists = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.List) and node.elts]
    begun = [each for each in lists if ast.unparse(each.elts[0]) == "sys.executable"]
    return [(each.lineno, ast.unparse(each.elts[1])) for each in begun]


def test_every_python_process_the_cli_starts_gets_the_option_safe_path() -> None:
    """With `-P`, Python does not import modules from the working directory."""
    found = {f"{path.relative_to(CLI)}:{line}": word for path in CLI.rglob("*.py") for line, word in commands(path)}
    assert len(found) >= 6  # else the search for processes has failed
    assert {where for where, word in found.items() if word != "'-P'"} == set()
