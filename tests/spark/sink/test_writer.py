"""The writers against a real broker, called as Spark calls them: pickled, in tasks, then commit or abort."""

import asyncio
import json
import pickle

import pyarrow as pa
import pytest
from fencepost.client import sync
from fencepost.client.admin.admin import Admin
from fencepost.client.consumer.consumer import Consumer
from fencepost.client.errors import (
    ClientError,
    InvalidConfigurationError,
    KafkaError,
    UnknownTopicError,
    UnsupportedVersionError,
)
from fencepost.client.values import TopicPartition
from fencepost.spark import client_thread
from fencepost.spark.sink import ledger, writer
from fencepost.spark.sink.protocol import BatchRefusedError, SinkConflictError, WrongUseError, task_steps
from fencepost.spark.sink.step_runner import StepRunner
from fencepost.spark.sink.writer import Place, batch_writer, stream_writer
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, LongType, StringType, StructField, StructType
from served_broker import ServedBroker

TEXT, BYTES, INT = StringType(), BinaryType(), IntegerType()
HEADERS = ArrayType(StructType([StructField("key", TEXT), StructField("value", BYTES)]))


def schema_of(**columns):
    return StructType([StructField(name, type_) for name, type_ in columns.items()])


SCHEMA = schema_of(key=TEXT, value=BYTES)
QUERY, RUN = "5f0c", "7a1b"


@pytest.fixture(scope="module")
def broker():
    with ServedBroker() as served:
        yield served
        client_thread.close_all()


class Spark:
    """Calls writers as Spark does. Each test has a topic of its own."""

    def __init__(self, broker, topic, monkeypatch):
        self.broker, self.topic = broker, topic
        self.servers = f"127.0.0.1:{broker.port}"
        self.tasks = 0
        self._patch = monkeypatch

    def options(self, **more):
        return {"kafka.bootstrap.servers": self.servers, "topic": self.topic} | {k: str(v) for k, v in more.items()}

    def stream(self, schema=SCHEMA, **more):
        return pickle.loads(pickle.dumps(stream_writer(self.options(**more), schema)))

    def batch(self, schema=SCHEMA, **more):
        return pickle.loads(pickle.dumps(batch_writer(self.options(**more), schema, False)))

    def task(self, made, rows, *, partition=0, batch_id="0", query_id=QUERY, run_id=RUN, checkpoint=None):
        """Run a task, and return its message as the driver gets it. rows: a list of (key, value)."""
        self.tasks += 1
        here = Place(partition, self.tasks, batch_id, query_id, run_id, checkpoint)
        self._patch.setattr(writer, "place", lambda: here)
        return pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(made)).write(iter([arrow(rows)] if rows else []))))

    def rows(self, topic=None):
        """Return (key, value) of the committed records of all partitions, sorted."""
        return asyncio.run(self._rows(topic or self.topic))

    def headers(self):
        return [tuple(each.headers) for each in asyncio.run(self._records(self.topic))]

    async def _rows(self, topic):
        return sorted((each.key, each.value) for each in await self._records(topic))

    async def _records(self, topic):
        async with Consumer(self.servers, auto_offset_reset="earliest") as consumer:
            partitions = [TopicPartition(topic, each) for each in range(2)]
            consumer.assign(partitions)
            ends = await consumer.end_offsets(partitions)
            found = []
            while any([await consumer.position(each) < ends[each] for each in partitions]):
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    found += records
            return found

    def stands(self, key):
        """Return the ledger's entry for a key, and how many prepared transactions wait for its next decision."""
        options = writer.sink_options(self.options(), streaming=True)
        cluster = client_thread.cluster_for(options)
        (found,) = client_thread.run(ledger.describe_entries(cluster, key, timeout_ms=5000), 10)
        return found.entry, len(found.waiting)


def arrow(rows):
    keys, values = zip(*rows, strict=True)
    return pa.RecordBatch.from_arrays([pa.array(keys, pa.string()), pa.array(values, pa.binary())], ["key", "value"])


@pytest.fixture
def driver(broker, request, monkeypatch):
    topic = request.node.name.replace("[", "-").replace("]", "").replace(" ", "-")[:200]
    made = Spark(broker, topic, monkeypatch)

    async def create():
        async with Admin(made.servers) as admin:
            from fencepost.client.admin.values import NewTopic

            await admin.create_topics([NewTopic(topic, 2)])

    asyncio.run(create())
    return made


ONE, TWO = [("a", b"1"), ("b", b"2")], [("c", b"3")]
BOTH = [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")]


def test_rows_of_a_batch_become_visible_together_at_commit(driver):
    made = driver.stream()
    messages = [driver.task(made, ONE), driver.task(made, TWO, partition=1)]
    assert [message.rows for message in messages] == [2, 1]
    assert not driver.rows()
    made.commit(messages, 0)
    assert driver.rows() == BOTH
    entry, waiting = driver.stands(QUERY)
    assert (entry.number, entry.owner, waiting) == (0, QUERY, 0)


def test_a_commit_or_a_whole_batch_that_runs_twice_writes_its_rows_once(driver):
    made = driver.stream(sinkId="again")
    messages = [driver.task(made, ONE)]
    made.commit(messages, 0)
    made.commit(messages, 0)
    made = driver.stream(sinkId="again")  # the driver was killed before it wrote that batch 0 is done
    made.commit([driver.task(made, ONE), driver.task(made, [], partition=1)], 0)
    assert len(driver.rows()) == 2


def test_a_retried_task_writes_its_rows_once(driver):
    made = driver.stream(sinkId="retry")
    driver.task(made, ONE)
    made.commit([driver.task(made, ONE)], 0)
    assert len(driver.rows()) == 2
    assert driver.stands("retry")[1] == 0


def test_an_abort_also_ends_transactions_of_tasks_whose_message_is_missing(driver):
    made, other = driver.stream(sinkId="abort"), driver.stream(sinkId="abort")
    good = driver.task(other, TWO)
    driver.task(made, ONE)
    driver.stream(sinkId="abort").abort([None, driver.task(made, TWO, partition=1)], 0)
    assert driver.stands("abort")[1] == 1
    other.commit([good], 0)
    assert driver.rows() == BOTH[2:]


def test_an_abort_without_messages_finds_transactions_by_the_checkpoint_location(driver):
    place = {"checkpointLocation": "s3://somewhere/orders"}
    made = driver.stream(**place)
    driver.task(made, ONE, query_id="from-checkpoint")
    assert driver.stands("from-checkpoint")[1] == 1
    driver.stream(checkpointLocation="s3://somewhere/else").abort([None], 0)
    assert driver.stands("from-checkpoint")[1] == 1
    driver.stream(**place).abort([None], 0)
    assert driver.stands("from-checkpoint")[1] == 0


def plan(tmp_path, offsets):
    (tmp_path / "offsets").mkdir(exist_ok=True)
    (tmp_path / "offsets" / "0").write_text("v1\n" + '{"batchTimestampMs":1}\n' + json.dumps(offsets))


def test_a_batch_committed_with_other_source_offsets_raises_sink_conflict_error(driver, tmp_path):
    for offsets in ({"t": {"0": 5}}, {"t": {"0": 9}}):
        plan(tmp_path, offsets)
        made = driver.stream(sinkId="replanned", checkpointLocation=tmp_path)
        messages = [driver.task(made, ONE)]
        if offsets["t"]["0"] == 5:
            made.commit(messages, 0)
            continue
        with pytest.raises(SinkConflictError, match="other offsets"):
            made.commit(messages, 0)
    assert len(driver.rows()) == 2


@pytest.mark.parametrize("owner", [QUERY, "another"])
@pytest.mark.parametrize("kind", ["stream", "foreachBatch"])
def test_a_checkpoint_path_of_the_session_is_used_if_its_query_id_matches(driver, tmp_path, owner, kind, caplog):
    (tmp_path / "metadata").write_text(json.dumps({"id": owner}))
    for offset in (5, 9):
        plan(tmp_path, {"t": {"0": offset}})
        name = f"concluded-{kind}-{owner}"
        made = driver.stream(sinkId=name) if kind == "stream" else driver.batch(sinkId=name, batchId=0)
        messages = [driver.task(made, ONE, run_id=f"run-{offset}", checkpoint=str(tmp_path))]
        if owner == QUERY and offset == 9:
            with pytest.raises(SinkConflictError, match="other offsets"):
                made.decide(messages, 0)
        else:
            made.decide(messages, 0)
    assert ("this process cannot read the checkpoint" in caplog.text) == (owner != QUERY)
    assert len(driver.rows()) == 2


@pytest.mark.parametrize(
    ("number", "query_id", "says"),
    [("3", QUERY, "set back"), ("9", "another", "its own sinkId"), ("0", "new", "its own sinkId")],
    ids=["rewound", "two queries", "checkpoint deleted"],
)
def test_a_batch_of_another_query_or_number_than_the_next_raises_sink_conflict(driver, number, query_id, says):
    name = f"elsewhere-{number}"
    made = driver.stream(sinkId=name)
    made.commit([driver.task(made, ONE, batch_id="5")], 5)
    made = driver.stream(sinkId=name)
    messages = [driver.task(made, TWO, batch_id=number, query_id=query_id)]
    with pytest.raises(SinkConflictError, match=says):
        made.commit(messages, int(number))
    made.abort(messages, int(number))
    assert len(driver.rows()) == 2
    assert driver.stands(name)[1] == 0


def test_a_task_that_raises_leaves_no_open_transaction(driver):
    made = driver.stream(sinkId="raises")

    def broken():
        yield arrow(ONE)
        raise ValueError("no more")

    driver.task(made, [])  # sets the Place of the task, which write() needs
    with pytest.raises(ValueError, match="no more"):
        made.write(broken())
    assert driver.stands("raises")[1] == 0
    assert not driver.rows()


def test_a_long_running_task_writes_in_several_transactions_that_commit_together(driver, monkeypatch):
    made = driver.stream(sinkId="old")
    now_ms = iter(range(0, 10**9, 200_000))
    monkeypatch.setattr(writer, "monotonic_ms", lambda: next(now_ms))
    driver.task(made, [])  # sets the Place of the task, which write() needs
    message = made.write(iter([arrow(ONE), arrow(TWO), arrow(ONE)]))
    assert len(message.done.transactions) > 1
    made.commit([message], 0)
    assert len(driver.rows()) == 5


def killed(driver, made, rows, *, batch_id):
    """Run a task to where it has written and not prepared, as if its worker was killed there. Return its runner."""
    driver.task(made, [], batch_id=batch_id)  # sets the Place that this task gets
    here = writer.place()
    hands = StepRunner(made.options)
    steps = task_steps(made.batch_of(here), here.partition, here.task, made._pieces([arrow(rows)]), made.limits, int)
    answer = None
    for _ in range(2):
        answer = hands.do(steps.send(answer))
    hands._await_sent()
    return hands  # still open, so that its producer does not abort the transaction


def opened(driver):
    """Return how many transactions are open in the driver's topic, prepared or not."""
    with sync.Admin(driver.servers) as admin:
        found = admin.list_transactions(states=["Ongoing"])
        return sum(
            any(tp.topic == driver.topic for tp in each.partitions)
            for each in admin.describe_transactions([one.transactional_id for one in found]).values()
        )


def test_transactions_of_a_killed_worker_end_when_their_batch_is_decided(driver):
    made = driver.stream(sinkId="killed.1")
    left = [killed(driver, made, TWO, batch_id="5")]
    made = driver.stream(sinkId="killed.1")  # the driver was killed as well
    left.append(killed(driver, made, TWO, batch_id="5"))
    another = driver.stream(sinkId="killed")  # a sink whose name is the beginning of this one's
    left.append(killed(driver, another, TWO, batch_id="1"))
    message = driver.task(made, ONE, batch_id="5")
    assert opened(driver) == 4
    another.commit([driver.task(another, [], batch_id="0")], 0)
    assert opened(driver) == 4
    made.commit([message], 5)
    assert opened(driver) == 1
    another.abort([None], 1)
    assert opened(driver) == 0
    assert driver.rows() == BOTH[:2]
    for each in left:
        each.close()


def test_aborting_one_attempt_at_a_batch_keeps_transactions_of_another_attempt(driver):
    made, other = driver.stream(sinkId="two"), driver.stream(sinkId="two")
    left = [killed(driver, made, TWO, batch_id="5"), killed(driver, other, TWO, batch_id="5")]
    made.abort([driver.task(made, ONE, partition=1, batch_id="5"), None], 5)
    assert opened(driver) == 1
    other.abort([None], 5)
    assert opened(driver) == 0
    for each in left:
        each.close()


def test_a_tasks_transaction_timeout_is_at_most_prepared_timeout(driver):
    assert driver.stream(preparedTimeout="20s").limits.timeout_ms == 20_000
    assert driver.stream(preparedTimeout="-1").limits.timeout_ms == 900_000


def test_a_batch_with_one_transaction_already_aborted_is_refused_as_a_whole(driver):
    made = driver.stream(sinkId="ended")
    messages = [driver.task(made, ONE), driver.task(made, TWO, partition=1)]
    options = writer.sink_options(driver.options(), streaming=True)
    cluster = client_thread.cluster_for(options)
    client_thread.run(ledger.abort(cluster, list(messages[0].done.transactions), timeout_ms=5000), 10)
    with pytest.raises(BatchRefusedError, match="it has already ended"):
        made.commit(messages, 0)
    assert not driver.rows()
    made.abort(messages, 0)
    assert driver.stands("ended")[1] == 0


def test_missing_task_properties_of_spark_raise_naming_the_option_to_set(driver):
    made = driver.stream()
    with pytest.raises(WrongUseError) as raised:
        driver.task(made, ONE, batch_id=None)
    assert "foreachBatch" in raised.value.hint
    with pytest.raises(WrongUseError) as raised:
        driver.task(made, ONE, query_id=None)
    assert raised.value.hint == "set the option sinkId"
    made = driver.stream(sinkId="told")
    made.commit([driver.task(made, ONE, query_id=None)], 0)
    assert len(driver.rows()) == 2


# ---- df.write ----------------------------------------------------------------------------------------------------


def test_the_rows_of_a_batch_write_become_visible_all_or_not_at_all(driver):
    made = driver.batch()
    messages = [driver.task(made, ONE, batch_id=None), driver.task(made, TWO, partition=1, batch_id=None)]
    assert not driver.rows()
    made.commit(messages)
    assert driver.rows() == BOTH


def test_two_batch_writes_of_the_same_rows_write_them_twice(driver):
    for _ in range(2):
        made = driver.batch()
        made.commit([driver.task(made, ONE, batch_id=None)])
    assert len(driver.rows()) == 4


def test_committing_a_write_without_tasks_succeeds_and_writes_nothing(driver):
    driver.batch().commit([])
    assert not driver.rows()


def test_each_batch_of_a_foreachbatch_is_written_once(driver):
    for number, run in ((0, "r1"), (1, "r1"), (1, "r2")):
        made = driver.batch(sinkId="each", batchId=number)
        made.commit([driver.task(made, ONE, run_id=run)])
    assert len(driver.rows()) == 4


def test_two_writes_of_a_foreachbatch_need_two_sink_ids(driver):
    made = driver.batch(sinkId="first", batchId=0)
    made.commit([driver.task(made, ONE)])
    made = driver.batch(sinkId="first", batchId=0)
    messages = [driver.task(made, TWO)]
    with pytest.raises(SinkConflictError, match="written twice") as raised:
        made.commit(messages)
    assert "its own sinkId" in raised.value.hint
    made = driver.batch(sinkId="second", batchId=0)
    made.commit([driver.task(made, TWO)])
    assert driver.rows() == BOTH


def test_overwrite_mode_is_refused_and_the_hint_names_append(driver):
    with pytest.raises(WrongUseError) as raised:
        batch_writer(driver.options(), SCHEMA, True)
    assert raised.value.hint == 'use mode("append")'


@pytest.mark.parametrize("more", [{"sinkId": "x"}, {"batchId": 1}], ids=["no batchId", "no sinkId"])
def test_a_batch_write_with_only_one_of_sink_id_and_batch_id_is_refused(driver, more):
    with pytest.raises(InvalidConfigurationError, match="both options 'sinkId' and 'batchId'"):
        driver.batch(**more)


# ---- guarantees, options, columns --------------------------------------------------------------------------------


def test_at_least_once_writes_without_a_transaction(driver):
    made = driver.stream(deliveryGuarantee="at_least_once")
    message = driver.task(made, ONE, batch_id=None, query_id=None)
    assert message.done is None
    assert len(driver.rows()) == 2
    made.commit([message], 0)
    made.abort([message], 0)


def test_a_broker_without_a_ledger_gets_at_least_once_with_one_warning(driver, monkeypatch, caplog):
    async def facts(cluster):
        return ledger.Facts(False, "", 60_000)

    monkeypatch.setattr(ledger, "facts", facts)
    monkeypatch.setattr(writer, "_logged", set())  # a broker of another test may have had this port
    for _ in range(2):
        assert driver.stream().guarantee == "at_least_once"
    assert caplog.text.count("at least once") == 1
    with pytest.raises(UnsupportedVersionError, match="not fencepost"):
        driver.stream(deliveryGuarantee="exactly_once")


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"topik": "x"}, "did you mean 'topic'"),
        ({"deliveryGuarantee": "at_most_once"}, "exactly_once or at_least_once"),
        ({"kafka.transactional.id": "x"}, "the sink chooses it"),
        ({"sinkId": "a#b"}, "letters"),
        ({"batchId": 1}, "foreachBatch"),
        ({"asyncProgressTrackingEnabled": "true"}, "cannot be written exactly once"),
        ({"preparedTimeout": "soon"}, "a time"),
        ({"kafka.enable.idempotence": "false"}, "kafka.enable.idempotence"),
    ],
    ids=lambda value: "" if isinstance(value, str) else next(iter(value)),
)
def test_a_stream_with_a_wrong_option_raises_invalid_configuration_error(driver, more, says):
    with pytest.raises(InvalidConfigurationError, match=says):
        driver.stream(**more)


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"key": TEXT}, "no column 'value'"),
        ({"value": INT}, "column 'value' must be binary or string, not int"),
        ({"value": TEXT, "partition": LongType()}, "column 'partition' must be int, not bigint"),
        ({"value": TEXT, "headers": TEXT}, r"column 'headers' must be array<.*>, not string"),
    ],
    ids=["no value", "value", "partition", "headers"],
)
def test_a_column_that_cannot_be_written_is_refused_before_any_task(driver, columns, says):
    with pytest.raises(InvalidConfigurationError, match=says):
        driver.stream(schema=schema_of(**columns))


def test_a_missing_topic_is_created_or_raises_before_any_task_runs(driver):
    made = driver.stream(topic=f"{driver.topic}-made", sinkId="made")
    made.commit([driver.task(made, ONE)], 0)
    with pytest.raises(UnknownTopicError, match="there is no topic 'nowhere'"):
        driver.stream(topic="nowhere", **{"kafka.allow.auto.create.topics": "false"})
    with sync.Admin(driver.servers) as admin:
        admin.delete_topics([f"{driver.topic}-made"])
    with pytest.raises(UnknownTopicError):
        driver.stream(topic=f"{driver.topic}-made", **{"kafka.allow.auto.create.topics": "false"})


def test_an_invalid_topic_name_raises_an_error_naming_it(driver):
    with pytest.raises(ClientError, match="'a b'"):
        driver.stream(topic="a b")


def test_an_error_for_a_record_too_large_names_max_message_bytes(driver):
    made = driver.stream(sinkId="large", **{"kafka.max.request.size": 8 << 20})
    with pytest.raises(KafkaError, match="larger than the topic accepts") as caught:
        driver.task(made, [("a", bytes(3 << 20))])
    (note,) = caught.value.__notes__
    assert "max.message.bytes" in note
    assert "abort the transaction" not in note


def test_columns_of_rows_name_topic_and_headers_and_unknown_ones_are_ignored(driver):
    options = {k: v for k, v in driver.options(sinkId="rows").items() if k != "topic"}
    made = stream_writer(options, schema_of(value=TEXT, topic=TEXT, partition=INT, headers=HEADERS, other=INT))
    rows = pa.RecordBatch.from_pylist(
        [
            {"value": "x", "topic": driver.topic, "partition": 1, "headers": [{"key": "h", "value": b"1"}], "other": 1},
            {"value": "y", "topic": driver.topic, "partition": None, "headers": None, "other": 2},
        ],
        pa.schema(
            [
                ("value", pa.string()),
                ("topic", pa.string()),
                ("partition", pa.int32()),
                ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
                ("other", pa.int32()),
            ]
        ),
    )
    driver.task(made, [])  # sets the Place of the task, which write() needs
    made.commit([made.write(iter([rows]))], 0)
    assert driver.rows() == [(None, b"x"), (None, b"y")]
    assert sorted(driver.headers()) == [(), (("h", b"1"),)]
