"""Serializers and deserializers: plain functions, and those made for confluent-kafka's clients."""

import json

import pytest
from confluent_kafka.serialization import IntegerDeserializer, IntegerSerializer, StringDeserializer, StringSerializer
from fencepost.client.consumer import Consumer
from fencepost.client.producer import Producer
from fencepost.client.serialization import MessageField, takes_context
from txn_world import BOOTSTRAP, within


@pytest.mark.parametrize("function", [str.encode, json.dumps, bytes.decode, int, lambda value, pretty=True: value])
def test_an_optional_second_argument_is_no_context(function):
    assert not takes_context(function)


@pytest.mark.parametrize("function", [StringSerializer("utf_8"), lambda value, ctx: value, lambda value, where: value])
def test_a_required_second_argument_or_one_named_ctx_is_a_context(function):
    assert takes_context(function)


def test_serializers_see_topic_field_and_headers_and_may_add_to_these():
    def write(value, ctx):
        ctx.headers.append((ctx.field, ctx.topic.encode()))
        return value.encode()

    async def main(world):
        given = {"key_serializer": write, "value_serializer": write, "outside": world.world.outside}
        async with Producer(BOOTSTRAP, **given) as producer:
            await producer.send_and_wait("t", "v", key="k", headers={"own": b"1"})
            await producer.send_and_wait("t", None, key="k")
        seen = []

        def read(found, ctx):
            seen.append((ctx.topic, ctx.field, tuple(ctx.headers)))
            return found.decode()

        settings = {"outside": world.world.outside, "auto_offset_reset": "earliest"}
        async with Consumer(BOOTSTRAP, topics=["t"], key_deserializer=read, value_deserializer=read, **settings) as it:
            first, second = await it.getone(), await it.getone()
        headers = (("own", b"1"), ("key", b"t"), ("value", b"t"))
        assert (first.key, first.value, first.headers) == ("k", "v", headers)
        assert (second.key, second.value, second.headers) == ("k", None, (("key", b"t"),))
        assert {("t", MessageField.KEY, headers), ("t", MessageField.VALUE, headers)} <= set(seen)

    within(main)


def test_confluents_serializers_are_taken_as_they_are():
    async def main(world):
        config = {"bootstrap.servers": BOOTSTRAP}
        serializers = {"key.serializer": IntegerSerializer(), "value.serializer": StringSerializer("utf_8")}
        async with Producer.from_config(config | serializers, outside=world.world.outside) as producer:
            await producer.send_and_wait("t", "grün", key=7)
        deserializers = {"key.deserializer": IntegerDeserializer(), "value.deserializer": StringDeserializer("utf_8")}
        reading = config | deserializers | {"auto.offset.reset": "earliest"}
        async with Consumer.from_config(reading, topics=["t"], outside=world.world.outside) as consumer:
            record = await consumer.getone()
        assert (record.key, record.value) == (7, "grün")

    within(main)
