"""The package can be built, installed and used from a checkout whose folder is no identifier, without a network."""

import subprocess
import sys
import venv
from pathlib import Path

import distribution
import installed
import pytest

PROBE = """
import pathlib
import fencepost, fencepost.protocol.apis, fencepost.storage.recovery, fencepost.broker.broker, fencepost.cli
assert "a-b.c" not in fencepost.__file__ or EDITABLE, fencepost.__file__
assert (pathlib.Path(fencepost.__file__).parent / "py.typed").exists()
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """A wheel; beside it is the copy of the tree that it was built from, in a folder named a-b.c."""
    return installed.wheel(tmp_path_factory.mktemp("built"), "a-b.c")


@pytest.fixture
def copy(wheel) -> Path:
    """The folder of the wheel, with a virtual environment that sees our dependencies."""
    folder = wheel.parent
    venv.create(folder / "venv", with_pip=False, symlinks=True)
    site = next((folder / "venv" / "lib").glob("python*/site-packages"))
    packages = [entry for entry in sys.path if entry.endswith("site-packages")]
    # Dependencies come from here; fencepost itself is found first, where pip puts it.
    (site / "dependencies.pth").write_text("\n".join(packages) + "\n")
    for entry in site.glob("__editable__*fencepost*"):
        entry.unlink()
    return folder


def install(copy: Path, *options: str | Path) -> Path:
    """Install the copy, or what the options name, into its environment with pip, and return its python."""
    python = copy / "venv" / "bin" / "python"
    command = [sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-build-isolation"]
    command += ["--no-index", "--no-compile", "--quiet", "--ignore-installed", "--disable-pip-version-check", *options]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return python


FROM_THE_CHECKOUT = """
import importlib, os
import fencepost, pyspark_fencepost
for name in [name for name in fencepost.__all__ if not name.startswith("__")]:
    getattr(fencepost, name)
for name in "effects protocol storage broker client spark testing cli bench".split():
    found = importlib.import_module("fencepost." + name).__file__
    assert os.path.samefile(found, name + "/__init__.py"), found
"""


NEIGHBOURS = """
import importlib.util
from fencepost import client
assert client.__file__.endswith("fencepost/client/__init__.py"), client.__file__
assert importlib.util.find_spec("fencepost.neighbour") is None
"""


def check(command: list[str | Path], folder: Path) -> None:
    """Run the command in the folder. Raises AssertionError with its output where it fails."""
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr


def check_installed(python: Path, copy: Path, tests: list[str], *, editable: bool) -> None:
    check([python, "-I", "-c", f"EDITABLE = {editable}\n{PROBE}"], copy)
    # -P: the checkout's own folder named fencepost is not to stand before what is installed.
    check([python, "-P", "-m", "pytest", "-q", *tests], copy / "a-b.c")


def test_the_wheel_contains_only_the_package(wheel):
    names = distribution.names_in(wheel)
    assert distribution.foreign_in(wheel, names) == []
    assert {"fencepost/py.typed", "fencepost/testing/plugin.py", "pyspark_fencepost/__init__.py"} <= set(names)
    assert distribution.main([str(wheel)]) == 0


def test_an_installed_wheel_works_beside_other_packages_named_broker_or_client(wheel, copy):
    python = install(copy, wheel)
    check_installed(python, copy, ["tests/protocol/test_errors.py"], editable=False)
    # As a worker of Spark begins: -c and -m put the current directory before what is installed.
    check([python, "-c", FROM_THE_CHECKOUT], copy / "a-b.c")
    check([python, "-m", "fencepost", "--version"], copy / "a-b.c")
    (site,) = (copy / "venv" / "lib").glob("python*/site-packages")
    for name in ("broker", "client", "neighbour"):
        (site / name).mkdir()
        (site / name / "__init__.py").touch()
    check([python, "-I", "-c", NEIGHBOURS], copy)


@pytest.mark.long
def test_an_editable_copy_in_a_folder_named_a_b_c_passes_tests(copy):
    """The name of the folder of the checkout must not matter to imports."""
    python = install(copy, "--editable", copy / "a-b.c")
    check_installed(python, copy, ["tests/test_tidy.py", "tests/protocol/test_errors.py"], editable=True)
