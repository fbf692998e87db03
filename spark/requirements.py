"""What the connector needs: versions of Spark and Java, and packages; and the error text for what is missing."""

import importlib
import re

OLDEST_SPARK = (4, 1)
OLDEST_JAVA = 17
INSTALL = "pip install 'fencepost[spark]'"
NEEDS = f"it needs pyspark 4.1, pyarrow and a Java {OLDEST_JAVA} or later: {INSTALL} has all three for most machines"


class SparkUnusable(RuntimeError):
    """The connector cannot work here. The text contains the remedy."""


def check_versions() -> None:
    """Raise SparkUnusable for a Spark that is missing or too old, and for a missing pyarrow."""
    for module in ("pyspark", "pyarrow"):
        try:
            importlib.import_module(module)
        except ImportError as problem:
            raise SparkUnusable(explain_import_error(problem)) from None
    found = _spark_version() or ""
    if version_of(found) < OLDEST_SPARK:
        raise SparkUnusable(_too_old(found))


def explain_import_error(problem: Exception) -> str:
    """Return one line for a failed import of the connector."""
    if isinstance(problem, SparkUnusable):
        return str(problem)
    spark = _spark_version()
    if spark is not None and version_of(spark) < OLDEST_SPARK:
        return _too_old(spark)
    package = _package_of(problem)
    if package and package != "fencepost":
        return f"fencepost's Spark connector needs {package}, which this Python does not have: {INSTALL}"
    return f"fencepost's Spark connector could not be imported: {type(problem).__name__}: {problem}"


def with_remedy(problem: ImportError) -> ImportError:
    """Return an import error of the same class whose text says which package to install."""
    return type(problem)(explain_import_error(problem), name=_package_of(problem))


def _package_of(problem: Exception) -> str | None:
    """Return the top-level package that an import did not find; None for another error."""
    return problem.name.partition(".")[0] if isinstance(problem, ImportError) and problem.name else None


def version_of(text: str) -> tuple[int, int]:
    """Return the first two numbers of a version: "4.3.0.dev1" is (4, 3). Zeros where there are none."""
    numbers = [int(number) for number in re.findall(r"\d+", text)[:2]]
    return (numbers[0], numbers[1]) if len(numbers) == 2 else (0, 0)


def _too_old(found: str) -> str:
    """Return the error text for a Spark that is too old. found: its version."""
    oldest = ".".join(map(str, OLDEST_SPARK))
    return f"fencepost needs Spark {oldest} or later, and this is {found}: pip install 'pyspark>={oldest}'"


def _spark_version() -> str | None:
    """Return the version of pyspark; None if it is not installed."""
    try:
        return str(importlib.import_module("pyspark").__version__)
    except ImportError:
        return None
