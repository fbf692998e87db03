"""Out and in again: topics and groups move to another cluster, and later back by the same commands."""

import pytest
from fencepost.broker.embedded.broker import Broker
from fencepost.client.admin.admin import Admin
from fencepost.client.admin.values import NewTopic
from fencepost.client.consumer.consumer import Consumer
from fencepost.client.mirror.cutover.looking import Looking
from fencepost.client.mirror.cutover.running import cut_over
from fencepost.client.mirror.cutover.sides import AdminSides
from fencepost.client.producer.producer import Producer
from mirrored import Sides, assert_exact

pytestmark = pytest.mark.slow


async def write(bootstrap: str, values: range) -> None:
    async with Producer(bootstrap, transactional_id="writer") as producer, producer.transaction() as transaction:
        for each in values:
            await transaction.send("t", b"%d" % each, partition=each % 2)


async def read(bootstrap: str, count: int) -> list[int]:
    """Read at least `count` records as a member of the group, commit, and return their numbers."""
    found = list[int]()
    async with Consumer(
        bootstrap, group_id="g", topics=["t"], auto_offset_reset="earliest", enable_auto_commit=False,
        isolation_level="read_committed", max_poll_records=7,
    ) as consumer:  # fmt: skip
        while len(found) < count:
            for records in (await consumer.getmany(timeout_ms=10_000)).values():
                found += [int(each.value or b"") for each in records]
        await consumer.commit()
    return found


async def move(sides: Sides) -> None:
    """Copy the topic to the target, and move the group there by a cutover."""
    async with sides.running(sides.task("t")), Admin(sides.source) as source, Admin(sides.target) as target:
        await sides.drained("t")
        cutover = AdminSides(
            Looking(source, target, "default", "g"), lambda name: Producer(sides.target, transactional_id=name)
        )
        try:
            await cut_over(cutover, lambda line: None)
        finally:
            await cutover.close()


async def test_topics_and_groups_move_out_and_back_by_the_same_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.client.mirror.cutover.sides.QUIET_S", 0.02)
    quick = {"group_initial_rebalance_delay_ms": 0}
    with Broker(**quick) as here, Broker(**quick) as there:
        out = Sides(here.bootstrap_servers, there.bootstrap_servers)
        back = Sides(out.target, out.source)
        async with Admin(out.source) as admin:
            await admin.create_topics(NewTopic("t", 2))
        await write(out.source, range(50))
        read_before = await read(out.source, 14)
        await move(out)
        assert await assert_exact(out, "t") == 50
        await write(out.target, range(50, 80))
        read_there = await read(out.target, 21)
        async with Admin(out.source) as admin:
            await admin.delete_topics("t")  # a mirror writes only into topics that are empty or its own
        await move(back)
        assert await assert_exact(back, "t") == 80
        await write(out.source, range(80, 100))
        seen = [*read_before, *read_there]
        seen += await read(out.source, 100 - len(seen))
        assert sorted(seen) == list(range(100))
        assert not out.told
        assert not back.told
