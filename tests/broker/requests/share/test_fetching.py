"""What a ShareFetch reads of each partition: batches of any size, in segments and in the tail."""

import random
from collections import Counter
from errno import EMFILE
from types import SimpleNamespace

import pytest
from config_requests import change
from fencepost.broker.config.settings import BrokerSettings
from fencepost.broker.net.turns import Job
from fencepost.broker.requests.aborted_filter import Header
from fencepost.broker.requests.share.answers import is_data
from fencepost.broker.requests.share.fetching import ShareFetching
from fencepost.broker.requests.share.session_ends import _begin_end
from fencepost.broker.share.partitions import SharePartitions
from fencepost.effects.threads import JobDropped
from fencepost.protocol.errors import ErrorCode
from fencepost.storage.log.reads import Gone
from produce_requests import batch, create, produce
from share_client import ACCEPT, ShareClient, got, initialize
from simulated_broker import SimulatedBroker
from txn_client import begun

PARTITIONS = 5
GROUP = 32  # the resource type
LARGE = 3_000
FLUSHED_S = 30


@pytest.fixture
def broker():
    with SimulatedBroker(BrokerSettings(share_coordinator_state_topic_num_partitions=2)) as broker:
        broker.ask(create("t", PARTITIONS))
        initialize(broker, "t", *range(PARTITIONS))
        yield broker


def write(broker, partition, *values):
    """Produce a batch of one record for each value."""
    for value in values:
        broker.ask(produce("t", batch(value=value.encode()), partition=partition), 9)


def make_cold(broker, log):
    """Have the next read of a flushed log wait for a worker, which reads its index from the disk."""
    for state in log.segments:
        broker.broker.store.open_files.indexes.drop(f"{log.directory}/{state.stem}")


def drained(broker, **more):
    """Fetch and accept records until the group gets no more. Return how often each partition's values came."""
    member, found = ShareClient(broker), Counter()
    acks, quiet = None, 0
    while quiet <= PARTITIONS:
        parts = got(member.fetch(*(range(PARTITIONS) if member.epoch == 0 else ()), acks=acks, **more))
        given = {index: part for index, part in parts.items() if part.values}
        assert all((part.error, part.ack_error) == (0, 0) for part in parts.values())
        quiet = 0 if given else quiet + 1
        found.update((index, value[:10].strip()) for index, part in given.items() for value in part.values.values())
        acks = {index: [(first, last, ACCEPT) for first, last, _ in part.ranges] for index, part in given.items()}
    return found


@pytest.mark.slow
@pytest.mark.parametrize("is_cold", [False, True])
@pytest.mark.parametrize("tail", [0, 1])
def test_batches_that_exceed_one_share_fetch_answer_are_each_delivered_once(broker, tail, is_cold):
    sent = []
    for partition in range(PARTITIONS):
        write(broker, partition, *(f"{number:<{LARGE}}" for number in range(3)))
        sent += [(partition, str(number)) for number in range(3)]
    broker.wait(FLUSHED_S)
    for partition in range(PARTITIONS) if tail else ():
        write(broker, partition, "small")
        sent.append((partition, "small"))
    logs = [partition.log for partition in broker.broker.topics.by_name["t"].partitions]
    assert all(log.flushed_offset == 3 for log in logs)
    for log in logs if is_cold else ():
        make_cold(broker, log)
    more = {"max_wait_ms": 500} if is_cold else {}
    assert drained(broker, max_bytes=2 * LARGE, **more) == Counter(sent)


def test_a_share_fetch_returns_unflushed_records_if_compaction_removed_all_others(broker):
    write(broker, 0, "a", "b")
    broker.wait(FLUSHED_S)
    write(broker, 0, "c")
    log = broker.broker.topics.by_name["t"].partitions[0].log
    log.segments.clear()  # as if all of it had been cleaned away
    assert (log.start_offset, log.flushed_offset) == (0, 2)
    assert ShareClient(broker).take(0) == [(2, 2, 1)]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_each_committed_record_is_delivered_to_a_share_group_exactly_once(broker, seed):
    """Batches of random size in segments and in the unflushed tail, some of them aborted; fetches of random limits and
    partitions.
    """
    chance = random.Random(seed)
    txn, sent = begun(broker), Counter()
    member, found = ShareClient(broker, member="n"), Counter()
    assert change(broker, GROUP, "g", ("share.isolation.level", 0, "read_committed"))[0] == 0
    for number in range(60):
        what, partition = chance.random(), chance.randrange(PARTITIONS)
        value = f"{number:<{chance.choice((10, 100, 1_000, LARGE))}}"
        if what < 0.5:
            write(broker, partition, value)
            sent[partition, str(number)] += 1
        elif what < 0.6:
            txn.write("t", value.encode(), partition)
            is_committed = chance.random() < 0.5
            txn.end(is_committed)
            sent[partition, str(number)] += is_committed
        elif what < 0.7:
            broker.wait(FLUSHED_S)
        else:
            named = range(PARTITIONS) if member.epoch == 0 else ()
            given = got(member.fetch(*named, max_bytes=chance.choice((1, 500, LARGE, 3 * LARGE)), max_wait_ms=10))
            acks = {index: [(first, last, ACCEPT) for first, last, _ in part.ranges] for index, part in given.items()}
            said = got(member.fetch(acks=acks, max_records=0)) if any(acks.values()) else {}
            assert not any(part.ack_error for part in said.values())
            found.update((index, value.strip()) for index, part in given.items() for value in part.values.values())
    found += drained(broker, max_bytes=chance.choice((1, LARGE, 20 * LARGE)), max_wait_ms=10)
    assert found == +sent


def test_a_share_fetch_reads_at_most_twice_the_bytes_of_the_previous_answer(broker):
    """It reads LEAST_READ_BYTES (four batches here) or min_bytes if they are more. Without this limit, where the number
    of records is limited, most of what is read from the log would not be returned.
    """
    for _ in range(25):
        broker.ask(produce("t", batch(2, value=bytes(30 << 10))), 9)
    member = ShareClient(broker)
    sizes = []
    for more in ({"max_records": 1}, {}, {}, {"max_records": 1}, {"min_bytes": 600 << 10}):
        found = got(member.fetch(*(() if sizes else (0,)), **more))
        sizes.append(sum(last - first + 1 for part in found.values() for first, last, _ in part.ranges) // 2)
    assert sizes == [1, 4, 8, 1, 9]


class HeldReads:
    """An executor that runs no job: end() ends each with `result` (Gone: the segment was deleted)."""

    def __init__(self, result):
        self.result = result
        self.held = []
        self.ended = 0

    def submit(self, job, done, **_):
        self.held.append((job, done))

    def end(self):
        """End the submitted jobs, and those submitted meanwhile; at most ten in all, so that endless retries fail the
        test.
        """
        while self.held and self.ended < 10:
            self.ended += 1
            self.held.pop(0)[1](self.result)


def one_step_at_a_time(monkeypatch, reads):
    """Let each call of Job.work() take one step only. All reads from the disk end before it."""
    work = Job.work

    def one_step(self, clock, until_ms, most_units):
        reads.end()
        return work(self, clock, until_ms, 1)

    monkeypatch.setattr(Job, "work", one_step)


def test_a_disk_read_that_ends_during_a_share_fetchs_pass_starts_no_second_pass(broker, monkeypatch):
    """When a read has ended, the fetch goes over its partitions again. Two passes at once could both acquire records
    of one partition, but one answer has room for one of them.
    """
    write(broker, 1, "cold")
    broker.wait(FLUSHED_S)
    make_cold(broker, broker.broker.topics.by_name["t"].partitions[1].log)
    write(broker, 4, "tail")
    reads, looking = HeldReads(Gone()), []
    work = ShareFetching._work

    def one_look(self):
        looking.append(self)
        assert len(looking) == 1
        result = yield from work(self)
        looking.remove(self)
        return result

    monkeypatch.setattr(broker.broker, "read_executor", reads)
    monkeypatch.setattr(ShareFetching, "_work", one_look)
    one_step_at_a_time(monkeypatch, reads)
    given = got(ShareClient(broker).fetch(*range(PARTITIONS), max_wait_ms=500))
    assert (given[4].ranges, reads.ended) == ([(0, 0, 1)], 1)


def test_a_disk_read_that_fails_during_a_share_fetchs_pass_is_answered_at_once(broker, monkeypatch):
    """For want of descriptors or memory the log stays online, so the fetch would try the read again in a loop."""
    write(broker, 1, "cold")
    broker.wait(FLUSHED_S)
    make_cold(broker, broker.broker.topics.by_name["t"].partitions[1].log)
    reads = HeldReads(OSError(EMFILE, "no descriptor"))
    monkeypatch.setattr(broker.broker, "read_executor", reads)
    one_step_at_a_time(monkeypatch, reads)
    given = got(ShareClient(broker).fetch(*range(PARTITIONS), max_wait_ms=500))
    assert (given[1].error, reads.ended) == (ErrorCode.KAFKA_STORAGE_ERROR, 1)


@pytest.fixture
def held_read(broker, monkeypatch):
    """Partition 0 has one record, which has to be read from the disk. The fixture is a function that ends that read."""
    write(broker, 0, "cold")
    broker.wait(FLUSHED_S)
    make_cold(broker, broker.broker.topics.by_name["t"].partitions[0].log)
    held = []
    reads = SimpleNamespace(submit=lambda job, done, **_: held.append((job, done)))
    monkeypatch.setattr(broker.broker, "read_executor", reads)

    def end():
        ((job, done),) = held
        done(job())
        broker.wait(0.1)

    return end


def test_a_share_session_that_ends_during_a_disk_read_gets_no_records(broker, held_read):
    """The end of a session answers only fetches that wait. One that reads from the disk has to notice it itself."""
    write(broker, 1, "tail")
    member, again = ShareClient(broker), ShareClient(broker)
    member.client.send(member.fetching(0, 1), 2)
    broker.wait(0.01)
    assert member.states(1) == "L"
    assert again.client.ask(again.acknowledging({}, epoch=-1), 2).error_code == 0
    held_read()
    assert (member.states(0), member.states(1)) == ("", "A")
    assert not any(part.ranges for part in got(member.client.receive()).values())


def test_a_share_session_that_ends_between_two_steps_gets_no_records(broker, monkeypatch):
    write(broker, 0, "a"), write(broker, 1, "b")
    acquire, member = SharePartitions.acquire, ShareClient(broker)

    def ending(*asked):
        found = acquire(*asked)
        for session in list(broker.broker.share_sessions):
            _begin_end(broker.broker, session)
        return found

    monkeypatch.setattr(SharePartitions, "acquire", ending)
    assert not any(part.ranges for part in got(member.fetch(0, 1)).values())
    assert sorted((member.states(0), member.states(1))) == ["", "A"]


def test_a_share_fetch_whose_session_ends_before_it_waits_is_answered_at_once(broker, monkeypatch):
    """The session ends after the acknowledgements of the request and before the fetch begins to wait."""
    begin, member = ShareFetching.begin, ShareClient(broker)

    def begin_after_end(fetch):
        _begin_end(broker.broker, fetch._session)
        return begin(fetch)

    monkeypatch.setattr(ShareFetching, "begin", begin_after_end)
    member.client.send(member.fetching(0, max_wait_ms=60_000), 2)
    broker.wait(0.1)
    assert not len(broker.broker.waiting)
    assert got(member.client.receive()) == {}


def test_a_disk_read_that_ends_after_its_connection_closed_acquires_no_record(broker, held_read):
    """The share session does not end with that connection, because another one has opened it."""
    member, other = ShareClient(broker), ShareClient(broker)
    member.fetch(1)
    other.client.send(other.fetching(0, epoch=member.epoch, max_wait_ms=500), 2)
    other.client.close()
    broker.wait(0.1)
    held_read()
    assert len(broker.broker.share_sessions) == 1
    assert member.states() == ""


def test_a_disk_read_that_is_dropped_is_not_begun_again(broker, monkeypatch):
    """The executor drops the read because the client has disconnected. The loop does not know that yet, since it does
    not read from the connection meanwhile.
    """
    write(broker, 0, "cold")
    broker.wait(FLUSHED_S)
    make_cold(broker, broker.broker.topics.by_name["t"].partitions[0].log)
    held = []
    reads = SimpleNamespace(submit=lambda job, done, **_: held.append(done))
    monkeypatch.setattr(broker.broker, "read_executor", reads)
    member = ShareClient(broker)
    member.client.send(member.fetching(0, max_wait_ms=500), 2)
    broker.wait(0.01)
    held.pop()(JobDropped())
    broker.wait(0.01)
    assert not held
    assert not len(broker.broker.waiting)


def test_aborted_records_read_from_the_disk_are_not_acquired(broker):
    txn = begun(broker)
    assert change(broker, GROUP, "g", ("share.isolation.level", 0, "read_committed"))[0] == 0
    for value, commit in ((b"no", False), (b"yes", True)):
        txn.write("t", value, 0)
        txn.end(commit)
    broker.wait(FLUSHED_S)
    make_cold(broker, broker.broker.topics.by_name["t"].partitions[0].log)
    assert list(got(ShareClient(broker).fetch(0, max_wait_ms=500))[0].values.values()) == ["yes"]


def test_is_data_is_false_for_a_batch_that_compaction_left_without_records():
    assert is_data(Header(0, 61, 0, 2, 0, -1, 3))
    assert not is_data(Header(0, 61, 0, 2, 0, -1, 0))


def test_max_records_limits_all_partitions_of_a_share_fetch_together(broker):
    for partition in range(3):
        broker.ask(produce("t", batch(3), partition=partition), 9)
    found = got(ShareClient(broker).fetch(0, 1, 2, max_records=5, share_acquire_mode=1))
    assert sum(last - first + 1 for each in found.values() for first, last, _ in each.ranges) == 5
