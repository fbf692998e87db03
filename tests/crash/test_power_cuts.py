"""Power cuts by a real kernel: ext4 on a loop device, shut down without writing its log, and mounted again.

Needs root and a loop device. `make power-cuts` runs ROUNDS of them; here only where `-m long` asks for it. Source of
the method: FS_IOC_SHUTDOWN of ext4(5) and xfs, as xfstests use it.
"""

import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from broker_process import BrokerProcess
from fencepost.protocol.batches import walk
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.records import records
from produce_requests import answers, bytes_of, create, fetch, fetched, idempotent, produce
from wire_client import Closed, WireClient

FAST = 11
SHUT_DOWN = """
import fcntl, os, struct, sys
fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587D, struct.pack("I", 2))  # without flushing the log
"""


class Volume:
    """An ext4 file system in a file, mounted in a namespace that goes with the process that holds it."""

    def __init__(self, directory: Path) -> None:
        self.image = directory / "volume.img"
        self.directory = directory / "volume"
        self.directory.mkdir()
        subprocess.run(["truncate", "-s", "256M", str(self.image)], check=True)
        subprocess.run(["mkfs.ext4", "-q", str(self.image)], check=True)
        holding = "echo apart && exec sleep 3600"  # entered before that, it would be mounted for all
        self._holder = subprocess.Popen(["unshare", "--mount", "sh", "-c", holding], stdout=subprocess.PIPE, text=True)
        assert self._holder.stdout is not None
        apart = self._holder.stdout.readline() == "apart\n"
        self._holder.stdout.close()
        self.inside = ("nsenter", "--target", str(self._holder.pid), "--mount")
        try:
            if not apart:
                raise OSError("no namespace of its own")
            self.mount()
        except BaseException:
            self.close()
            raise

    def mount(self) -> None:
        subprocess.run([*self.inside, "mount", "-o", "loop", str(self.image), str(self.directory)], check=True)

    def cut(self) -> None:
        """Cut the power: from now on every call fails, and what was not synced is gone."""
        subprocess.run([*self.inside, sys.executable, "-c", SHUT_DOWN, str(self.directory)], check=True)

    def power_on(self) -> None:
        subprocess.run([*self.inside, "umount", str(self.directory)], check=True)
        self.mount()

    def close(self) -> None:
        self._holder.kill()
        self._holder.wait()


@pytest.fixture
def volume(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("mounting needs root; the simulated disk's power cuts run everywhere")
    try:
        found = Volume(tmp_path)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no loop device can be mounted here: {error}")
    yield found
    found.close()


class Producer:
    """Sends idempotent batches five ahead until the connection ends; the unanswered ones again when it goes on."""

    def __init__(self) -> None:
        self.acknowledged = 0

    def run(self, port: int, watcher: "Watcher") -> None:
        try:
            with WireClient("127.0.0.1", port) as client:
                sent = self.acknowledged
                while True:
                    while sent < self.acknowledged + 5:
                        client.send(produce("t", idempotent(sent, value=b"%d" % sent)), FAST)
                        sent += 1
                    ((code, offset),) = answers(client.receive())
                    if code == ErrorCode.KAFKA_STORAGE_ERROR:
                        return  # the power has gone: the broker finds no room, and took nothing
                    assert (code, offset) == (0, self.acknowledged)
                    self.acknowledged += 1
        except (Closed, ConnectionError, TimeoutError):
            pass
        finally:
            watcher.stop = True


class Watcher:
    """A consumer that follows, and remembers the last offset it saw."""

    def __init__(self) -> None:
        self.seen = 0
        self.stop = False

    def run(self, port: int) -> None:
        try:
            with WireClient("127.0.0.1", port) as client:
                while not self.stop:
                    part = fetched(client.call(fetch("t", self.seen, max_wait_ms=50), FAST))
                    self.seen = max([self.seen, *(batch.next_offset for batch in walk(memoryview(bytes_of(part))))])
        except (Closed, ConnectionError, TimeoutError):
            pass


@pytest.mark.long
@pytest.mark.requirement("S-11", "S-14", "S-31")
def test_records_acknowledged_or_fetched_survive_power_cuts_of_a_real_volume(volume):
    rounds = int(os.environ.get("ROUNDS", "6"))
    seed = int(os.environ.get("SEED", "0")) or random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}, {rounds} rounds")
    waits = random.Random(seed)
    program = (*volume.inside, sys.executable, "-m", "fencepost")
    options = ("-X", "log.checkpoint.interval.ms=300", "-X", "storage.min.free.bytes=1000000")
    options += ("-X", "journal.max.bytes=33554432")  # the volume has 256 MB
    broker = BrokerProcess(str(volume.directory / "data"), *options, program=program)
    producer, seen = Producer(), 0
    try:
        broker.start()
        with WireClient("127.0.0.1", broker.port) as client:
            client.call(create("t", segment_ms=1_000))
        for _ in range(rounds):
            watcher = Watcher()
            threads = [
                threading.Thread(target=producer.run, args=(broker.port, watcher)),
                threading.Thread(target=watcher.run, args=(broker.port,)),
            ]
            for thread in threads:
                thread.start()
            time.sleep(waits.uniform(0.05, 2.5))
            if waits.random() < 0.3:  # killed between write and sync, restarted, then the power goes
                broker.kill()
                broker.start()
            volume.cut()
            broker.kill()
            for thread in threads:
                thread.join()
            volume.power_on()
            broker.start()
            seen = max(seen, watcher.seen, producer.acknowledged)
            _check(broker.port, producer, seen)
        assert producer.acknowledged > 20 * rounds  # else the power was cut before anything was at stake
    finally:
        broker.kill()


def _check(port: int, producer: Producer, seen: int) -> None:
    found = []
    with WireClient("127.0.0.1", port) as client:
        while True:
            part = fetched(client.call(fetch("t", len(found)), FAST))
            assert part.error_code == 0
            more = [(one.offset, one.value) for b in walk(memoryview(bytes_of(part))) for one in records(b)]
            if not more:
                break
            found += more
    assert found == [(number, b"%d" % number) for number in range(len(found))]
    assert len(found) >= max(seen, producer.acknowledged), "acknowledged or seen, and gone"
    assert len(found) <= producer.acknowledged + 5  # it has up to five in flight
