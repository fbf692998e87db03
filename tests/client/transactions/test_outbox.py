"""A relay from a database's outbox keeps its place as an offset of a group without members (docs/how-to/outbox.md)."""

import pytest
from fencepost.client.admin.admin import Admin
from fencepost.client.errors import CommitOutcomeUnknownError
from fencepost.client.values import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from reading import make
from txn_world import BOOTSTRAP, within

ROWS = [b"%d" % n for n in range(1, 8)]
PLACE = TopicPartition("t", 0)
RELAY = ConsumerGroupMetadata("outbox", -1, "", None)
both = pytest.mark.parametrize("version", [1, 2])


async def _place(world):
    async with Admin(BOOTSTRAP, environment=world.world.environment) as admin:
        found = (await admin.list_group_offsets("outbox", require_stable=True)).get(PLACE)
    return 0 if found is None else found.offset


async def _copy(producer, place):
    """Copy the next two rows from `place` on in one transaction. Returns the place after them."""
    rows = ROWS[place : place + 2]
    async with producer.transaction() as tx:
        for row in rows:
            await tx.send("t", row)
        await tx.send_offsets_to_transaction({PLACE: OffsetAndMetadata(place + len(rows))}, RELAY)
    return place + len(rows)


@pytest.mark.slow
@both
@pytest.mark.parametrize("dies", ["before its commit", "after its commit, without an answer"])
def test_a_relay_that_replaces_a_dead_one_copies_each_outbox_row_once(version, dies):
    """The first one lives on, without the answer to its commit, and refuses to begin another transaction."""

    async def main(world):
        await make(world)
        first = await world.producer("relay")
        assert await _copy(first, await _place(world)) == 2
        fault = world.faults.blackhole("EndTxn", when="before_write" if dies == "before its commit" else "after_write")
        fault.every_time()
        with pytest.raises(CommitOutcomeUnknownError):
            await _copy(first, 2)
        world.faults.clear()
        second = await world.producer("relay")
        place = await _place(world)
        assert place == (2 if dies == "before its commit" else 4)
        while place < len(ROWS):
            place = await _copy(second, place)
        with pytest.raises(CommitOutcomeUnknownError):
            await _copy(first, 4)
        assert await world.values() == ROWS
        assert await _place(world) == len(ROWS)

    within(main, version)
