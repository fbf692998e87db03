"""fencepost.isolation.level.min=read_committed: a reader with read_uncommitted sees only committed transactions."""

import pytest
from acl_client import guarded
from config_requests import change
from fencepost.broker.requests import running_fetch
from fencepost.protocol.batches import walk
from fencepost.protocol.messages.fetch import FetchRequest
from fencepost.protocol.records import records
from guarded_broker import Guarded
from produce_requests import batch, bytes_of, create, fetch, fetched, list_offsets, produce
from simulated_broker import SimulatedBroker
from simulated_client import SimulatedClient
from small_parts import leave_small_parts, uses
from txn_client import begun

pytestmark = pytest.mark.requirement("S-122")

NAMED = 12  # the newest version of Fetch that names topics
MIN = "fencepost.isolation.level.min"
EVERYWHERE = ["tail", "warm", "cold"]
BROKER = 4  # the resource type


@pytest.fixture
def client(broker):
    broker.ask(create("t", 2, fencepost_isolation_level_min="read_committed"))
    return SimulatedClient(broker)


def place_records(broker, where):
    """Bring the records to the place where a fetch is to find them. tail: in memory, not flushed yet. warm: in segments
    whose index is in memory. cold: in segments whose index is not in memory.
    """
    if where != "tail":
        broker.wait(30)  # long enough to be flushed and checkpointed
    log = broker.broker.topics.by_name["t"].partitions[0].log
    if where == "cold":
        for state in log.segments:
            broker.broker.store.open_files.indexes.drop(f"{log.directory}/{state.stem}")


def shown(part):
    """Return the value of each record, and "marker" for each marker, in order."""
    found = []
    for one in walk(memoryview(bytes_of(part))):
        found += ["marker"] if one.is_control else [record.value.decode() for record in records(one)]
    return found


def read(client, offset=0, **more):
    return fetched(client.ask(fetch("t", offset, **more), NAMED))


def write(broker, value, *, commit, count=1, name="x"):
    """Write `count` batches in one transaction, and commit or abort it."""
    txn = begun(broker, name=name)
    for _ in range(count):
        txn.write("t", value)
    assert txn.end(commit) == 0


# What is shown.


@pytest.mark.slow
@pytest.mark.parametrize("where", EVERYWHERE)
def test_a_fetch_of_a_committed_only_topic_omits_batches_of_aborted_transactions(client, broker, where):
    client.ask(produce("t", batch(value=b"a")), 9)
    write(broker, b"b", commit=True)
    write(broker, b"c", commit=False, count=3)
    client.ask(produce("t", batch(value=b"d")), 9)
    write(broker, b"e", commit=False, name="y")
    place_records(broker, where)
    part = read(client)
    assert shown(part) == ["a", "b", "marker", "marker", "d", "marker"]
    assert part.aborted_transactions is None
    assert part.high_watermark == part.last_stable_offset == 10


@pytest.mark.parametrize("where", EVERYWHERE)
def test_a_committed_only_fetch_omits_only_the_aborted_of_interleaved_transactions(client, broker, where):
    kept, dropped = begun(broker, name="kept"), begun(broker, name="dropped")
    for number in range(4):
        kept.write("t", b"k%d" % number)
        dropped.write("t", b"d%d" % number)
    dropped.abort()
    kept.commit()
    dropped.write("t", b"again")
    dropped.commit()
    place_records(broker, where)
    assert shown(read(client)) == ["k0", "k1", "k2", "k3", "marker", "marker", "again", "marker"]


def test_a_committed_only_topic_shows_nothing_from_the_first_open_transaction_on(client, broker):
    client.ask(produce("t", batch(value=b"a")), 9)
    txn = begun(broker)
    txn.write("t", b"b")
    client.ask(produce("t", batch(value=b"c")), 9)
    part = read(client)
    assert shown(part) == ["a"]
    assert (part.high_watermark, part.last_stable_offset) == (1, 1)
    txn.commit()
    part = read(client, 1)
    assert shown(part) == ["b", "c", "marker"]
    assert part.high_watermark == 4


@pytest.mark.slow
@pytest.mark.parametrize("where", EVERYWHERE)
@pytest.mark.parametrize("max_bytes", [1, 1 << 20])
def test_a_committed_only_fetch_moves_past_an_aborted_transaction_of_any_length(
    client, broker, where, max_bytes, monkeypatch
):
    monkeypatch.setattr(running_fetch, "READ_ON_BYTES", 200)  # so that the fetch takes many reads
    write(broker, b"x" * 50, commit=False, count=20)
    place_records(broker, where)
    part = read(client, partition_max_bytes=max_bytes)
    assert shown(part) == ["marker"]
    assert part.high_watermark == 21
    assert shown(read(client, 21)) == []


def test_records_after_an_aborted_transaction_respect_the_byte_limit(client, broker):
    write(broker, b"x" * 500, commit=False, count=5)
    for number in range(5):
        client.ask(produce("t", batch(value=b"%d" % number * 100)), 9)
    sizes = [len(bytes_of(read(client, partition_max_bytes=limit))) for limit in (1, 400, 1 << 20)]
    assert sizes[0] == 78  # the marker
    assert 78 < sizes[1] <= 400 < sizes[2]


def test_once_max_bytes_is_reached_further_partitions_are_answered_without_records(client, broker):
    for partition in (0, 1):
        txn = begun(broker, name=f"x{partition}")
        txn.write("t", b"lost", partition)
        txn.abort()
        client.ask(produce("t", batch(value=b"v" * 300), partition=partition), 9)
    Topic, Part = FetchRequest.Topic, FetchRequest.Topic.Partition
    asked = [Part(partition=index, fetch_offset=2, partition_max_bytes=1 << 20) for index in (1, 0)]
    (topic,) = client.ask(fetch(max_bytes=100, topics=[Topic(topic="t", partitions=asked)]), NAMED).responses
    assert [shown(part) for part in topic.partitions] == [["v" * 300], []]


def test_a_client_with_read_committed_gets_aborted_batches_with_the_aborted_list(client, broker):
    write(broker, b"a", commit=False)
    part = read(client, committed=True)
    assert shown(part) == ["a", "marker"]
    assert len(part.aborted_transactions) == 1


def test_all_readers_of_a_committed_only_topic_see_the_same_end_offset(client, broker):
    txn = begun(broker)
    txn.write("t", b"a")
    parts = [read(client, committed=committed) for committed in (False, True)]
    assert [(part.high_watermark, part.last_stable_offset) for part in parts] == [(0, 0), (0, 0)]


def test_a_fetch_without_aborted_transactions_is_read_without_a_worker_thread(client, broker, monkeypatch):
    write(broker, b"a", commit=True)
    monkeypatch.setattr(broker.broker.read_executor, "submit", lambda *_, **__: pytest.fail("a job"))
    assert shown(read(client)) == ["a", "marker"]


def test_a_waiting_committed_only_fetch_is_answered_when_a_transaction_ends(client, broker):
    txn = begun(broker)
    txn.write("t", b"a" * 500)
    client.send(fetch("t", 0, max_wait_ms=60_000, min_bytes=300), NAMED)
    assert client.quiet(1)
    txn.commit()
    assert shown(fetched(client.receive())) == ["a" * 500, "marker"]


def test_a_fetch_session_reports_when_the_visible_end_offset_moves(client, broker):
    txn = begun(broker)
    txn.write("t", b"a")
    opened = client.ask(fetch("t", epoch=0), NAMED)
    assert fetched(opened).high_watermark == 0
    assert client.ask(fetch(session_id=opened.session_id, epoch=1, topics=[]), NAMED).responses == []
    txn.abort()
    part = fetched(client.ask(fetch(session_id=opened.session_id, epoch=2, topics=[]), NAMED))
    assert (shown(part), part.high_watermark) == (["marker"], 2)


# Offsets.


def test_list_offsets_of_a_committed_only_topic_stays_below_the_last_stable_offset(client, broker):
    txn = begun(broker)
    txn.write("t", b"a")

    def listed(timestamp, **more):
        return client.ask(list_offsets("t", timestamp, **more), 11).topics[0].partitions[0].offset

    # -1: the end, -3: the record with the largest timestamp, 0: the first record from that time on; -1: there is none
    assert [listed(-1), listed(-3), listed(0)] == [0, -1, -1]
    txn.commit()
    assert [listed(-1), listed(0)] == [2, 0]


# The setting.


def test_by_default_uncommitted_records_are_visible_to_read_uncommitted(client, broker):
    broker.ask(create("u"))
    txn = begun(broker)
    txn.write("u", b"a")
    part = fetched(client.ask(fetch("u"), NAMED))
    assert (shown(part), part.high_watermark, part.last_stable_offset) == (["a"], 1, 0)


def test_the_brokers_default_isolation_can_be_overridden_per_topic(broker):
    client = SimulatedClient(broker)
    for name, more in (("t", {}), ("u", {"fencepost_isolation_level_min": "read_uncommitted"})):
        broker.ask(create(name, **more))
        txn = begun(broker, name=name)
        txn.write(name, b"a")
    change(broker, BROKER, "", (MIN, 0, "read_committed"))
    assert [shown(fetched(client.ask(fetch(name), NAMED))) for name in ("t", "u")] == [[], ["a"]]


# Raw reads: tools may read uncommitted records, too.


def test_with_alter_on_a_committed_only_topic_a_raw_fetch_reads_uncommitted_records(client, broker):
    txn = begun(broker)
    txn.write("t", b"a")
    request, asked = fetch("t"), list_offsets("t", -1)
    request.raw = asked.raw = True
    part = fetched(client.ask(request, NAMED))
    assert (shown(part), part.high_watermark, part.last_stable_offset) == (["a"], 1, 0)
    assert client.ask(asked, 11).topics[0].partitions[0].offset == 1


def test_without_alter_on_a_committed_only_topic_a_raw_fetch_reads_only_committed():
    with SimulatedBroker(guarded(super_users="User:root", fencepost_isolation_level_min="read_committed")) as broker:
        world = Guarded(broker)
        world.have("allow User:alice READ TOPIC = t", "allow User:bob READ TOPIC = t", "allow User:bob ALTER TOPIC = t")
        txn = world.as_user("root", lambda: begun(broker, name="x"))
        world.as_user("root", lambda: txn.write("t", b"a"))
        request, asked = fetch("t"), list_offsets("t", -1)
        request.raw = asked.raw = True
        ends = {}
        for user in ("alice", "bob"):
            part = fetched(world.as_user(user, lambda: world.client.ask(request, NAMED)))
            listed = world.as_user(user, lambda: world.client.ask(asked, 11)).topics[0].partitions[0].offset
            ends[user] = (shown(part), part.high_watermark, listed)
        assert ends == {"alice": ([], 0, 0), "bob": (["a"], 1, 1)}


# Parts of files.


def test_a_fetch_from_a_file_omits_an_aborted_batch_and_closes_the_file(client, broker, monkeypatch):
    leave_small_parts(monkeypatch)
    for number in range(8):
        client.ask(produce("t", batch(value=b"%d" % number * 50)), 9)
    write(broker, b"lost" * 50, commit=False, count=3)
    broker.wait(30)
    before = shown(read(client))
    parts = []
    look = running_fetch.read_as_file_part
    monkeypatch.setattr(running_fetch, "read_as_file_part", lambda *asked: parts.append(look(*asked)) or parts[-1])
    assert shown(read(client)) == before == [f"{number}" * 50 for number in range(8)] + ["marker"]
    assert parts[0] is not None
    assert uses(broker.broker.store.open_files) == 0
