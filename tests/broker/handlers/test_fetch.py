"""Fetch as clients see it: limits, waiting, sessions, ids, epochs, and what is not visible yet."""

import pytest
from fencepost.broker.config.settings import BrokerSettings
from fencepost.broker.handlers import fetch as fetch_module
from fencepost.protocol.batches import walk
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.fetch import FetchRequest
from fencepost.protocol.messages.topics import DeleteRecordsRequest, DeleteTopicsRequest
from produce_requests import batch, bytes_of, create, fetch, fetched, produce
from simulated_broker import SimulatedBroker
from simulated_client import SimulatedClient

OK = ErrorCode.NONE
NAMED = 12  # the newest version that names topics
Topic, Part, Forgotten = FetchRequest.Topic, FetchRequest.Topic.Partition, FetchRequest.ForgottenTopic


@pytest.fixture(autouse=True, params=[fetch_module.MANY_PARTITIONS, 0], ids=["at_once", "in_steps"])
def _(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each test twice: with fetches that are read at once, and with fetches that are read in steps, as those of
    many partitions are. The client sees no difference.
    """
    monkeypatch.setattr(fetch_module, "MANY_PARTITIONS", request.param)


@pytest.fixture
def client(broker):
    broker.ask(create("t", 3))
    return SimulatedClient(broker)


def fill(client, count=5, topic="t", partition=0, **more):
    for _ in range(count):
        client.ask(produce(topic, batch(3, **more), partition=partition), 9)


def topic_id(client, name="t"):
    return client.broker.broker.topics.by_name[name].id


def offsets(part):
    return [(found.base_offset, found.last_offset) for found in walk(memoryview(bytes_of(part)))]


def code(response):
    return ErrorCode(fetched(response).error_code)


def parts(name, *asked, max_bytes=1 << 20):
    return Topic(
        topic=name,
        partitions=[Part(partition=index, fetch_offset=at, partition_max_bytes=max_bytes) for index, at in asked],
    )


# What is read.


@pytest.mark.slow
@pytest.mark.parametrize("version", range(4, 18))
def test_every_fetch_version_returns_whole_batches_from_the_one_with_the_offset(client, version):
    fill(client)
    named = {"topic": "t"} if version <= NAMED else {"topic_id": topic_id(client)}
    part = fetched(client.ask(fetch(offset=4, **named), version))
    assert offsets(part) == [(3, 5), (6, 8), (9, 11), (12, 14)]
    assert (part.high_watermark, part.last_stable_offset) == (15, 15)
    assert part.log_start_offset == (0 if version >= 5 else -1)
    assert part.preferred_read_replica == -1


def test_the_first_batch_is_returned_whole_even_above_the_byte_limits(client):
    fill(client)
    for small in ({"partition_max_bytes": 1}, {"partition_max_bytes": 0}, {"max_bytes": 0}, {"max_bytes": -1}):
        assert offsets(fetched(client.ask(fetch("t", 3, **small), NAMED))) == [(3, 5)]


def test_partitions_are_read_in_order_and_only_the_first_may_exceed_the_limit(client):
    fill(client, 2, partition=1)
    fill(client, 2, partition=2)
    response = client.ask(fetch(max_bytes=1, topics=[parts("t", (0, 0), (2, 0), (1, 0))]), NAMED)
    (topic,) = response.responses
    assert [(part.partition_index, offsets(part)) for part in topic.partitions] == [(0, []), (2, [(0, 2)]), (1, [])]


def test_a_fetch_without_records_returns_empty_bytes_and_not_null(client):
    assert fetched(client.ask(fetch("t"), NAMED)).records is not None


def test_a_fetch_outside_the_log_gets_offset_out_of_range(client):
    fill(client, 2)
    client.ask(
        DeleteRecordsRequest(
            topics=[
                DeleteRecordsRequest.Topic(
                    name="t", partitions=[DeleteRecordsRequest.Topic.Partition(partition_index=0, offset=3)]
                )
            ],
            timeout_ms=1000,
        )
    )
    asked = {-1: ErrorCode.OFFSET_OUT_OF_RANGE, 2: ErrorCode.OFFSET_OUT_OF_RANGE, 3: OK, 6: OK}
    asked[7] = ErrorCode.OFFSET_OUT_OF_RANGE
    assert {offset: code(client.ask(fetch("t", offset), NAMED)) for offset in asked} == asked


def test_the_broker_setting_fetch_max_bytes_limits_the_records_in_an_answer():
    with SimulatedBroker(BrokerSettings(fetch_max_bytes=1024)) as broker:
        broker.ask(create("t"))
        client = SimulatedClient(broker)
        fill(client, 5, value=bytes(100))
        part = fetched(client.ask(fetch("t"), NAMED))
        assert len(bytes_of(part)) <= 1024
        assert offsets(part) == [(0, 2), (3, 5)]  # a third batch would be too much


def test_a_fetch_answer_has_at_most_8_mib_though_the_client_asks_for_more(client):
    """Larger ones would delay other requests."""
    for partition in range(3):
        fill(client, 4, partition=partition, value=bytes(300_000))
    asked = parts("t", (0, 0), (1, 0), (2, 0), max_bytes=50 << 20)
    (topic,) = client.ask(fetch(topics=[asked]), NAMED).responses
    assert sum(len(bytes_of(part)) for part in topic.partitions) <= 8 << 20
    assert [len(offsets(part)) for part in topic.partitions] == [4, 4, 1]  # batches of 900 KB


def test_a_fetch_does_not_wait_at_the_end_of_a_segment_that_is_not_the_last(client):
    client.ask(create("rolled", segment_bytes=1 << 20))
    fill(client, 10, "rolled", value=bytes(100_000))
    client.broker.wait(30)  # flushed by now, into several segments
    response, took = timed(client, fetch("rolled", min_bytes=5_000_000, partition_max_bytes=8 << 20, max_wait_ms=5_000))
    assert took < 0.1
    assert offsets(fetched(response))[0] == (0, 2)
    assert len(offsets(fetched(response))) < 10  # it ends with a segment, before the last batch


def test_one_answer_holds_flushed_and_unflushed_batches(client):
    fill(client, 5)
    client.broker.wait(30)  # flushed by now
    fill(client, 5)
    part = fetched(client.ask(fetch("t"), NAMED))
    assert [last for _, last in offsets(part)] == list(range(2, 30, 3))


def test_fetch_identifies_topics_by_id_from_version_13(client):
    fill(client)
    known = client.ask(fetch(topic_id=topic_id(client)), 13)
    assert known.responses[0].topic_id == topic_id(client)
    assert code(known) == OK
    assert code(client.ask(fetch(topic_id=b"?" * 16), 13)) == ErrorCode.UNKNOWN_TOPIC_ID
    assert code(client.ask(fetch(topic_id=bytes(16)), 13)) == ErrorCode.UNKNOWN_TOPIC_ID
    beyond = client.ask(fetch(topic_id=topic_id(client), partition=9), 13)
    assert code(beyond) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_fetch_with_the_id_of_a_deleted_topic_is_refused_after_its_recreation(client):
    old = topic_id(client)
    client.ask(DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(name="t")], timeout_ms=1000))
    client.ask(create("t"))
    assert code(client.ask(fetch(topic_id=old), 13)) == ErrorCode.UNKNOWN_TOPIC_ID
    assert code(client.ask(fetch(topic_id=topic_id(client)), 13)) == OK


def test_a_fetch_of_an_unknown_topic_gets_an_error_and_others_are_read(client):
    fill(client, 1)
    response = client.ask(fetch(topics=[parts("none", (0, 0)), parts("t", (0, 0))]), NAMED)
    found = {topic.topic: topic.partitions[0].error_code for topic in response.responses}
    assert found == {"none": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "t": OK}


def test_a_fetch_with_a_wrong_leader_epoch_is_refused(client):
    assert code(client.ask(fetch("t", leader_epoch=0), NAMED)) == OK
    assert code(client.ask(fetch("t", leader_epoch=1), NAMED)) == ErrorCode.UNKNOWN_LEADER_EPOCH
    client.broker.broker.topics.by_name["t"].partitions[0].leader_epoch = 3
    assert code(client.ask(fetch("t", leader_epoch=2), NAMED)) == ErrorCode.FENCED_LEADER_EPOCH


def test_a_fetch_past_the_end_of_last_fetched_epoch_gets_the_end_of_that_epoch(client):
    fill(client, 1)
    assert fetched(client.ask(fetch("t", 3, last_fetched_epoch=0), NAMED)).diverging_epoch is None
    diverging = fetched(client.ask(fetch("t", 4, last_fetched_epoch=0), NAMED))
    assert (diverging.diverging_epoch.epoch, diverging.diverging_epoch.end_offset) == (0, 3)
    assert diverging.error_code == OK
    assert code(client.ask(fetch("t", 0, last_fetched_epoch=1), NAMED)) == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_fetch_with_a_replica_id_gets_not_leader_or_follower(client):
    request = fetch("t")
    request.replica_id = 5
    assert code(client.ask(request, NAMED)) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_the_aborted_list_is_empty_with_read_committed_and_else_null(client):
    fill(client, 1)
    assert fetched(client.ask(fetch("t", committed=True), NAMED)).aborted_transactions == []
    assert fetched(client.ask(fetch("t"), NAMED)).aborted_transactions is None


def test_fetch_refuses_an_unknown_isolation_level(client):
    request = fetch("t")
    request.isolation_level = 2
    assert client.ask(request, NAMED).error_code == ErrorCode.INVALID_REQUEST


def test_a_fetch_of_a_damaged_partition_gets_an_error_code_that_old_clients_retry(client):
    client.broker.broker.topics.by_name["t"].partitions[0].log.offline = "a test"
    assert code(client.ask(fetch("t"), 5)) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert code(client.ask(fetch("t"), 6)) == ErrorCode.KAFKA_STORAGE_ERROR


def test_flushed_records_are_read_alike_with_and_without_the_index_in_memory(client):
    fill(client, 20)
    client.broker.wait(30)  # long enough to be flushed and checkpointed
    log = client.broker.broker.topics.by_name["t"].partitions[0].log
    assert log.flushed_offset == 60
    expected = [(base, base + 2) for base in range(0, 60, 3)]
    assert offsets(fetched(client.ask(fetch("t"), NAMED))) == expected
    client.broker.broker.store.open_files.indexes.drop(f"{log.directory}/{log.segments[0].stem}")
    reads = client.broker.broker.metrics.cold_reads
    assert offsets(fetched(client.ask(fetch("t"), NAMED))) == expected
    assert client.broker.broker.metrics.cold_reads == reads + 1


def test_one_answer_has_records_of_three_partitions_whose_indexes_are_not_in_memory(client):
    for partition in range(3):
        fill(client, 5, partition=partition)
    client.broker.wait(30)
    files = client.broker.broker.store.open_files
    for partition in client.broker.broker.topics.by_name["t"].partitions:
        files.indexes.drop(f"{partition.log.directory}/{partition.log.segments[0].stem}")
    response = client.ask(fetch(topics=[parts("t", (2, 0), (0, 3), (1, 6))]), NAMED)
    (topic,) = response.responses
    assert [(part.partition_index, offsets(part)[0]) for part in topic.partitions] == [
        (2, (0, 2)),
        (0, (3, 5)),
        (1, (6, 8)),
    ]


# What is not visible yet.


@pytest.mark.requirement("S-11")
def test_a_fetch_never_returns_a_record_that_is_not_durable(client):
    fill(client, 1)
    reader = SimulatedClient(client.broker, "reader")
    executor, held = client.broker.broker.rounds._executor, []
    submit, executor.submit = executor.submit, lambda job, done: held.append((job, done))
    client.send(produce("t", batch(3)), 9)
    client.broker.wait(0.1)
    part = fetched(reader.ask(fetch("t"), NAMED))
    assert (part.high_watermark, offsets(part)) == (3, [(0, 2)])
    waiting = fetched(reader.ask(fetch("t", 3), NAMED))  # offset 3 is in the log, but not visible yet
    assert (waiting.error_code, offsets(waiting)) == (OK, [])
    executor.submit = submit
    submit(*held[0])
    client.receive()
    assert offsets(fetched(reader.ask(fetch("t", 3), NAMED))) == [(3, 5)]


# Waiting.


def timed(client, request, version=NAMED):
    """Return the response, and how long it took (s of virtual time)."""
    before = client.broker.loop.time()
    response = client.ask(request, version)
    return response, client.broker.loop.time() - before


def test_a_fetch_with_nothing_to_read_waits_max_wait_ms(client):
    response, took = timed(client, fetch("t", max_wait_ms=500))
    assert 0.5 <= took < 0.6
    assert code(response) == OK
    assert timed(client, fetch("t", max_wait_ms=0))[1] < 0.1


def test_a_waiting_fetch_is_answered_when_records_are_durable(client):
    reader = SimulatedClient(client.broker, "reader")
    reader.send(fetch("t", max_wait_ms=60_000), NAMED)
    assert reader.quiet(1)
    fill(client, 1)
    before = client.broker.loop.time()
    assert offsets(fetched(reader.receive())) == [(0, 2)]
    assert client.broker.loop.time() - before < 0.1


def test_records_in_other_partitions_do_not_wake_a_waiting_fetch(client):
    reader = SimulatedClient(client.broker, "reader")
    reader.send(fetch("t", max_wait_ms=60_000), NAMED)
    fill(client, 1, partition=1)
    assert reader.quiet(1)


def test_a_waiting_fetch_waits_until_min_bytes_are_there(client):
    reader = SimulatedClient(client.broker, "reader")
    reader.send(fetch("t", max_wait_ms=60_000, min_bytes=250), NAMED)
    fill(client, 2)
    assert reader.quiet(1)
    fill(client, 1)
    assert len(offsets(fetched(reader.receive()))) == 3


def test_a_fetch_whose_min_bytes_exceed_max_bytes_waits_only_for_max_bytes(client):
    fill(client, 5)
    assert timed(client, fetch("t", max_wait_ms=5000, min_bytes=1 << 30, max_bytes=200))[1] >= 5
    fill(client, 1)
    assert timed(client, fetch("t", max_wait_ms=5000, min_bytes=1 << 30, max_bytes=1))[1] < 0.1


def test_a_fetch_waits_for_its_known_partitions_but_not_for_unknown_ones(client):
    assert timed(client, fetch("t", 99, max_wait_ms=5000))[1] < 0.1
    assert timed(client, fetch("none", max_wait_ms=5000))[1] < 0.1
    both = fetch(max_wait_ms=500, topics=[parts("none", (0, 0)), parts("t", (0, 0))])
    assert timed(client, both)[1] >= 0.5


def test_an_unknown_partition_does_not_end_a_fetchs_wait_for_min_bytes(client):
    reader = SimulatedClient(client.broker, "reader")
    both = [parts("none", (0, 0)), parts("t", (0, 0))]
    reader.send(fetch(max_wait_ms=60_000, min_bytes=150, topics=both), NAMED)
    fill(client, 1)
    assert reader.quiet(1)
    fill(client, 1)
    found = {topic.topic: topic.partitions[0] for topic in reader.receive().responses}
    assert len(offsets(found["t"])) == 2
    assert found["none"].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_exception_in_a_waiting_fetch_fails_it_and_other_fetches_are_answered(client, monkeypatch):
    readers = [SimulatedClient(client.broker, f"reader {n}") for n in range(3)]
    for reader in readers:
        reader.send(fetch("t", max_wait_ms=60_000), NAMED)
    client.broker.wait(0.1)
    log = client.broker.broker.topics.by_name["t"].partitions[0].log
    read, left = log.read, [1]

    def fails_once(*args, **kwargs):
        if left:
            left.pop()
            raise ZeroDivisionError
        return read(*args, **kwargs)

    monkeypatch.setattr(log, "read", fails_once)
    fill(client, 1)
    codes = [reader.receive().error_code for reader in readers]
    assert codes == [ErrorCode.UNKNOWN_SERVER_ERROR, OK, OK]
    client.broker.broker.metrics.failures.clear()


def test_a_waiting_fetch_is_answered_when_its_topic_is_deleted(client):
    reader = SimulatedClient(client.broker, "reader")
    reader.send(fetch("t", max_wait_ms=60_000), NAMED)
    assert reader.quiet(0.1)
    client.ask(DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(name="t")], timeout_ms=1000))
    assert code(reader.receive()) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_waiting_fetch_delays_only_later_replies_of_its_own_connection(client):
    client.send(fetch("t", max_wait_ms=2000), NAMED)
    client.send(produce("t", batch(), partition=1), 9)
    assert client.quiet(1)
    other = SimulatedClient(client.broker, "other")
    assert fetched(other.ask(fetch("t", 0, partition=1), NAMED)).high_watermark == 1  # the produce request was handled
    assert code(client.receive()) == OK
    assert client.receive().responses[0].partition_responses[0].error_code == OK


def test_a_waiting_fetch_is_dropped_when_its_client_disconnects(client):
    reader = SimulatedClient(client.broker, "reader")
    reader.send(fetch("t", max_wait_ms=60_000), NAMED)
    assert reader.quiet(0.1)
    assert len(client.broker.broker.waiting) == 1
    reader.close()
    assert len(client.broker.broker.waiting) == 0
    fill(client, 1)


# Sessions.


def incremental(session_id, epoch, *topics, forget=(), wait=0):
    return fetch(topics=topics, session_id=session_id, epoch=epoch, forget=forget, max_wait_ms=wait)


def session(client, *topics):
    return client.ask(fetch(topics=topics, epoch=0), NAMED).session_id


def named(response):
    """Return the partitions in an answer, as (topic, number)."""
    return {(topic.topic, part.partition_index) for topic in response.responses for part in topic.partitions}


def test_an_incremental_fetch_returns_only_changed_partitions(client):
    session_id = session(client, parts("t", (0, 0), (1, 0), (2, 0)))
    assert session_id > 0
    assert named(client.ask(incremental(session_id, 1), NAMED)) == set()
    fill(client, 1, partition=2)
    assert named(client.ask(incremental(session_id, 2), NAMED)) == {("t", 2)}
    assert named(client.ask(incremental(session_id, 3, parts("t", (2, 3))), NAMED)) == set()


def test_a_fetch_session_reports_a_partition_that_goes_offline(client):
    """The reader is at the end of the partition, so nothing else would ever be reported to it."""
    fill(client, 1)
    session_id = session(client, parts("t", (0, 3), (1, 0)))
    assert named(client.ask(incremental(session_id, 1), NAMED)) == set()
    client.broker.broker.topics.by_name["t"].partitions[0].log.offline = "a test"
    for epoch in (2, 3):
        answer = client.ask(incremental(session_id, epoch), NAMED)
        assert named(answer) == {("t", 0)}
        assert fetched(answer).error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_fetch_session_continues_from_the_offsets_of_the_last_request(client):
    fill(client, 3)
    session_id = session(client, parts("t", (0, 0)))
    response = client.ask(incremental(session_id, 1, parts("t", (0, 6))), NAMED)
    assert offsets(fetched(response)) == [(6, 8)]


def test_partitions_removed_from_a_fetch_session_are_not_read(client):
    session_id = session(client, parts("t", (0, 0), (1, 0)))
    fill(client, 1, partition=1)
    gone = [Forgotten(topic="t", partitions=[1])]
    assert named(client.ask(incremental(session_id, 1, forget=gone), NAMED)) == set()


def test_unknown_fetch_sessions_and_wrong_epochs_get_their_own_errors(client):
    session_id = session(client, parts("t", (0, 0)))
    assert client.ask(incremental(session_id + 1, 1), NAMED).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert client.ask(incremental(session_id, 5), NAMED).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    switched = client.ask(incremental(session_id, 1), 13)
    assert (switched.error_code, switched.session_id) == (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 0)
    assert client.ask(incremental(session_id, 1), NAMED).error_code == OK


def test_a_fetch_is_answered_without_a_session_when_the_session_cache_is_full():
    with SimulatedBroker(BrokerSettings(max_incremental_fetch_session_cache_slots=0)) as broker:
        broker.ask(create("t"))
        assert session(SimulatedClient(broker), parts("t", (0, 0))) == 0


def test_an_incremental_fetch_without_news_waits_until_records_arrive(client):
    session_id = session(client, parts("t", (0, 0), (1, 0)))
    reader = SimulatedClient(client.broker, "reader")
    reader.send(incremental(session_id, 1, wait=60_000), NAMED)
    assert reader.quiet(1)
    fill(client, 1, partition=1)
    assert named(reader.receive()) == {("t", 1)}


def test_a_fetch_session_by_topic_id_answers_with_the_topic_id(client):
    own = topic_id(client)
    asked = Topic(topic_id=own, partitions=[Part(partition=0, fetch_offset=0, partition_max_bytes=1000)])
    session_id = client.ask(fetch(topics=[asked], epoch=0), 16).session_id
    fill(client, 1)
    response = client.ask(incremental(session_id, 1), 16)
    assert response.responses[0].topic_id == own
    gone = [Forgotten(topic_id=own, partitions=[0])]
    assert client.ask(incremental(session_id, 2, forget=gone), 16).session_id == 0
