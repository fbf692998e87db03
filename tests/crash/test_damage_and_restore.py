"""Damage, then what the broker's hint says, to the letter: everything acknowledged is there again, and goes on.

Each file of a small data directory is damaged. Who starts a broker on it, follows what it says with a copy from before
the damage, and starts again, has lost nothing; what other partitions took meanwhile is there too.
"""

import logging
import os
import random
import re
from contextlib import contextmanager
from unittest import mock

import pytest
from broker_lives import EARLIEST, LATEST, end, kill, offset_at, small
from damaged_directory import ROOT, content_of, copy_of, files_of, flipped, removed, truncated
from disk_files import all_durable
from fencepost.broker.upkeep import coordinator_snapshots
from fencepost.cli.serve.starting import explain_failure
from fencepost.protocol.batches import walk
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.records import records
from long_runs import share_of
from offset_requests import commit
from offset_requests import fetch as fetch_offsets
from produce_requests import answers, batch, bytes_of, create, fetch, fetched, produce
from simulated_broker import SimulatedBroker
from txn_client import Txn

pytestmark = pytest.mark.sampled

SETTINGS = small(
    log_checkpoint_interval_ms=400,
    log_roll_ms=1_000,
    transaction_state_log_num_partitions=1,
    offsets_topic_num_partitions=1,
)
TOPICS = "plain", "mixed"
NAMED = 12
SAMPLE = int(os.environ.get("DAMAGE", share_of(8)))
SEED = int(os.environ.get("SEED", "1"))
OFFLINE = int(ErrorCode.KAFKA_STORAGE_ERROR)


@pytest.fixture(autouse=True)
def quiet():
    logging.disable(logging.CRITICAL)
    with mock.patch.object(coordinator_snapshots, "AFTER_BYTES", 6_000):
        yield
    logging.disable(logging.NOTSET)


def left_by_a_broker():
    """Return the disk of a broker that was killed: all that it wrote is durable, the last of it in the journal
    alone.
    """
    broker = SimulatedBroker(SETTINGS)
    for topic in TOPICS:
        broker.ask(create(topic, segment_ms=1_000, index_interval_bytes=100))
    for number in range(24):
        write(broker, number)
        if number < 20:
            broker.wait(0.4)
    broker.ask(create("late"))
    broker.wait(0.1)
    return all_durable(kill(broker))


def write(broker, number):
    """Write a record, a transaction and a group's offset. Return whether none of it was refused."""
    codes = [answers(broker.ask(produce("plain", batch(value=b"plain %d" % number)), NAMED))[0][0]]
    txn = Txn(broker, "x", 2)
    codes.append(txn.init())
    if not codes[-1]:
        codes.append(txn.send("mixed", b"mixed %d" % number))
        if number % 3 == 0:
            codes.append(txn.send_offset("plain", number, group="h"))
        codes.append(txn.end(number % 4 != 0))
    codes += commit(broker, "g", "plain", {0: number})
    txn.client.close()
    return not any(codes)


def content(broker):
    """Return the records by (topic, whether only committed ones) and the offsets by group, and which topics are
    offline.
    """
    found, offline = {}, set()
    for topic in TOPICS:
        for committed in (False, True):
            try:
                found[topic, committed] = records_of(broker, topic, committed)
            except PartitionOffline:
                offline.add(topic)
    for group in "g", "h":
        try:
            found[group] = fetch_offsets(broker, group, {"plain": [0]})
        except AssertionError:
            offline.add("__consumer_offsets")
    return found, offline


class PartitionOffline(Exception):
    """It answers so."""


def records_of(broker, topic, committed):
    found, skipped = {}, set()
    try:
        offset, until = offset_at(broker, topic, EARLIEST), offset_at(broker, topic, LATEST)
    except AssertionError:
        raise PartitionOffline from None
    while offset < until:
        part = fetched(broker.ask(fetch(topic, offset, committed=committed), NAMED))
        if part.error_code == OFFLINE:
            raise PartitionOffline
        assert not part.error_code, part
        aborted = {(each.producer_id, each.first_offset) for each in part.aborted_transactions or ()}
        batches = list(walk(memoryview(bytes_of(part))))
        if not batches:
            break
        for one in batches:
            skipped |= {producer for producer, first in aborted if first <= one.last_offset}
            aborted = {entry for entry in aborted if entry[1] > one.last_offset}
            if one.is_control:
                skipped.discard(one.producer_id)
            elif not (one.is_transactional and one.producer_id in skipped):
                found |= {each.offset: each.value for each in records(one)}
            offset = one.last_offset + 1
    return found


# ---- what the hint says ------------------------------------------------------------------------------------------


class Refused(Exception):
    """A start that did not come about: its message with its hint."""


def started(disk):
    """Start a broker on the disk. Raises Refused with the message that `fencepost serve` would print."""
    try:
        return SimulatedBroker(SETTINGS, disk=disk)
    except Exception as error:
        failure = explain_failure(error, SETTINGS)
        if failure is None:
            raise
        raise Refused(f"{failure}; {failure.hint}") from error


def restored(disk, copy, path):
    """Return a disk on which the file or folder at this path is replaced by that of the copy."""
    disk = copy_of(disk)
    if disk.exists(path):
        disk.remove_tree(path) if disk.is_directory(path) else disk.unlink(path)
    for one in files_of(copy):
        if one == path or one.startswith(f"{path}/"):
            disk.make_directory(one.rpartition("/")[0])
            file = disk.open(one, create=True)
            file.write([content_of(copy, one)], 0)
            file.close()
    return all_durable(disk)


def followed(disk, copy, given):
    """Return the disk after what the broker's message in `given` tells to restore was restored from the copy."""
    if "restore the directory from a copy" in given:
        return restored(disk, copy, ROOT)
    (path, *_) = re.findall(r"\.fencepost/([^ :;,]+)", given)
    if path.startswith("journal/"):
        return restored(disk, copy, f"{ROOT}/journal")
    if "restore this folder from a copy" in given:
        path = "/".join(path.split("/")[:2])
    return restored(disk, copy, f"{ROOT}/{path}")


def offline_lines(broker):
    return [log.offline for log in broker.broker.store.logs.values() if log.offline]


def mended(damaged, copy, before, *, lives):
    """Start a broker and restore what its messages name, again and again until all is served. Return the messages.

    lives: a function that uses a broker of which a part is offline, and returns what that acknowledged.
    """
    disk, given = damaged, []
    taken = {}
    for _ in range(6):
        try:
            broker = started(disk)
        except Refused as refusal:
            given.append(str(refusal))
            disk = followed(disk.after_power_cut(), copy, given[-1])
            continue
        found, offline = content(broker)
        lines = offline_lines(broker)
        if not lines and not offline:
            check(broker, found, before, taken)
            return given
        taken |= lives(broker)
        lines = offline_lines(broker)
        given += lines
        disk = all_durable(kill(broker))
        for line in lines:
            disk = followed(disk, copy, line)
    raise AssertionError(f"it does not come back: {given}")


def check(broker, found, before, taken):
    for what, expected in before.items():
        here = found[what]
        if isinstance(what, tuple):
            here = {at: value for at, value in here.items() if at in expected}
            for at, value in taken.get(what[0], {}).items():
                assert found[what].get(at) == value, (what, at)
            assert here == expected, what
        elif what not in taken:
            assert here == expected, what
    ends = {topic: offset_at(broker, topic, LATEST) for topic in TOPICS}
    assert write(broker, 100)
    assert all(offset_at(broker, topic, LATEST) > ends[topic] for topic in TOPICS)
    broker = broker.after_power_cut()
    found, offline = content(broker)
    assert not offline
    assert found["g"] == {("plain", 0): 100}
    assert not offline_lines(broker)
    end(broker)


def goes_on(broker):
    """Send records while a part of the data is offline, long enough for checkpoints.

    Return the acknowledged ones: {topic: {offset: value}}.
    """
    taken = {"plain": {}}
    for number in range(200, 205):
        ((code, offset),) = answers(broker.ask(produce("plain", batch(value=b"plain %d" % number)), NAMED))
        if not code:
            taken["plain"][offset] = b"plain %d" % number
        broker.wait(0.5)
    return taken


def is_killed(broker):
    return {}


@contextmanager
def note(what):
    try:
        yield
    except BaseException as error:
        error.add_note(what)
        raise


def damages(disk, random_):
    for path in files_of(disk):
        size = len(content_of(disk, path))
        yield path, "removed", lambda path=path: removed(disk, path)
        used = len(content_of(disk, path).rstrip(b"\0"))
        if used:
            bit = random_.randrange(8 * used)
            yield path, "cut", lambda path=path, used=used: truncated(disk, path, used // 2)
            yield path, f"bit {bit} of {8 * size}", lambda path=path, bit=bit: flipped(disk, path, bit)


def served_of(copy):
    broker = started(copy_of(copy))
    found, offline = content(broker)
    assert not offline
    end(broker)
    return found


@pytest.mark.parametrize("lives", [is_killed, goes_on])
def test_restoring_the_files_named_in_the_brokers_damage_hint_recovers_all_records(lives):
    """The broker's hint says which files to restore from a copy."""
    random_ = random.Random(f"{SEED} {lives.__name__}")
    copy = left_by_a_broker()
    before = served_of(copy)
    every = list(damages(copy, random_))
    chosen = random_.sample(every, 2 * SAMPLE) if SAMPLE else every
    for path, what, damage in chosen:
        with note(f"{what} {path}, seed {SEED}"):
            mended(damage(), copy, before, lives=lives)


@pytest.mark.parametrize("topic", ["plain-0.1", "mixed-0.2", "__consumer_offsets-0.4", "__transaction_state-0.3"])
def test_damaged_journal_parts_of_an_offline_log_can_be_restored_from_a_copy(topic):
    """First the log's folder is damaged, then the file in which the broker keeps what the journal had for it."""
    random_ = random.Random(f"{SEED} kept {topic}")
    copy = left_by_a_broker()
    before = served_of(copy)
    path = next(path for path in files_of(copy) if f"/{topic}/" in path and path.endswith(".log"))
    broker = started(truncated(copy, path, 10))
    (line,) = offline_lines(broker)
    assert path.removeprefix("/") in line
    left = all_durable(kill(broker))
    sound = restored(left, copy, path.rpartition("/")[0])
    (kept,) = [path for path in files_of(left) if "/journal-parts/" in path]
    size = len(content_of(left, kept))
    for first in (left, sound):
        for damaged in (flipped(first, kept, random_.randrange(8 * size)), truncated(first, kept, size // 2)):
            given = mended(damaged, sound, before, lives=is_killed)
            assert any(kept.removeprefix("/") in line for line in given)
