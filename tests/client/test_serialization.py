"""Serializers and deserializers: plain functions, and those made for confluent-kafka's and kafka-python's clients."""

import datetime
import functools
import json
import uuid

import kafka.serializer
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AsyncAvroSerializer, AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.serialization import (
    Deserializer,
    IntegerDeserializer,
    IntegerSerializer,
    Serializer,
    StringDeserializer,
    StringSerializer,
)
from fencepost.client.consumer.consumer import Consumer
from fencepost.client.errors import InvalidConfigurationError, RecordDeserializationError
from fencepost.client.producer.producer import Producer
from fencepost.client.serialization import MessageField, Way, way_of
from fencepost.client.settings import consumer_settings, producer_settings
from schema_registry import schema_registry
from txn_world import BOOTSTRAP, TxnWorld, within

USER = json.dumps(
    {
        "type": "record",
        "name": "User",
        "fields": [{"name": "name", "type": "string"}, {"name": "age", "type": "int"}],
    }
)
KEY = json.dumps({"type": "record", "name": "Id", "fields": [{"name": "id", "type": "long"}]})
ADA = {"name": "Ada", "age": 36}


def producer(world: TxnWorld, **settings) -> Producer:
    return Producer(BOOTSTRAP, environment=world.world.environment, **settings)


def consumer(world: TxnWorld, **settings) -> Consumer:
    return Consumer(
        BOOTSTRAP, topics=["t"], environment=world.world.environment, auto_offset_reset="earliest", **settings
    )


# ---- how one is called ---------------------------------------------------------------------------------------------


class Older:
    def serialize(self, topic, value):
        return f"{topic}: {value}".encode()

    def deserialize(self, topic, value):
        return f"{topic}: {value.decode()}"


class Newer(kafka.serializer.Serializer, kafka.serializer.Deserializer):
    def serialize(self, topic, headers, data):
        headers.append(("written", topic.encode()))
        return data.encode()

    def deserialize(self, topic, headers, data):
        return (topic, dict(headers), data.decode())


class OfAnotherName(Serializer, Deserializer):
    def __call__(self, obj, context=None):
        return obj


class Both:
    def __call__(self, value):
        return value

    def serialize(self, topic, headers, data):
        return data


class Asynchronous:
    async def __call__(self, value):
        return value


class MostNeeded:
    def serialize(self, value):
        return value


def of_anything(*arguments, **keywords):
    return json.dumps(*arguments, **keywords).encode()


def of_three(topic, headers, value):
    return value


async def later(value):
    return value


ALONE = [str.encode, json.dumps, bytes.decode, int, uuid.UUID, len, datetime.date.fromisoformat]
ALONE += [lambda value, pretty=True: value, lambda value, *more: value, functools.partial(json.loads, parse_int=float)]
TWO = [StringSerializer("utf_8"), lambda value, ctx: value, lambda value, where: value, lambda value, ctx=None: value]
TWO += [OfAnotherName(), functools.partial(lambda more, value, ctx: value, "more")]


@pytest.mark.parametrize("function", ALONE)
def test_a_serializer_with_one_required_argument_gets_only_the_value(function):
    assert way_of(function) is Way.VALUE


@pytest.mark.parametrize("function", TWO)
def test_a_serializer_with_a_second_argument_or_ctx_gets_a_context(function):
    assert way_of(function) is Way.CONTEXT


@pytest.mark.parametrize(("made", "way"), [(Newer(), Way.METHOD), (Older(), Way.OLD_METHOD)])
def test_the_arguments_for_a_serializer_object_follow_from_its_methods_signature(made, way):
    assert way_of(made, "serialize") is way_of(made, "deserialize") is way


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (of_anything, "takes neither"),
        (of_three, "takes neither"),
        (lambda: b"", "takes neither"),
        (lambda value, *, registry: value, "takes neither"),
        (later, "asynchronous"),
        (Asynchronous(), "asynchronous"),
        (StringSerializer, r"is a class"),
        (Newer, r"is a class"),
        (Both(), "is callable and also has serialize"),
        (MostNeeded(), "has a serialize that takes neither"),
        (5, "is not callable"),
        ("json", "is not callable"),
    ],
)
def test_an_ambiguous_serializer_is_refused_when_the_client_is_made(function, why):
    with pytest.raises(InvalidConfigurationError, match=f"value_serializer: .*{why}") as caught:
        producer_settings(BOOTSTRAP, value_serializer=function)
    assert caught.value.hint


def test_an_invalid_deserializer_is_refused_when_the_client_is_made():
    with pytest.raises(InvalidConfigurationError, match=r"key_deserializer: .*is a class"):
        consumer_settings(BOOTSTRAP, key_deserializer=StringDeserializer)


# ---- what they are given -------------------------------------------------------------------------------------------


def test_a_serializers_context_has_topic_field_and_headers_it_can_extend():
    def write(value, ctx):
        ctx.headers.append((ctx.field, ctx.topic.encode()))
        return value.encode()

    async def main(world):
        given = {"key_serializer": write, "value_serializer": write, "environment": world.world.environment}
        async with Producer(BOOTSTRAP, **given) as producer:
            await producer.send_and_wait("t", "v", key="k", headers={"own": b"1"})
            await producer.send_and_wait("t", None, key="k")
        seen = []

        def read(found, ctx):
            seen.append((ctx.topic, ctx.field, tuple(ctx.headers)))
            return found.decode()

        settings = {"environment": world.world.environment, "auto_offset_reset": "earliest"}
        async with Consumer(BOOTSTRAP, topics=["t"], key_deserializer=read, value_deserializer=read, **settings) as it:
            first, second = await it.getone(), await it.getone()
        headers = (("own", b"1"), ("key", b"t"), ("value", b"t"))
        assert (first.key, first.value, first.headers) == ("k", "v", headers)
        assert (second.key, second.value, second.headers) == ("k", None, (("key", b"t"),))
        assert {("t", MessageField.KEY, headers), ("t", MessageField.VALUE, headers)} <= set(seen)

    within(main)


def test_serializers_of_confluent_kafka_work_without_an_adapter():
    async def main(world):
        config = {"bootstrap.servers": BOOTSTRAP}
        serializers = {"key.serializer": IntegerSerializer(), "value.serializer": StringSerializer("utf_8")}
        async with Producer.from_config(config | serializers, environment=world.world.environment) as producer:
            await producer.send_and_wait("t", "grün", key=7)
        deserializers = {"key.deserializer": IntegerDeserializer(), "value.deserializer": StringDeserializer("utf_8")}
        reading = config | deserializers | {"auto.offset.reset": "earliest"}
        async with Consumer.from_config(reading, topics=["t"], environment=world.world.environment) as consumer:
            record = await consumer.getone()
        assert (record.key, record.value) == (7, "grün")

    within(main)


def test_serializer_objects_of_kafka_python_are_called_with_topic_and_headers():
    async def main(world):
        async with producer(world, value_serializer=Newer(), key_serializer=Older()) as sender:
            await sender.send_and_wait("t", "v", key="k", headers=[("own", b"1")])
        async with consumer(world, value_deserializer=Newer(), key_deserializer=Older()) as reader:
            record = await reader.getone()
        assert record.value == ("t", {"own": b"1", "written": b"t"}, "v")
        assert record.key == "t: t: k"

    within(main)


# ---- a schema registry ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_confluents_avro_serializers_register_and_read_schemas_at_the_registry():
    """A schema is registered once, not for each record."""

    async def main(world):
        with schema_registry() as registry, SchemaRegistryClient({"url": registry.url}) as client:
            key, value = AvroSerializer(client, KEY), AvroSerializer(client, USER)
            async with producer(world, key_serializer=key, value_serializer=value) as sender:
                for age in range(20):
                    await sender.send("t", ADA | {"age": age}, key={"id": age})
                await sender.send_and_wait("t", None, key={"id": 1})
            assert sorted(registry.subjects) == ["t-key", "t-value"]
            assert [method for method, _ in registry.asked].count("POST") == 2  # and not for each record
            async with consumer(world) as plain:
                raw = await plain.getone()
            assert raw.value[:5] == b"\0" + registry.subjects["t-value"][0].to_bytes(4, "big")
        with schema_registry() as other, SchemaRegistryClient({"url": other.url}) as client:
            other.schemas, other.subjects = registry.schemas, registry.subjects
            key, value = AvroDeserializer(client), AvroDeserializer(client)
            async with consumer(world, key_deserializer=key, value_deserializer=value) as reader:
                records = [await reader.getone() for _ in range(21)]
            asked = len(other.asked)
        assert [record.value for record in records] == [ADA | {"age": age} for age in range(20)] + [None]
        assert [record.key["id"] for record in records] == [*range(20), 1]
        assert asked <= 4

    within(main)


@pytest.mark.slow
def test_confluents_avro_serializer_can_put_the_schema_id_into_a_header():
    ada = ADA | {"name": "Ada Lovelace"}  # AvroDeserializer wants 6 bytes or more, wherever the id is

    async def main(world):
        with schema_registry() as registry, SchemaRegistryClient({"url": registry.url}) as client:
            value = AvroSerializer(client, USER, conf={"schema.id.serializer": header_schema_id_serializer})
            async with producer(world, value_serializer=value) as sender:
                await sender.send_and_wait("t", ada, headers={"own": b"1"})
            async with consumer(world, value_deserializer=AvroDeserializer(client)) as reader:
                record = await reader.getone()
        assert [name for name, _ in record.headers] == ["own", "__value_schema_id"]
        assert record.value == ada

    within(main)


def test_a_value_that_cannot_be_serialized_names_its_topic_and_is_not_sent():
    async def main(world):
        with schema_registry() as registry, SchemaRegistryClient({"url": registry.url, "max.retries": 0}) as client:
            async with producer(world, value_serializer=AvroSerializer(client, USER)) as sender:
                registry.is_down = True
                with pytest.raises(SchemaRegistryError) as refused:
                    await sender.send("t", ADA)
                registry.is_down = False
                with pytest.raises(TypeError, match="field age") as wrong:
                    await sender.send("t", {"name": "Ada", "age": "old"})
                await sender.send_and_wait("t", ADA)
            async with consumer(world, value_deserializer=AvroDeserializer(client)) as reader:
                record = await reader.getone()
        for caught in (refused, wrong):
            assert caught.value.__notes__ == ["raised for the value of a record for topic 't', which is not sent"]
        assert (record.offset, record.value) == (0, ADA)

    within(main)


@pytest.mark.slow
@pytest.mark.parametrize("read", ["getone", "getmany", "batches"])
def test_a_record_that_cannot_be_deserialized_names_its_offset_and_can_be_skipped(read):
    """The exception has the raw record. The same record raises again until the caller seeks past it."""

    async def main(world):
        with schema_registry() as registry, SchemaRegistryClient({"url": registry.url, "max.retries": 0}) as client:
            value = AvroSerializer(client, USER)
            async with producer(world, value_serializer=value) as sender:
                await sender.send_and_wait("t", ADA)
            async with producer(world) as sender:
                await sender.send_and_wait("t", b"no avro", key=b"k", headers={"own": b"1"})
            async with producer(world, value_serializer=value) as sender:
                await sender.send_and_wait("t", ADA | {"age": 37})

            async with consumer(world, value_deserializer=AvroDeserializer(client)) as reader:

                async def values():
                    if read == "getone":
                        return [(await reader.getone()).value]
                    if read == "getmany":
                        return [
                            one.value for found in (await reader.getmany(timeout_ms=9_000)).values() for one in found
                        ]
                    async for batch in reader.batches():
                        return [one.value for one in batch]
                    raise AssertionError("no batch")

                registry.is_down = True
                with pytest.raises(RecordDeserializationError, match="t-0: at offset 0: the value") as caught:
                    await values()
                assert isinstance(caught.value.__cause__, SchemaRegistryError)
                registry.is_down = False
                assert await values() == [ADA]  # it was tried again, and nothing passed over
                for _ in range(2):
                    with pytest.raises(RecordDeserializationError, match="offset 1") as caught:
                        await values()
                error = caught.value
                assert (error.partition, error.offset, error.field) == (("t", 0), 1, "value")
                assert (error.record.key, error.record.value) == (b"k", b"no avro")
                assert error.record.headers == (("own", b"1"),)
                reader.seek(error.partition, error.offset + 1)
                assert await values() == [ADA | {"age": 37}]

    within(main)


def test_confluents_asynchronous_serializers_are_refused():
    async def main(world):
        with schema_registry() as registry:
            from confluent_kafka.schema_registry import AsyncSchemaRegistryClient

            client = AsyncSchemaRegistryClient({"url": registry.url})
            async with producer(world, value_serializer=await AsyncAvroSerializer(client, USER)) as sender:
                with pytest.raises(TypeError, match="asynchronous"):
                    await sender.send("t", ADA)

    within(main)
