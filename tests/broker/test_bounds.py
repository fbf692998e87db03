"""Everything that clients can make the broker hold has a limit with a setting: at n − 1, at n, and at n + 1."""

import struct

import pytest
from broker_lives import EARLIEST, offset_at, read_all, slow, small
from fencepost.broker.net.connection import STEP_BYTES
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.cluster import ApiVersionsRequest, MetadataRequest
from fencepost.protocol.messages.topics import CreatePartitionsRequest, DeleteTopicsRequest
from offset_requests import commit
from produce_requests import answers, batch, bytes_of, create, fetch, fetched, produce
from simulated_broker import SimulatedBroker
from simulated_client import SimulatedClient

OK = ErrorCode.NONE
FAST, GENERAL = 11, 3  # versions of Produce: the first takes the fast path, the other the general path
MIB = 1 << 20


def begin(disk=None, **settings):
    return SimulatedBroker(small(**settings), disk=disk or SimulatedDisk(history=False))


def is_served(client):
    try:
        return client.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1")).error_code == OK
    except ConnectionError:
        return False


# ---- connections ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["max_connections", "max_connections_per_ip"])
def test_one_connection_above_max_connections_is_refused_until_another_closes(name):
    """One connection above max.connections.per.ip is refused in the same way."""
    with begin(**{name: 5}) as broker:
        clients = [SimulatedClient(broker) for _ in range(6)]
        assert [is_served(client) for client in clients] == [True] * 5 + [False]
        assert all(is_served(client) for client in clients[:5]), "those within go on"
        clients[2].close()
        assert is_served(SimulatedClient(broker))
        assert not is_served(SimulatedClient(broker))


# ---- requests ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [FAST, GENERAL])
def test_a_request_one_byte_above_socket_request_max_bytes_closes_its_connection(version):
    with begin(socket_request_max_bytes=100_000, queued_max_request_bytes=100_000) as broker:
        broker.ask(create("t"))
        overhead = len(SimulatedClient(broker).encoded(produce("t", batch(value=bytes(90_000))), version)[2]) - 90_000
        for size, served in ((99_999, True), (100_000, True), (100_001, False)):
            client = SimulatedClient(broker)
            request = produce("t", batch(value=bytes(size + 4 - overhead)))  # the length prefix does not count
            assert len(client.encoded(request, version)[2]) == size + 4
            client.send(request, version)
            if served:
                assert answers(client.receive())[0][0] == OK
            else:
                assert client.closed()
        assert len(read_all(broker, "t")) == 2


@pytest.mark.parametrize("version", [FAST, GENERAL])
def test_a_batch_one_byte_above_max_message_bytes_gets_message_too_large(version):
    with begin() as broker:
        broker.ask(create("t", max_message_bytes=5_000))
        overhead = len(batch(value=bytes(1_000))) - 1_000
        for size, code in ((4_999, OK), (5_000, OK), (5_001, ErrorCode.MESSAGE_TOO_LARGE)):
            data = batch(value=bytes(size - overhead))
            assert len(data) == size
            assert answers(broker.ask(produce("t", data), version))[0][0] == code


def test_large_requests_wait_unread_when_queued_max_request_bytes_is_used_up():
    """Each of ten clients announces a request of a megabyte and sends most of it. Memory is reserved in steps while
    any is left; small requests are served all the same.
    """
    for limit, read_whole in ((3 * STEP_BYTES - 1, 3), (3 * STEP_BYTES, 3), (3 * STEP_BYTES + 1, 4)):
        with begin(socket_request_max_bytes=MIB + 200, queued_max_request_bytes=limit) as broker:
            clients = [SimulatedClient(broker) for _ in range(10)]
            for client in clients:
                client.send_raw(struct.pack(">i", MIB) + bytes(900_000))
            broker.wait(1)
            held = sum(connection._framer.held_bytes for connection in broker.broker.server.connections)
            whole = sum(connection._framer.held_bytes > 800_000 for connection in broker.broker.server.connections)
            assert whole == read_whole
            # The oldest request may exceed the limit by a step, and of each client a last piece (256 KiB) was read.
            assert held <= limit + STEP_BYTES + 10 * 300_000
            assert is_served(SimulatedClient(broker)), "small requests need no room"


# ---- files ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("count", [63, 64, 65, 150])
def test_open_segment_files_stay_within_max_open_files_and_all_records_can_be_read(count):
    """64 is the lowest value of max.open.files. Each topic has a file of its own."""
    with begin(max_open_files=64) as broker:
        for number in range(count):
            broker.ask(create(f"t{number}"))
            broker.ask(produce(f"t{number}", batch(value=b"%d" % number)), FAST)
        broker.wait(5)
        files = broker.broker.store.open_files
        assert len(files) <= 64
        for number in range(count):
            assert [record.value for record in read_all(broker, f"t{number}")] == [b"%d" % number]
            assert len(files) <= 64
        for number in range(count):
            broker.ask(produce(f"t{number}", batch(value=b"more")), FAST)
        broker.wait(15)
        assert len(files) <= 64
        opened = [inode for inode, times in broker.disk._opened.items() if times]
        assert len(opened) <= 64 + 20, "the journal's files and the lock are a few more"


# ---- fetch sessions ------------------------------------------------------------------------------------------


def test_a_fetch_beyond_the_fetch_session_limit_is_answered_without_a_session():
    with begin(max_incremental_fetch_session_cache_slots=3) as broker:
        broker.ask(create("t"))
        clients = [SimulatedClient(broker) for _ in range(4)]
        given = [client.ask(fetch("t", epoch=0), FAST).session_id for client in clients]
        assert [bool(session) for session in given] == [True, True, True, False]
        assert len(set(given)) == 4
        for client, session in zip(clients[:3], given, strict=False):
            assert client.ask(fetch(session_id=session, epoch=1, topics=[]), FAST).error_code == OK


# ---- partitions ----------------------------------------------------------------------------------------------


def test_partitions_above_max_partitions_get_policy_violation_until_some_are_deleted():
    """Internal topics are created beyond the limit; the count survives a restart."""
    text = "there are {} partitions, and 5 are allowed: max.partitions"
    full, full_again = ((ErrorCode.POLICY_VIOLATION, text.format(count)) for count in (5, 1))
    with begin(max_partitions=5) as broker:

        def made_in(world, request):
            (answer,) = world.ask(request).topics
            return answer.error_code, answer.error_message

        def grown(name, count, **more):
            topic = CreatePartitionsRequest.Topic(name=name, count=count)
            (answer,) = broker.ask(CreatePartitionsRequest(topics=[topic], timeout_ms=1, **more)).results
            return answer.error_code, answer.error_message

        assert made_in(broker, create("a", 3)) == (OK, None)
        assert grown("a", 4, validate_only=True) == grown("a", 4) == (OK, None)
        assert made_in(broker, create("b", 1)) == (OK, None)
        assert made_in(broker, create("c", 1)) == full
        assert grown("b", 2) == grown("b", 2, validate_only=True) == full
        on_demand = MetadataRequest(topics=[MetadataRequest.Topic(name="d")], allow_auto_topic_creation=True)
        assert broker.ask(on_demand).topics[0].error_code == ErrorCode.POLICY_VIOLATION
        assert not any(commit(broker, "g", "a", {0: 1})), "the broker's own topics are made"
        delete = DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(name="a")], timeout_ms=1)
        broker.ask(delete)
        assert made_in(broker, create("a", 5)) == full_again
        assert made_in(broker, create("a", 4)) == (OK, None)
        assert made_in(broker, create("c", 1)) == full
        broker.ask(delete)
        with broker.again() as again:
            assert made_in(again, create("c", 5)) == full_again
            assert made_in(again, create("c", 4)) == (OK, None)


# ---- batches in memory, not yet in segments ------------------------------------------------------------------


@pytest.mark.slow
def test_producers_wait_while_unflushed_batches_exceed_their_limit():
    """Flushing is delayed by 30 s: above the limit produce requests are not read, and fetches are served."""
    disk = SimulatedDisk(history=False)
    delays = slow(disk)
    with begin(disk, log_tail_max_bytes=MIB, journal_max_bytes=16 * MIB) as broker:
        broker.ask(create("t"))
        delays["segments"] = 30.0
        clients = [SimulatedClient(broker) for _ in range(4)]
        for number in range(12):
            for client in clients:
                client.send(produce("t", batch(value=bytes(100_000), key=b"%d" % number)), FAST)
        broker.wait(5)
        store = broker.broker.store
        assert MIB <= store.tail_bytes <= MIB + 4 * 300_000, "the limit, and what one turn reads of four sockets"
        assert bytes_of(fetched(broker.ask(fetch("t", 0), FAST)))
        assert offset_at(broker, "t", EARLIEST) == 0
        broker.wait(60)
        delays["segments"] = 0.0
        broker.wait(120)
        for client in clients:
            assert [answers(client.receive())[0][0] for _ in range(12)] == [OK] * 12
        assert len(read_all(broker, "t")) == 48


@pytest.mark.slow
@pytest.mark.parametrize("version", [FAST, GENERAL])
def test_large_batches_wait_for_new_journal_files_and_none_is_refused(version):
    """The journal's first files are small (1 MiB and 2 MiB), so most batches need a new file."""
    with begin() as broker:
        broker.ask(create("t"))
        clients = [SimulatedClient(broker) for _ in range(12)]
        for number in range(3):
            for client in clients:
                client.send(produce("t", batch(value=bytes(900_000), key=b"%d" % number)), version)
        for client in clients:
            assert [answers(client.receive())[0][0] for _ in range(3)] == [OK] * 3
        assert broker.broker.store.space.refusals == 0


@pytest.mark.slow
@pytest.mark.parametrize("version", [FAST, GENERAL])
def test_a_batch_too_large_for_any_journal_file_gets_an_error_that_is_not_retriable(version):
    with begin(message_max_bytes=8 * MIB, journal_max_bytes=8 * MIB, socket_request_max_bytes=16 * MIB) as broker:
        broker.ask(create("t", max_message_bytes=8 * MIB))
        largest = broker.broker.store.largest_append_bytes
        overhead = len(batch(value=bytes(3 * MIB))) - 3 * MIB
        codes = []
        for size in (largest - 1, largest, largest + 1):
            data = batch(value=bytes(size - overhead))
            assert len(data) == size
            for _ in range(200):
                ((code, _),) = answers(broker.ask(produce("t", data), version))
                if not ErrorCode(code).retriable:
                    break
                broker.wait(0.5)
            codes.append(ErrorCode(code))
        assert codes == [OK, OK, ErrorCode.MESSAGE_TOO_LARGE]
        assert not ErrorCode.MESSAGE_TOO_LARGE.retriable
