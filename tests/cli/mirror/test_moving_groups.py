"""`fencepost mirror cutover` and `status`, between two brokers."""

import asyncio
import json

import pytest
from broker_process import free_port
from click.testing import CliRunner
from fencepost.cli import main
from fencepost.cli.mirror.sides import DEFAULT_NAME, properties_of
from fencepost.client.admin.admin import Admin
from fencepost.client.admin.values import NewTopic
from fencepost.client.consumer.consumer import Consumer
from fencepost.client.mirror import names
from fencepost.client.mirror.cutover.looking import Looking
from fencepost.client.mirror.cutover.record import CutoverRecord
from fencepost.client.mirror.cutover.sides import AdminSides
from fencepost.client.mirror.offset_map import Entry, EntryKey, Run, encode_entry, encode_key
from fencepost.client.mirror.positions import decode_position, encode_position
from fencepost.client.producer.producer import Producer
from fencepost.client.values import OffsetAndMetadata, TopicPartition
from plain_mirror import mirror_all
from served_broker import ServedBroker
from two_clusters import Clusters

pytestmark = pytest.mark.slow
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Sides:
    """Two brokers, and the command line for both."""

    def __init__(self, source, target):
        self.at = f"127.0.0.1:{source.port}", f"127.0.0.1:{target.port}"

    def run(self, words):
        """Run `fencepost mirror …` and return its exit code, standard output and error stream."""
        line = [*words.split()[:1], "--from", self.at[0], "--to", self.at[1], *words.split()[1:]]
        result = CliRunner().invoke(main, ["mirror", *line])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.exit_code, result.stdout, result.stderr

    def work(self, do):
        """Run the async function `do` with both clusters (Clusters), and return its result."""

        async def run():
            async with Admin(self.at[0]) as source, Admin(self.at[1]) as target:
                return await do(Clusters(*self.at, source, target))

        return asyncio.run(run())


@pytest.fixture
def sides(monkeypatch):
    monkeypatch.setattr("fencepost.client.mirror.cutover.sides.QUIET_S", 0.02)
    with ServedBroker(group_initial_rebalance_delay_ms=0) as source, ServedBroker() as target:
        made = Sides(source, target)
        made.work(_fill)
        yield made


async def _fill(to):
    await to.source.create_topics([NewTopic("t", 2), NewTopic("other", 1)])
    async with Producer(to.source_at, transactional_id="filler") as producer:
        for value in (b"one", b"two"):
            async with producer.transaction() as transaction:
                await transaction.send("t", value, partition=0)
    await to.source.alter_group_offsets("billing", {T0: OffsetAndMetadata(1), T1: 0})
    await mirror_all(to, "t")


async def _write(to):
    async with Producer(to.source_at) as producer:
        await producer.send_and_wait("t", b"three", partition=0)


def test_cutover_with_dry_run_prints_steps_and_target_offsets_and_changes_nothing(sides):
    code, out, err = sides.run("cutover --groups billing --dry-run")
    assert code == 0, err
    assert "1. refuse writes to t at the source, by its setting fencepost.writes.refused" in out
    assert "   taken back: allow them again to t" in out
    assert [line.split() for line in out.splitlines() if line.startswith("billing")] == [
        ["billing", "t-0", "1", "1"],
        ["billing", "t-1", "0", "0"],
    ]
    assert "let it look at the target before it sends again" in err
    assert sides.work(lambda to: to.target.list_group_offsets("billing")) == {}
    configs = sides.work(lambda to: to.source.describe_configs(topics="t"))["t"]
    assert [each.value for each in configs if each.name == "fencepost.writes.refused"] == ["false"]

    sides.work(_write)
    (facts,) = (json.loads(line) for line in sides.run("cutover --groups billing --dry-run -o json")[1].splitlines())
    assert facts["refusals"] == []
    assert facts["offsets"][0] == {"group": "billing", "partition": "t-0", "source": 1, "target": 1}


@pytest.mark.parametrize("options", ["--dry-run", ""])
def test_cutover_moves_a_group_with_offsets_in_other_topics_only_with_partly(sides, options):
    sides.work(lambda to: to.source.alter_group_offsets("billing", {TopicPartition("other", 0): 0}))
    code, _, err = sides.run(f"cutover --groups billing {options}")
    assert code == 5
    assert "group billing has offsets in topics that the mirror does not copy: other; nothing was changed" in err
    assert sides.work(lambda to: to.target.list_group_offsets("billing")) == {}
    code, _, err = sides.run(f"cutover --groups billing --partly {options}")
    assert code == 0, err
    assert "billing: its offsets in topics that are not mirrored stay: other" in err


def test_dry_run_refuses_a_group_with_target_offsets_and_a_topic_others_wrote_to(sides):
    async def go_on(to):
        await to.target.alter_group_offsets("billing", {T0: 2})

    sides.work(go_on)
    code, _, err = sides.run("cutover --groups billing --dry-run")
    assert code == 5
    assert "error: group billing stands at offset 2 of t-0 at the target, after 1 where it would go on" in err

    async def write_beside(to):
        await to.target.delete_groups("billing")
        async with Producer(to.target_at) as producer:
            await producer.send_and_wait("t", b"foreign", partition=1)

    sides.work(write_beside)
    code, _, err = sides.run("cutover --groups billing --dry-run")
    assert code == 5
    assert "has written to t-1 at the target, at offset 0; nothing was changed" in err


def test_a_dry_run_says_that_the_map_of_offsets_contradicts_itself(sides):
    async def damage(to):
        topic_id = bytes((await to.source.describe_topics("t"))["t"].topic_id)
        async with Producer(to.target_at) as producer:
            entry = encode_entry(1, Entry(9, (Run(1, 7, 2),)))
            key = encode_key(EntryKey(DEFAULT_NAME, "t", topic_id, 0, 1))
            await producer.send_and_wait(names.MAP_TOPIC, entry, key=key, partition=0)

    sides.work(damage)
    code, _, err = sides.run("cutover --groups billing --dry-run")
    assert code == 5
    assert "error: the map of offsets is damaged: " in err


@pytest.mark.parametrize(
    ("state", "begins"),
    [
        ("begun", "an earlier cutover crashed before it committed"),
        ("committed", "an earlier cutover crashed after it committed the offsets"),
        ("undoing", "an earlier cutover was not quite taken back"),
        ("done", None),
    ],
)
def test_a_dry_run_says_what_a_crashed_cutover_left_and_does_not_fence_it(sides, state, begins):
    async def leave(to):
        looking = Looking(to.source, to.target, DEFAULT_NAME, "billing")
        crashed = AdminSides(looking, lambda name: Producer(to.target_at, transactional_id=name))
        await crashed.take_record()
        record = CutoverRecord(state, "setting", ("t",))
        await crashed.write(record, {})
        code, out, err = await asyncio.to_thread(run_in_a_process, sides, "--dry-run", "-o", "json")
        await crashed.write(record, {})  # ProducerFencedError if the dry run had fenced it
        await crashed.close()
        return code, out, err

    code, out, err = sides.work(leave)
    assert code == 0, err
    left = json.loads(out)["left"]
    assert left is None if begins is None else left.startswith(begins)
    err = sides.run("cutover --groups billing --dry-run")[2]
    assert ("t may still refuse writes at the source" in err) is (begins is not None)


def test_cutover_prints_the_target_offsets_of_each_group_and_can_be_repeated(sides):
    code, out, err = sides.run("cutover --groups bill.*")
    assert code == 0, err
    assert [line.split() for line in out.splitlines()][1:] == [
        ["billing", "t-0", "1", "1"],
        ["billing", "t-1", "0", "0"],
    ]
    assert "t: the source refuses writes" in err
    moved = sides.work(lambda to: to.target.list_group_offsets("billing"))
    assert {partition: at.offset for partition, at in moved.items()} == {T0: 1, T1: 0}

    code, out, _ = sides.run("cutover --groups bill.* -o json")  # again: there is nothing to change
    assert code == 0
    assert json.loads(out)["cutover"] == "done"


def test_cutover_fails_if_a_group_has_members_or_none_matches_or_the_pattern_is_bad(sides):
    async def join(to):
        consumer = Consumer(to.source_at, group_id="billing", topics=["t"], client_id="reader")
        await consumer.start()
        await consumer.getmany(timeout_ms=5_000)
        code, out, err = await asyncio.to_thread(run_in_a_process, sides)
        await consumer.close()
        return code, out, err

    code, _, err = sides.work(join)
    assert code == 5
    assert "error: group billing has members at the source: reader@" in err
    assert "nothing was changed" in err
    assert sides.run("cutover --groups nobody")[0] == 5
    code, _, err = sides.run("cutover --groups (")
    assert code == 2
    assert "--groups (" in err


def run_in_a_process(sides, *options):
    """Run the cutover in a process of its own, because only a main thread can handle signals."""
    import subprocess
    import sys

    line = [sys.executable, "-m", "fencepost", "mirror", "cutover", "--from", sides.at[0], "--to", sides.at[1]]
    done = subprocess.run(
        [*line, "--groups", "billing", *options], capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout, done.stderr


def test_mirror_status_shows_state_and_lag_per_topic_and_which_partitions_stopped(sides):
    code, out, err = sides.run("status --every 10ms")
    assert code == 0, err
    assert out.splitlines()[1].split()[:4] == ["t", "copied", "2", "0"]
    assert "no task runs" in err
    sides.work(_write)
    (facts,) = (json.loads(line) for line in sides.run("status --every 10ms -o json")[1].splitlines())
    assert facts["topics"] == [
        {"topic": "t", "state": "waiting", "partitions": 2, "lag": 1, "rate": 0.0, "left_ms": None, "stopped": {},
         "unavailable": {}}
    ]  # fmt: skip
    sides.work(lambda to: to.source.delete_topics("t"))
    _, out, _ = sides.run("status --every 10ms")
    assert "t-0 has stopped: it is not at the source any more" in out
    assert sides.run("status --name another --every 10ms")[0] == 3  # there is no mirror of this name


@pytest.mark.parametrize(("side", "option"), [(0, "--from"), (1, "--to")])
def test_the_hint_about_a_side_that_is_away_names_its_address_and_its_option(sides, side, option):
    gone = f"127.0.0.1:{free_port()}"
    sides.at = (gone, sides.at[1]) if side == 0 else (sides.at[0], gone)
    code, _, err = sides.run("status --timeout 1s")
    assert code == 4
    assert f"error: cannot connect to broker at {gone}: connection refused" in err
    assert f"{option} HOST:PORT sets the address; run fencepost doctor {gone}" in err


def test_mirror_status_and_dry_run_show_the_reason_that_a_task_has_written_down(sides):
    async def stop(to):
        group = names.group_id(DEFAULT_NAME)
        position = decode_position((await to.target.list_group_offsets(group))[T0])
        at = encode_position(position._replace(stopped="the target does not take it (raise its limit)"))
        await to.target.alter_group_offsets(group, {T0: at})

    sides.work(stop)
    code, out, err = sides.run("status --every 10ms")
    assert code == 0, err
    assert out.splitlines()[1].split()[:2] == ["t", "stopped"]
    assert "t-0 has stopped: the target does not take it (raise its limit)" in out
    (facts,) = (json.loads(line) for line in sides.run("status --every 10ms -o json")[1].splitlines())
    assert facts["topics"][0]["stopped"] == {"0": "the target does not take it (raise its limit)"}
    code, _, err = sides.run("cutover --groups billing --dry-run")
    assert code == 5
    assert "error: the mirror has stopped t-0: the target does not take it (raise its limit)" in err


def test_a_cutover_leaves_out_a_stopped_topic_whose_positions_were_deleted(sides):
    """docs/mirror.md tells operators to delete them for that."""
    group = names.group_id(DEFAULT_NAME)

    async def stop(to):
        position = decode_position((await to.target.list_group_offsets(group))[T0])
        at = encode_position(position._replace(stopped="the target does not take it (raise its limit)"))
        await to.target.alter_group_offsets(group, {T0: at})

    sides.work(stop)
    assert "the mirror has stopped t-0" in sides.run("cutover --groups billing --dry-run")[2]
    sides.work(lambda to: to.target.delete_group_offsets(group, [T0, T1]))
    err = sides.run("cutover --groups billing --dry-run")[2]
    assert "the mirror has stopped" not in err
    assert "error: the mirror has copied no topic; nothing was changed" in err  # t was the only one


def test_mirror_status_says_that_a_partition_without_a_leader_waits_for_the_source(sides, monkeypatch):
    leaders = Admin._leaders

    async def without(self, partitions, *, skip_missing):
        found = await leaders(self, partitions, skip_missing=skip_missing)
        is_source = f"127.0.0.1:{self._cluster.settings.bootstrap_servers[0][1]}" == sides.at[0]
        return {tp: -1 if tp == T1 and is_source else leader for tp, leader in found.items()}

    monkeypatch.setattr(Admin, "_leaders", without)
    code, out, err = sides.run("status --every 10ms")
    assert code == 0, err
    assert out.splitlines()[1].split()[:4] == ["t", "waiting", "2", "0"]
    assert "t-1 waits for the source: " in out
    assert "has stopped" not in out


@pytest.mark.parametrize(
    ("side", "found"),
    [
        ("from", (("client.id", "x"), ("security.protocol", "SSL"))),
        ("to", (("client.id", "x"), ("client.id", "y"))),
    ],
)
def test_a_mirror_property_with_from_or_to_goes_to_that_cluster_and_another_to_both(side, found):
    given = [("client.id", "x"), ("from.security.protocol", "SSL"), ("to.client.id", "y")]
    assert properties_of(side, given) == found


def test_the_mirror_command_has_the_same_default_name_as_the_sdk():
    assert DEFAULT_NAME == names.DEFAULT_NAME
