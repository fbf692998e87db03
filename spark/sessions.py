"""A Spark session that starts wherever the package is installed by pip: with a Java, and with workers of this Python.

The rule: only environment variables are set, nothing of Spark is patched. A value that the user has set is kept, unless
Spark could not start with it.
"""

import importlib
import locale
import os
import pkgutil
import subprocess
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from .java import java_home
from .requirements import SparkUnusable, check_versions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMAT = "fencepost"
AUTOLOADED = "pyspark_fencepost"


def environment(given: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables that Spark needs: JAVA_HOME; and PYSPARK_PYTHON as it is set, or else this Python.

    Without PYSPARK_PYTHON workers are the `python3` of the PATH, which need not have our packages.

    Raises:
        SparkUnusable: Spark is missing or too old, there is no Java for it, or Java could not open the paths of this
            Python.
    """
    check_versions()
    _check_locale()
    return {
        "JAVA_HOME": str(java_home(given)),
        "PYSPARK_PYTHON": given.get("PYSPARK_PYTHON") or sys.executable,
    }


def session(builder: "SparkSession.Builder | None" = None) -> "SparkSession":
    """Return builder.getOrCreate() with a Java, workers of this Python, and the format "fencepost".

    Args:
        builder: a configured SparkSession.builder; default: an unconfigured one.

    Raises:
        SparkUnusable: Spark is missing or too old, or there is no Java for it.
    """
    check_versions()
    from pyspark.sql import SparkSession

    chosen = SparkSession.builder if builder is None else builder
    if not _is_remote(chosen):
        os.environ.update(environment())
    spark = chosen.getOrCreate()
    if not _is_discovered():
        from .format import FencepostDataSource

        spark.dataSource.register(FencepostDataSource)
    return spark


def _is_remote(builder: "SparkSession.Builder") -> bool:
    """Return whether the session connects to a Spark Connect server elsewhere, which has its own Java. A server called
    `local` is started on this machine.
    """
    server = getattr(builder, "_options", {}).get("spark.remote") or os.environ.get("SPARK_REMOTE", "")
    return bool(server) and not server.startswith("local")


def _check_locale() -> None:
    """Raise SparkUnusable if Java reads a path's letters as question marks: in the locale C it knows ASCII only.

    Python itself sets a UTF-8 locale where none is set (PEP 538), but not where LC_ALL is C.
    """
    if locale.setlocale(locale.LC_CTYPE) not in ("C", "POSIX"):
        return
    for path in (sys.executable, str(importlib.import_module("pyspark").__path__[0])):
        if not path.isascii():
            raise SparkUnusable(f"Java cannot open {path} in the locale C, which has only ASCII: set LC_ALL=C.UTF-8")


def _is_discovered() -> bool:
    """Return whether Spark finds the format by itself; not in an editable install, which pkgutil does not see."""
    return any(module.name == AUTOLOADED for module in pkgutil.iter_modules()) and runs_lookup()


def runs_lookup(given: Mapping[str, str] = os.environ) -> bool:
    """Return whether Spark looks for formats: only if a shell finds its Python, and the path needs no quotes.

    So a space in that path prevents it. Source: Utils.checkCommandAvailable, DataSourceManager.
    """
    if os.name != "posix":
        return True
    python = given.get("PYSPARK_DRIVER_PYTHON") or given.get("PYSPARK_PYTHON") or "python3"
    return subprocess.run(["sh", "-c", f"command -v {python}"], capture_output=True).returncode == 0
