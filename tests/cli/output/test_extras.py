"""A command whose library is not installed says so in two lines, with the extra that brings it."""

import importlib.util
import sys
from importlib.metadata import requires

import pytest
from click.testing import CliRunner
from fencepost.cli import main
from fencepost.cli.bench import bench
from fencepost.cli.output import extras


def without(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == module else find_spec(name))
    monkeypatch.setitem(sys.modules, module, None)  # an import of it fails


@pytest.mark.parametrize(
    ("line", "module", "extra"),
    [
        ("demo", "confluent_kafka", "demo"),
        ("demo", "aiokafka", "demo"),
        ("bench produce -b 127.0.0.1:1", "confluent_kafka", "demo"),
        ("bench consume --topic t -b 127.0.0.1:1", "confluent_kafka", "demo"),
        ("bench txn -b 127.0.0.1:1", "confluent_kafka", "demo"),
        ("spark demo", "pyspark", "spark"),
        ("spark env", "pyarrow", "spark"),
    ],
)
def test_a_missing_library_is_named_with_its_extra(
    line: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(module, monkeypatch)
    result = CliRunner().invoke(main, line.split())
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 2
    assert module.replace("_", "-") in result.stderr
    assert f"pip install 'fencepost[{extra}]'" in result.stderr
    assert result.stdout == ""  # nothing was begun


def test_an_import_error_inside_a_command_names_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def import_it(*_: object, **__: object) -> None:
        raise ModuleNotFoundError("No module named 'confluent_kafka'", name="confluent_kafka")

    monkeypatch.setattr(bench.commands["produce"], "callback", import_it)
    result = CliRunner().invoke(main, ["bench", "produce"])
    assert (result.exit_code, result.stderr) == (
        1,
        "error: this command needs confluent-kafka, which is not installed\nhint: pip install 'fencepost[demo]'\n",
    )


def test_explain_missing_returns_none_for_a_missing_module_of_fencepost() -> None:
    assert extras.explain_missing(ModuleNotFoundError(name="fencepost.nonsense")) is None


def test_every_optional_library_is_in_the_extra_named_in_its_error() -> None:
    lines = requires("fencepost") or []
    for package, extra in extras.EXTRAS.values():
        assert any(line.startswith(package) and f'extra == "{extra}"' in line for line in lines), package
