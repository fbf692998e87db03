"""A topic that is deleted and made again all the time, under transactions that write to it and to another.

What is sent to it may land in this incarnation of the topic or the next, or in none, so each batch has a place of its
own in the history; what stands in the last incarnation when all is over is dumped and judged. A commit must not hang
on the topic that is gone, and its marker must not stand in the one that has the name now.
"""

import asyncio

from fencepost.protocol.messages.topics import DeleteTopicsRequest
from produce_requests import create
from simulation.history import Create, Place
from simulation.lines import Caller, Unanswered
from simulation.plain_clients import values_of
from simulation.txn_clients import Incarnation
from simulation.world import World

TEMPORARY = "temp"
ALREADY_EXISTS = 36


class Recreator:
    """The admin. `place`: the incarnation made last, or under way."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rng = world.rng("recreator")
        self.caller = Caller(world, "recreator")
        self.made = 0

    @property
    def place(self) -> Place:
        return f"{TEMPORARY}@{self.made}", 0

    async def run(self) -> None:
        await self._make()
        while True:
            await asyncio.sleep(self.rng.uniform(0.3, 4.0))
            if self.world.over:
                return
            await self._delete()
            await asyncio.sleep(self.rng.choice((0, 0, 0.2)))
            await self._make()

    async def _make(self) -> None:
        self.made += 1
        op = self.world.history.invoke("recreator", Create(self.place))
        while True:
            try:
                answer = await self.caller.ask(create(TEMPORARY))
            except Unanswered:
                continue
            if answer.topics[0].error_code in (0, ALREADY_EXISTS):
                op.ok()
                return
            await asyncio.sleep(0.1)

    async def _delete(self) -> None:
        request = DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(name=TEMPORARY)], timeout_ms=1000)
        while True:  # one that is left alone would go on under the next one's name
            try:
                answer = await self.caller.ask(request)
            except Unanswered:
                continue
            if answer.responses[0].error_code in (0, 3):
                return
            await asyncio.sleep(0.1)


class Stayer(Incarnation):
    """Writes one transaction to the temporary topic and to another, and makes way for its successor."""

    def __init__(
        self, world: World, name: str, number: int, tv: int, places: list[Place], recreator: Recreator
    ) -> None:
        super().__init__(world, name, number, tv, places)
        self._recreator = recreator

    async def fill(self, txn: str) -> tuple[bool, bool] | None:
        temporary = (f"{self._recreator.place[0]}.{txn}", 0)  # a late one may land in the next incarnation
        places = [temporary, self.rng.choice(list(self.places))]
        if not await self.add(txn, places):
            return False, False
        batches = [self.batch(txn, place, values_of(self, self.rng)) for place in places]
        result = await self.deliver(batches)
        await asyncio.sleep(self.rng.choice((0, 0.1, 1.0, 2.0)))
        return result

    async def end(self, txn: str, commit: bool) -> bool:
        await super().end(txn, commit)
        return False
