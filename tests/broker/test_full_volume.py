"""A full disk, as test_full_disk.py has it, on a real volume of a few megabytes: ext4 and tmpfs.

With whatever this machine lets us mount: as root or in a user namespace of our own.
"""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import ClassVar

import pytest
from broker_process import BrokerProcess
from eventually import wait_until
from fencepost.protocol.batches import walk
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.topics import DeleteRecordsRequest, DeleteTopicsRequest
from fencepost.protocol.records import records
from long_runs import first_only
from produce_requests import answers, bytes_of, create, fetch, fetched, idempotent, produce
from wire_client import WireClient

pytestmark = pytest.mark.slow

OK, REFUSED = ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS
MIB = 1 << 20
VALUE_BYTES = 100_000
WITHIN_S = 120  # on a busy machine


class SmallVolume:
    """A volume of 48 MB, mounted in a namespace of its own, which ends with the process that holds it."""

    MOUNT: ClassVar = {
        "ext4": 'truncate -s 48M "$1.img" && mkfs.ext4 -q -m 0 "$1.img" && mount -o loop "$1.img" "$1"',
        "tmpfs": 'mount -t tmpfs -o size=48M tmpfs "$1"',
    }

    def __init__(self, kind: str, directory: Path) -> None:
        self.directory = directory / "volume"
        self.directory.mkdir()
        user = () if os.geteuid() == 0 else ("--user", "--map-root-user")
        script = self.MOUNT[kind] + ' && chmod 777 "$1" && echo mounted && exec sleep 600'
        self._holder = subprocess.Popen(
            ("unshare", "--mount", *user, "sh", "-c", script, "sh", str(self.directory)),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._holder.stdout is not None
        mounted = self._holder.stdout.readline().strip() == "mounted"
        self.inside: tuple[str, ...] = ("nsenter", "--target", str(self._holder.pid), "--mount")
        if user:
            self.inside += ("--user", "--preserve-credentials")
        if not mounted:
            _, given = self._holder.communicate(timeout=10)
            raise OSError(f"no {kind} can be mounted here: {given.strip()}")

    def take_all(self) -> None:
        """Fill the volume to its last byte."""
        write = 'dd if=/dev/zero of="$1/ballast" oflag=append conv=notrunc 2>/dev/null'
        self._run(f"{write} bs=64k; {write} bs=1; sync")

    def give_back(self) -> None:
        self._run('rm -f "$1/ballast"')

    def free_bytes(self) -> int:
        return int(self._run('df --output=avail -B1 "$1" | tail -1'))

    def _run(self, script: str) -> str:
        command = (*self.inside, "sh", "-c", script, "sh", str(self.directory))
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stdout

    def close(self) -> None:
        self._holder.kill()
        self._holder.communicate()


@pytest.fixture(params=first_only(["ext4", "tmpfs"]))
def volume(request, tmp_path):
    try:
        found = SmallVolume(request.param, tmp_path)
    except OSError as error:
        pytest.skip(f"{error}; test_full_disk.py shows the same on simulated volumes")
    yield found
    found.close()


class Producer:
    """One idempotent producer that remembers what was acknowledged: its values are b"0…", b"1…" and so on."""

    def __init__(self, client: WireClient) -> None:
        self.client = client
        self.acknowledged = 0

    def send(self) -> ErrorCode:
        """Send the next batch, which is the same as before if that was refused. Return its error code."""
        value = (b"%d " % self.acknowledged).ljust(VALUE_BYTES, b".")
        batch = idempotent(self.acknowledged, producer_id=7, value=value)
        ((code, offset),) = answers(self.client.call(produce("t", batch), 11))
        if code == OK:
            assert offset == self.acknowledged
            self.acknowledged += 1
        return ErrorCode(code)

    def fill(self) -> None:
        """Send batches until one is refused because the disk is full."""
        wait_until(lambda: self.send() == REFUSED, WITHIN_S)

    def send_until_taken(self) -> None:
        """Send the next batch until it is accepted, as clients do."""
        wait_until(lambda: self.send() == OK, WITHIN_S)

    def check(self, start: int = 0) -> None:
        """Check that all acknowledged records from `start` on are there, once and in order."""
        offset = start
        while offset < self.acknowledged:
            part = fetched(self.client.call(fetch("t", offset, partition_max_bytes=8 * MIB), 11))
            assert part.error_code == OK
            for one in walk(memoryview(bytes_of(part))):
                for record in records(one):
                    assert (record.offset, int(record.value.split()[0])) == (offset, offset)
                    offset += 1


def test_filling_and_emptying_a_real_small_volume_loses_no_acknowledged_record(volume):
    options = {
        "storage.min.free.bytes": 4 * MIB,
        "journal.max.bytes": 8 * MIB,
        "log.checkpoint.interval.ms": 200,
        "log.retention.check.interval.ms": 200,
    }
    flags = [flag for name, value in options.items() for flag in ("-X", f"{name}={value}")]
    program = (*volume.inside, sys.executable, "-m", "fencepost")
    broker = BrokerProcess(str(volume.directory / "data"), *flags, program=program)
    broker.start()
    try:
        with WireClient("127.0.0.1", broker.port) as client:
            client.call(create("t", segment_bytes=MIB))
            client.call(create("other"))
            producer = Producer(client)
            producer.fill()
            producer.check()
            assert producer.acknowledged > 200

            def is_nearly_full() -> bool:
                producer.fill()  # again: what was refused because memory was short may find room later
                return volume.free_bytes() < 8 * MIB

            def is_full() -> bool:
                volume.take_all()  # again: the broker frees space when it removes files
                return volume.free_bytes() == 0 and producer.send() == REFUSED

            wait_until(is_nearly_full, WITHIN_S)
            wait_until(is_full, WITHIN_S)
            producer.check()
            asked = DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(name="other")], timeout_ms=1000)
            assert client.call(asked).responses[0].error_code == OK
            time.sleep(1)  # five checkpoints, flushes and removals of files are tried, and find no room either
            producer.check()
        broker.kill()
        with pytest.raises(AssertionError, match="the disk is full"):
            broker.start()
        volume.give_back()
        broker.start()
        with WireClient("127.0.0.1", broker.port) as client:
            producer.client = client
            producer.check()
            keep = producer.acknowledged - 20
            part = DeleteRecordsRequest.Topic.Partition(partition_index=0, offset=keep)
            topics = [DeleteRecordsRequest.Topic(name="t", partitions=[part])]
            answer = client.call(DeleteRecordsRequest(topics=topics, timeout_ms=1000))
            assert answer.topics[0].partitions[0].error_code == OK
            for _ in range(50):
                producer.send_until_taken()
            producer.check(keep)
        assert broker.stop() == 0
    finally:
        broker.kill()
