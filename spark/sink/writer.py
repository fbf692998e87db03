"""The writers that Spark calls: one for a micro-batch, and one for `df.write`. Their protocol is in protocol.py.

The rules: a writer is made on the driver and pickled for the tasks (and for df.write, for the commit), so it contains
plain values only. A task gets its batch number and query id from local properties, which Spark sets but does not
document; if one is missing, an error names the option to set instead.
Source: pyspark.sql.datasource; Spark's StreamExecution and MicroBatchExecution, for the properties.
"""

import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from ...client.errors import KafkaError, RequestTimedOutError, RetriableError, UnsupportedVersionError
from ...client.net.cluster import Cluster
from ...protocol.errors import ErrorCode
from ..client_thread import cluster_for, run
from ..hints import add_hint
from . import checkpoint, ledger
from .left_open import failed_with, open_steps, others_than
from .options import AT_LEAST_ONCE, EXACTLY_ONCE, SinkOptions, digest_of, sink_options, stream_mark
from .protocol import (
    NEXT_RUN,
    UNNAMED,
    BatchRefusedError,
    Decided,
    Limits,
    SinkBatch,
    TaskDone,
    WrongUseError,
    carry_out,
    commit_steps,
    complete,
    forgettable,
    is_too_large,
    refuse_late,
    task_steps,
)
from .step_runner import StepRunner, monotonic_ms, write_at_least_once
from .written_rows import check_columns, columns_of

log = logging.getLogger("fencepost.spark")

BATCH_ID, QUERY_ID = "streaming.sql.batchId", "sql.streaming.queryId"
JOB_GROUP, JOB_TAGS = "spark.jobGroup.id", "spark.job.tags"
"""The job group of a stream is the id of its run, unless the user's code sets another one. One of the job tags contains
the session of the outermost execution; a stream has a new session in each run, and the user's code cannot change that.
Source: StreamExecution, SQLExecution.executionIdJobTag."""
_SESSION = re.compile("spark-session-([^,]+?)-execution-root-id-")
MARGIN_S = 10.0
ABORT_TIMEOUT_MS = 10_000

NAMELESS = (
    "batch %d failed before a task was done, so the sink of this query is not known here. Its open transactions end by"
    " the next run of the query, or preparedTimeout. Set checkpointLocation, queryName or sinkId on the sink"
)

REPEATABLE = (
    "a write to %s in foreachBatch has no sinkId and batchId: all its rows are written or none, but they are written"
    " again if Spark repeats the batch"
)

_logged: set[str] = set()


@dataclass
class TaskMessage(WriterCommitMessage):
    """A task's message to the commit on the driver. done: None if it wrote without a transaction (at least once).
    checkpoint: see Place.
    """

    done: TaskDone | None
    rows: int
    checkpoint: str | None = None


class Place(NamedTuple):
    """What Spark tells a task about itself; None: not set. task: the unique id of this try. run_id: of this start of
    the query. checkpoint: the query's checkpoint, from `checkpoint.place_of`.
    """

    partition: int
    task: int
    batch_id: str | None
    query_id: str | None
    run_id: str | None
    checkpoint: str | None = None


def place() -> Place:
    """Return the Place of the running task. Raises WrongUseError outside a Spark task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        raise WrongUseError("write() must be called in a Spark task")
    of = context.getLocalProperty
    query_id = of(QUERY_ID)
    where = checkpoint.place_of(of(checkpoint.FOLDER), of(checkpoint.DESCRIPTION), query_id)
    run_id = _run_id(of(JOB_TAGS), of(JOB_GROUP) if query_id else None)
    return Place(context.partitionId(), context.taskAttemptId(), of(BATCH_ID), query_id, run_id, where)


def _run_id(tags: str | None, job_group: str | None) -> str | None:
    """Return the id of this start of the streaming query, from the job's tags or else its group. None: it is no
    stream, or the id is unknown.
    """
    found = _SESSION.search(tags or "")
    if found is not None:
        return found[1]
    try:
        return str(UUID(job_group)) if job_group else None
    except ValueError:  # set by the user's code, and it may be the same in the next run
        return None


def stream_writer(given: Mapping[str, str], schema: Any) -> "StreamWriter":
    """Return the writer of one micro-batch. It appends the rows, in Append and in Complete mode."""
    return StreamWriter(*_writer_arguments(given, schema, streaming=True))


def batch_writer(given: Mapping[str, str], schema: Any, overwrite: bool) -> "BatchWriter":
    """Return the writer of one `df.write`. Raises WrongUseError for mode("overwrite"), and as _writer_arguments()."""
    if overwrite:
        raise WrongUseError("a topic cannot be overwritten", hint='use mode("append")')
    return BatchWriter(*_writer_arguments(given, schema, streaming=False))


def _writer_arguments(
    given: Mapping[str, str], schema: Any, *, streaming: bool
) -> tuple[SinkOptions, str, Limits, str, str | None]:
    """Check options and schema, connect, and return a writer's arguments: options, guarantee, limits, attempt, query
    id. Raises InvalidConfigurationError and client errors.
    """
    options = sink_options(given, streaming=streaming)
    check_columns(schema, options.topic)
    cluster = cluster_for(options)
    found = run(ledger.facts(cluster), options.connection.default_api_timeout_ms / 1000)
    if options.topic is not None:
        may_create = options.produce.allow_auto_create_topics
        run(ledger.find_topic(cluster, options.topic, may_create=may_create), ABORT_TIMEOUT_MS / 1000 + MARGIN_S)
    guarantee = options.guarantee or EXACTLY_ONCE
    if guarantee == EXACTLY_ONCE and not found.has_ledger:
        servers = ", ".join(f"{host}:{port}" for host, port in options.connection.bootstrap_servers)
        if options.guarantee is not None:
            raise UnsupportedVersionError(
                f"the broker at {servers} is not fencepost: the sink cannot write to it exactly once",
                hint="set deliveryGuarantee to at_least_once",
            )
        guarantee = AT_LEAST_ONCE
        _warn_once(f"the broker at {servers} is not fencepost: rows are written at least once, so a retry repeats them")
    if guarantee == EXACTLY_ONCE and not options.produce.enable_idempotence:
        raise WrongUseError(
            "option 'kafka.enable.idempotence' is false: the sink cannot write exactly once without it",
            hint="leave it out, or set deliveryGuarantee to at_least_once",
        )
    attempt = (stream_mark(options) if streaming else "") + os.urandom(8).hex()
    query = checkpoint.query_id(options.checkpoint)
    return options, guarantee, ledger.limits(found, options.prepared_timeout_ms), attempt, query


def _warn_once(text: str) -> None:
    """Log a warning, but only once in this process."""
    if text not in _logged:
        _logged.add(text)
        log.warning(text)


class SinkWriter:
    """The base class of both writers.

    attempt: unique to this attempt, and the same for all its tasks. query: the query's id, read from the checkpoint
    that the option names; None: there is no such option, or this process cannot read the checkpoint.
    """

    is_stream: bool

    def __init__(
        self, options: SinkOptions, guarantee: str, limits: Limits, attempt: str, query: str | None = None
    ) -> None:
        self.options = options
        self.guarantee = guarantee
        self.limits = limits
        self.attempt = attempt
        self.query = query

    @add_hint()
    def write(self, iterator: Iterable[Any]) -> TaskMessage:
        """Write the rows of one Spark partition, in a task, and return the message for the commit. Exactly once:
        readers see the rows only after the commit.
        """
        pieces = self._pieces(iterator)
        if self.guarantee == AT_LEAST_ONCE:
            return TaskMessage(None, write_at_least_once(self.options, pieces))
        here = place()
        batch = self.batch_of(here)
        runner = StepRunner(self.options)
        try:
            done = carry_out(task_steps(batch, here.partition, here.task, pieces, self.limits, monotonic_ms), runner.do)
        finally:
            runner.close()
        return TaskMessage(done, done.rows, here.checkpoint)

    def _pieces(self, iterator: Iterable[Any]) -> Iterator[Any]:
        """Yield the rows of Arrow batches, by topic, as lists for the producer."""
        for batch in iterator:
            if batch.num_rows:
                yield from columns_of(batch, self.options.topic)

    def batch_of(self, here: Place) -> SinkBatch:
        """Return which batch this task writes. Raises WrongUseError if a property of Spark that it needs is missing."""
        options = self.options
        owner = here.query_id or ""
        if not self.is_stream:
            if options.sink_id is None or options.batch_id is None:
                if owner and options.guarantee == EXACTLY_ONCE:
                    raise WrongUseError(
                        "this write is part of a streaming batch, which Spark may repeat, and has no sinkId",
                        hint="set sinkId and batchId, or leave out deliveryGuarantee",
                    )
                return SinkBatch(UNNAMED + self.attempt, 0, owner, self.attempt)
            owner = owner or self.query or ""
            run_id = (here.run_id or "") if owner else ""
            return SinkBatch(options.sink_id, options.batch_id, owner, self.attempt, run_id, bool(run_id))
        if here.batch_id is None:
            raise WrongUseError(
                "this version of Spark does not set the batch id for tasks",
                hint="write in foreachBatch with sinkId and batchId, or set deliveryGuarantee to at_least_once",
            )
        if options.sink_id is None and not owner:
            raise WrongUseError(
                "this version of Spark does not set the query id for tasks", hint="set the option sinkId"
            )
        return SinkBatch(options.sink_id or owner, int(here.batch_id), owner, self.attempt)

    # ---- on the driver -----------------------------------------------------------------------------------------

    @add_hint()
    def decide(self, messages: Sequence[TaskMessage | None], number: int) -> Decided | None:
        """Commit the batch, or find that it was committed before. Returns the decision; None if the tasks wrote without
        transactions (deliveryGuarantee at_least_once), because then there is nothing to commit. number: the batch's
        number as Spark gives it to the commit.

        Raises SinkConflictError, BatchRefusedError, and RetriableError if the outcome is unknown.
        """
        # The messages say how the tasks wrote; this writer's options need not be theirs.
        if all(message is not None and message.done is None for message in messages):
            return None
        done = complete([None if message is None else message.done for message in messages])
        key = done[0].batch.sink
        if key.startswith(UNNAMED) and done[0].batch.owner:
            log.warning(REPEATABLE, self.options.topic or "topics")
        if done[0].batch.number != number:
            raise WrongUseError(f"Spark commits batch {number}, but its tasks wrote batch {done[0].batch.number}")
        where = next((message.checkpoint for message in messages if message is not None), None)
        planned = self._planned_offsets(done[0].batch, where)
        digest = digest_of(self.options.topic, planned)
        try:
            decided = self._send_decision(done, digest)
        except KafkaError as error:
            if is_too_large(error):
                self._abort_left_open(key, others_than(done[0].batch))
            elif error.code == ErrorCode.POLICY_VIOLATION:  # the ledger is full
                self._forget_old(time.time_ns() // 1_000_000)
            else:
                raise
            decided = self._send_decision(done, digest)
        if decided.already:
            trust = "" if planned else "; its offsets could not be compared, as this process cannot read the checkpoint"
            log.warning("batch %d of sink %r was committed before; this attempt is dropped%s", number, key, trust)
        self._abort_left_open(key, lambda of, _: of <= number)
        return decided

    def _send_decision(self, done: Sequence[TaskDone], digest: bytes) -> Decided:
        """Ask the broker to commit these transactions as one decision. The request is repeated until it is answered or
        the delivery timeout is over.
        """
        timeout_ms = self.options.produce.delivery_timeout_ms
        steps = commit_steps(done, digest)
        deciding = ledger.carry_out(cluster_for(self.options), done[0].batch.sink, steps, timeout_ms=timeout_ms)
        return run(deciding, timeout_ms / 1000 + MARGIN_S)

    def _abort_left_open(self, sink: str | None, is_over: Callable[[int, str], bool], *first: Any) -> None:
        """Abort open transactions that no decision will end, so that readers need not wait for their timeout. A
        failure is only logged.

        sink: None for any. is_over: see open_steps. first: requests to send before; their answers are ignored.
        """
        try:
            cluster = cluster_for(self.options)  # not in the loop's thread, because it blocks
            run(self._abort_open(cluster, sink, is_over, first), ABORT_TIMEOUT_MS / 1000 + MARGIN_S)
        except KafkaError as error:
            log.warning("open transactions of sink %r could not be aborted now: %s", sink or "?", error)

    async def _abort_open(
        self, cluster: Cluster, sink: str | None, is_over: Callable[[int, str], bool], first: Sequence[Any]
    ) -> None:
        """Send the `first` requests, find the open transactions and abort them. Runs in the loop's thread."""
        key = sink or ""
        for request in first:
            await ledger.ask(cluster, key, request, timeout_ms=ABORT_TIMEOUT_MS)
        steps = open_steps(self.limits.prefix, sink, is_over)
        left = await ledger.carry_out(cluster, key, steps, timeout_ms=ABORT_TIMEOUT_MS)
        await ledger.abort(cluster, left, timeout_ms=ABORT_TIMEOUT_MS)

    def _forget_old(self, now_ms: int) -> None:
        """Remove old ledger entries of writes without a sinkId: nobody can repeat these writes, and entries do not
        expire. now_ms: the broker's wall clock. A failure is only logged.
        """
        try:
            cluster = cluster_for(self.options)
            run(self._remove_old_entries(cluster, now_ms), ABORT_TIMEOUT_MS / 1000 + MARGIN_S)
        except KafkaError as error:
            log.info("old entries of the ledger could not be removed: %s", error)

    async def _remove_old_entries(self, cluster: Cluster, now_ms: int) -> None:
        """Remove from the ledger what forgettable() names. now_ms: the broker's wall clock."""
        keys = await ledger.describe_entries(cluster, timeout_ms=ABORT_TIMEOUT_MS)
        await ledger.forget(cluster, *forgettable(keys, now_ms), timeout_ms=ABORT_TIMEOUT_MS)

    def _planned_offsets(self, batch: SinkBatch, place: str | None) -> str | None:
        """Return the text of the batch's offsets file in the query's checkpoint; None if this process cannot read it.

        place: path of the checkpoint, as the tasks found it. None is returned if it is that of another query than the
        batch's. The option `checkpoint` is used instead if it is set, and trusted.
        """
        given = self.options.checkpoint
        if not batch.owner or (given is None and checkpoint.query_id(place) != batch.owner):
            return None
        return checkpoint.read(given or place, "offsets", str(batch.number))


class StreamWriter(SinkWriter, DataSourceStreamArrowWriter):
    """Writes one micro-batch of a streaming query."""

    is_stream = True

    def commit(self, messages: Sequence[Any], batchId: int) -> None:
        """Commit all rows of the batch, or none. Raises as `decide`."""
        self.decide(messages, batchId)

    def abort(self, messages: Sequence[Any], batchId: int) -> None:
        """Abort open transactions of the batch's tasks.

        Spark also calls this after a commit that failed here but may have been carried out by the broker. It makes a
        new writer for this call, so only the messages have the attempt and the sink of the tasks.
        """
        if self.guarantee == AT_LEAST_ONCE:
            return
        done = [None if message is None else message.done for message in messages]
        known = self.options.sink_id or self.query
        sink = next((each.batch.sink for each in done if each is not None), known)
        mark = stream_mark(self.options)
        if sink is None and not mark:
            log.warning(NAMELESS, batchId)
            return
        self._abort_left_open(sink, failed_with(done, batchId, mark))


class BatchWriter(SinkWriter, DataSourceArrowWriter):
    """Writes one `df.write`."""

    is_stream = False

    @add_hint()
    def commit(self, messages: Sequence[Any]) -> None:
        """Commit all rows, or none. Raises as `decide`; the error says whether the write was committed."""
        try:
            decided = self.decide(messages, self.options.batch_id or 0)
        except RetriableError as error:
            self._settle(error, any(each.done.batch.is_shared for each in messages))
            return
        if decided is not None and decided.entry is not None and self.options.sink_id is None:
            self._forget_old(decided.entry.decided_ms)

    def _settle(self, error: RetriableError, is_shared: bool) -> None:
        """Find out whether a write was committed, after its decision was not answered. Returns only if it was; raises
        an error that says so if it was not, or if that is unknown.

        Without a sinkId the write is aborted now, unless it was committed. With a sinkId the user can repeat it; if it
        is a write in foreachBatch (is_shared), the query's next run repeats it.
        """
        unknown = f"it is unknown whether the write was committed: {error}"
        if self.options.sink_id is not None:
            hint = "repeat it with the same sinkId and batchId: a committed batch is not written twice"
            hint = NEXT_RUN if is_shared else hint
            raise RequestTimedOutError(unknown, hint=hint) from error
        key = UNNAMED + self.attempt
        try:
            aborting = ledger.ask(cluster_for(self.options), key, refuse_late(key), timeout_ms=ABORT_TIMEOUT_MS)
            response = run(aborting, ABORT_TIMEOUT_MS / 1000 + MARGIN_S)
        except KafkaError:
            hint = (
                f"`fencepost spark list --all` shows whether {key} was committed: repeat the write only if it was not"
            )
            raise RequestTimedOutError(unknown, hint=hint) from error
        if response.error_code == ErrorCode.LEDGER_CONFLICT and response.entry is not None and response.entry.committed:
            log.warning("the write was committed, though the broker's answer was lost: %s", error)
            return
        if response.error_code:
            raise error
        raise BatchRefusedError(f"the write was not committed, but aborted: {error}") from error

    def abort(self, messages: Sequence[Any]) -> None:
        """Abort open transactions of the tasks.

        Spark also calls this after a commit that failed here but that the broker may have carried out; then the write
        stays committed. Without a sinkId no later decision would abort the transaction of a task that still runs. So
        the key is decided here as aborted, which also aborts what a late task prepares.
        """
        if self.guarantee == AT_LEAST_ONCE:
            return
        sink = self.options.sink_id
        first = () if sink is not None else (refuse_late(UNNAMED + self.attempt),)
        self._abort_left_open(sink or UNNAMED + self.attempt, lambda _, attempt: attempt == self.attempt, *first)
