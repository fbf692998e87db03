"""PySpark's own runners around our data source, as its workers run them, without a JVM: tests/spark/sink/.

Each runner has its own process in Spark. Here each begins with none of the connections that another one has, and all
that passes between them is pickled by Spark's own code.
"""

import io
import itertools
import struct
from collections.abc import Iterator
from contextlib import contextmanager

from fencepost.spark import client_thread
from fencepost.spark.format import FencepostDataSource
from fencepost.spark.sink import writer
from fencepost.spark.sink.protocol import Abort
from fencepost.spark.sink.step_runner import StepRunner
from pyspark import TaskContext
from pyspark.serializers import read_int, write_int, write_long, write_with_length
from pyspark.sql.types import BinaryType, StructField, StructType
from pyspark.sql.worker import commit_data_source_write, python_streaming_sink_runner, write_into_data_source
from pyspark.worker_util import pickleSer

RETURNED = StructType([StructField("result", BinaryType())])


class Killed(BaseException):
    """Raised in place of a worker's SIGKILL."""


@contextmanager
def process(*, is_killed: bool = False) -> Iterator[None]:
    """Run the block as a Python process that Spark starts. is_killed: its connections stay open, as the last entry of
    `abandoned`, which the block has added, until close_abandoned() ends them.
    """
    before, client_thread._clusters = client_thread._clusters, None
    try:
        yield
    finally:
        if is_killed:
            abandoned[-1] = (client_thread._clusters, *abandoned[-1][1:])
        elif client_thread._clusters is not None:
            client_thread.close_all()
        client_thread._clusters = before


abandoned: list[tuple[object, StepRunner]] = []


def close_abandoned() -> None:
    """Close the connections of the processes that were killed."""
    for kept, hands in abandoned:
        client_thread._clusters = kept
        hands.close()
        client_thread.close_all()
    client_thread._clusters = None
    abandoned.clear()


def _text(text: str, to: io.BytesIO) -> None:
    write_with_length(text.encode(), to)


def _flag(value: bool, to: io.BytesIO) -> None:
    to.write(struct.pack("!?", value))


class Job:
    """One attempt at a batch: `df.write`, or a micro-batch. options and schema are those of the write."""

    _tasks = itertools.count(1)

    def __init__(self, options: dict[str, str], schema: StructType, query: str, *, is_stream: bool, number=0) -> None:
        """Do what the driver does before any task runs: write_into_data_source."""
        self.schema, self.is_stream, self.number = schema, is_stream, number
        self.properties = {writer.BATCH_ID: str(number), writer.QUERY_ID: query} if is_stream else {}
        """Those of Spark that tasks see."""
        self._instance = FencepostDataSource({name.lower(): value for name, value in options.items()})
        given, out = io.BytesIO(), io.BytesIO()
        pickleSer._write_with_length(FencepostDataSource, given)
        for text in ("fencepost", schema.json(), RETURNED.json()):
            _text(text, given)
        write_int(len(options), given)
        for item in options.items():
            for text in item:
                _text(text, given)
        for flag in (False, is_stream, True):
            _flag(flag, given)
        given.seek(0)
        with process():
            write_into_data_source._main(given, out)
        out.seek(0)
        self._command = out.read(read_int(out))
        self._writer = out.read(read_int(out))
        assert not out.read(1)

    @property
    def writer(self):
        """Return a new copy of the writer, as Spark unpickles one for the commit of a batch."""
        return pickleSer.loads(self._writer)

    def task(self, rows, *, partition: int = 0) -> bytes:
        """Run a task to its end and return its message. rows: an iterator of pyarrow.RecordBatch."""
        write, _ = pickleSer.loads(self._command)
        context = TaskContext._getOrCreate()
        context._partitionId, context._taskAttemptId = partition, next(self._tasks)
        context._localProperties = dict(self.properties)
        try:
            with process():
                (found,) = list(write(iter(rows)))
        finally:
            TaskContext._setTaskContext(None)
        return found.column(0)[0].as_py()

    def killed_task(self, rows, monkeypatch, *, partition: int = 0) -> None:
        """Run a task whose worker is killed when its rows have reached the broker."""

        def die(hands: StepRunner) -> None:
            hands._await_sent()
            client_thread.run(hands._producer.flush(), 10)
            abandoned.append((None, hands))

        def until_killed():
            yield from rows
            raise Killed

        with monkeypatch.context() as patched, process(is_killed=True):
            patched.setattr(StepRunner, "close", lambda hands: None)
            patched.setattr("spark_runners.process", lambda: _here())
            patched.setattr(StepRunner, "do", _dying(StepRunner.do, die))
            try:
                self.task(until_killed(), partition=partition)
            except Killed:
                return
        raise AssertionError("the task went on")

    def commit(self, messages) -> None:
        self._end(messages, abort=False)

    def abort(self, messages) -> None:
        """Abort the attempt. messages: None for a task without one."""
        self._end(messages, abort=True)

    def _end(self, messages, *, abort: bool) -> None:
        given, out = io.BytesIO(), io.BytesIO()
        if self.is_stream:
            pickleSer._write_with_length(self._instance, given)
            _text(self.schema.json(), given)
            _flag(False, given)
        else:
            write_with_length(self._writer, given)
        write_int(len(messages), given)
        for message in messages:
            if message is None:
                pickleSer._write_with_length(None, given)
            else:
                write_with_length(message, given)
        if self.is_stream:
            write_long(self.number, given)
        _flag(abort, given)
        given.seek(0)
        with process():
            (python_streaming_sink_runner if self.is_stream else commit_data_source_write)._main(given, out)
        out.seek(0)
        assert read_int(out) == 0
        assert not given.read(1), "the runner reads less than Spark sends"


@contextmanager
def _here() -> Iterator[None]:
    yield


def _dying(do, die):
    """Return StepRunner.do of a worker that is killed instead of aborting."""

    def done(hands, step):
        if isinstance(step, Abort):
            die(hands)
            raise Killed
        return do(hands, step)

    return done
