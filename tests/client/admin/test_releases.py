"""Admin against brokers that list what Kafka's releases listed, and against one that stumbles; in virtual time."""

import pytest
from capped_broker import RELEASES
from client_world import BOOTSTRAP, World, run
from fencepost.client.admin.admin import Admin
from fencepost.client.admin.offsets import EARLIEST, LATEST
from fencepost.client.admin.values import NewTopic
from fencepost.client.errors import RequestTimedOutError, UnsupportedVersionError
from fencepost.client.values import OffsetAndMetadata, TopicPartition

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


def admin_of(world: World, **keywords: int) -> Admin:
    return Admin(BOOTSTRAP, environment=world.environment, **keywords)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("release", RELEASES)
def test_admin_manages_topics_configs_offsets_and_groups_on_every_kafka_release(release: str) -> None:
    async def main(world: World) -> None:
        await world.start_broker(release=release)
        async with admin_of(world) as admin:
            await admin.create_topics(["orders", NewTopic("bills", configs={"retention.ms": "1000"})])
            await admin.create_partitions({"orders": 2})
            await admin.alter_configs(topic="bills", set={"max.message.bytes": "2000"})
            own = {each.name: each.value for each in (await admin.describe_configs(topics="bills"))["bills"]}
            assert (own["retention.ms"], own["max.message.bytes"]) == ("1000", "2000")
            await admin.alter_configs(topic="bills", delete=["retention.ms"])
            configs = {each.name: each for each in (await admin.describe_configs(topics="bills"))["bills"]}
            assert configs["retention.ms"].is_default
            assert configs["max.message.bytes"].source == "topic"
            assert await admin.ends([FIRST, SECOND], EARLIEST) == {FIRST: 0, SECOND: 0}
            assert await admin.ends([FIRST], LATEST, "read_committed") == {FIRST: 0}
            assert await admin.delete_records({FIRST: 0}) == {FIRST: 0}
            await admin.alter_group_offsets("billing", {FIRST: 0})
            assert await admin.list_group_offsets("billing") == {FIRST: OffsetAndMetadata(0)}
            assert [each.group_id for each in await admin.list_groups()] == ["billing"]
            assert list(await admin.describe_groups(["billing", "none"])) == ["billing"]
            assert (await admin.fence_producers("t"))["t"].epoch == 0
            await admin.delete_groups("billing")
            await admin.delete_topics("bills")
            assert await admin.list_topics() == ["orders"]
            assert [batch async for batch in admin.read_batches(FIRST, 0, 10)] == []

    run(main)


@pytest.mark.parametrize("release", RELEASES)
def test_admin_calls_that_a_release_lacks_raise_unsupported_version(release: str) -> None:
    async def main(world: World) -> None:
        await world.start_broker(release=release)
        async with admin_of(world) as admin:
            await admin.create_topics("orders")
            if "DescribeProducers" in RELEASES[release]:
                assert await admin.open_transactions([FIRST]) == []
            else:
                with pytest.raises(UnsupportedVersionError, match="DescribeProducers"):
                    await admin.open_transactions([FIRST])
            newest = RELEASES[release].get("ListTransactions", -1)
            if newest < 0:
                with pytest.raises(UnsupportedVersionError, match="ListTransactions"):
                    await admin.list_transactions()
            else:
                assert await admin.list_transactions() == []
            if newest < 1:
                with pytest.raises(UnsupportedVersionError, match="by age"):
                    await admin.list_transactions(open_for_ms=5)

    run(main)


def test_an_admin_call_times_out_when_the_broker_is_gone() -> None:
    async def main(world: World) -> None:
        await world.start_broker()
        async with admin_of(world, default_api_timeout_ms=3_000, request_timeout_ms=1_000) as admin:
            await admin.create_topics("orders")
            await world.stop_broker()
            began = world.loop.time()
            with pytest.raises(RequestTimedOutError):
                await admin.ends([FIRST], LATEST)
            assert world.loop.time() - began <= 4

    run(main)


def test_an_admin_call_succeeds_when_the_broker_returns_before_its_timeout() -> None:
    async def main(world: World) -> None:
        await world.start_broker()
        async with admin_of(world) as admin:
            await admin.create_topics("orders")
            await world.stop_broker()
            world.loop.call_later(2, lambda: started.append(world.loop.create_task(world.start_broker())))
            assert await admin.ends([FIRST], LATEST) == {FIRST: 0}
            await started[0]

    started: list[object] = []
    run(main)
