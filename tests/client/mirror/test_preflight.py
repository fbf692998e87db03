"""What stands against a mirror is said before it starts, and nothing else."""

import asyncio
from dataclasses import replace

import pytest
from acl_client import STANDARD_AUTHORIZER
from fencepost.client.admin.security_values import AclBinding
from fencepost.client.admin.values import NewTopic, QuotaEntity
from fencepost.client.errors import UnknownTopicError
from fencepost.client.mirror.describing import look
from fencepost.client.mirror.names import group_id
from fencepost.client.mirror.preflight import Described, Quota, TopicSeen, TopicThere, find_problems
from fencepost.client.net.environment import SYSTEM
from fencepost.client.producer.producer import Producer
from fencepost.client.share.consumer import ShareConsumer
from fencepost.client.values import TopicPartition
from plain_mirror import mirror_all
from two_clusters import two_clusters

ALL = frozenset({"read", "write", "describe", "describe_configs"})
THERE = TopicThere(2, ALL, empty=False, positions=True)
TOPIC = TopicSeen("t", 2, ALL, 1000, 1000, there=THERE)
FINE = Described((TOPIC,), timeout_there_ms=900_000)


def topic(**more):
    return replace(FINE, topics=(replace(TOPIC, **more),))


def there(**more):
    return topic(there=replace(THERE, **more))


@pytest.mark.parametrize(
    ("seen", "fatal", "text"),
    [
        (replace(FINE, same_cluster=True), True, "source and target are the same cluster"),
        (replace(FINE, refused=(("target", "x"),)), True, "this login may not x at the target"),
        (replace(FINE, timeout_there_ms=299_999), True, "the target allows transactions of 299999 ms"),
        (
            replace(FINE, quotas=(Quota("target", "user a", "producer_byte_rate", 9.0),)),
            False,
            "user a has producer_byte_rate 9",
        ),
        (topic(allowed=ALL - {"read"}), True, "this login may not read topic t at the source"),
        (there(allowed=ALL - {"write"}), True, "this login may not write topic t at the target"),
        (there(partitions=3), True, "topic t has 3 partitions at the target, and 2 at the source"),
        (there(partitions=1, positions=False, empty=True), True, "topic t has 1 partitions at the target, and 2"),
        (there(positions=False), True, "topic t has records at the target that this mirror did not write"),
        (there(writers=("a", "b")), True, "others write to topic t at the target: a, b"),
        (topic(largest_there_bytes=999), False, "topic t takes batches of 1000 bytes at the source, and of 999"),
        (topic(expired=7, retention_there_ms=5), False, "topic t has records older than the retention of 5 ms"),
        (topic(share_groups=("s",)), False, "share groups read topic t, and are not moved: s"),
    ],
)
def test_each_problem_of_a_mirror_has_a_text_and_a_hint_of_one_line(seen, fatal, text):
    (found,) = find_problems(seen)
    assert found.text.startswith(text)
    assert found.is_fatal is fatal
    assert found.hint
    assert "\n" not in found.text + found.hint


@pytest.mark.parametrize(
    "seen",
    [
        FINE,
        replace(FINE, timeout_there_ms=None),
        replace(FINE, timeout_there_ms=60_000, timeout_ms=60_000),
        topic(there=None, largest_there_bytes=None),
        topic(allowed=None),
        there(allowed=None),
        there(positions=False, empty=True),
        there(partitions=1),  # it has grown at the source
        topic(largest_there_bytes=1001),
    ],
)
def test_find_problems_returns_an_empty_list_for_clusters_that_can_be_mirrored(seen):
    assert find_problems(seen) == []


@pytest.mark.slow
async def test_a_mirrors_preflight_check_finds_the_problems_of_two_real_clusters():
    async with two_clusters(target={"message_max_bytes": 1000}) as to:
        await to.source.create_topics([NewTopic("a", 2), NewTopic("b", 1), NewTopic("c", 1)])
        assert await look(to.source, to.target, ["a"], "m") == []
        with pytest.raises(UnknownTopicError):
            await look(to.source, to.target, ["gone"], "m")

        await to.target.create_topics([NewTopic("b", 1), NewTopic("c", 2)])
        async with Producer(to.target_at) as producer:
            await producer.send_and_wait("b", b"foreign")
        found = [(each.is_fatal, each.text) for each in await look(to.source, to.target, ["a", "b", "c"], "m")]
        assert found == [
            (True, "topic b has records at the target that this mirror did not write"),
            (False, "topic b takes batches of 1048588 bytes at the source, and of 1000 at the target: "
             "a larger record stops its partition"),
            (True, "topic c has 2 partitions at the target, and 1 at the source"),
            (False, "topic c takes batches of 1048588 bytes at the source, and of 1000 at the target: "
             "a larger record stops its partition"),
        ]  # fmt: skip

        await to.target.delete_topics("b")
        async with Producer(to.source_at) as producer:
            await producer.send_and_wait("b", b"record")
        await mirror_all(to, "b", mirror="m")
        await to.target.alter_client_quotas(QuotaEntity(client_id="app"), set={"producer_byte_rate": 1000})
        found = [each.text for each in await look(to.source, to.target, ["b"], "m")]
        assert found[0].startswith("client id app has producer_byte_rate 1000 at the target")
        assert [each for each in found if "did not write" in each or "others" in each] == []

        async with Producer(to.target_at) as producer:
            await producer.send_and_wait("b", b"beside the mirror")
        found = [each.text for each in await look(to.source, to.target, ["b"], "m")]
        assert any(each.startswith("others write to topic b at the target: producer id") for each in found)
        same = await look(to.source, to.source, ["a"], "m")
        assert any(each.text == "source and target are the same cluster" for each in same)


@pytest.mark.slow
async def test_the_preflight_check_counts_records_older_than_the_targets_retention(monkeypatch):
    """A fencepost broker deletes by the time of arrival, so none is too old for it. The check is made to take the
    target for another Kafka.
    """
    monkeypatch.setattr("fencepost.client.mirror.describing.SETTING", "no such setting")
    async with two_clusters() as to:
        for admin in (to.source, to.target):
            await admin.create_topics(NewTopic("a", 2, configs={"retention.ms": "3600000"}))
        now_ms = SYSTEM.clock.now_ms()
        async with Producer(to.source_at) as producer:
            for age_ms in (7_200_000, 3_700_000, 1_000):
                await producer.send_and_wait("a", b"x", partition=0, timestamp_ms=now_ms - age_ms)
            await producer.send_and_wait("a", b"x", partition=1, timestamp_ms=now_ms - 7_200_000)
        (found,) = await look(to.source, to.target, ["a"], "m")
    assert not found.is_fatal
    assert (
        "topic a has records older than the retention of 3600000 ms at the target, in the first 3 offsets" in found.text
    )


@pytest.mark.slow
async def test_the_preflight_check_names_share_groups_that_read_the_topic_at_the_source():
    async with two_clusters() as to:
        await to.source.create_topics(NewTopic("a", 1))
        async with ShareConsumer(to.source_at, group_id="workers", topics=["a"]) as consumer:
            async with asyncio.timeout(60):
                await consumer.getmany(timeout_ms=100)
                while not await to.source.list_share_group_offsets("workers"):
                    await consumer.getmany(timeout_ms=100)
            found = [each.text for each in await look(to.source, to.target, ["a"], "m")]
    assert found == ["share groups read topic a, and are not moved: workers"]


@pytest.mark.slow
async def test_a_mirrors_preflight_check_names_the_rights_that_its_login_lacks():
    everybody = {
        "authorizer_class_name": STANDARD_AUTHORIZER,
        "super_users": "User:admin",
        "allow_everyone_if_no_acl_found": "true",
    }
    async with two_clusters(everybody, everybody) as to:
        await to.source.create_topics([NewTopic("a", 1)])
        await to.target.create_topics([NewTopic("a", 1)])
        await to.source.create_acls(AclBinding("User:ANONYMOUS", "describe", "topic", "a"))  # and so no more than that
        await to.target.create_acls(AclBinding("User:ANONYMOUS", "describe", "topic", "a"))
        name = "fencepost-mirror-m-preflight"
        await to.target.create_acls(
            AclBinding("User:ANONYMOUS", "describe", "transactional_id", name, permission="deny")
        )
        texts = [each.text for each in await look(to.source, to.target, ["a"], "m") if each.is_fatal]
        assert "this login may not write as transactional ids that begin with fencepost-mirror at the target" in texts
        assert "this login may not describe the settings of topic a at the source" in texts
        assert any(each.startswith("this login may not read, describe_configs topic a at the source") for each in texts)
        assert any(each.startswith("this login may not write topic a at the target") for each in texts)
        assert await to.target.list_group_offsets(group_id("m"), [TopicPartition("a", 0)]) == {}
