"""A data source that only raises why the real one cannot be used: Spark is too old, or a package is missing."""

from typing import NoReturn

from pyspark.sql.datasource import DataSource

from .requirements import SparkUnusable, explain_import_error


def refusing_source(problem: Exception) -> type[DataSource]:
    """Return a data source that Spark can register, each use of which raises SparkUnusable. problem: why the real one
    could not be imported; it becomes the one line of the error.
    """
    reason = explain_import_error(problem)

    class Unusable(DataSource):
        """Raises the reason. Spark pickles this class by value, so it need not be importable."""

        def __init__(self, options: dict[str, str]) -> None:
            super().__init__(options)
            self._refuse()

        @classmethod
        def name(cls) -> str:
            return "fencepost"

        def _refuse(self) -> NoReturn:
            raise SparkUnusable(reason)

    return Unusable
