"""The data source `fencepost`, with the classes that Spark expects of it, for reading and for writing.

The rule: options are checked when Spark makes a reader or a writer, so a wrong one fails at once, on the driver. A
query that only reads does not import the sink.
"""

from collections.abc import Mapping

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType

from .hints import add_hint
from .options import includes_headers, redact, source_options
from .requirements import check_versions
from .source.reader import BatchReader, StreamReader
from .source.rows import check_schema, schema_text

check_versions()


class FencepostDataSource(DataSource):
    """`spark.dataSource.register(FencepostDataSource)`, then `format("fencepost")`."""

    @classmethod
    def name(cls) -> str:
        return "fencepost"

    def __repr__(self) -> str:
        return f"<fencepost {redact(self._given)}>"

    @property
    def _given(self) -> Mapping[str, str]:
        return dict(self.options)

    def schema(self) -> str:
        """Return the columns of Spark's Kafka source, with `headers` if the option includeHeaders is true."""
        return schema_text(includes_headers(self._given))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch query. Raises InvalidConfigurationError for a wrong option or schema."""
        with add_hint():
            check_schema(schema)
            return BatchReader(source_options(self._given, streaming=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a streaming query. Raises InvalidConfigurationError for a wrong option or schema."""
        with add_hint():
            check_schema(schema)
            return StreamReader(source_options(self._given, streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return the writer of one `df.write`. Raises errors of options and of the connection."""
        from .sink.writer import batch_writer

        with add_hint():
            made: DataSourceArrowWriter = batch_writer(self._given, schema, overwrite)
            return made

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """Return the writer of a streaming query's micro-batch. Raises errors of options and of the connection."""
        from .sink.writer import stream_writer

        with add_hint():
            made: DataSourceStreamArrowWriter = stream_writer(self._given, schema)
            return made
