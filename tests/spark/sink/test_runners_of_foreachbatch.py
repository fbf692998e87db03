"""Writes in foreachBatch by PySpark's own runners: runs of a query are distinguished, and the writes in one run.

A task learns the query and its run from local properties. The user's code can change the job group, and a thread that
it starts has none of these properties.
"""

import json

import pytest
from fencepost.client.errors import RequestTimedOutError
from fencepost.spark.sink.protocol import BatchRefusedError, SinkConflictError, WrongUseError
from fencepost.spark.sink.writer import JOB_GROUP, JOB_TAGS, QUERY_ID
from spark_sink import answers_lost, arrow

RUNS = ("6ba7b810-9dad-11d1-80b4-00c04fd430c8", "7ba7b810-9dad-11d1-80b4-00c04fd430c8")


@pytest.mark.parametrize(
    ("groups", "query"),
    [((None, None), None), (("nightly", "nightly"), None), (("nightly", "nightly"), "q"), (RUNS, "q")],
    ids=["no job group", "a job group", "the user's group in a foreachBatch", "two runs of a foreachBatch"],
)
def test_a_repeated_foreachbatch_write_is_found_committed_and_writes_nothing(sink, groups, query, caplog):
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
    """Return the job of a write of batch 7, always in the same run of the query."""
    job = sink.job(False, sinkId=sink.topic, batchId="7")
    job.properties = {JOB_GROUP: RUNS[0], QUERY_ID: "q"}
    return job


def test_a_failed_foreachbatch_write_can_be_repeated_only_by_the_next_run(sink, monkeypatch):
    """If the user's code repeats it in the same run it looks like a second write, so no hint suggests that."""
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
def test_a_batch_whose_prepared_transactions_timed_out_names_the_option_to_raise(sink, in_foreachbatch):
    job = foreachbatch_job(sink) if in_foreachbatch else sink.job(True)
    messages = [job.task([arrow(b"1")])]
    job.abort(messages)  # as the broker does after preparedTimeout
    with pytest.raises(BatchRefusedError, match="it has already ended") as raised:
        job.commit(messages)
    assert "raise preparedTimeout" in raised.value.hint
    assert ("repeat the df.write" in raised.value.hint) is not in_foreachbatch


def tags(session):
    """Return the tags that Spark gives to a job of a run. The first names the session of the run, which differs in
    each.

    The second names the session of the frame, which may be one of the user's that all runs share.
    """
    return f"spark-session-{session}-execution-root-id-7,spark-session-users-execution-id-8"


@pytest.mark.parametrize("group", [None, "nightly", *RUNS], ids=["no group", "a name", "a uuid", "another uuid"])
def test_two_runs_of_a_foreachbatch_are_distinguished_whatever_the_job_group(sink, group):
    """The same write in the next run is found committed; a second write in the same run stops the query."""

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


def test_a_batch_write_outside_a_stream_can_be_repeated_in_one_session(sink):
    for _ in range(2):
        job = sink.job(False, sinkId=sink.topic, batchId="7")
        job.properties = {JOB_TAGS: tags("users")}
        job.commit([job.task([arrow(b"1")])])
    assert sink.rows() == [b"1"]


@pytest.mark.parametrize("named", [False, True], ids=["by default", "asked for"])
def test_foreachbatch_without_sink_id_is_refused_if_exactly_once_is_asked_for(sink, named, caplog):
    """If the option deliveryGuarantee asks for exactly_once, an error is raised. Without the option the batch is
    written with a warning, and written again if Spark runs it again.
    """
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


def test_a_foreachbatch_write_in_a_thread_gets_its_query_from_checkpoint_location(sink, tmp_path):
    """Spark's properties of the query are not set in a new Python thread."""
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
