"""Rights by real clients that have logged in: each kind of them needs what docs/security.md says, and no more."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from acl_client import creating
from aiokafka import AIOKafkaProducer
from aiokafka.errors import TransactionalIdAuthorizationFailed
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AclOperation, AdminClient, NewTopic
from fencepost.broker.config.security_settings import STANDARD_AUTHORIZER
from java_clients import JavaClient, JavaClients, JavaError
from kafka import KafkaConsumer
from kafka.errors import GroupAuthorizationFailedError
from login_client import add_users
from produce_requests import batch, create, produce
from served_broker import ServedBroker

from fencepost import AuthorizationError
from fencepost import Consumer as SdkConsumer
from fencepost import Producer as SdkProducer

USERS = ("alice", "bob", "carl", "dora", "erin", "fred")
WAIT_S = 20


@pytest.fixture(scope="module")
def broker() -> Iterator[ServedBroker]:
    with ServedBroker(
        listeners=("PLAINTEXT://127.0.0.1:0", "SASL_PLAINTEXT://127.0.0.1:0"),
        sasl_enabled_mechanisms=("PLAIN", "SCRAM-SHA-256"),
        authorizer_class_name=STANDARD_AUTHORIZER,
        super_users="User:ANONYMOUS",
    ) as served:
        served.inside(lambda inside: add_users(inside, *USERS))
        for topic in ("orders", "totals", "secret", "bills"):
            served.connect().call(create(topic))
        for topic in ("orders", "totals", "secret"):
            served.connect().call(produce(topic, batch(value=b"v")), 11)
        yield served
        served.close_clients()


def allow(broker: ServedBroker, *rules: str) -> None:
    answer = broker.connect().call(creating(*(f"allow User:{rule}" for rule in rules)))
    assert not any(each.error_code for each in answer.results)


def bootstrap(broker: ServedBroker) -> str:
    return f"127.0.0.1:{broker.broker.addresses[1][1]}"


def librdkafka(broker: ServedBroker, user: str, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap(broker),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": user,
        "sasl.password": f"{user}-pw",
    } | {name.replace("_", "."): value for name, value in more.items()}


def in_python(broker: ServedBroker, user: str) -> dict[str, Any]:
    """Return the settings with which kafka-python, aiokafka and the SDK log in as this user."""
    return {
        "bootstrap_servers": bootstrap(broker),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": user,
        "sasl_plain_password": f"{user}-pw",
    }


def test_a_producer_of_confluent_kafka_needs_write_on_its_topic(broker: ServedBroker) -> None:
    def delivered() -> KafkaError | None:
        outcomes: list[KafkaError | None] = []
        producer = Producer(librdkafka(broker, "alice", enable_idempotence=True))
        producer.produce("orders", b"v", on_delivery=lambda error, _: outcomes.append(error))
        producer.flush(WAIT_S)
        return outcomes[0]

    refused = delivered()
    assert refused is not None
    # An idempotent producer asks for the topic and for a producer id; both are refused, and either answer may be first.
    assert refused.code() in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)
    allow(broker, "alice WRITE TOPIC = orders")
    assert delivered() is None


def test_a_consumer_of_kafka_python_needs_read_on_its_topic_and_its_group(broker: ServedBroker) -> None:
    def consumed(polls: int = 10) -> int:
        consumer = KafkaConsumer("orders", group_id="bobs", auto_offset_reset="earliest", **in_python(broker, "bob"))
        try:
            for _ in range(polls):
                found = consumer.poll(timeout_ms=1000, max_records=10)
                if found:
                    consumer.commit()
                    return sum(map(len, found.values()))
        finally:
            consumer.close(autocommit=False)
        return 0

    with pytest.raises(GroupAuthorizationFailedError):
        consumed()
    allow(broker, "bob READ GROUP ^ bob")
    assert consumed(polls=1) == 0, "it logs that the topic is not for it"
    allow(broker, "bob READ TOPIC = orders")
    assert consumed() >= 1


def test_a_transactional_producer_of_aiokafka_needs_write_on_its_transactional_id(broker: ServedBroker) -> None:
    async def committed() -> None:
        producer = AIOKafkaProducer(transactional_id="carls-1", **in_python(broker, "carl"))
        try:
            await producer.start()
            async with producer.transaction():
                await producer.send_and_wait("totals", b"v")
        finally:
            await producer.stop()

    allow(broker, "carl WRITE TOPIC = totals")
    with pytest.raises(TransactionalIdAuthorizationFailed):
        asyncio.run(asyncio.wait_for(committed(), WAIT_S))
    allow(broker, "carl WRITE TRANSACTIONAL_ID ^ carls-")
    asyncio.run(asyncio.wait_for(committed(), WAIT_S))


def test_an_exactly_once_copy_needs_rights_to_topics_group_and_transactional_id(broker: ServedBroker) -> None:
    async def copied() -> int:
        count = 0
        async with (
            SdkProducer(transactional_id="doras-copy", **in_python(broker, "dora")) as producer,
            SdkConsumer(
                topics=["orders"], group_id="doras", auto_offset_reset="earliest", **in_python(broker, "dora")
            ) as consumer,
        ):
            async for records in consumer.batches(max_records=10):
                async with producer.transaction(records) as transaction:
                    for record in records:
                        await transaction.send("totals", record.value)
                        count += 1
                break
        return count

    def run() -> int:
        return asyncio.run(asyncio.wait_for(copied(), WAIT_S))

    allow(broker, "dora WRITE TOPIC = totals", "dora READ TOPIC = orders", "dora READ GROUP = doras")
    with pytest.raises(AuthorizationError, match="doras-copy"):
        run()
    allow(broker, "dora WRITE TRANSACTIONAL_ID = doras-copy")
    assert run() >= 1


def test_a_librdkafka_admin_lists_and_creates_only_topics_its_rights_allow(broker: ServedBroker) -> None:
    admin = AdminClient(librdkafka(broker, "erin"))

    def made(name: str) -> int | None:
        (future,) = admin.create_topics([NewTopic(name, 1, 1)]).values()
        error = future.exception(WAIT_S)
        assert error is None or isinstance(error, KafkaException)
        return None if error is None else int(error.args[0].code())

    def seen() -> set[str]:
        return set(admin.list_topics(timeout=WAIT_S).topics)

    assert seen() == set()
    assert made("erins-1") == KafkaError.TOPIC_AUTHORIZATION_FAILED
    allow(broker, "erin CREATE TOPIC ^ erins-", "erin DESCRIBE TOPIC ^ erins-", "erin DESCRIBE TOPIC = orders")
    assert made("erins-1") is None
    assert seen() == {"erins-1", "orders"}
    cluster = admin.describe_cluster(include_authorized_operations=True).result(WAIT_S)
    assert not cluster.authorized_operations
    allow(broker, "erin DESCRIBE CLUSTER = kafka-cluster")
    cluster = admin.describe_cluster(include_authorized_operations=True).result(WAIT_S)
    assert cluster.authorized_operations == [AclOperation.DESCRIBE]


def in_java(user: str) -> dict[str, Any]:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_jaas_config": f'{module} required username="{user}" password="{user}-pw";',
    }


def test_javas_clients_get_the_exception_that_names_the_kind_of_missing_right(
    broker: ServedBroker, java: JavaClients
) -> None:
    """Java uses TV2 transactions and Fetch by topic id, which Python's libraries do not."""
    producer = java.producer(bootstrap(broker), "freds-1", **in_java("fred"))
    with pytest.raises(JavaError, match="TransactionalIdAuthorizationException"):
        producer.do("init")
    producer.do("close")
    allow(broker, "fred WRITE TRANSACTIONAL_ID = freds-1")
    producer = java.producer(bootstrap(broker), "freds-1", **in_java("fred"))
    producer.do("init")
    producer.do("begin")
    with pytest.raises(JavaError, match="TopicAuthorizationException"):
        producer.send("bills", "no")
    producer.do("abort")
    allow(broker, "fred WRITE TOPIC = bills")
    producer.do("begin")
    producer.send("bills", "yes")
    producer.do("commit")
    producer.do("close")
    consumer = java.consumer(bootstrap(broker), "freds", **in_java("fred"))
    consumer.do("subscribe", topic="bills")
    with pytest.raises(JavaError, match="GroupAuthorizationException"):
        eventually_read(consumer)
    allow(broker, "fred READ GROUP = freds")
    with pytest.raises(JavaError, match="TopicAuthorizationException"):
        eventually_read(consumer)
    allow(broker, "fred READ TOPIC = bills")
    assert eventually_read(consumer) == ["yes"]
    consumer.do("close")


def eventually_read(consumer: JavaClient) -> list[str]:
    for _ in range(40):
        if found := consumer.poll():
            return found
    return []
