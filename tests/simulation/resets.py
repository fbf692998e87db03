"""In every other seed with a share group: somebody sets its offsets back while its members work.

The broker's handler refuses that while there are members, so what the handler calls is called here, as a part of the
broker. In all seeds with a share group logs of states are written whole, pruned and written down with the other
coordinators within moments, which else takes minutes or MiB.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from fencepost.broker.broker import Broker
from fencepost.broker.share import state_log
from fencepost.broker.share.values import SharePartitionKey
from fencepost.broker.upkeep import coordinator_snapshots
from fencepost.protocol.errors import KafkaError
from fencepost.storage.store import BrokerHalted
from simulation.queues import EVERY, GROUP, PLACES, TOPIC, QueueKeeper, has_queue
from simulation.share_rules import Reset
from simulation.world import World

PATIENCE_S = 3.0
QUICK_STATE_LOG = {"LEAST_BYTES": 200, "COLD_BYTES": 2_000, "PRUNE_EVERY_S": 0.7, "PRUNE_AFTER_BYTES": 4_000}
SLOW_SNAPSHOTS = {"SLICE_ROWS": 2, "PAUSE_S": 0.03, "AFTER_BYTES": 2_000}


@contextmanager
def quick_state_logs() -> Iterator[None]:
    """Within the block, snapshots of share partitions and pruning come often, and snapshots of the coordinators take
    long.
    """
    with (
        mock.patch.multiple(state_log, **QUICK_STATE_LOG),
        mock.patch.multiple(coordinator_snapshots, **SLOW_SNAPSHOTS),
    ):
        yield


def has_resets(world: World) -> bool:
    return has_queue(world) and not world.seed // EVERY % 2


class Resetter:
    """Sets the offset of a place to where its window begins, or lower."""

    def __init__(self, world: World, keeper: QueueKeeper) -> None:
        self.world = world
        self.keeper = keeper
        self.rng = world.rng("resetter")

    async def run(self) -> None:
        await self.keeper.made.wait()
        while not self.world.over:
            await asyncio.sleep(self.rng.choice((0.1, 1.0, 3.0)))
            if self.world.is_serving:
                await self._reset(self.rng.choice(PLACES)[1])

    async def _reset(self, index: int) -> None:
        broker = self.world.broker
        assert broker is not None
        key = SharePartitionKey(GROUP, self.keeper.topic_id, index)
        if not broker.share_partitions.knows(key):
            return
        offset = self.rng.randint(0, broker.share_partitions.describe(key).start_offset)
        op = self.world.history.invoke("resetter", Reset(GROUP, (TOPIC, index), offset))
        task = self.world.run_in_broker(_set_offset(broker, key, offset))
        done, _ = await asyncio.wait([task], timeout=PATIENCE_S)  # never, if the broker is killed
        if not done or isinstance(task.exception(), BrokerHalted):  # as one that was fenced by its successor is
            op.info()
        elif task.result():
            op.ok()
            self.world.met["queue: reset"] += 1
        else:
            op.fail()
            self.world.met["queue: not reset"] += 1


async def _set_offset(broker: Broker, key: SharePartitionKey, offset: int) -> bool:
    """Set the offset of a share partition, in the broker. Returns whether it was set: not while transactions hold
    records, or the log is offline.
    """
    try:
        unit = broker.share_partitions.alter(key.group, {key[1:]: offset})
        broker.share_partitions.state_log.topic.commit(unit.parts)
    except KafkaError:
        return False
    unit.apply()
    await broker.housekeeping.synced(broker.store.last_unit)
    return True
