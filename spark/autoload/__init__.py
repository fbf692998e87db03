"""The package `pyspark_fencepost`, which Spark finds by its name, with the data source `fencepost`.

The rule: importing it never fails if pyspark is installed. Spark imports every `pyspark_*` package when it first looks
for a format; if one import fails, it drops all of them without a message. So a problem is raised by the data source,
when a query uses it.
"""

from typing import Any

DefaultSource: Any
try:
    from fencepost.spark.format import FencepostDataSource

    DefaultSource = FencepostDataSource
except Exception as problem:
    try:
        from fencepost.spark.unusable import refusing_source
    except ImportError as missing:  # no pyspark, so this import is not by Spark
        from fencepost.spark.requirements import with_remedy

        raise with_remedy(missing) from None
    DefaultSource = refusing_source(problem)

__all__ = ["DefaultSource"]
