"""What transactions promise to whom, seen from outside: durability, readers, several coordinators, time."""

import pytest
from broker_lives import offset_at, read_batches, small
from fencepost.broker.config.settings import BrokerSettings
from fencepost.protocol.batches import verify, walk
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.transactions import DescribeTransactionsRequest, InitProducerIdRequest
from fencepost.protocol.records import Marker, read_marker, records
from ledger_client import decide, prepare
from offset_requests import commit as commit_offsets
from produce_requests import batch, bytes_of, create, fetch, fetched, idempotent, produce
from simulated_broker import SimulatedBroker
from simulated_client import SimulatedClient
from txn_client import Txn, begun, offset_of, stable, state, values

pytestmark = pytest.mark.slow

OK = ErrorCode.NONE
BOTH = pytest.mark.parametrize("version", [1, 2])


@pytest.fixture
def broker():
    with SimulatedBroker() as broker:
        broker.ask(create("t", 2))
        yield broker
        assert not broker.broker.metrics.failures


# ---- coordinators and their log --------------------------------------------------------------------------------------


@BOTH
@pytest.mark.requirement("S-69", "C-6")
def test_each_answered_step_of_a_transaction_survives_a_power_cut(version):
    """There are no followers: acks=all means that the disk has it."""
    broker = SimulatedBroker()
    broker.ask(create("t", 2))
    txn = Txn(broker, version=version)
    for step, expected in (
        (txn.init, "Empty"),
        (lambda: txn.write("t", b"x", 0, 1), "Ongoing"),
        (txn.commit, "CompleteCommit"),
        (lambda: txn.write("t", b"y"), "Ongoing"),
        (txn.abort, "CompleteAbort"),
    ):
        assert step() in (None, OK)  # write() checks its answers itself, and returns None
        broker = broker.after_power_cut()
        assert state(broker) == expected
        txn.broker, txn.client = broker, SimulatedClient(broker)
    assert (values(broker, "t"), values(broker, "t", 1)) == ([b"x"], [b"x"])
    broker.stop()


@BOTH
@pytest.mark.requirement("S-73")
def test_an_offline_transaction_state_partition_stops_only_ids_stored_in_it(broker, version):
    names = [f"id-{number}" for number in range(40)]
    open_ones = {name: begun(broker, version, name) for name in names}
    for txn in open_ones.values():
        txn.write("t", b"x")
    coordinator = broker.broker.transactions
    homes = {name: coordinator.home(name)[0] for name in names}
    assert len(set(homes.values())) > 20  # the ids are spread over many partitions
    lost = homes[names[0]]
    log = coordinator.topic.log(lost)
    log.offline = "its disk is gone"
    for name, txn in open_ones.items():
        assert txn.commit() == (ErrorCode.COORDINATOR_NOT_AVAILABLE if homes[name] == lost else OK)
        assert state(broker, name) == ("Ongoing" if homes[name] == lost else "CompleteCommit")
    log.offline = None
    for name, txn in open_ones.items():
        if homes[name] == lost:
            assert txn.commit() == OK
    assert len(values(broker, "t")) == len(names)


@BOTH
@pytest.mark.requirement("S-74")
def test_an_offline_partition_cannot_delay_or_prevent_a_commit(broker, version):
    """The outcome is decided without it; the offline partition gets its marker later."""
    txn = begun(broker, version, timeout_ms=20_000)
    txn.write("t", b"x", 0, 1)
    broker.broker.topics.by_name["t"].partitions[1].log.offline = "its disk is gone"
    assert txn.commit() == OK
    assert (state(broker), values(broker, "t")) == ("CompleteCommit", [b"x"])
    txn.write("t", b"never ended")
    broker.wait(40)
    assert state(broker) == "CompleteAbort"
    with broker.after_power_cut() as second:
        assert (values(second, "t"), values(second, "t", 1)) == ([b"x"], [b"x"])


@BOTH
@pytest.mark.requirement("S-79")
def test_records_of_an_open_transaction_survive_a_power_cut_and_stay_undecided(broker, version):
    txn = begun(broker, version)
    txn.write("t", b"undecided")
    with broker.after_power_cut() as second:
        assert values(second, "t", committed=False) == [b"undecided"]
        assert values(second, "t") == []


@BOTH
@pytest.mark.requirement("S-91")
def test_a_transaction_that_only_sends_offsets_works_like_an_offset_commit(broker, version):
    commit_offsets(broker, "g", "t", {0: 1})
    txn = begun(broker, version)
    txn.write_offset("t", 5)
    assert offset_of(broker, "t") == 1
    assert txn.commit() == OK
    assert offset_of(broker, "t", stable=True) == 5
    commit_offsets(broker, "g", "t", {0: 3})  # a later commit replaces the offset, whatever set it
    assert offset_of(broker, "t", stable=True) == 3
    assert offset_at(broker, "t", -1) == 0


# ---- what readers are given ------------------------------------------------------------------------------------------


def filtered(broker: SimulatedBroker, topic: str, wanted: int, limit: int) -> list[int]:
    """Return the offsets that a read_committed application gets from `wanted` on, filtered as Kafka's consumer does."""
    given, set_aside = [], set()
    while True:
        part = fetched(broker.ask(fetch(topic, wanted, committed=True, partition_max_bytes=limit), 11))
        assert part.error_code == OK
        listed = [(each.first_offset, each.producer_id) for each in part.aborted_transactions or ()]
        waiting = sorted(listed)
        data = bytes_of(part)
        if not data:
            return given
        for one in walk(memoryview(data)):
            while waiting and waiting[0][0] <= one.last_offset:
                set_aside.add(waiting.pop(0)[1])
            marker = read_marker(one) if one.is_control else None
            if marker is not None and marker[0] is Marker.ABORT:
                set_aside.discard(one.producer_id)
            elif not one.is_control and not (one.is_transactional and one.producer_id in set_aside):
                given += [record.offset for record in records(one) if record.offset >= wanted]
            assert one.next_offset >= wanted
            wanted = max(wanted, one.next_offset)


@BOTH
@pytest.mark.requirement("S-101", "S-102", "S-103", "S-104", "C-8")
@pytest.mark.requirement("S-127")
def test_the_aborted_list_lets_clients_skip_exactly_the_aborted_records(broker, version):
    """Fetched from every offset with limits of every size; producers abort, commit and write without transactions."""
    txns = [begun(broker, version, f"id-{number}") for number in range(3)]
    expected: list[int] = []
    for turn in range(12):
        written: list[list[int]] = [[], [], []]
        for number in (0, 1, 2, 1, 0) if turn % 2 else (2, 0, 1):
            txns[number].write("t", b"%d" % turn)
            written[number].append(txns[number].offset)
        broker.ask(produce("t", batch(count=2)))
        expected += [(end := offset_at(broker, "t", -1)) - 2, end - 1]
        for number in range(3):
            commit = (turn + number) % 3 == 0
            assert txns[number].end(commit) == OK
            expected += written[number] if commit else []
    end = offset_at(broker, "t", -1)
    for limit in (1, 500, 1 << 20):
        for wanted in range(0, end, 1 if limit > 500 else 7):
            assert filtered(broker, "t", wanted, limit) == sorted(each for each in expected if each >= wanted)


@pytest.mark.requirement("S-105")
def test_a_reader_continues_after_the_last_offset_of_a_compacted_batch():
    """The batch's last records were removed. A reader that continued after the last record it got would fetch the same
    batch for ever.
    """
    with SimulatedBroker(small(log_checkpoint_interval_ms=1_000, log_cleaner_backoff_ms=1_000)) as broker:
        broker.ask(create("c", cleanup_policy="compact", segment_ms=1_000, min_cleanable_dirty_ratio=0))
        broker.ask(produce("c", batch(count=5, key=b"same", producer_id=7, producer_epoch=0, base_sequence=0)))
        for _ in range(10):
            broker.wait(2.5)
            broker.ask(produce("c", batch(key=b"same")))
        broker.wait(10)
        first = read_batches(broker, "c")[0]
        assert (first.record_count, first.base_offset, first.last_offset) == (0, 0, 4)
        offset, seen = 0, 0
        while data := bytes_of(fetched(broker.ask(fetch("c", offset, partition_max_bytes=1), 11))):
            for one in walk(memoryview(data)):
                verify(one)
                assert one.next_offset > offset
                offset = one.next_offset
                seen += one.record_count
        assert offset == offset_at(broker, "c", -1)
        assert 0 < seen < 11  # 15 records of one key were written; compaction has removed the first five at least


@BOTH
@pytest.mark.requirement("S-107", "C-8")
def test_the_broker_withholds_undecided_records_so_readers_need_not_buffer_them(broker, version):
    txn = begun(broker, version)
    broker.ask(produce("t", idempotent(0)))
    txn.write("t", b"undecided")
    for number in range(1, 20):
        broker.ask(produce("t", idempotent(number)))
    part = fetched(broker.ask(fetch("t", 0, committed=True), 11))
    assert [one.base_offset for one in walk(memoryview(bytes_of(part)))] == [0]
    assert bytes_of(fetched(broker.ask(fetch("t", 1, committed=True), 11))) == b""
    assert txn.commit() == OK
    part = fetched(broker.ask(fetch("t", 0, committed=True), 11))
    assert len(list(walk(memoryview(bytes_of(part))))) == 22


@BOTH
@pytest.mark.requirement("S-108")
def test_read_committed_waits_in_its_partition_until_a_long_transaction_ends(broker, version):
    """Records of another partition are read meanwhile."""
    txn = begun(broker, version, timeout_ms=600_000)
    began = broker.loop.time()
    reader, elsewhere = SimulatedClient(broker), SimulatedClient(broker)
    reader.send(fetch("t", 0, committed=True, max_wait_ms=500_000), 11)
    txn.write("t", b"0")
    for number in range(1, 200):
        assert txn.send("t", b"%d" % number) == OK
        broker.wait(1)
        if number % 50 == 0:
            broker.ask(produce("t", idempotent(number // 50 - 1), partition=1))
            part = fetched(elsewhere.ask(fetch("t", number // 50 - 1, partition=1, committed=True), 11))
            assert bytes_of(part)
    assert stable(broker, "t") == 0
    assert reader.quiet()
    assert txn.commit() == OK
    assert bytes_of(fetched(reader.receive()))
    assert 199 < broker.loop.time() - began < 201  # it waited for the commit, not for its max_wait_ms, 500 s
    assert len(values(broker, "t")) == 200


# ---- time ------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S-114")
@pytest.mark.parametrize("limited", [True, False])
def test_abandoned_transactions_block_read_committed_only_if_they_have_no_timeout(limited):
    """30 producers begin a transaction and stop; with two-phase commit (KIP-939) a producer may ask for no timeout."""
    settings = BrokerSettings(
        transaction_two_phase_commit_enable=True,
        transactional_id_expiration_ms=60_000,
        transaction_remove_expired_transaction_cleanup_interval_ms=1_000,
        transaction_abort_timed_out_transaction_cleanup_interval_ms=1_000,
        producer_id_expiration_ms=60_000,
        producer_id_expiration_check_interval_ms=1_000,
    )
    with SimulatedBroker(settings) as broker:
        broker.ask(create("t"))
        for number in range(30):
            asked = InitProducerIdRequest(
                transactional_id=f"id-{number}", transaction_timeout_ms=10_000, enable2_pc=not limited
            )
            answer = broker.ask(asked, 6)
            txn = Txn(broker, f"id-{number}", 2)
            txn.goes_on_as(answer.producer_id, answer.producer_epoch)
            txn.write("t", b"x")
        broker.wait(200)
        expected = 0 if limited else 30
        coordinator = broker.broker.transactions
        producers = broker.broker.topics.by_name["t"].partitions[0].log.producers
        assert (len(coordinator.transactions), len(coordinator.open), len(producers)) == (expected,) * 3
        assert stable(broker, "t") == (60 if limited else 0)
        with broker.again() as second:
            assert len(second.broker.transactions.transactions) == expected


@BOTH
def test_a_transaction_times_out_after_the_timeout_its_producer_asked_for(broker, version):
    txn = begun(broker, version, timeout_ms=12_345)
    (reported,) = broker.ask(DescribeTransactionsRequest(transactional_ids=["x"])).transaction_states
    assert reported.transaction_timeout_ms == 12_345
    txn.write("t", b"x")
    broker.wait(30)
    assert state(broker) == "CompleteAbort"


@pytest.mark.parametrize(("version", "is_prepared"), [(1, False), (2, True)], ids=["1-open", "2-prepared"])
def test_retention_deletes_nothing_from_the_first_open_transaction_on(version, is_prepared):
    """Its records are older than retention.ms, also after a power cut; after its end they are deleted."""
    settings = small(log_retention_check_interval_ms=500, log_checkpoint_interval_ms=100)
    with SimulatedBroker(settings) as broker:
        broker.ask(create("t", retention_ms=5_000, segment_ms=1_000))
        txn = begun(broker, version, timeout_ms=900_000)
        txn.write("t", b"held")
        if is_prepared:
            assert prepare(txn, timeout_ms=900_000).error_code == OK
        for _ in range(3):
            broker.wait(200)
            broker.ask(produce("t", batch(value=b"after")))
        with broker.after_power_cut() as later:
            later.wait(20)
            txn.client = SimulatedClient(later)
            assert (decide(later, txn).error_code if is_prepared else txn.commit()) == OK
            assert values(later, "t") == [b"held", b"after", b"after", b"after"]
            later.wait(20)
            later.ask(produce("t", batch(value=b"new")))
            later.wait(20)
            assert later.broker.topics.by_name["t"].partitions[0].log.start_offset >= 4
