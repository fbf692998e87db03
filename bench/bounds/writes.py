"""Measures durable writes, compared with the least that they can cost: a plain loop of writes and syncs, and a
minimal C server that syncs.
"""

from collections.abc import Iterator
from functools import partial

from .. import small
from ..loads.finding import Finding
from ..loads.small import Produce
from ..measured import Measured
from ..peers import peers
from ..peers.names import FSYNC, PLAIN_LOOP
from .sizes import Say, Size, in_turns
from .syncloop import requests_per_second

FILES = 16


def durable_partitions(name: str, size: Size, say: Say) -> Iterator[Measured]:
    """Measure durable requests per second over 16 partitions, alternately with a plain loop of write and fdatasync
    over as many files.
    """
    load = Produce(name, FILES, 1, partitions=FILES)
    frame = small.frame_for(small.SmallLoad(peers.FLOOR_TOPIC, FILES), 0)
    with peers.fencepost("fsync") as broker:
        load.prepare(broker)
        ours, loop = in_turns(
            size.rounds,
            lambda: load.window(broker, size.seconds).figures()["rate"],
            partial(requests_per_second, frame, FILES, size.seconds),
        )
    yield Measured(name, load.unit, FSYNC, {"rate": tuple(ours)})
    yield Measured(name, load.unit, PLAIN_LOOP, {"rate": tuple(loop)})


def large_batches(name: str, size: Size, say: Say) -> Iterator[Measured]:
    """Measure batches of 100 KB, alternately with the C server, which also syncs before it answers. Yields nothing
    without a C compiler.
    """
    load = Produce(name, 4, 2, 1000, 100)
    with peers.fencepost("fsync") as ours, peers.floor(peers.FLOOR_TOPIC, sync=True) as floor:
        if floor is None:
            return
        load.prepare(ours)
        windows = [partial(load.window, peer, size.seconds) for peer in (ours, floor)]
        for peer, samples in zip((ours, floor), in_turns(size.rounds, *windows), strict=True):
            yield Finding(name, load.unit, peer.name, samples).as_measured()
