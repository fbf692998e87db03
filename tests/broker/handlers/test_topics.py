"""CreateTopics, DeleteTopics, CreatePartitions, DeleteRecords: each error a client can meet, as Kafka 4.3.1 has it.

Error codes as on the wire: 3 UNKNOWN_TOPIC_OR_PARTITION, 17 INVALID_TOPIC_EXCEPTION, 36 TOPIC_ALREADY_EXISTS, 37
INVALID_PARTITIONS, 38 INVALID_REPLICATION_FACTOR, 39 INVALID_REPLICA_ASSIGNMENT, 40 INVALID_CONFIG, 42 INVALID_REQUEST,
44 POLICY_VIOLATION.
"""

from typing import Any

import pytest
from fencepost.broker.config.settings import BrokerSettings
from fencepost.broker.topics.topics import MAX_PARTITIONS
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.cluster import MetadataRequest
from fencepost.protocol.messages.offsets import ListOffsetsRequest
from fencepost.protocol.messages.produce import ProduceRequest
from fencepost.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
)
from fencepost.protocol.primitives import ZERO_UUID
from fencepost.protocol.records import Record, build
from fencepost.storage.journal.journal import Journal
from simulated_broker import SimulatedBroker

New = CreateTopicsRequest.Topic
OK = (0, None)
UNKNOWN, UNKNOWN_ID = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID
OUT_OF_RANGE, POLICY = ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.POLICY_VIOLATION


def create(broker: SimulatedBroker, *topics: New, version: int | None = None, validate_only: bool = False) -> list[Any]:
    return list(broker.ask(CreateTopicsRequest(topics=list(topics), validate_only=validate_only), version).topics)


def verdicts(answers: list[Any]) -> list[tuple[int, str | None]]:
    return [(answer.error_code, answer.error_message) for answer in answers]


def names(broker: SimulatedBroker) -> list[str]:
    return [topic.name for topic in broker.ask(MetadataRequest(topics=None)).topics]


def produce(broker: SimulatedBroker, topic: str, values: int, partition: int = 0) -> Any:
    batch = build([Record(offset, 1_700_000_000_000, b"k", b"v") for offset in range(values)])
    data = ProduceRequest.Topic(
        name=topic, partition_data=[ProduceRequest.Topic.Partition(index=partition, records=memoryview(batch))]
    )
    response = broker.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data]), 9)
    return response.responses[0].partition_responses[0]


# ---- CreateTopics --------------------------------------------------------------------------------------------


def test_a_created_topic_has_the_requested_configs_and_lists_all_settings(broker: SimulatedBroker) -> None:
    """CreateTopics answers with partition count, topic id and each config with its source."""
    wanted = New(name="a", num_partitions=3, configs=[New.Config(name="retention.ms", value=" 5 ")])
    (answer,) = create(broker, wanted)
    assert (answer.error_code, answer.num_partitions, answer.replication_factor) == (0, 3, 1)
    assert answer.topic_id != ZERO_UUID
    configs = {config.name: (config.value, config.config_source) for config in answer.configs}
    assert configs["retention.ms"] == ("5", 1)
    assert configs["segment.ms"] == ("604800000", 5)
    assert list(configs) == sorted(configs)
    (topic,) = broker.ask(MetadataRequest(topics=None)).topics
    assert (topic.name, topic.topic_id, len(topic.partitions)) == ("a", answer.topic_id, 3)


def test_partition_count_minus_1_creates_the_brokers_default_number() -> None:
    with SimulatedBroker(BrokerSettings(num_partitions=4)) as broker:
        (answer,) = create(broker, New(name="a", num_partitions=-1, replication_factor=-1))
        assert (answer.num_partitions, answer.replication_factor) == (4, 1)


def test_create_topics_with_validate_only_creates_nothing(broker: SimulatedBroker) -> None:
    (answer,) = create(broker, New(name="a", num_partitions=3), validate_only=True)
    assert (answer.error_code, answer.num_partitions) == (0, 3)
    assert answer.topic_id == ZERO_UUID  # Kafka returns an id here that it does not keep
    assert names(broker) == []


@pytest.mark.parametrize(
    ("topic", "code", "text"),
    [
        (New(name="a", num_partitions=0), 37, "Number of partitions was set to an invalid non-positive value."),
        (New(name="a", num_partitions=-2), 37, "Number of partitions was set to an invalid non-positive value."),
        (
            New(name="a", replication_factor=0),
            38,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        ),
        (
            New(name="a", replication_factor=2),
            38,
            "Unable to replicate the partition 2 time(s): The target replication factor of 2 cannot be reached because "
            "only 1 broker(s) are registered.",
        ),
        (New(name="a", num_partitions=10_001), 44, "Excessively large number of partitions per request."),
        (
            New(name="a", configs=[New.Config(name="nope", value="1")]),
            40,
            "Unknown topic config name: nope",
        ),
        (
            New(name="a", configs=[New.Config(name="retention.ms", value=None)]),
            40,
            "Null value not supported for topic configs: retention.ms",
        ),
        (
            New(name="a", configs=[New.Config(name="retention.ms", value="-2")]),
            40,
            "Invalid value -2 for configuration retention.ms: Value must be at least -1",
        ),
        (
            New(
                name="a",
                configs=[
                    New.Config(name="min.compaction.lag.ms", value="10"),
                    New.Config(name="max.compaction.lag.ms", value="5"),
                ],
            ),
            40,
            "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)",
        ),
        (New(name="..", num_partitions=0), 17, "Topic name is invalid: '..' is not allowed"),
    ],
)
def test_an_invalid_topic_is_refused_with_kafkas_text(
    broker: SimulatedBroker, topic: New, code: int, text: str
) -> None:
    assert verdicts(create(broker, topic)) == [(code, text)]
    assert names(broker) == []


Assigned = New.Assignment


@pytest.mark.slow
@pytest.mark.parametrize(
    ("assignments", "code", "text"),
    [
        ([(0, [1])], 0, None),
        ([(1, [1]), (0, [1])], 0, None),
        ([(0, [1]), (2, [1])], 39, "partitions should be a consecutive 0-based integer sequence"),
        ([(1, [1])], 39, "partitions should be a consecutive 0-based integer sequence"),
        ([(-1, [1])], 39, "partitions should be a consecutive 0-based integer sequence"),
        ([(0, [2])], 39, "The manual partition assignment includes broker 2, but no such broker is registered."),
        ([(0, [1, 2])], 39, "The manual partition assignment includes broker 2, but no such broker is registered."),
        ([(0, [])], 39, "The manual partition assignment includes an empty replica list."),
        ([(0, [1, 1])], 39, "The manual partition assignment includes the broker 1 more than once."),
        ([(0, [1]), (0, [1])], 39, "Found multiple manual partition assignments for partition 0"),
    ],
)
def test_a_replica_assignment_may_name_only_this_broker(
    broker: SimulatedBroker, assignments: list[tuple[int, list[int]]], code: int, text: str | None
) -> None:
    given = [Assigned(partition_index=index, broker_ids=ids) for index, ids in assignments]
    (answer,) = create(broker, New(name="a", assignments=given))
    assert (answer.error_code, answer.error_message) == (code, text)
    assert answer.num_partitions == (-1 if code else len(assignments))


def test_partition_count_or_replication_factor_beside_an_assignment_is_refused(broker: SimulatedBroker) -> None:
    given = [Assigned(partition_index=0, broker_ids=[1])]
    answers = create(
        broker,
        New(name="a", replication_factor=1, assignments=given),
        New(name="b", num_partitions=1, assignments=given),
    )
    text = "A manual partition assignment was specified, but {} was not set to -1."
    assert verdicts(answers) == [(42, text.format("replication factor")), (42, text.format("numPartitions"))]


def test_a_topic_name_that_exists_or_differs_only_in_dot_and_underscore_is_refused(broker: SimulatedBroker) -> None:
    assert verdicts(create(broker, New(name="a.b_c"))) == [OK]
    answers = create(broker, New(name="a.b_c"), New(name="a_b.c"), New(name="a.b.c"))
    assert verdicts(answers) == [
        (36, "Topic 'a.b_c' already exists."),
        (17, "Topic 'a_b.c' collides with existing topic: a.b_c"),
        (17, "Topic 'a.b.c' collides with existing topic: a.b_c"),
    ]


def test_of_two_colliding_names_in_one_request_only_the_first_is_created(broker: SimulatedBroker) -> None:
    # Kafka creates both, although their metrics then have the same names.
    answers = create(broker, New(name="e.1"), New(name="e_1"))
    assert [answer.error_code for answer in answers] == [0, ErrorCode.INVALID_TOPIC_EXCEPTION]


def test_a_name_repeated_in_create_topics_is_answered_once_and_not_created(broker: SimulatedBroker) -> None:
    answers = create(broker, New(name="a"), New(name="b"), New(name="a"))
    assert [(answer.name, *verdict) for answer, verdict in zip(answers, verdicts(answers), strict=True)] == [
        ("b", 0, None),
        ("a", 42, "Duplicate topic name."),
    ]


def test_too_many_partitions_in_one_request_refuse_the_whole_request(broker: SimulatedBroker) -> None:
    answers = create(broker, New(name="a", num_partitions=6000), New(name="b", num_partitions=6000))
    assert [answer.error_code for answer in answers] == [POLICY, POLICY]


@pytest.mark.parametrize("version", range(2, 8))
def test_every_version_of_create_topics_is_answered(broker: SimulatedBroker, version: int) -> None:
    good, bad = create(broker, New(name="a", num_partitions=1, replication_factor=1), New(name=""), version=version)
    assert verdicts([good, bad]) == [OK, (17, "Topic name is invalid: the empty string is not allowed")]


def test_a_topic_name_may_have_the_maximum_length(broker: SimulatedBroker) -> None:
    assert verdicts(create(broker, New(name="x" * 249))) == [OK]
    assert produce(broker, "x" * 249, 1).error_code == 0


# ---- DeleteTopics --------------------------------------------------------------------------------------------

Gone = DeleteTopicsRequest.Topic


def delete(broker: SimulatedBroker, *topics: Gone) -> list[tuple[str | None, int, str | None]]:
    response = broker.ask(DeleteTopicsRequest(topics=list(topics), timeout_ms=1000), 6)
    return [(answer.name, answer.error_code, answer.error_message) for answer in response.responses]


def test_a_deleted_topics_name_can_be_used_again_at_once(broker: SimulatedBroker) -> None:
    (first,) = create(broker, New(name="a", num_partitions=2))
    produce(broker, "a", 3)
    assert delete(broker, Gone(name="a")) == [("a", 0, None)]
    assert names(broker) == []
    assert produce(broker, "a", 1).error_code == UNKNOWN
    (second,) = create(broker, New(name="a", num_partitions=1))
    assert second.topic_id != first.topic_id
    assert produce(broker, "a", 1).base_offset == 0


def test_a_topic_may_be_deleted_by_its_id(broker: SimulatedBroker) -> None:
    (made,) = create(broker, New(name="a"))
    assert delete(broker, Gone(topic_id=made.topic_id)) == [("a", 0, None)]
    assert [answer[:2] for answer in delete(broker, Gone(topic_id=made.topic_id))] == [(None, UNKNOWN_ID)]
    assert [answer[:2] for answer in delete(broker, Gone(name="a"))] == [("a", UNKNOWN)]


def test_delete_topics_refuses_duplicates_and_entries_with_both_or_no_name_and_id(broker: SimulatedBroker) -> None:
    (a, b) = create(broker, New(name="a"), New(name="b"))
    assert delete(
        broker,
        Gone(),
        Gone(name="a", topic_id=a.topic_id),
        Gone(name="a"),
        Gone(name="a"),
        Gone(topic_id=b.topic_id),
        Gone(name="b"),
    ) == [
        (None, 42, "Neither topic name nor id were specified."),
        ("a", 42, "You may not specify both topic name and topic id."),
        ("a", 42, "Duplicate topic name."),
        ("b", 42, "The provided topic name maps to an ID that was already supplied."),
    ]
    assert names(broker) == ["a", "b"]


@pytest.mark.parametrize("version", range(1, 6))
def test_delete_topics_below_version_6_deletes_by_name(broker: SimulatedBroker, version: int) -> None:
    create(broker, New(name="a"))
    response = broker.ask(DeleteTopicsRequest(topic_names=["a", "nope"], timeout_ms=1000), version)
    assert [(answer.name, answer.error_code) for answer in response.responses] == [("a", 0), ("nope", UNKNOWN)]


@pytest.mark.parametrize(
    ("version", "code"),
    [(1, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED), (6, ErrorCode.TOPIC_DELETION_DISABLED)],
)
def test_with_delete_topic_enable_off_every_deletion_is_refused(version: int, code: int) -> None:
    with SimulatedBroker(BrokerSettings(delete_topic_enable=False)) as broker:
        create(broker, New(name="a"))
        request = DeleteTopicsRequest(topic_names=["a"], topics=[Gone(name="a")], timeout_ms=1000)
        (answer,) = broker.ask(request, version).responses
        assert (answer.name, answer.error_code) == ("a", code)
        assert names(broker) == ["a"]


# ---- CreatePartitions ----------------------------------------------------------------------------------------

More = CreatePartitionsRequest.Topic


def grow(broker: SimulatedBroker, *topics: More, validate_only: bool = False) -> list[tuple[int, str | None]]:
    request = CreatePartitionsRequest(topics=list(topics), timeout_ms=1000, validate_only=validate_only)
    return verdicts(broker.ask(request).results)


def test_added_partitions_leave_existing_records_unchanged(broker: SimulatedBroker) -> None:
    create(broker, New(name="a", num_partitions=2))
    produce(broker, "a", 5)
    assert grow(broker, More(name="a", count=4)) == [OK]
    (topic,) = broker.ask(MetadataRequest(topics=None)).topics
    assert [partition.partition_index for partition in topic.partitions] == [0, 1, 2, 3]
    assert produce(broker, "a", 1).base_offset == 5
    assert produce(broker, "a", 1, partition=3).base_offset == 0


def test_create_partitions_limits_the_new_partitions_of_all_its_topics_together(broker: SimulatedBroker) -> None:
    create(broker, New(name="a"), New(name="b"))
    half = MAX_PARTITIONS // 2
    too_many = [(44, "Excessively large number of partitions per request.")] * 2
    assert grow(broker, More(name="a", count=half + 1), More(name="b", count=half + 2)) == too_many
    assert [len(topic.partitions) for topic in broker.broker.topics.by_name.values()] == [1, 1]
    assert (
        grow(broker, More(name="a", count=half + 1), More(name="b", count=half + 1), validate_only=True)
        == [(0, None)] * 2
    )


Replicas = More.Assignment


@pytest.mark.slow
@pytest.mark.parametrize(
    ("asked", "code", "text"),
    [
        (More(name="a", count=2), 37, "Topic already has 2 partition(s)."),
        (More(name="a", count=1), 37, "The topic a currently has 2 partition(s); 1 would not be an increase."),
        (More(name="a", count=-1), 37, "The topic a currently has 2 partition(s); -1 would not be an increase."),
        (More(name="nope", count=3), 3, "There is no such topic or partition here."),
        (More(name="a", count=20_000), 44, "Excessively large number of partitions per request."),
        (
            More(name="a", count=4, assignments=[Replicas(broker_ids=[1])]),
            39,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        (
            More(name="a", count=3, assignments=[Replicas(broker_ids=[2])]),
            39,
            "The manual partition assignment includes broker 2, but no such broker is registered.",
        ),
        (More(name="a", count=3, assignments=[Replicas(broker_ids=[1])]), 0, None),
    ],
)
def test_create_partitions_with_validate_only_returns_its_error_and_changes_nothing(
    broker: SimulatedBroker, asked: More, code: int, text: str | None
) -> None:
    create(broker, New(name="a", num_partitions=2))
    assert grow(broker, asked, validate_only=True) == [(code, text)]
    assert len(broker.ask(MetadataRequest(topics=None)).topics[0].partitions) == 2


def test_a_topic_named_twice_in_create_partitions_gets_one_error_and_no_partitions(broker: SimulatedBroker) -> None:
    create(broker, New(name="a"))
    assert grow(broker, More(name="a", count=3), More(name="a", count=4)) == [(42, "Duplicate topic name.")]


# ---- DeleteRecords -------------------------------------------------------------------------------------------

Cut = DeleteRecordsRequest.Topic.Partition


def cut(broker: SimulatedBroker, topic: str, *partitions: Cut) -> dict[int, tuple[int, int]]:
    """Delete records. Returns (log start offset, error code) of each partition, by number."""
    asked = DeleteRecordsRequest.Topic(name=topic, partitions=list(partitions))
    (answer,) = broker.ask(DeleteRecordsRequest(topics=[asked], timeout_ms=1000)).topics
    return {each.partition_index: (each.low_watermark, each.error_code) for each in answer.partitions}


def earliest(broker: SimulatedBroker, topic: str) -> int:
    partition = ListOffsetsRequest.Topic.Partition(partition_index=0, timestamp=-2)
    request = ListOffsetsRequest(topics=[ListOffsetsRequest.Topic(name=topic, partitions=[partition])], replica_id=-1)
    return int(broker.ask(request, 7).topics[0].partitions[0].offset)


@pytest.mark.slow
def test_the_log_start_that_delete_records_set_never_moves_back_even_by_a_power_cut(broker: SimulatedBroker) -> None:
    create(broker, New(name="a", num_partitions=1))
    for _ in range(3):
        produce(broker, "a", 4)
    assert cut(broker, "a", Cut(partition_index=0, offset=5)) == {0: (5, 0)}
    assert earliest(broker, "a") == 5
    assert cut(broker, "a", Cut(partition_index=0, offset=3)) == {0: (5, 0)}
    with broker.after_power_cut() as next_broker:
        assert earliest(next_broker, "a") == 5
        assert cut(next_broker, "a", Cut(partition_index=0, offset=-1)) == {0: (12, 0)}
        assert produce(next_broker, "a", 1).base_offset == 12


def test_delete_records_beyond_the_log_end_is_refused(broker: SimulatedBroker) -> None:
    create(broker, New(name="a", num_partitions=1))
    produce(broker, "a", 4)
    assert cut(broker, "a", Cut(partition_index=0, offset=5), Cut(partition_index=1, offset=0)) == {
        0: (-1, OUT_OF_RANGE),
        1: (-1, UNKNOWN),
    }
    assert cut(broker, "a", Cut(partition_index=0, offset=-2)) == {0: (-1, OUT_OF_RANGE)}
    assert cut(broker, "nope", Cut(partition_index=0, offset=0)) == {0: (-1, UNKNOWN)}


def test_delete_records_on_a_compacted_topic_is_refused(broker: SimulatedBroker) -> None:
    create(broker, New(name="a", configs=[New.Config(name="cleanup.policy", value="compact")]))
    assert cut(broker, "a", Cut(partition_index=0, offset=0)) == {0: (-1, POLICY)}


def test_delete_records_is_refused_while_the_journal_is_full(
    broker: SimulatedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The response has no error message, so the error code has to tell the client to try again."""
    create(broker, New(name="a", num_partitions=1))
    produce(broker, "a", 4)
    with monkeypatch.context() as full:
        full.setattr(Journal, "admits", lambda self, size_bytes: False)
        assert cut(broker, "a", Cut(partition_index=0, offset=3)) == {0: (-1, ErrorCode.REQUEST_TIMED_OUT)}
    assert earliest(broker, "a") == 0
    assert cut(broker, "a", Cut(partition_index=0, offset=3)) == {0: (3, 0)}
