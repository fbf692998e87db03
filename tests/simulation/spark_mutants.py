"""The bank of bugs, for Spark's source and sink: each names the test file that catches it.

None of these modules imports Spark itself. They are wrong before others take names from them: so the writer, which
takes names from `protocol`, is imported by its mutants alone.

A function's name is the bug that it plants; its docstring says what comes of it, or where it is known from.
"""

import re
from contextlib import ExitStack
from typing import Any
from unittest import mock
from uuid import UUID

from fencepost.spark import hints, options
from fencepost.spark.sink import left_open, protocol, written_rows
from fencepost.spark.source import blocked_reads, offsets, reading
from simulation.planting import _around, _replaced, around, breaks, killed_by, replaced

# ---- the sink ------------------------------------------------------------------------------------------------


@killed_by("tests/spark/sink/test_protocol.py")
@breaks("spark.md: sees a whole batch or nothing of it")
def spark_a_batch_is_committed_without_all_its_tasks(stack: ExitStack) -> None:
    def wrapper(complete: Any) -> Any:
        return lambda messages: complete([message for message in messages if message is not None])

    around(stack, protocol.complete, wrapper)


@killed_by("tests/spark/sink/test_protocol.py")
@breaks("spark.md: the decision commits one of them and aborts the other")
def spark_attempts_of_a_task_share_their_transaction(stack: ExitStack) -> None:
    """The second attempt fences the first, whose rows the driver may commit."""

    def wrapper(name: Any) -> Any:
        return lambda prefix, batch, partition, task, count: name(prefix, batch, partition, 0, count)

    around(stack, protocol.task_transactional_id, wrapper)


@killed_by("tests/spark/sink/test_writer.py")
@breaks("spark.md: a transaction is prepared after half of its timeout")
def spark_a_transaction_of_a_task_gets_as_old_as_it_likes(stack: ExitStack) -> None:
    def wrapper(steps: Any) -> Any:
        return lambda batch, partition, task, pieces, limits, now_ms: steps(
            batch, partition, task, pieces, limits, lambda: 0
        )

    around(stack, protocol.task_steps, wrapper)


@killed_by("tests/spark/sink/test_protocol.py")
@breaks("spark.md: its batch number was decided with other offsets")
def spark_every_decision_of_a_number_is_this_one(stack: ExitStack) -> None:
    """A decision of another query, or with other offsets, is taken for this batch's own, whose rows are dropped."""
    replaced(stack, protocol.same_decision, lambda entry, batch, digest: True)


@killed_by("tests/spark/sink/test_writer.py")
@breaks("spark.md: aborts all open transactions of its tasks")
def spark_an_abort_frees_what_other_attempts_have_open(stack: ExitStack) -> None:
    replaced(stack, left_open.failed_with, lambda messages, number, mark="": lambda of, attempt: True)


@killed_by("tests/spark/sink/test_writer.py")
@breaks("spark.md: aborts all open transactions of its tasks")
def spark_nothing_that_is_open_is_found(stack: ExitStack) -> None:
    """Readers wait until the open transactions time out."""

    def wrapper(steps: Any) -> Any:
        return lambda prefix, sink, is_over: steps(prefix, sink, lambda of, attempt: False)

    around(stack, left_open.open_steps, wrapper)


@killed_by("tests/spark/sink/test_protocol.py")
@breaks("spark.md: what earlier attempts left does not count")
def spark_earlier_attempts_stay_prepared_when_a_decision_is_too_large(stack: ExitStack) -> None:
    """So each later decision is too large as well."""
    replaced(stack, left_open.others_than, lambda batch: lambda of, attempt: False)


@killed_by("tests/spark/test_hints.py")
@breaks("spark.md: with the most similar name as a hint")
def spark_a_hint_has_the_clients_own_names(stack: ExitStack) -> None:
    """Spark knows none of these names."""
    replaced(stack, hints._option, lambda found: found[0])


@killed_by("tests/spark/sink/test_writer.py")
@breaks("spark.md: the second write stops the query")
def spark_two_writes_of_a_foreachbatch_are_one(stack: ExitStack) -> None:
    """The second write is taken for decided, and dropped."""

    def claim(batch: Any) -> Any:
        return
        yield

    replaced(stack, protocol.claim_steps, claim)


@killed_by("tests/spark/sink/test_runners_of_foreachbatch.py")
@breaks("spark.md: the second write stops the query")
def spark_a_run_is_known_by_its_job_group_alone(stack: ExitStack) -> None:
    """The user's code may set the job group: then a second write with the same sinkId is taken for decided, and
    dropped.
    """
    from fencepost.spark.sink import writer

    def run_id(tags: str | None, job_group: str | None) -> str | None:
        try:
            return str(UUID(job_group)) if job_group else None
        except ValueError:
            return None

    _replaced(stack, writer, "_run_id", run_id)


@killed_by("tests/spark/sink/test_runners_of_foreachbatch.py")
@breaks("spark.md: it is written as a whole or not at all, but again when Spark repeats the batch")
def spark_a_write_of_a_foreachbatch_without_a_name_is_taken_for_any_other(stack: ExitStack) -> None:
    """A write without a sinkId is written again when Spark repeats the batch, and no error or warning says so."""
    from fencepost.spark.sink.writer import BatchWriter

    def wrapper(batch_of: Any) -> Any:
        def of_no_query(self: Any, here: Any) -> Any:
            return batch_of(self, here if self.options.sink_id else here._replace(query_id=None))

        return of_no_query

    _around(stack, BatchWriter, "batch_of", wrapper)


@killed_by("tests/spark/sink/test_runners.py")
@breaks("spark.md: `deliveryGuarantee` is `exactly_once` on fencepost")
def spark_what_the_committing_process_thinks_of_the_broker_counts(stack: ExitStack) -> None:
    """If it takes the broker for one of another kind than the tasks do, their batch is never decided, and the query
    goes on.
    """
    from fencepost.spark.sink.writer import AT_LEAST_ONCE, SinkWriter

    def wrapper(decide: Any) -> Any:
        return lambda self, *given: None if self.guarantee == AT_LEAST_ONCE else decide(self, *given)

    _around(stack, SinkWriter, "decide", wrapper)


@killed_by("tests/spark/sink/test_runners.py")
@breaks("spark.md: its abort may abort the other's batch")
def spark_an_abort_does_not_ask_whose_the_checkpoint_is(stack: ExitStack) -> None:
    """The abort ends the batch of another query whose checkpoint has the same path."""
    from fencepost.spark.sink.writer import StreamWriter

    def wrapper(abort: Any) -> Any:
        def of_any_query(self: Any, *given: Any) -> Any:
            self.query = None
            return abort(self, *given)

        return of_any_query

    _around(stack, StreamWriter, "abort", wrapper)


@killed_by("tests/spark/sink/test_written_rows.py")
@breaks("spark.md: Names are case-sensitive")
def spark_columns_are_taken_in_any_letters(stack: ExitStack) -> None:
    """Columns are found in any letter case: of `value` and `Value`, the last is written."""

    def wrapper(columns_of: Any) -> Any:
        return lambda batch, topic: columns_of(batch.rename_columns([n.lower() for n in batch.schema.names]), topic)

    around(stack, written_rows.columns_of, wrapper)


# ---- the source ----------------------------------------------------------------------------------------------


@killed_by("tests/spark/source/test_reading.py")
@breaks("spark.md: `read_committed` (default)")
def spark_what_was_aborted_is_read(stack: ExitStack) -> None:
    def wrapper(hidden: Any) -> Any:
        return lambda aborted: hidden(())

    _around(stack, reading, "AbortedFilter", wrapper)


@killed_by("tests/spark/source/test_reading.py")
@breaks("spark.md: Reading a range twice gives the same rows")
def spark_a_batch_is_read_from_its_beginning(stack: ExitStack) -> None:
    """The task also returns the batch's records below its first offset, which another task returns, too."""

    def wrapper(add: Any) -> Any:
        return lambda columns, batch, isolation, start, *more: add(columns, batch, isolation, batch.base_offset, *more)

    around(stack, reading._add, wrapper)


@killed_by("tests/spark/source/test_offsets.py")
@breaks("spark.md: a topic that was deleted and created again is detected")
def spark_a_topic_made_again_is_the_same_one(stack: ExitStack) -> None:
    replaced(stack, offsets.is_another, lambda before, now, topic: False)


@killed_by("tests/spark/source/test_offsets.py")
@breaks("spark.md: `failOnDataLoss` is about lost records")
def spark_records_that_are_gone_are_not_missed(stack: ExitStack) -> None:
    def wrapper(within: Any) -> Any:
        return lambda *given: (within(*given)[0], [])

    around(stack, offsets._within, wrapper)


@killed_by("tests/spark/source/test_offsets.py")
@breaks("spark.md: limits by size, in addition to those by records")
def spark_a_limit_starves_small_partitions(stack: ExitStack) -> None:
    def limited(begins: Any, latest: Any, limits: Any, density: Any) -> Any:
        total = sum(latest[tp] - at for tp, at in begins.items())
        if limits.offsets is None or total <= limits.offsets:
            return dict(latest)
        return {tp: at + (latest[tp] - at) * limits.offsets // total for tp, at in begins.items()}

    replaced(stack, offsets.limit, limited)


@killed_by("tests/spark/source/test_offsets.py")
@breaks("spark.md: Reading a range twice gives the same rows")
def spark_two_tasks_read_a_record(stack: ExitStack) -> None:
    def wrapper(cut: Any) -> Any:
        def overlapping(whole: Any, count: int) -> Any:
            first, *others = cut(whole, count)
            return [first, *(each._replace(start=each.start - 1) for each in others)]

        return overlapping

    around(stack, offsets._split_range, wrapper)


@killed_by("tests/spark/source/test_blocked_reads.py")
@breaks("spark.md: logs once a minute which one")
def spark_nobody_hears_of_what_holds_a_stream_up(stack: ExitStack) -> None:
    replaced(stack, blocked_reads.BlockedPartitions.due, lambda self, seen, now_ms: [])


@killed_by("tests/spark/test_options.py")
@breaks("spark.md: so is a `subscribePattern` that only Java understands")
def spark_a_pattern_that_java_reads_otherwise_is_taken(stack: ExitStack) -> None:
    """The pattern then matches no topic."""
    _replaced(stack, options, "_CLASS_IN_CLASS", re.compile("(?!)"))


@killed_by("tests/spark/sink/test_partition_column.py")
@breaks("spark.md: null or no column: the partitioner chooses")
def spark_the_column_of_partitions_is_ignored(stack: ExitStack) -> None:
    replaced(stack, written_rows._partitions, lambda column: None)


@killed_by("tests/spark/sink/test_partition_column.py")
@breaks("spark.md: null or no column: the partitioner chooses")
def spark_partitions_of_any_type_are_taken(stack: ExitStack) -> None:
    any_type = ("tinyint", "smallint", "int", "bigint", "double", "decimal(10,0)", "string")
    stack.enter_context(mock.patch.dict(written_rows.COLUMNS, partition=any_type))
