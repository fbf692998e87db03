"""What Spark finds by its name: the package `pyspark_fencepost`, and in it the source and sink `fencepost`.

The rule: importing it never fails. Spark imports every `pyspark_*` package when it first looks for a format; if one
import fails, it drops all of them without a message. So a problem is raised by the source, when somebody uses it.
"""

from typing import Any

DefaultSource: Any
try:
    from fencepost.spark.source import FencepostDataSource

    DefaultSource = FencepostDataSource
except Exception as problem:
    from fencepost.spark.unusable import source_that_says

    DefaultSource = source_that_says(problem)

__all__ = ["DefaultSource"]
