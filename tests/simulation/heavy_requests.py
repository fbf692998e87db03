"""A client whose small requests ask for much: nobody else may have to wait for more than a step of it."""

import asyncio
from typing import Any

from fencepost.protocol.messages.cluster import DescribeLogDirsRequest
from fencepost.protocol.messages.groups import DescribeGroupsRequest
from fencepost.protocol.messages.transactions import DescribeProducersRequest
from simulation.history import Place
from simulation.lines import Caller, Unanswered
from simulation.world import World

TIMES = 1_500  # that one thing is named by a request
PATIENCE_S = 5.0


class Asker:
    """Names one thing again and again in one request, now and then; what it is answered is not looked at."""

    def __init__(self, world: World, name: str, places: list[Place], group: str) -> None:
        self.world = world
        self.places = places
        self.group = group
        self.rng = world.rng(name)
        self.caller = Caller(world, name)

    async def run(self) -> None:
        while not self.world.over:
            await asyncio.sleep(self.rng.uniform(2.0, 10.0))
            try:
                await self.caller.ask(self._request(), None, PATIENCE_S)
            except Unanswered:
                continue

    def _request(self) -> Any:
        kind = self.rng.randrange(3)
        if kind == 0:
            topic, partition = self.rng.choice(self.places)
            named = DescribeProducersRequest.Topic(name=topic, partition_indexes=[partition] * TIMES)
            return DescribeProducersRequest(topics=[named])
        if kind == 1:
            return DescribeGroupsRequest(groups=[self.group] * TIMES)
        return DescribeLogDirsRequest(topics=None)
