"""Topics on the target are made as they are on the source, and take every record as it is."""

import asyncio

import pytest
from fencepost.client.admin.values import ConfigEntry, NewTopic
from fencepost.client.errors import ClientError, UnknownTopicError
from fencepost.client.mirror.names import MAP_TOPIC
from fencepost.client.mirror.topics import (
    FOR_EVER,
    configs_to_make,
    configs_to_settle,
    follow_topics,
    partitions_to_add,
    settle_configs,
)
from two_clusters import two_clusters

KNOWN = {
    "retention.ms",
    "cleanup.policy",
    "durability.mode",
    "max.message.bytes",
    "message.timestamp.type",
    "min.insync.replicas",
}


def entry(name, value, source="topic", sensitive=False):
    return ConfigEntry(name, value, source, False, sensitive)


@pytest.mark.parametrize(
    ("source", "made"),
    [
        ([], {}),
        ([entry("retention.ms", "5")], {"retention.ms": "5"}),
        ([entry("retention.ms", "5", "file or flag")], {"retention.ms": "5"}),  # what holds, wherever it is set
        ([entry("retention.ms", "604800000", "default")], {}),
        ([entry("durability.mode", "os")], {"durability.mode": "os"}),
        ([entry("durability.mode", "os", "file or flag")], {}),  # how the source's broker was started
        ([entry("cleanup.delay.ms", "5")], {}),  # not known there
        ([entry("min.insync.replicas", "2")], {}),
        ([entry("cleanup.policy", "compact", sensitive=True)], {}),
        ([entry("cleanup.policy", None)], {}),
        ([entry("max.message.bytes", "1048588", "default")], {}),
        ([entry("max.message.bytes", "2000000", "default")], {"max.message.bytes": "2000000"}),
        ([entry("message.timestamp.type", "LogAppendTime")], {}),
    ],
)
def test_a_topics_own_settings_are_copied_if_the_target_knows_them(source, made):
    assert configs_to_make(source, KNOWN) == made | {"message.timestamp.type": "CreateTime"}


def test_settings_about_timestamps_are_copied_only_at_the_cutover():
    known = {"message.timestamp.type", "message.timestamp.after.max.ms"}
    source = [entry("message.timestamp.type", "LogAppendTime"), entry("message.timestamp.after.max.ms", "1", "default")]
    keeping = {"message.timestamp.type": "CreateTime", "message.timestamp.after.max.ms": FOR_EVER}
    assert configs_to_make(source, known) == keeping
    assert configs_to_settle(source, known) == {
        "message.timestamp.type": "LogAppendTime",
        "message.timestamp.after.max.ms": None,
    }


def test_the_mirror_adds_missing_target_partitions_and_raises_for_surplus_ones():
    assert partitions_to_add("t", 3, 3) is None
    assert partitions_to_add("t", 3, 2) == 3
    with pytest.raises(ClientError, match="has 4 partitions on the target, and 3"):
        partitions_to_add("t", 3, 4)


async def own(admin, topic):
    found = (await admin.describe_configs(topics=topic))[topic]
    return {each.name: each.value for each in found if each.source == "topic"}


@pytest.mark.slow
async def test_mirrored_topics_are_created_and_extended_and_settings_completed_at_cutover():
    """Until the cutover a topic of the target keeps the timestamps of records. The setting by which a source refuses
    writes is never copied.
    """
    async with two_clusters() as to:
        configs = {
            "retention.ms": "1000000",
            "message.timestamp.type": "LogAppendTime",
            "fencepost.writes.refused": "true",
        }
        await to.source.create_topics([NewTopic("a", 3, configs=configs), NewTopic("b", 1), NewTopic("c", 1)])
        await asyncio.gather(*(follow_topics(to.source, to.target, ["a", "b"]) for _ in range(3)))
        made = await to.target.describe_topics()
        assert {name: len(topic.partitions) for name, topic in made.items()} == {"a": 3, "b": 1, MAP_TOPIC: 1}
        assert (await own(to.target, "a"))["retention.ms"] == "1000000"
        assert (await own(to.target, "a"))["message.timestamp.type"] == "CreateTime"
        assert "fencepost.writes.refused" not in await own(to.target, "a")
        assert (await own(to.target, MAP_TOPIC))["cleanup.policy"] == "compact"

        await to.source.create_partitions({"b": 4})
        await asyncio.gather(*(follow_topics(to.source, to.target, ["a", "b"]) for _ in range(3)))
        assert len((await to.target.describe_topics("b"))["b"].partitions) == 4

        await settle_configs(to.source, to.target, ["a", "b", "not there"])
        assert await own(to.target, "a") == {"retention.ms": "1000000", "message.timestamp.type": "LogAppendTime"}
        assert await own(to.target, "b") == {}

        with pytest.raises(UnknownTopicError):
            await follow_topics(to.source, to.target, ["gone"])
        await to.target.create_partitions({"b": 5})
        with pytest.raises(ClientError, match="5 partitions on the target, and 4"):
            await follow_topics(to.source, to.target, ["b"])
