"""An operator who ends open transactions by hand, as admin clients do (KIP-664): DescribeProducers, then a marker.

Whom it strikes is told: its commit gets an error, and nothing of the transaction is ever seen, on any partition.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from fencepost.protocol.messages.transactions import DescribeProducersRequest, WriteTxnMarkersRequest
from simulation.history import Init, Kill, Place
from simulation.lines import Caller, Unanswered
from simulation.world import World


class Operator:
    """Looks at a partition now and then, and aborts one of the transactions that are open there."""

    def __init__(self, world: World, places: Sequence[Place]) -> None:
        self.world = world
        self.places = places
        self.rng = world.rng("operator")
        self.caller = Caller(world, "operator")

    async def run(self) -> None:
        while not self.world.over:
            await asyncio.sleep(self.rng.uniform(1.0, 5.0))
            try:
                await self._look(self.rng.choice(list(self.places)))
            except Unanswered:
                continue

    async def _look(self, place: Place) -> None:
        topic = DescribeProducersRequest.Topic(name=place[0], partition_indexes=[place[1]])
        answer = await self.caller.ask(DescribeProducersRequest(topics=[topic]))
        part = answer.topics[0].partitions[0]
        hanging = [one for one in part.active_producers if one.current_txn_start_offset >= 0]
        if hanging:
            await self._abort(place, self.rng.choice(hanging))

    async def _abort(self, place: Place, producer: Any) -> None:
        owners = [
            init.transactional_id for op, init in self.world.history.of(Init) if op.result[0] == producer.producer_id
        ]
        op = self.world.history.invoke("operator", Kill(owners[0] if owners else None))
        Marker = WriteTxnMarkersRequest.Marker
        marker = Marker(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transaction_result=False,
            topics=[Marker.Topic(name=place[0], partition_indexes=[place[1]])],
            coordinator_epoch=max(producer.coordinator_epoch, 0),
        )
        try:
            answer = await self.caller.ask(WriteTxnMarkersRequest(markers=[marker]), 1)
        except Unanswered:
            op.info()
            raise
        code = answer.markers[0].topics[0].partitions[0].error_code
        op.fail(code) if code else op.ok()
