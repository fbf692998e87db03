"""Topics whose logs lose their beginning while they are written and read, and the admin who deletes from them.

What DeleteRecords took away is not lost, and nothing else may be missing. A reader that is below the beginning asks
where the log begins, and goes on there.
"""

import asyncio
from collections.abc import Sequence

from fencepost.protocol.messages.topics import DeleteRecordsRequest
from simulation.history import Place, Trim
from simulation.lines import Caller, Unanswered
from simulation.plain_clients import Reader
from simulation.txn_clients import Incarnation
from simulation.world import World

PREFIX = "fencepost.once."  # transactional.id.ephemeral.prefix, as it is shipped
TRIM_VERSION = 2
COMMITS_ONCE = 0.6


class Trimmer:
    """Deletes what is below some offset, now and then: a little of a log, or all that is decided."""

    def __init__(self, world: World, places: Sequence[Place]) -> None:
        self.world = world
        self.places = places
        self.rng = world.rng("trimmer")
        self.caller = Caller(world, "trimmer")
        self._readers = {place: Reader(world, f"trimmer {place}", place, committed=True) for place in places}

    async def run(self) -> None:
        while not self.world.over:
            await asyncio.sleep(self.rng.choice((0.2, 1.0, 4.0)))
            place = self.rng.choice(list(self.places))
            seen = await self._readers[place].read(self._readers[place].next_offset)
            if seen is not None:
                self._readers[place].next_offset = seen.next_offset
                low, high = seen.log_start, seen.last_stable
                await self._trim(place, self.rng.choice((high, self.rng.randint(low, max(low, high)))))

    async def _trim(self, place: Place, offset: int) -> None:
        op = self.world.history.invoke("trimmer", Trim(place, offset))
        try:
            answer = (await self.caller.ask(delete_records(place, offset), TRIM_VERSION)).topics[0].partitions[0]
        except Unanswered:
            op.info()
            return
        op.fail(answer.error_code) if answer.error_code else op.ok(answer.low_watermark)


def delete_records(place: Place, offset: int) -> DeleteRecordsRequest:
    Topic = DeleteRecordsRequest.Topic
    part = Topic.Partition(partition_index=place[1], offset=offset)
    return DeleteRecordsRequest(topics=[Topic(name=place[0], partitions=[part])], timeout_ms=1_000)


class Once(Incarnation):
    """A process whose transactional id is for one transaction: with its end the broker forgets id and producer."""

    def __init__(self, world: World, name: str, number: int, tv: int, places: Sequence[Place]) -> None:
        super().__init__(world, f"{PREFIX}{name}.{number}", number, tv, places)

    async def fill(self, txn: str) -> tuple[bool, bool] | None:
        filled = await super().fill(txn)
        await asyncio.sleep(self.rng.choice((0, 0, 0.1, 0.5, 2.5)))  # there may be a flush between data and marker
        return filled

    async def end(self, txn: str, commit: bool) -> bool:
        await super().end(txn, commit and self.rng.random() < COMMITS_ONCE)
        return False
