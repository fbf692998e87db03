"""A data source that only raises why the real one cannot be used: Spark is too old, or a package is missing."""

from typing import NoReturn

from pyspark.sql.datasource import DataSource

from .requirements import SparkUnusable, explained


def source_that_says(problem: Exception) -> type[DataSource]:
    """A class that Spark can register, whose every use raises one clear line."""
    words = explained(problem)

    class Unusable(DataSource):
        """Raises the reason. Pickled by value, so it does not need to be importable."""

        def __init__(self, options: dict[str, str]) -> None:
            super().__init__(options)
            self._refuse()

        @classmethod
        def name(cls) -> str:
            return "fencepost"

        def _refuse(self) -> NoReturn:
            raise SparkUnusable(words)

    return Unusable
