"""A Spark session that starts wherever the package is installed by pip: with a Java, and with workers of this Python.

The rule: only environment variables are set, nothing of Spark is patched. A value that the user has set is kept, unless
Spark could not start with it.
"""

import os
import pkgutil
import subprocess
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from .java import java_home
from .requirements import check_versions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMAT = "fencepost"
AUTOLOADED = "pyspark_fencepost"


def environment(given: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables that Spark needs: JAVA_HOME, and PYSPARK_PYTHON if it is not set.

    Without PYSPARK_PYTHON workers are the `python3` of the PATH, which need not have our packages.

    Raises:
        SparkUnusable: Spark is missing or too old, or there is no Java for it.
    """
    check_versions()
    return {
        "JAVA_HOME": str(java_home(given)),
        "PYSPARK_PYTHON": given.get("PYSPARK_PYTHON") or sys.executable,
    }


def session(builder: "SparkSession.Builder | None" = None) -> "SparkSession":
    """builder.getOrCreate() with a Java, with workers of this Python, and with the format "fencepost" registered.

    Args:
        builder: a configured SparkSession.builder; default: an unconfigured one.

    Raises:
        SparkUnusable: Spark is missing or too old, or there is no Java for it.
    """
    check_versions()
    from pyspark.sql import SparkSession

    chosen = SparkSession.builder if builder is None else builder
    if not _is_remote(chosen):  # a Spark Connect server has its own Java
        os.environ.update(environment())
    spark = chosen.getOrCreate()
    if not _is_discovered():
        from .format import FencepostDataSource

        spark.dataSource.register(FencepostDataSource)
    return spark


def _is_remote(builder: "SparkSession.Builder") -> bool:
    return "SPARK_REMOTE" in os.environ or "spark.remote" in getattr(builder, "_options", {})


def _is_discovered() -> bool:
    """Whether Spark finds the format by itself. Not in an editable install: pkgutil does not see the package there."""
    return any(module.name == AUTOLOADED for module in pkgutil.iter_modules()) and runs_lookup()


def runs_lookup(given: Mapping[str, str] = os.environ) -> bool:
    """Whether Spark looks for formats at all. It does so only if a shell finds its Python, and does not quote the path.

    So a space in that path prevents it. Source: Utils.checkCommandAvailable, DataSourceManager.
    """
    if os.name != "posix":
        return True
    python = given.get("PYSPARK_DRIVER_PYTHON") or given.get("PYSPARK_PYTHON") or "python3"
    return subprocess.run(["sh", "-c", f"command -v {python}"], capture_output=True).returncode == 0
