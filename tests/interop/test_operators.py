"""An operator's day with kafka-python's admin client (KIP-664): who has a transaction open, since when; end one."""

import time
from contextlib import closing

import kafka.errors
import pytest
from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import AbortTransactionSpec
from library_producers import LIBRARIES
from old_client import OldClient

A_MOMENT_MS = 300
HANGING = A_MOMENT_MS - 5 * 60 * 1000  # the client adds five minutes to what it is told


@pytest.fixture(scope="module")
def admin(broker):
    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    yield client
    client.close()


@pytest.fixture
def producer(broker, look, name):
    look.topic(name, 3)
    made = OldClient(broker.bootstrap, f"id-{name}", timeout_ms=54_321)
    made.init()
    yield made
    made.close()


def opened(producer, name, *partitions):
    """Begin a transaction and write a record to each of these partitions."""
    producer.begin()
    for partition in partitions:
        producer.send(name, b"of an open transaction", partition)


def listed(admin, **filters):
    (transactions,) = admin.list_transactions(**filters).values()
    return {listing.transactional_id: listing for listing in transactions}


def in_partition(admin, name, partition):
    """Return the producers with an open transaction in a partition."""
    place = TopicPartition(name, partition)
    producers = admin.describe_producers([place])[place].active_producers
    return [producer for producer in producers if producer.current_transaction_start_offset >= 0]


def hanging(admin):
    return {found["transactional_id"]: found for found in admin.find_hanging_transactions(None, HANGING)}


def test_transactions_are_listed_by_state_producer_age_and_name(admin, producer, name):
    own = f"id-{name}"
    assert listed(admin)[own].state == "Empty"
    opened(producer, name, 0)
    (found,) = listed(admin, transactional_id_pattern=f"id-{name}.*").values()
    assert found == (own, producer.producer_id, "Ongoing")
    assert listed(admin, producer_id_filters=[producer.producer_id]) == {own: found}
    assert own in listed(admin, state_filters=["Ongoing"])
    assert own not in listed(admin, state_filters=["CompleteCommit"])
    assert own not in listed(admin, duration_filter_ms=60_000)
    time.sleep(0.05)
    assert own in listed(admin, duration_filter_ms=40)
    producer.commit()
    until = time.monotonic() + 10
    while listed(admin)[own].state != "CompleteCommit":
        assert time.monotonic() < until


def test_a_transaction_is_described_with_its_partitions(admin, producer, name):
    before = int(time.time() * 1000)
    opened(producer, name, 0, 2)
    found = admin.describe_transactions([f"id-{name}"])[f"id-{name}"]
    assert (found.state, found.producer_id, found.producer_epoch) == ("Ongoing", producer.producer_id, producer.epoch)
    assert found.transaction_timeout_ms == 54_321
    assert before <= found.transaction_start_time_ms <= int(time.time() * 1000)
    assert found.topic_partitions == {TopicPartition(name, 0), TopicPartition(name, 2)}
    with pytest.raises(kafka.errors.TransactionalIdNotFoundError):
        admin.describe_transactions(["nobody"])


def test_describe_producers_shows_where_an_open_transaction_began_in_a_partition(admin, producer, look, name):
    opened(producer, name, 1)
    producer.commit()
    opened(producer, name, 1)
    (open_one,) = in_partition(admin, name, 1)
    assert (open_one.producer_id, open_one.producer_epoch) == (producer.producer_id, producer.epoch)
    assert open_one.last_sequence == 1
    assert open_one.current_transaction_start_offset == look.ends(name, 1)[0] == 2
    assert in_partition(admin, name, 0) == []
    producer.abort()


def test_a_transaction_is_listed_as_hanging_only_after_it_was_open_too_long(admin, producer, name):
    opened(producer, name, 0, 1)
    assert f"id-{name}" not in hanging(admin)
    time.sleep(A_MOMENT_MS / 1000 + 0.1)
    found = hanging(admin)[f"id-{name}"]
    assert found["topic_partitions"] == [TopicPartition(name, 0), TopicPartition(name, 1)]
    assert found["age_ms"] >= A_MOMENT_MS
    producer.abort()
    assert f"id-{name}" not in hanging(admin)


@pytest.mark.parametrize("known_epoch", [False, True], ids=["any-coordinator-epoch", "the-epoch-described"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_commit_after_an_operators_abort_raises(broker, admin, look, name, library, known_epoch):
    """After Apache Kafka's abort, which bypasses the coordinator, the same commit succeeds, although the records are
    aborted.
    """
    look.topic(name, 2)
    with closing(LIBRARIES[library](broker.bootstrap, f"id-{name}")) as client:
        client.init()
        client.begin()
        for partition in (0, 1):
            client.send(name, b"aborted", partition)
        (found,) = in_partition(admin, name, 0)
        epoch = found.coordinator_epoch if known_epoch else -1
        place = TopicPartition(name, 0)
        admin.abort_transaction(AbortTransactionSpec(place, found.producer_id, found.producer_epoch, epoch))
        assert in_partition(admin, name, 0) == []
        with pytest.raises(Exception, match=r"."):  # each library has its own; none may be silent
            client.commit()
    with closing(LIBRARIES[library](broker.bootstrap, f"id-{name}")) as successor:
        successor.init()
        successor.begin()
        successor.send(name, b"committed", 0)
        successor.commit()
    assert look.committed(name, 0) == [b"committed"]
    assert look.committed(name, 1) == []
    assert in_partition(admin, name, 1) == []


def test_an_abort_for_an_unknown_producer_id_fails_and_other_producers_can_commit(admin, producer, look, name):
    opened(producer, name, 0)
    (found,) = in_partition(admin, name, 0)
    producer.commit()
    with pytest.raises(kafka.errors.BrokerResponseError):
        admin.abort_transaction(AbortTransactionSpec(TopicPartition(name, 0), found.producer_id + 1_000_000, -1))
    opened(producer, name, 0)
    producer.commit()
    assert look.committed(name, 0) == [b"of an open transaction"] * 2


# ---- a cluster of one broker ---------------------------------------------------------------------------------


def test_leader_election_and_reassignment_get_the_answers_of_a_one_broker_cluster(admin, look, name):
    look.topic(name, 2)
    place, (node,) = TopicPartition(name, 1), [each["broker_id"] for each in admin.describe_cluster()["brokers"]]
    (elected,) = admin.elect_leaders(0, {name: [0, 1]}).replica_election_results
    assert {each.error_code for each in elected.partition_result} == {kafka.errors.ElectionNotNeededError.errno}
    assert admin.alter_partition_reassignments({place: [node]}) == {place: None}
    moved = admin.alter_partition_reassignments({place: [node + 1]})
    assert moved[place] is kafka.errors.InvalidReplicationAssignmentError
    assert admin.list_partition_reassignments() == {}
    (error,) = admin.alter_replica_log_dirs({(name, 1, node): "/nowhere"}).values()
    assert error is kafka.errors.LogDirNotFoundError


def test_the_metadata_quorum_lists_the_only_broker_as_its_only_voter(admin):
    quorum = admin.describe_metadata_quorum()
    (topic,) = quorum["topics"]
    (partition,) = topic["partitions"]
    assert [voter["replica_id"] for voter in partition["current_voters"]] == [partition["leader_id"]]


def test_lowering_transaction_version_raises_invalid_update_version_error(admin):
    admin.update_features({"transaction.version": 2})
    with pytest.raises(kafka.errors.InvalidUpdateVersionError):
        admin.update_features({"transaction.version": ("SAFE_DOWNGRADE", 1)})


def test_list_config_resources_returns_topics_and_the_broker(admin, look, name):
    look.topic(name)
    found = admin.list_config_resources(["TOPIC", "BROKER"])
    assert name in found["topic"]
    assert len(found["broker"]) == 1
