"""Groups of the newer protocol (KIP-848) with unchanged clients: librdkafka's and Java's, alone and together.

What must hold: every partition has one owner, who goes on where the last one committed; a killed broker changes no
epoch and moves no partition; offsets of a transaction follow the member's epoch.
"""

import os
import re
import threading
import time
from collections import Counter

import pytest
from broker_process import broker_process
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupType, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewTopic,
    ResourceType,
)
from group_topics import EACH, OPTIONS, PARTITIONS, WITHIN_S, filled, shared, values, wait_for
from java_clients import JavaError
from long_runs import first_only


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with broker_process(str(tmp_path_factory.mktemp("groups") / "data"), *OPTIONS) as running:
        yield running


@pytest.fixture
def name(request):
    return re.sub(r"[^a-z0-9]+", "-", request.node.name)[5:60] + os.urandom(3).hex()


@pytest.fixture
def admin(broker):
    return AdminClient({"bootstrap.servers": broker.bootstrap})


class Rdkafka:
    """A librdkafka consumer that is polled in a thread of its own."""

    def __init__(self, broker, group, topics, **settings):
        given = {name.replace("_", "."): value for name, value in settings.items()}
        self.consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": group,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "reconnect.backoff.max.ms": 500,
                **given,
            }
        )
        self.read: list[str] = []
        self.errors: list[KafkaException] = []
        self._owned: set[tuple[str, int]] = set()
        self.consumer.subscribe(topics)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._poll)
        self._thread.start()

    def _poll(self):
        while not self._ends.is_set():
            message = self.consumer.poll(0.1)
            self._owned = {(each.topic, each.partition) for each in self.consumer.assignment()}
            if message is not None and not message.error():
                self.read.append(message.value().decode())
                try:
                    self.consumer.commit(message, asynchronous=False)
                except KafkaException as error:  # it moved on, or the broker is away
                    self.errors.append(error)

    def owned(self):
        """Return the assignment at its last poll: librdkafka may wait for ever for one that another thread asks for."""
        return self._owned

    def close(self):
        self._ends.set()
        self._thread.join()
        self.consumer.close()


class Java:
    """A Java consumer that is polled in a thread of its own."""

    def __init__(self, java, broker, group, topic=None, pattern=None, **settings):
        self.consumer = java.consumer(broker.bootstrap, group, group_protocol="consumer", **settings)
        if topic is not None:
            self.consumer.do("subscribe", topic=topic)
        else:
            self.consumer.do("subscribePattern", pattern=pattern)
        self.read: list[str] = []
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._poll)
        self._thread.start()

    def _poll(self):
        while not self._ends.is_set():
            found = self.consumer.poll(100)
            if found:
                self.read += found
                self.consumer.do("commitSync")

    def owned(self):
        text = self.consumer.do("assigned")["assigned"]
        found = [each.rpartition("-") for each in text.split(",") if each]
        return {(topic, int(partition)) for topic, _, partition in found}

    def close(self):
        self._ends.set()
        self._thread.join()
        self.consumer.do("close")


def member_of(kind, java, broker, group, topic, **settings):
    return (
        Rdkafka(broker, group, [topic], **settings)
        if kind == "librdkafka"
        else Java(java, broker, group, topic, **settings)
    )


def described(admin, group):
    found = admin.describe_consumer_groups([group])[group].result(10)
    return {
        member.member_id: {(each.topic, each.partition) for each in member.assignment.topic_partitions}
        for member in found.members
    }, found


KINDS = ["librdkafka", "java"]


@pytest.mark.parametrize("kind", first_only(KINDS))
def test_a_group_reads_each_record_once_while_members_join_and_leave(kind, java, broker, admin, name):
    filled(broker, name)
    one = member_of(kind, java, broker, name, name)
    members = [one]
    try:
        wait_for(lambda: shared(one, topics=[name]) and Counter(one.read) == values())
        two = member_of(kind, java, broker, name, name)
        members.append(two)
        wait_for(lambda: shared(one, two, topics=[name]))
        filled(broker, name, EACH)
        wait_for(lambda: Counter(one.read + two.read) == values() + values(EACH))
        by_member, found = described(admin, name)
        assert (found.type, found.state) == (ConsumerGroupType.CONSUMER, ConsumerGroupState.STABLE)
        assert sorted(map(sorted, by_member.values())) == sorted(map(sorted, (one.owned(), two.owned())))
        two.close()
        members.remove(two)
        wait_for(lambda: shared(one, topics=[name]))
        filled(broker, name, 2 * EACH)
        wait_for(lambda: Counter(one.read + two.read) == values() + values(EACH) + values(2 * EACH))
    finally:
        for member in members:
            member.close()


@pytest.mark.parametrize("kind", first_only(KINDS))
def test_after_a_broker_kill_each_group_member_has_the_partitions_it_had_before(kind, java, tmp_path, name):
    with broker_process(str(tmp_path / "data"), *OPTIONS) as broker:
        filled(broker, name)
        settings = {"bootstrap.servers": broker.bootstrap}
        members = [member_of(kind, java, broker, name, name) for _ in range(2)]
        try:
            wait_for(lambda: shared(*members, topics=[name]))
            wait_for(lambda: Counter(members[0].read + members[1].read) == values())
            before, _ = described(AdminClient(settings), name)
            broker.kill()
            broker.start()
            filled(broker, name, EACH)
            wait_for(lambda: sum((values(), values(EACH)), Counter()) == Counter(members[0].read + members[1].read))
            # Another client: librdkafka 2.16 forgets a broker that it lost, and still waits for it as the coordinator.
            assert described(AdminClient(settings), name)[0] == before
        finally:
            for member in members:
                member.close()


def test_a_groups_session_timeout_set_by_an_admin_survives_a_broker_kill(tmp_path, name):
    setting, of = "consumer.session.timeout.ms", ResourceType.GROUP

    def alter(admin, value):
        entry = ConfigEntry(setting, value, incremental_operation=AlterConfigOpType.SET)
        (answer,) = admin.incremental_alter_configs([ConfigResource(of, name, incremental_configs=[entry])]).values()
        answer.result(10)

    with broker_process(str(tmp_path / "data"), *OPTIONS) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        alter(admin, "20000")
        with pytest.raises(KafkaException, match=r"group\.consumer\.min\.session\.timeout\.ms"):
            alter(admin, "1")
        broker.kill()
        broker.start()
        (answer,) = admin.describe_configs([ConfigResource(of, name)]).values()
        found = answer.result(10)[setting]
        assert (found.value, found.source) == ("20000", ConfigSource.GROUP_CONFIG.value)


def test_librdkafka_and_java_members_share_the_partitions_of_one_group(java, broker, name):
    filled(broker, name)
    members = [member_of(kind, java, broker, name, name) for kind in KINDS]
    try:
        wait_for(lambda: shared(*members, topics=[name]))
        wait_for(lambda: set(members[0].read + members[1].read) == set(values()))
    finally:
        for member in members:
            member.close()


def test_a_pattern_subscription_also_reads_topics_created_later(java, broker, name):
    """librdkafka and Java send the pattern to the broker, each in its own form; the broker finds the topics."""
    filled(broker, f"{name}-a")
    members = [Rdkafka(broker, f"{name}-1", [f"^{name}-.*"]), Java(java, broker, f"{name}-2", pattern=f"{name}-.*")]
    try:
        for member in members:
            wait_for(lambda m=member: shared(m, topics=[f"{name}-a"]))
        filled(broker, f"{name}-b")
        for member in members:
            wait_for(lambda m=member: shared(m, topics=[f"{name}-a", f"{name}-b"]))
            wait_for(lambda m=member: Counter(m.read) == values() + values())
    finally:
        for member in members:
            member.close()


def test_a_static_member_gets_its_partitions_back_and_the_others_keep_theirs(broker, admin, name):
    filled(broker, name)
    one, two = (Rdkafka(broker, name, [name], group_instance_id=each) for each in "ab")
    members = [one, two]
    try:
        wait_for(lambda: shared(one, two, topics=[name]))
        had = one.owned()
        one.close()
        members[0] = again = Rdkafka(broker, name, [name], group_instance_id="a")
        wait_for(lambda: again.owned() == had)
        assert len(two.owned()) == PARTITIONS - len(had)
    finally:
        for member in members:
            member.close()


def test_javas_transactions_copy_each_record_once_while_members_change(java, broker, name):
    source, target = f"{name}-in", f"{name}-out"
    filled(broker, source)
    filled_nothing = AdminClient({"bootstrap.servers": broker.bootstrap})
    filled_nothing.create_topics([NewTopic(target, PARTITIONS, 1)])[target].result(10)
    pairs = []

    def begin(number):
        producer = java.producer(broker.bootstrap, f"{name}-{number}")
        producer.do("init")
        consumer = java.consumer(broker.bootstrap, name, group_protocol="consumer", max_poll_records=2)
        consumer.do("subscribe", topic=source)
        pairs.append((producer, consumer))

    begin(1)
    copied, refused = 0, set()
    for turn in range(200):
        for producer, consumer in pairs:
            end = "abort" if turn % 5 == 4 else "commit"
            try:
                found = int(producer.do("copy", **{"from": consumer.name}, topic=target, ms=100, end=end)["copied"])
            except JavaError as error:  # its offsets are of another member by now
                refused |= error.kinds
                producer.do("abort")
                continue
            copied += found if end == "commit" else 0
        if turn == 2:
            begin(2)
        if turn == 5:
            filled(broker, source, EACH)
        if copied >= 2 * PARTITIONS * EACH:
            break
    for pair in pairs:
        for client in pair:
            client.do("close")
    reader = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": f"{name}-reader"})
    reader.assign([TopicPartition(target, partition, 0) for partition in range(PARTITIONS)])
    found: Counter[str] = Counter()
    wanted = Counter({f"{value}!": 1 for value in values() + values(EACH)})
    until = time.monotonic() + WITHIN_S
    while found != wanted and time.monotonic() < until:
        message = reader.poll(0.2)
        if message is not None and not message.error():
            found[message.value().decode()] += 1
    reader.close()
    assert found == wanted
    assert refused <= {"CommitFailedException"}  # it may be that nothing was refused


@pytest.mark.parametrize("first", ["classic", "consumer"])
def test_an_empty_group_changes_its_protocol_and_keeps_its_offsets(first, broker, admin, name):
    filled(broker, name)
    second = {"classic": "consumer", "consumer": "classic"}[first]
    one = Rdkafka(broker, name, [name], group_protocol=first)
    wait_for(lambda: Counter(one.read) == values())
    one.close()
    filled(broker, name, EACH)
    two = Rdkafka(broker, name, [name], group_protocol=second)
    try:
        wait_for(lambda: Counter(two.read) == values(EACH))
        listed = {each.group_id: each.type.name for each in admin.list_consumer_groups().result(10).valid}
        assert listed[name] == second.upper()
    finally:
        two.close()
    admin.delete_consumer_groups([name])[name].result(10)
    assert name not in {each.group_id for each in admin.list_consumer_groups().result(10).valid}
