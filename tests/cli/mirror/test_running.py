"""`fencepost mirror` as processes: what it prints and how it ends; whatever kills it, nothing is lost or repeated."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import urllib.request

import pytest
from broker_process import free_port
from fencepost.broker.embedded.broker import Broker
from fencepost.client.admin.admin import Admin
from fencepost.client.admin.values import NewTopic
from fencepost.client.producer.producer import Producer
from mirrored import Sides, assert_exact

pytestmark = pytest.mark.slow
SESSION = ("-X", "to.session.timeout.ms=1000", "-X", "to.heartbeat.interval.ms=200")


@pytest.fixture(scope="module")
def clusters():
    """Give the bootstrap servers of two brokers: source and target. The target allows short sessions of groups."""
    with Broker() as source, Broker(group_min_session_timeout_ms=500) as target:
        yield source.bootstrap_servers, target.bootstrap_servers


@pytest.fixture
def sides(clusters) -> Sides:
    return Sides(*clusters)


class Process:
    """One `fencepost mirror`."""

    def __init__(self, sides: Sides, topics: str, *options: str) -> None:
        command = [sys.executable, "-m", "fencepost", "mirror", "--from", sides.source, "--to", sides.target]
        command += ["--topics", topics, "--every", "200ms", *options]
        self.ended: tuple[int, str, str] | None = None
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def send(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def wait_for_records(self, count: int) -> None:
        """Read lines of progress, as JSON, until `count` records are copied."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if json.loads(line)["records"] >= count:
                return
        raise AssertionError("it has ended")

    def end(self, number: int | None = None) -> tuple[int, str, str]:
        """Send the process a signal, if it runs, and wait for its end. Returns exit code, output and errors."""
        if self.ended is None:
            if number is not None and self.process.poll() is None:
                self.send(number)
            out, err = self.process.communicate(timeout=60)
            self.ended = self.process.returncode, out, err
        return self.ended


@contextlib.contextmanager
def mirroring(sides: Sides, topics: str, *options: str):
    """Run a process of `fencepost mirror` within the block. If it still runs at the end, it is killed."""
    process = Process(sides, topics, *options)
    try:
        yield process
    finally:
        process.end(signal.SIGKILL)


async def write(bootstrap: str, topic: str, count: int, transactional_id: str | None = None) -> None:
    """Write to all four partitions; with a transactional id, in transactions of 50 of which each fifth is aborted."""
    async with Producer(bootstrap, transactional_id=transactional_id) as producer:
        for first in range(0, count, 50):
            if transactional_id is not None:
                await producer.begin_transaction()
            for each in range(first, first + 50):
                await producer.send(topic, b"%d of %s" % (each, str(transactional_id).encode()), partition=each % 4)
            if transactional_id is not None:
                await (producer.abort_transaction() if first % 250 == 0 else producer.commit_transaction())
        await producer.flush()


def read_page(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as response:
        return response.read().decode()


async def make(bootstrap: str, topic: str) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topics(NewTopic(topic, 4))


async def test_a_signal_ends_mirror_with_130_and_its_json_says_how_much_was_mirrored(sides: Sides) -> None:
    await make(sides.source, "plain")
    await write(sides.source, "plain", 1000)
    with mirroring(sides, "plain", "-o", "json") as process:
        await asyncio.to_thread(process.wait_for_records, 1000)
        await sides.drained("plain")
        code, out, err = await asyncio.to_thread(process.end, signal.SIGTERM)
    facts = json.loads(out.splitlines()[-1])
    assert (code, err) == (130, "")
    assert (facts["records"], facts["stopped"], facts["divided"]) == (1000, {}, 0)
    async with Admin(sides.target) as admin:
        assert not (await admin.describe_groups(["fencepost-mirror-default"]))["fencepost-mirror-default"].members
    assert await assert_exact(sides, "plain") == 1000


async def test_mirror_ends_and_says_why_once_all_its_topics_have_stopped(sides: Sides) -> None:
    await make(sides.source, "stops")
    await write(sides.source, "stops", 50)
    with mirroring(sides, "stops", "--name", "m2") as process:
        await sides.drained("stops", mirror="m2")
        async with Admin(sides.source) as admin:
            await admin.delete_topics("stops")
        await make(sides.source, "stops")
        code, _, err = await asyncio.to_thread(process.end)
    assert code == 5
    assert "stopped: stops: " in err
    assert "error: no topic can go on: stops" in err


async def test_mirror_with_the_option_metrics_serves_a_page_with_its_counts_and_lag(sides: Sides) -> None:
    await make(sides.source, "paged")
    await write(sides.source, "paged", 100)
    address = f"127.0.0.1:{free_port()}"
    with mirroring(sides, "paged", "--metrics", address):
        await sides.drained("paged")
        async with asyncio.timeout(60):
            page = ""
            while "fencepost_mirror_records_total 100.0" not in page:
                await asyncio.sleep(0.1)
                page = await asyncio.to_thread(read_page, address)
    assert 'fencepost_mirror_lag{topic="paged"} 0.0' in page
    assert "fencepost_mirror_doubts_total 0.0" in page


async def test_mirror_exits_with_5_if_the_target_topic_has_records_of_others(sides: Sides) -> None:
    for at in (sides.source, sides.target):
        await make(at, "others")
        await write(at, "others", 50)
    with mirroring(sides, "others", "--name", "m3") as process:
        code, _, err = await asyncio.to_thread(process.end)
    assert code == 5
    assert "error: topic others has records at the target that this mirror did not write" in err
    assert "hint: delete the topic at the target" in err


async def test_mirror_exits_with_5_if_the_target_allows_only_shorter_transactions(sides: Sides) -> None:
    await make(sides.source, "timed")
    await write(sides.source, "timed", 50)
    with Broker(transaction_max_timeout_ms=100_000) as target:
        short = Sides(sides.source, target.bootstrap_servers)
        with mirroring(short, "timed") as process:
            code, _, err = await asyncio.to_thread(process.end)
        assert code == 5
        assert "error: the target allows transactions of 100000 ms, and those of the mirror have 300000 ms" in err
        with mirroring(short, "timed", "-X", "to.transaction.timeout.ms=100000"):
            await short.drained("timed")


STOPPED = pytest.param(signal.SIGSTOP, marks=pytest.mark.long, id="stopped beyond its session")


@pytest.mark.parametrize("number", [pytest.param(signal.SIGKILL, id="killed"), STOPPED])
async def test_mirror_processes_that_are_killed_or_suspended_lose_and_repeat_no_record(
    sides: Sides, number: int
) -> None:
    topic = f"hit-{number}"
    await make(sides.source, topic)
    options = ("--name", topic, *SESSION)  # transactions of dead tasks are ended by those that wait for them
    with mirroring(sides, topic, *options) as first, mirroring(sides, topic, *options) as second:
        writing = asyncio.ensure_future(write(sides.source, topic, 3000, "w" + topic))
        for victim in (first, second):
            await asyncio.sleep(1.5)
            victim.send(number)
            if victim is first:
                await asyncio.sleep(1.5)
                if number == signal.SIGSTOP:
                    victim.send(signal.SIGCONT)
        await writing
        with mirroring(sides, topic, *options):
            await sides.drained(topic, mirror=topic)
            for each in (first, second):
                with contextlib.suppress(ProcessLookupError):
                    each.send(signal.SIGCONT)
            await write(sides.source, topic, 200)
            await sides.drained(topic, mirror=topic)
    assert await assert_exact(sides, topic, topic) == 3000 * 4 // 5 + 200  # each fifth transaction of write() aborts
