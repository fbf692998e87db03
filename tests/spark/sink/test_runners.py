"""The sink called by PySpark's own runners: which writer they call, and that an abort leaves no transaction open.

Spark calls abort in a process that has written nothing, with the messages of the finished tasks, and None for the
others. For a batch write it calls a copy of the writer that the tasks have; for a stream, a new one.
"""

import json
import threading

import pytest
from fencepost.client.errors import KafkaError, RequestTimedOutError
from fencepost.spark.sink import ledger
from fencepost.spark.sink.protocol import BatchRefusedError
from fencepost.spark.sink.writer import SinkWriter
from served_broker import ServedBroker
from spark_sink import KINDS, Sink, answers_lost, arrow


@KINDS
def test_rows_of_all_tasks_become_visible_together_with_the_jobs_commit(sink, is_stream):
    job = sink.job(is_stream)
    messages = [job.task([arrow(b"1")]), job.task([arrow(b"2")], partition=1)]
    assert sink.rows() == []
    job.commit(messages)
    assert sorted(sink.rows()) == [b"1", b"2"]
    assert not sink.open()


@KINDS
@pytest.mark.parametrize("known", [(0, 1), (0,), ()], ids=["all messages", "one message", "no message"])
def test_after_an_abort_no_transaction_of_any_task_is_open(sink, is_stream, known, monkeypatch):
    job = sink.job(is_stream)
    messages = [job.task([arrow(b"%d" % each)], partition=each) for each in range(2)]
    job.killed_task([arrow(b"2")], monkeypatch, partition=2)
    assert len(sink.open()) == 3
    job.abort([messages[each] if each in known else None for each in range(2)] + [None])
    assert not sink.open()
    assert sink.rows() == []


@KINDS
def test_a_task_that_is_tried_again_after_its_worker_was_killed_writes_once(sink, is_stream, monkeypatch):
    job = sink.job(is_stream)
    job.killed_task([arrow(b"1", b"2")], monkeypatch)
    assert len(sink.open()) == 1
    job.commit([job.task([arrow(b"1", b"2")])])
    assert sink.rows() == [b"1", b"2"]
    assert not sink.open()


@KINDS
def test_of_several_copies_of_a_task_only_the_one_that_spark_commits_is_written(sink, is_stream, monkeypatch):
    """Speculative copies: one may end before the commit, be killed, or end after it; Spark tells none of them."""
    job = sink.job(is_stream)
    job.task([arrow(b"1")])
    taken = job.task([arrow(b"1")])
    job.killed_task([arrow(b"1")], monkeypatch)
    assert len(sink.open()) == 3
    job.commit([taken])
    job.task([arrow(b"1")])
    assert sink.rows() == [b"1"]
    assert not sink.open()


@KINDS
def test_a_failed_tasks_transaction_is_aborted_at_once_and_its_retry_is_written(sink, is_stream):
    job = sink.job(is_stream)

    def failing():
        yield arrow(b"1")
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        job.task(failing())
    assert not sink.open()
    job.commit([job.task([arrow(b"1")])])
    assert sink.rows() == [b"1"]


@pytest.mark.parametrize("more", [{"sinkId": "a.1"}, {"queryName": "orders"}], ids=["sinkId", "queryName"])
def test_an_abort_without_messages_ends_transactions_of_the_stream_with_its_options(sink, more):
    job, other = sink.job(True, **more), sink.job(True, sinkId="another")
    job.task([arrow(b"1")])
    other.task([arrow(b"2")])
    job.abort([None])
    (left,) = sink.open()
    assert left.startswith("fencepost.once.another.")
    other.abort([None])
    assert not sink.open()


def test_an_abort_of_a_stream_without_name_or_messages_logs_which_option_to_set(sink, caplog):
    more = {"preparedTimeout": "1h"}
    job = sink.job(True, **more)
    message = job.task([arrow(b"1")])
    job.abort([None])
    assert len(sink.open()) == 1
    assert "Set checkpointLocation, queryName or sinkId" in caplog.text
    job.abort([message])
    assert not sink.open()


def test_aborting_a_write_by_its_commit_messages_lets_another_attempt_commit(sink):
    failed, other = sink.job(True), sink.job(True)
    messages = [failed.task([arrow(b"1")]), None]
    good = other.task([arrow(b"2")])
    failed.abort(messages)
    other.commit([good])
    assert sink.rows() == [b"2"]


def test_aborting_a_batch_keeps_the_prepared_transactions_of_a_later_batch(sink):
    job, later = sink.job(True, number=4), sink.job(True, number=5)
    job.task([arrow(b"1")])
    good = later.task([arrow(b"2")])
    job.abort([None])
    later.commit([good])
    assert sink.rows() == [b"2"]


def test_a_task_that_prepares_after_its_write_was_aborted_is_aborted_too(sink):
    job = sink.job(False)
    job.abort([None])
    job.task([arrow(b"1")])
    assert not sink.open()
    assert sink.rows() == []


@KINDS
def test_prepared_transactions_of_killed_drivers_do_not_enlarge_a_decision(sink, is_stream, monkeypatch):
    """A decision also ends what earlier attempts prepared, and the broker limits how many one decision may end."""
    monkeypatch.setattr("fencepost.broker.transactions.deciding.MAX_MARKERS", 3)
    more = {} if is_stream else {"sinkId": sink.topic, "batchId": "0"}
    killed = sink.job(is_stream, **more)
    for partition in range(2):
        killed.task([arrow(b"1")], partition=partition)
    job = sink.job(is_stream, **more)
    job.commit([job.task([arrow(b"2")], partition=partition) for partition in range(2)])
    assert sink.rows() == [b"2", b"2"]
    assert not sink.open()


def test_a_commit_to_too_many_partitions_raises_and_hints_at_shuffle_partitions(sink, monkeypatch):
    monkeypatch.setattr("fencepost.broker.transactions.deciding.MAX_MARKERS", 3)
    job = sink.job(True)
    with pytest.raises(KafkaError, match="4 partitions to mark in one decision") as raised:
        job.commit([job.task([arrow(b"1")], partition=partition) for partition in range(4)])
    assert any("spark.sql.shuffle.partitions" in note for note in raised.value.__notes__)


@KINDS
def test_an_abort_after_a_successful_commit_removes_no_rows(sink, is_stream):
    job = sink.job(is_stream)
    messages = [job.task([arrow(b"1")])]
    job.commit(messages)
    job.abort(messages)
    assert sink.rows() == [b"1"]


@KINDS
def test_pysparks_runner_calls_commit_and_abort_as_the_sink_expects(sink, is_stream, monkeypatch):
    """If this fails, PySpark has changed: read its runners again before spark/sink is changed."""
    job = sink.job(is_stream)
    of_tasks = job.writer.attempt
    called = []
    for name in ("commit", "abort"):
        ended = f"{'Stream' if is_stream else 'Batch'}Writer.{name}"

        def record(self, *given, name=name):
            called.append((name, self.attempt, len(given), threading.get_ident()))

        monkeypatch.setattr(f"fencepost.spark.sink.writer.{ended}", record)
    message = job.task([arrow(b"1")])
    job.commit([message])
    job.abort([message])
    arguments = 2 if is_stream else 1
    assert [(name, count, thread) for name, _, count, thread in called] == [
        (name, arguments, threading.get_ident()) for name in ("commit", "abort")
    ]
    assert [attempt == of_tasks for _, attempt, _, _ in called] == [not is_stream] * 2
    assert isinstance(job.writer, SinkWriter)


def test_an_abort_without_messages_ends_no_transaction_of_another_query(sink, tmp_path):
    (tmp_path / "metadata").write_text(json.dumps({"id": "one"}))
    more = {"checkpointLocation": str(tmp_path)}  # the same path, on two machines
    one, other = (sink.job(True, query=query, **more) for query in ("one", "other"))
    one.task([arrow(b"1")])
    message = other.task([arrow(b"2")])
    one.abort([None])
    assert len(sink.open()) == 1
    other.commit([message])
    assert sink.rows() == [b"2"]


def test_prepared_tasks_are_committed_even_if_the_broker_seems_to_lack_a_ledger(sink, monkeypatch):
    """The process that commits a stream asks the broker again what it supports."""
    job = sink.job(True)
    messages = [job.task([arrow(b"1")])]
    seen = ledger.Facts(False, "", ledger.SAFE_TIMEOUT_MS)

    async def facts(_):
        return seen

    monkeypatch.setattr(ledger, "facts", facts)
    job.commit(messages)
    assert sink.rows() == [b"1"]


@KINDS
def test_while_a_task_waits_for_rows_its_old_transaction_is_prepared(sink, is_stream, monkeypatch):
    """Its next rows are written in a new transaction. They come when the old one is prepared, so the test waits for no
    real timeout.
    """
    monkeypatch.setattr("fencepost.spark.sink.protocol.WAITING_SHARE", 9_000)  # 100 ms of 15 minutes
    job = sink.job(is_stream)

    def slowly():
        for each in range(3):
            yield arrow(b"%d" % each)
            sink.wait_for_prepared(each + 1)

    message = job.task(slowly())
    assert len(sink.prepared()) == 3
    assert sink.rows() == []
    job.commit([message])
    assert sink.rows() == [b"0", b"1", b"2"]
    assert not sink.open()


def test_the_batchs_abort_ends_transactions_that_a_failed_task_had_prepared(sink, monkeypatch):
    monkeypatch.setattr("fencepost.spark.sink.protocol.WAITING_SHARE", 9_000)  # 100 ms of 15 minutes
    job = sink.job(False)

    def failing():
        yield arrow(b"1")
        sink.wait_for_prepared(1)
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        job.task(failing())
    job.abort([None])
    assert not sink.open()
    assert sink.rows() == []


def test_a_commit_whose_answer_was_lost_succeeds_if_the_broker_carried_it_out(sink, monkeypatch, caplog):
    job = sink.job(False)
    messages = [job.task([arrow(b"1")])]
    answers_lost(monkeypatch, carried_out=True)
    job.commit(messages)
    assert "was committed" in caplog.text
    assert sink.rows() == [b"1"]


def test_a_commit_that_the_broker_did_not_carry_out_raises_and_aborts_its_rows(sink, monkeypatch):
    job = sink.job(False)
    messages = [job.task([arrow(b"1")])]
    answers_lost(monkeypatch, carried_out=False)
    with pytest.raises(BatchRefusedError, match="not committed") as raised:
        job.commit(messages)
    assert "repeat the df.write" in raised.value.hint
    assert not sink.open()
    assert sink.rows() == []


@pytest.mark.parametrize("carried_out", [False, True])
@pytest.mark.parametrize(
    ("named", "hint"),
    [(False, "fencepost spark list --all"), (True, "same sinkId and batchId")],
    ids=["unnamed", "named"],
)
def test_a_commit_whose_outcome_is_unknown_raises_an_error_with_a_hint(sink, monkeypatch, named, hint, carried_out):
    job = sink.job(False, **({"sinkId": sink.topic, "batchId": "1"} if named else {}))
    messages = [job.task([arrow(b"1")])]
    answers_lost(monkeypatch, carried_out=carried_out, away=True)
    with pytest.raises(RequestTimedOutError, match="unknown whether") as raised:
        job.commit(messages)
    assert hint in raised.value.hint


def test_at_max_ledger_entries_old_ones_are_removed_or_the_error_names_the_setting(monkeypatch):
    with ServedBroker(max_ledger_entries=1) as broker:
        sink = Sink(broker, "full")
        for value in (b"1", b"2", b"3"):
            job = sink.job(False)
            messages = [job.task([arrow(value)])]
            if value == b"2":
                with pytest.raises(KafkaError, match="in use already") as raised:
                    job.commit(messages)
                assert any("raise max.ledger.entries" in note for note in raised.value.__notes__)
                job.abort(messages)
                # From now on even the newest entry counts as old.
                monkeypatch.setattr("fencepost.spark.sink.protocol.FORGOTTEN_AFTER_MS", -60_000)
            else:
                job.commit(messages)
        assert not sink.open()
        assert sink.rows() == [b"1", b"3"]


def test_at_max_prepared_transactions_a_task_fails_naming_the_setting():
    with ServedBroker(max_prepared_transactions=1) as broker:
        sink = Sink(broker, "waiting")
        job = sink.job(False)
        first = job.task([arrow(b"1")])
        with pytest.raises(KafkaError, match="PrepareTxn") as raised:
            job.task([arrow(b"2")], partition=1)
        assert any("raise max.prepared.transactions" in note for note in raised.value.__notes__)
        job.abort([first, None])
        assert not sink.open()
