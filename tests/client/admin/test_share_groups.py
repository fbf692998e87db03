"""Admin's calls about share groups, against a broker."""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from fencepost.client.admin.admin import Admin
from fencepost.client.admin.values import GroupListing, NewTopic, SharePartitionOffsets, ShareWindow
from fencepost.client.errors import KafkaError
from fencepost.client.producer.producer import Producer
from fencepost.client.values import TopicPartition
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.share_groups import ShareGroupHeartbeatRequest
from served_broker import ServedBroker

FIRST, SECOND = TopicPartition("work", 0), TopicPartition("work", 1)


@pytest.fixture(scope="module")
def broker() -> Iterator[ServedBroker]:
    with ServedBroker() as served:
        yield served


@pytest_asyncio.fixture
async def admin(broker: ServedBroker) -> AsyncIterator[Admin]:
    address = f"127.0.0.1:{broker.port}"
    async with Admin(address) as opened:
        if "work" not in await opened.list_topics():
            await opened.create_topics([NewTopic("work", 2), "other"])
            async with Producer(address) as producer:
                for _ in range(5):
                    await producer.send("work", b"x", partition=0)
        yield opened


async def test_admin_sets_describes_and_deletes_share_group_offsets(admin: Admin) -> None:
    """A share group is in no list of other groups."""
    await admin.alter_share_group_offsets("queue", {FIRST: 2, SECOND: 0})
    assert await admin.list_groups(types=["share"]) == [GroupListing("queue", "Empty", "share", "share")]
    group = (await admin.describe_share_groups(["queue", "nobody"]))["queue"]
    assert (group.state, group.group_type, group.protocol, group.members) == ("Empty", "share", "simple", ())
    idle = ShareWindow(size=0, limit=2000, pending_count=0, pending=())
    stands = {FIRST: SharePartitionOffsets(2, 0, 3, idle), SECOND: SharePartitionOffsets(0, 0, 0, idle)}
    assert await admin.list_share_group_offsets("queue") == stands
    some = await admin.list_share_group_offsets("queue", [FIRST, TopicPartition("work", 7), TopicPartition("no", 0)])
    assert some == {FIRST: stands[FIRST]}
    assert await admin.describe_groups("queue") == {}, "it is no group of the other kinds"
    await admin.alter_share_group_offsets("queue", {FIRST: 5})
    assert (await admin.list_share_group_offsets("queue"))[FIRST].lag == 0
    await admin.delete_share_group_offsets("queue", "work")
    assert await admin.list_share_group_offsets("queue") == {}
    await admin.delete_groups("queue")
    assert await admin.describe_share_groups("queue") == {}


async def test_an_error_of_a_share_group_call_names_the_refused_partition_topic_or_group(admin: Admin) -> None:
    await admin.alter_share_group_offsets("refused", {FIRST: 0})
    with pytest.raises(KafkaError, match=r"nowhere-0") as raised:
        await admin.alter_share_group_offsets("refused", {FIRST: 1, TopicPartition("nowhere", 0): 0})
    assert raised.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await admin.list_share_group_offsets("refused"))[FIRST].start_offset == 1, "the others are done"
    with pytest.raises(KafkaError, match="topic other"):
        await admin.delete_share_group_offsets("refused", ["other"])
    with pytest.raises(KafkaError, match="group nobody") as raised:
        await admin.delete_share_group_offsets("nobody", ["work"])
    assert raised.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    await admin.delete_groups("refused")


async def test_a_share_group_with_members_is_described_and_refuses_offset_changes(admin: Admin) -> None:
    joining = ShareGroupHeartbeatRequest(
        group_id="busy", member_id="m1", member_epoch=0, subscribed_topic_names=["work"]
    )
    joined = await admin._ask(("group", "busy"), joining, lambda answer: [answer.error_code])
    assert joined.error_code == 0
    group = (await admin.describe_share_groups("busy"))["busy"]
    (member,) = group.members
    assert (group.state, member.member_id, member.epoch) == ("Stable", "m1", joined.member_epoch)
    assert (member.assignment, member.is_classic) == ((FIRST, SECOND), False)
    for refused in (
        admin.alter_share_group_offsets("busy", {FIRST: 0}),
        admin.delete_share_group_offsets("busy", "work"),
        admin.delete_groups("busy"),
    ):
        with pytest.raises(KafkaError, match="busy") as raised:
            await refused
        assert raised.value.code is ErrorCode.NON_EMPTY_GROUP
