"""Without a descriptor for one more file nothing is known to be lost: the broker waits, tries again, and goes on."""

import errno
import subprocess
import sys
import textwrap

import pytest
from broker_lives import kill, offset_at, small
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.effects.simulated.operations import Link, Open, SyncDirectory
from fencepost.protocol.errors import ErrorCode
from produce_requests import answers, batch, create, produce
from simulated_broker import SimulatedBroker

pytestmark = pytest.mark.slow

LATEST = -1
PARTITIONS = 30


def write(broker: SimulatedBroker, times: int) -> None:
    """Produce this many batches. A refused batch is sent again, as clients do: the journal has room again only after a
    checkpoint.
    """
    for number in range(times):
        while True:
            ((code, _),) = answers(broker.ask(produce("t", batch(value=b"x" * 20_000), partition=number % PARTITIONS)))
            if code != ErrorCode.NOT_ENOUGH_REPLICAS:
                break
            broker.wait(1)
        assert code == ErrorCode.NONE


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
@pytest.mark.parametrize("kinds", [(Open,), (Link,), (SyncDirectory,), (Open, Link, SyncDirectory)])
def test_flushes_that_cannot_open_files_are_retried_and_lose_no_record(error, kinds):
    disk = SimulatedDisk(history=False)
    settings = small(log_checkpoint_interval_ms=1_000, max_open_files=64)
    with SimulatedBroker(settings, disk=disk) as broker:
        broker.ask(create("t", PARTITIONS))
        write(broker, PARTITIONS)
        broker.wait(5)
        checkpoints = broker.broker.housekeeping.checkpoints
        fault = disk.fail(lambda one: isinstance(one, kinds), error=error, times=15)
        for _ in range(6):
            write(broker, PARTITIONS)
            broker.wait(5)
        broker.wait(60)
        assert fault.hits == 15
        assert broker.broker.halted is None
        assert broker.broker.store.tail_bytes == 0
        assert broker.broker.housekeeping.checkpoints > checkpoints
        assert not broker.broker.metrics.failures
        left = kill(broker)
    with SimulatedBroker(settings, disk=left) as again:
        assert [offset_at(again, "t", LATEST, partition) for partition in range(PARTITIONS)] == [7] * PARTITIONS


def run(script: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


SCRIPT = """
    import asyncio, resource
    import fencepost
    from fencepost.broker.embedded.broker import Broker

    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))

    async def fill(broker):
        async with fencepost.Admin(broker.bootstrap_servers) as admin:
            await admin.create_topics([fencepost.NewTopic("t", 400)])
        async with fencepost.Producer(broker.bootstrap_servers) as producer:
            for turn in range(2):
                await asyncio.gather(*[await producer.send("t", b"x", partition=n) for n in range(400)])
                broker.advance(15)

    with Broker({arguments}) as broker:
        asyncio.run(fill(broker))
        print(broker.running)
        print(broker.inside(lambda inner: inner.store.tail_bytes))
        print(broker.inside(lambda inner: inner.store.open_files.limit))
"""


@pytest.mark.parametrize("arguments", ["", "max_open_files=100_000"])
def test_an_embedded_broker_serves_more_partitions_than_it_has_descriptors(arguments):
    assert run(SCRIPT.format(arguments=arguments)) == ["True", "0", "64"]
