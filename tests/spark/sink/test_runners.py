"""The sink driven by PySpark's own runners: which writer they call, and that an abort leaves nothing open.

Spark calls abort with the messages of the tasks that were done, and None for others, in a process that has written
nothing. Of a batch write it is a copy of the writer that tasks have; of a stream it is a new one.
"""

import json
import threading
import time

import pyarrow as pa
import pytest
import spark_runners
from fencepost.client import sync
from fencepost.client.admin.values import NewTopic
from fencepost.client.errors import KafkaError, RequestTimedOutError
from fencepost.client.values import TopicPartition
from fencepost.spark import client_thread
from fencepost.spark.sink import ledger
from fencepost.spark.sink.options import sink_options
from fencepost.spark.sink.protocol import BatchRefusedError, SinkConflictError, WrongUseError
from fencepost.spark.sink.writer import JOB_GROUP, JOB_TAGS, QUERY_ID, SinkWriter
from pyspark.sql.types import BinaryType, StringType, StructField, StructType
from served_broker import ServedBroker
from spark_runners import Job

SCHEMA = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
KINDS = pytest.mark.parametrize("is_stream", [False, True], ids=["batch", "stream"])


@pytest.fixture(scope="module")
def broker():
    with ServedBroker() as served:
        yield served


class Sink:
    """One topic of one partition, to which one test writes."""

    def __init__(self, broker, topic):
        self.topic, self.servers = topic, f"127.0.0.1:{broker.port}"
        with sync.Admin(self.servers) as admin:
            admin.create_topics([NewTopic(topic, 1)])

    def job(self, is_stream, *, number=0, schema=SCHEMA, query="", **more):
        options = {"kafka.bootstrap.servers": self.servers, "topic": self.topic, **more}
        if is_stream and not more:
            options["checkpointLocation"] = f"s3://nobody-can-read/{self.topic}"
        return Job(options, schema, query or self.topic, is_stream=is_stream, number=number)

    def open(self):
        """The transactions that hold readers up, prepared or not."""
        with sync.Admin(self.servers) as admin:
            names = [each.transactional_id for each in admin.list_transactions(states=["Ongoing"])]
            found = admin.describe_transactions(names)
            return [name for name in names if any(tp.topic == self.topic for tp in found[name].partitions)]

    def prepared(self):
        """Those of them that wait for a decision."""
        options = sink_options({"kafka.bootstrap.servers": self.servers, "topic": self.topic}, streaming=True)
        with spark_runners.process():
            cluster = client_thread.cluster_for(options)
            keys = client_thread.run(ledger.described(cluster, timeout_ms=5000), 10)
        waiting = {each.transactional_id for key in keys for each in key.waiting}
        return waiting & set(self.open())

    def wait_for_prepared(self, count):
        """Until so many wait, or for long enough that they never will."""
        deadline = time.monotonic() + 20
        while len(self.prepared()) < count:
            assert time.monotonic() < deadline, f"never {count} prepared"
            time.sleep(0.05)

    def rows(self):
        """How a read_committed reader finds the topic: the values, in order."""
        with sync.Consumer(self.servers, auto_offset_reset="earliest") as consumer:
            tp = TopicPartition(self.topic, 0)
            consumer.assign([tp])
            (end,) = consumer.end_offsets([tp]).values()
            found = []
            while consumer.position(tp) < end:
                for records in consumer.getmany(timeout_ms=200).values():
                    found += [each.value for each in records]
            return found


@pytest.fixture
def sink(broker, request):
    yield Sink(broker, "".join(c if c.isalnum() else "-" for c in request.node.name)[:200])
    spark_runners.close_abandoned()


def arrow(*values):
    columns = [pa.array([None] * len(values), pa.string()), pa.array(values, pa.binary())]
    return pa.RecordBatch.from_arrays(columns, ["key", "value"])


@KINDS
def test_what_tasks_wrote_is_seen_once_the_runner_has_committed(sink, is_stream):
    job = sink.job(is_stream)
    messages = [job.task([arrow(b"1")]), job.task([arrow(b"2")], partition=1)]
    assert sink.rows() == []
    job.commit(messages)
    assert sorted(sink.rows()) == [b"1", b"2"]
    assert not sink.open()


@KINDS
@pytest.mark.parametrize("known", [(0, 1), (0,), ()], ids=["all messages", "one message", "no message"])
def test_nothing_is_open_after_the_runner_has_aborted(sink, is_stream, known, monkeypatch):
    job = sink.job(is_stream)
    messages = [job.task([arrow(b"%d" % each)], partition=each) for each in range(2)]
    job.killed_task([arrow(b"2")], monkeypatch, partition=2)
    assert len(sink.open()) == 3
    job.abort([messages[each] if each in known else None for each in range(2)] + [None])
    assert not sink.open()
    assert sink.rows() == []


@pytest.mark.parametrize("more", [{"sinkId": "a.1"}, {"queryName": "orders"}], ids=["sinkId", "queryName"])
def test_an_abort_without_messages_knows_its_stream_by_what_else_it_is_given(sink, more):
    job, other = sink.job(True, **more), sink.job(True, sinkId="another")
    job.task([arrow(b"1")])
    other.task([arrow(b"2")])
    job.abort([None])
    (left,) = sink.open()
    assert left.startswith("fencepost.once.another.")
    other.abort([None])
    assert not sink.open()


def test_a_stream_that_nothing_tells_apart_is_left_alone_and_that_is_said(sink, caplog):
    more = {"preparedTimeout": "1h"}
    job = sink.job(True, **more)
    message = job.task([arrow(b"1")])
    job.abort([None])
    assert len(sink.open()) == 1
    assert "Set checkpointLocation, queryName or sinkId" in caplog.text
    job.abort([message])
    assert not sink.open()


def test_an_abort_with_a_message_leaves_another_attempt_at_the_batch(sink):
    failed, other = sink.job(True), sink.job(True)
    messages = [failed.task([arrow(b"1")]), None]
    good = other.task([arrow(b"2")])
    failed.abort(messages)
    other.commit([good])
    assert sink.rows() == [b"2"]


def test_an_abort_leaves_what_belongs_to_a_later_batch(sink):
    job, later = sink.job(True, number=4), sink.job(True, number=5)
    job.task([arrow(b"1")])
    good = later.task([arrow(b"2")])
    job.abort([None])
    later.commit([good])
    assert sink.rows() == [b"2"]


def test_a_task_that_ends_after_its_batch_write_was_aborted_holds_nobody_up(sink):
    job = sink.job(False)
    job.abort([None])
    job.task([arrow(b"1")])
    assert not sink.open()
    assert sink.rows() == []


@KINDS
def test_what_killed_drivers_left_prepared_makes_no_decision_too_large(sink, is_stream, monkeypatch):
    """A decision also ends what earlier attempts prepared, and the broker ends so many at once."""
    monkeypatch.setattr("fencepost.broker.transactions.deciding.MOST_MARKERS", 3)
    more = {} if is_stream else {"sinkId": sink.topic, "batchId": "0"}
    killed = sink.job(is_stream, **more)
    for partition in range(2):
        killed.task([arrow(b"1")], partition=partition)
    job = sink.job(is_stream, **more)
    job.commit([job.task([arrow(b"2")], partition=partition) for partition in range(2)])
    assert sink.rows() == [b"2", b"2"]
    assert not sink.open()


def test_a_batch_that_marks_more_than_the_broker_can_at_once_says_what_to_do(sink, monkeypatch):
    monkeypatch.setattr("fencepost.broker.transactions.deciding.MOST_MARKERS", 3)
    job = sink.job(True)
    with pytest.raises(KafkaError, match="4 partitions to mark in one decision") as raised:
        job.commit([job.task([arrow(b"1")], partition=partition) for partition in range(4)])
    assert any("spark.sql.shuffle.partitions" in note for note in raised.value.__notes__)


@KINDS
def test_an_abort_after_a_commit_that_was_carried_out_takes_nothing_back(sink, is_stream):
    job = sink.job(is_stream)
    messages = [job.task([arrow(b"1")])]
    job.commit(messages)
    job.abort(messages)
    assert sink.rows() == [b"1"]


@KINDS
def test_which_writer_the_runner_calls_and_on_which_thread_is_as_the_sink_believes(sink, is_stream, monkeypatch):
    """If this fails, PySpark has changed: read its runners again before anything in spark/writer.py is changed."""
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


RUNS = ("6ba7b810-9dad-11d1-80b4-00c04fd430c8", "7ba7b810-9dad-11d1-80b4-00c04fd430c8")


@pytest.mark.parametrize(
    ("groups", "query"),
    [((None, None), None), (("nightly", "nightly"), None), (("nightly", "nightly"), "q"), (RUNS, "q")],
    ids=["no job group", "a job group", "the user's group in a foreachBatch", "two runs of a foreachBatch"],
)
def test_a_batch_that_is_written_again_is_found_to_be_decided(sink, groups, query, caplog):
    for group in groups:
        job = sink.job(False, sinkId=sink.topic, batchId="7")
        job.properties = {key: value for key, value in ((JOB_GROUP, group), (QUERY_ID, query)) if value}
        job.commit([job.task([arrow(b"1")])])
    assert sink.rows() == [b"1"]
    assert "was committed before" in caplog.text


def test_two_writes_with_one_sink_id_in_one_run_of_a_foreachbatch_stop_the_query(sink):
    jobs = [sink.job(False, sinkId=sink.topic, batchId="7") for _ in range(2)]
    for job in jobs:
        job.properties = {JOB_GROUP: RUNS[0], QUERY_ID: "q"}
    jobs[0].commit([jobs[0].task([arrow(b"1")])])
    with pytest.raises(SinkConflictError, match="written twice"):
        jobs[1].commit([jobs[1].task([arrow(b"2")])])


def foreachbatch_job(sink):
    """A write of batch 7, always in the same run of the query."""
    job = sink.job(False, sinkId=sink.topic, batchId="7")
    job.properties = {JOB_GROUP: RUNS[0], QUERY_ID: "q"}
    return job


def test_a_write_of_a_foreachbatch_that_fails_is_repeated_by_the_next_run_alone(sink, monkeypatch):
    """Repeated by the user's code it looks like a second write, so no hint tells anybody to do that."""
    job = foreachbatch_job(sink)
    messages = [job.task([arrow(b"1")])]
    with monkeypatch.context() as patched:
        answers_lost(patched, carried_out=True, away=True)
        with pytest.raises(RequestTimedOutError, match="unknown whether") as unknown:
            job.commit(messages)
    again = foreachbatch_job(sink)
    with pytest.raises(SinkConflictError, match="written twice") as twice:
        again.commit([again.task([arrow(b"1")])])
    for raised in (unknown, twice):
        assert "next run" in raised.value.hint
        assert "repeat it" not in raised.value.hint
    later = foreachbatch_job(sink)
    later.properties[JOB_GROUP] = RUNS[1]
    later.commit([later.task([arrow(b"1")])])
    assert sink.rows() == [b"1"]


@pytest.mark.parametrize("in_foreachbatch", [True, False])
def test_a_batch_that_waited_too_long_says_what_to_raise_and_who_repeats_it(sink, in_foreachbatch):
    job = foreachbatch_job(sink) if in_foreachbatch else sink.job(True)
    messages = [job.task([arrow(b"1")])]
    job.abort(messages)  # as the broker does after preparedTimeout
    with pytest.raises(BatchRefusedError, match="it has already ended") as raised:
        job.commit(messages)
    assert "raise preparedTimeout" in raised.value.hint
    assert ("repeat the df.write" in raised.value.hint) is not in_foreachbatch


def tags(session):
    """Of a job, as Spark has them; the last is of the frame's session, which may be the user's."""
    return f"spark-session-{session}-execution-root-id-7,spark-session-users-execution-id-8"


@pytest.mark.parametrize("group", [None, "nightly", *RUNS], ids=["no group", "a name", "a uuid", "another uuid"])
def test_runs_of_a_foreachbatch_are_told_apart_in_any_job_group_of_the_user(sink, group):
    """The same write in the next run is found to be decided; a second one in the same run stops the query."""

    def write(session, value):
        job = sink.job(False, sinkId=sink.topic, batchId="7")
        job.properties = {key: text for key, text in ((JOB_GROUP, group), (QUERY_ID, "q")) if text}
        job.properties[JOB_TAGS] = tags(session)
        job.commit([job.task([arrow(value)])])

    write("one", b"1")
    write("two", b"1")
    with pytest.raises(SinkConflictError, match="written twice"):
        write("two", b"2")
    assert sink.rows() == [b"1"]


def test_a_batch_write_outside_of_streams_may_be_repeated_in_one_session(sink):
    for _ in range(2):
        job = sink.job(False, sinkId=sink.topic, batchId="7")
        job.properties = {JOB_TAGS: tags("users")}
        job.commit([job.task([arrow(b"1")])])
    assert sink.rows() == [b"1"]


@pytest.mark.parametrize("named", [False, True], ids=["by default", "asked for"])
def test_a_write_of_a_foreachbatch_without_a_name_is_not_taken_for_exactly_once(sink, named, caplog):
    """Its batch may be run again, and nothing tells the second write from another one."""
    for run in RUNS:
        job = sink.job(False, **({"deliveryGuarantee": "exactly_once"} if named else {}))
        job.properties = {JOB_GROUP: run, QUERY_ID: "q"}
        if named:
            with pytest.raises(WrongUseError, match="sinkId and batchId"):
                job.task([arrow(b"1")])
        else:
            job.commit([job.task([arrow(b"1")])])
    assert sink.rows() == ([] if named else [b"1", b"1"])
    assert ("sinkId and batchId" in caplog.text) is not named


def test_a_write_of_a_foreachbatch_in_a_thread_is_known_by_its_checkpoint(sink, tmp_path):
    """A new thread of Python has none of the query's properties."""
    for query in "ab":
        (tmp_path / query / "offsets").mkdir(parents=True)
        (tmp_path / query / "metadata").write_text(json.dumps({"id": query}))
        (tmp_path / query / "offsets" / "0").write_text("v1\n{}\n{}")

    def write(query, run, value):
        job = sink.job(False, sinkId=sink.topic, batchId="0", checkpointLocation=str(tmp_path / query))
        job.properties = {JOB_TAGS: tags(run)}
        job.commit([job.task([arrow(value)])])

    write("a", "run-1", b"1")
    write("a", "run-2", b"1")
    with pytest.raises(SinkConflictError, match="written twice"):
        write("a", "run-2", b"2")
    with pytest.raises(SinkConflictError, match="of query 'a'"):
        write("b", "run-3", b"2")
    assert sink.rows() == [b"1"]


def test_an_abort_without_messages_leaves_another_query_told_by_the_checkpoint(sink, tmp_path):
    (tmp_path / "metadata").write_text(json.dumps({"id": "one"}))
    more = {"checkpointLocation": str(tmp_path)}  # the same path, on two machines
    one, other = (sink.job(True, query=query, **more) for query in ("one", "other"))
    one.task([arrow(b"1")])
    message = other.task([arrow(b"2")])
    one.abort([None])
    assert len(sink.open()) == 1
    other.commit([message])
    assert sink.rows() == [b"2"]


def test_what_tasks_prepared_is_decided_whatever_the_broker_seems_to_be_by_then(sink, monkeypatch):
    """The process that commits a stream asks the broker anew."""
    job = sink.job(True)
    messages = [job.task([arrow(b"1")])]
    seen = ledger.Facts(False, "", ledger.SAFE_TIMEOUT_MS)

    async def facts(_):
        return seen

    monkeypatch.setattr(ledger, "facts", facts)
    job.commit(messages)
    assert sink.rows() == [b"1"]


@KINDS
def test_a_task_that_waits_for_rows_has_its_old_transaction_prepared_and_goes_on(sink, is_stream, monkeypatch):
    """The rows come when it has happened, so no task of the suite waits for a real timeout."""
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


def test_a_task_that_fails_after_its_old_prepare_leaves_it_to_the_abort(sink, monkeypatch):
    monkeypatch.setattr("fencepost.spark.sink.protocol.WAITING_SHARE", 9_000)
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


def answers_lost(monkeypatch, *, carried_out, away=False):
    """No decision is answered. carried_out: but the broker made it. away: it answers nothing else either."""
    real = ledger.carry_out

    async def lost(cluster, key, steps, *, timeout_ms):
        if carried_out:
            await real(cluster, key, steps, timeout_ms=timeout_ms)
        if away:
            monkeypatch.setattr(ledger, "ask", silent)
        raise RequestTimedOutError("no answer")

    async def silent(*given, **more):
        raise RequestTimedOutError("no answer")

    monkeypatch.setattr(ledger, "carry_out", lost)


def test_a_write_whose_decision_was_made_and_not_answered_stands_and_is_a_success(sink, monkeypatch, caplog):
    job = sink.job(False)
    messages = [job.task([arrow(b"1")])]
    answers_lost(monkeypatch, carried_out=True)
    job.commit(messages)
    assert "was committed" in caplog.text
    assert sink.rows() == [b"1"]


def test_a_write_whose_decision_was_neither_made_nor_answered_is_aborted_and_says_so(sink, monkeypatch):
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
def test_a_write_that_may_stand_says_that_nobody_knows_and_what_to_do(sink, monkeypatch, named, hint, carried_out):
    job = sink.job(False, **({"sinkId": sink.topic, "batchId": "1"} if named else {}))
    messages = [job.task([arrow(b"1")])]
    answers_lost(monkeypatch, carried_out=carried_out, away=True)
    with pytest.raises(RequestTimedOutError, match="unknown whether") as raised:
        job.commit(messages)
    assert hint in raised.value.hint


def test_at_max_ledger_entries_old_ones_make_room_and_else_it_is_said_what_to_raise(monkeypatch):
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
                monkeypatch.setattr("fencepost.spark.sink.protocol.FORGOTTEN_AFTER_MS", -60_000)
            else:
                job.commit(messages)
        assert not sink.open()
        assert sink.rows() == [b"1", b"3"]
