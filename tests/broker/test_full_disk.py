"""A full disk is met by admission: produce is refused with an error clients retry, all else goes on, nothing is lost.

A simulated volume, where every byte counts; test_full_volume.py fills a real one.
"""

import errno
import logging

import pytest
from broker_lives import EARLIEST, end, kill, offset_at, read_all, slow, small, unplug
from broker_oracle import check, run_traffic
from fencepost.effects.disk import DiskFull, DiskLow
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.effects.simulated.operations import Link, Rename, Write
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.configs import DescribeConfigsRequest
from fencepost.protocol.messages.topics import DeleteRecordsRequest, DeleteTopicsRequest
from fencepost.protocol.messages.transactions import InitProducerIdRequest
from long_runs import first_only
from produce_requests import answers, batch, create, idempotent, produce
from simulated_broker import SimulatedBroker

pytestmark = pytest.mark.slow

OK, REFUSED = ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS
FAST, GENERAL = 11, 3  # versions of Produce: the first takes the fast path, the other the general path
MIB = 1 << 20
VALUE_BYTES = 100_000
FLOOR = 4 * MIB
VOLUME = 24 * MIB


def begin(disk: SimulatedDisk, **settings) -> SimulatedBroker:
    return SimulatedBroker(
        small(
            **{
                "storage_min_free_bytes": FLOOR,
                "log_checkpoint_interval_ms": 1_000,
                "log_retention_check_interval_ms": 1_000,
            }
            | settings
        ),
        disk=disk,
    )


@pytest.fixture
def disk():
    return SimulatedDisk(capacity_bytes=VOLUME, history=False)


@pytest.fixture
def broker(disk):
    with begin(disk) as broker:
        broker.ask(create("t"))
        yield broker
        assert broker.broker.halted is None
        assert broker.broker.metrics.failures == []


class Producer:
    """One idempotent producer that remembers what was acknowledged: its values are b"0…", b"1…" and so on."""

    def __init__(self, broker: SimulatedBroker, topic: str = "t", producer_id: int = 7) -> None:
        self.broker = broker
        self.topic = topic
        self.producer_id = producer_id
        self.acknowledged = 0

    def send(self, version: int = FAST) -> ErrorCode:
        """Send the next batch, which is the same as before if that was refused. Return its error code."""
        ((code, offset),) = answers(self.broker.ask(produce(self.topic, self._batch()), version))
        if code == OK:
            assert offset == self.acknowledged
            self.acknowledged += 1
        return ErrorCode(code)

    def _batch(self) -> bytes:
        value = (b"%d " % self.acknowledged).ljust(VALUE_BYTES, b".")
        return idempotent(self.acknowledged, producer_id=self.producer_id, value=value)

    def fill(self, pause_s: float = 0.02) -> None:
        """Send batches until one is refused because the disk is full."""
        for _ in range(2 * VOLUME // VALUE_BYTES):
            code = self.send()
            if code == REFUSED:
                return
            assert code == OK
            self.broker.wait(pause_s)
        raise AssertionError("the disk is never full")

    def check(self, broker: SimulatedBroker) -> None:
        """Check that all acknowledged records are there, once and in order."""
        found = [(record.offset, int(record.value.split()[0])) for record in read_all(broker, self.topic)]
        start = offset_at(broker, self.topic, EARLIEST)
        assert found == [(number, number) for number in range(start, self.acknowledged)]


def delete_topic(broker, name):
    return broker.ask(DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(name=name)], timeout_ms=1000)).responses[0]


def delete_records(broker, name, offset):
    part = DeleteRecordsRequest.Topic.Partition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(topics=[DeleteRecordsRequest.Topic(name=name, partitions=[part])], timeout_ms=1000)
    return broker.ask(request).topics[0].partitions[0]


# ---- log lines and metrics -------------------------------------------------------------------------------------


def test_low_disk_space_is_logged_as_an_error_and_its_end_as_a_warning(disk, caplog):
    caplog.set_level(logging.INFO, "fencepost.storage")
    with begin(disk) as broker:
        broker.ask(create("t"))
        assert said(caplog) == []
        disk.capacity_bytes = VOLUME - disk.free_bytes("/")  # another program takes all of it
        broker.wait(1)
        ((code, _),) = answers(broker.ask(produce("t", idempotent(0, producer_id=7, value=bytes(10))), FAST))
        assert code == REFUSED
        assert [level for level, _ in said(caplog)] == ["ERROR"]
        assert broker.broker.store.space.refusals == 1
        disk.capacity_bytes = VOLUME
        broker.wait(1)
        assert [level for level, _ in said(caplog)] == ["ERROR", "WARNING"]


def said(caplog):
    return [(each.levelname, each.getMessage()) for each in caplog.records if "storage.min.free.bytes" in each.message]


def test_a_first_start_on_a_full_disk_is_refused_naming_storage_min_free_bytes(disk):
    disk.capacity_bytes = FLOOR // 4
    with pytest.raises(DiskLow, match=r"storage\.min\.free\.bytes") as refused, begin(disk):
        pass
    assert isinstance(refused.value, DiskFull)
    disk.capacity_bytes = VOLUME
    with begin(disk) as broker:
        broker.ask(create("t"))


@pytest.mark.parametrize("transactional_id", [None, "x"])
def test_init_producer_id_on_a_full_disk_gets_a_retriable_error(disk, transactional_id):
    """The response has no error message, so its code must not say that files of a partition are damaged."""
    with begin(disk) as broker:
        broker.ask(create("t"))
        disk.capacity_bytes = VOLUME - disk.free_bytes("/")
        broker.wait(1)
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
        code = ErrorCode(broker.ask(request).error_code)
        without_id, with_id = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert code is (without_id if transactional_id is None else with_id)
        disk.capacity_bytes = VOLUME
        broker.wait(1)
        assert broker.ask(request).error_code == OK


# ---- a volume that the broker itself fills -------------------------------------------------------------------


@pytest.mark.parametrize("version", [FAST, GENERAL])
def test_produce_gets_a_retriable_error_before_the_disk_is_completely_full(broker, disk, version):
    producer = Producer(broker)
    producer.fill()
    assert producer.acknowledged > 50
    assert producer.send(version) == REFUSED
    assert REFUSED.retriable
    assert disk.free_bytes("/") > FLOOR - 3 * MIB
    broker.wait(10)
    assert producer.send(version) == REFUSED
    producer.check(broker)


def test_on_a_full_disk_topics_are_not_created_and_records_can_be_deleted(broker):
    """Creating a topic gets KAFKA_STORAGE_ERROR. New producer ids and reads are served."""
    producer = Producer(broker)
    producer.fill()
    producer.check(broker)
    broker.ask(create("small"))
    while answers(broker.ask(produce("small", batch(100)), FAST)) != [(REFUSED, -1)]:
        pass
    assert broker.ask(InitProducerIdRequest(transaction_timeout_ms=0)).error_code == OK
    described = [DescribeConfigsRequest.Resource(resource_type=2, resource_name="t")]
    assert broker.ask(DescribeConfigsRequest(resources=described)).results[0].error_code == OK
    assert broker.ask(create("new")).topics[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert delete_records(broker, "t", 10).error_code == OK
    assert offset_at(broker, "t", EARLIEST) == 10
    producer.check(broker)


def test_producing_resumes_when_deleting_a_topic_freed_space(broker, disk):
    Producer(broker, "t").fill()
    broker.wait(5)
    other = Producer(broker, "t", producer_id=8)
    assert delete_topic(broker, "t").error_code == OK
    broker.wait(30)
    assert disk.free_bytes("/") > VOLUME // 2
    broker.ask(create("t"))
    for _ in range(20):
        assert other.send() == OK
    other.check(broker)


def test_producing_resumes_when_retention_freed_space(disk):
    with begin(disk) as broker:
        broker.ask(create("t", retention_bytes=5 * MIB, segment_bytes=MIB))
        producer = Producer(broker)
        refused = 0
        while producer.acknowledged < 600:
            if producer.send() != OK:
                refused += 1
                assert refused < 400, f"stuck after {producer.acknowledged} batches"
                broker.wait(0.5)
            else:
                broker.wait(0.01)
        producer.check(broker)
        assert offset_at(broker, "t", EARLIEST) > 300


def test_producing_resumes_when_delete_records_freed_space(disk):
    with begin(disk) as broker:
        broker.ask(create("t", segment_bytes=MIB))
        producer = Producer(broker)
        for _ in range(4):
            producer.fill()
            broker.wait(3)
            assert delete_records(broker, "t", producer.acknowledged - 5).error_code == OK
            broker.wait(30)
            assert producer.send() == OK
        producer.check(broker)


def test_journal_files_made_ahead_leave_space_for_producing():
    """journal.max.bytes exceeds the volume, but files made ahead leave storage.min.free.bytes free, so deleting a
    topic makes room for new records again.
    """
    disk = SimulatedDisk(capacity_bytes=40 * MIB, history=False)
    with begin(disk, journal_max_bytes=256 * MIB, storage_min_free_bytes=12 * MIB) as broker:
        for life in range(3):
            broker.ask(create("t"))
            producer = Producer(broker, producer_id=life)
            producer.fill()
            producer.check(broker)
            assert producer.acknowledged > 20, f"nothing fits in round {life}"
            assert delete_topic(broker, "t").error_code == OK
            broker.wait(30)


@pytest.mark.parametrize("leave", [kill, unplug, None], ids=["killed", "unplugged", "stopped"])
def test_a_restart_on_a_full_disk_has_all_acknowledged_records(broker, disk, leave):
    producer = Producer(broker)
    producer.fill()
    if leave is None:
        broker.stop()
        left = disk
    else:
        left = leave(broker)
    with begin(left) as again:
        producer.broker = again
        producer.check(again)
        left.capacity_bytes = 2 * VOLUME
        again.wait(1)
        assert producer.send() == OK
        producer.check(again)


# ---- a volume that others fill -------------------------------------------------------------------------------


@pytest.mark.parametrize("left_bytes", [FLOOR - 1, FLOOR // 2, FLOOR // 4 - 1, 20_000, 0])
def test_a_disk_filled_by_another_program_stops_produce_but_no_deletions(broker, disk, left_bytes):
    """Producing resumes once the space is free again."""
    broker.ask(create("other"))
    producer = Producer(broker)
    for _ in range(30):
        assert producer.send() == OK
    disk.capacity_bytes = VOLUME - disk.free_bytes("/") + left_bytes
    broker.wait(1)
    assert producer.send() == REFUSED
    producer.check(broker)
    assert delete_records(broker, "t", 5).error_code == OK
    assert delete_topic(broker, "other").error_code == OK
    broker.wait(20)
    assert broker.broker.halted is None
    producer.check(broker)
    disk.capacity_bytes = VOLUME
    broker.wait(2)
    assert producer.send() == OK
    producer.check(broker)


def test_retention_still_deletes_segments_when_no_byte_of_disk_is_free(disk):
    with begin(disk) as broker:
        broker.ask(create("t", retention_ms=15_000, segment_ms=1_000))
        producer = Producer(broker)
        for _ in range(30):
            assert producer.send() == OK
            broker.wait(0.1)
        broker.wait(6)
        disk.capacity_bytes = VOLUME - disk.free_bytes("/")
        broker.wait(30)
        assert offset_at(broker, "t", EARLIEST) > 20
        disk.capacity_bytes = VOLUME
        broker.wait(5)
        assert producer.send() == OK


def test_a_disk_that_fills_between_two_space_checks_loses_no_records(broker, disk):
    """Flushes fail because the disk is full; the records stay in the unflushed tail and in the journal."""
    producer = Producer(broker)
    for _ in range(10):
        assert producer.send() == OK
    disk.capacity_bytes = VOLUME - disk.free_bytes("/") + 150_000
    while producer.send() == OK:
        pass
    broker.wait(20)
    left = unplug(broker)
    left.capacity_bytes = VOLUME
    with begin(left) as again:
        producer.broker = again
        producer.check(again)
        assert producer.send() == OK


def test_a_start_refused_for_lack_of_disk_space_loses_no_acknowledged_records(broker):
    producer = Producer(broker)
    for _ in range(30):
        assert producer.send() == OK
    left = kill(broker)
    used = VOLUME - left.free_bytes("/")
    refused = 0
    for room in (0, 1_000, 10_000, 100_000, 400_000, MIB, 3 * MIB):
        left.capacity_bytes = used + room
        try:
            end(begin(left))
        except DiskFull:
            refused += 1
        left = left.after_power_cut()
    assert refused
    left.capacity_bytes = VOLUME
    with begin(left) as again:
        producer.broker = again
        producer.check(again)
        assert producer.send() == OK


# ---- no space for each write in turn -------------------------------------------------------------------------


def written_behind(one) -> bool:
    """Return whether a disk operation writes anything but the journal's entries: segments, indexes, checkpoints, or
    journal files made in advance.
    """
    if not isinstance(one, Write | Link | Rename):
        return False
    return not (isinstance(one, Write) and one.path.endswith(".journal"))


@pytest.fixture(scope="module")
def busy_operations():
    disk = SimulatedDisk()
    broker = begin_busy(disk)
    before = len(disk.operations)
    run_traffic(broker, "busy", 9.0)
    found = [one for one in disk.operations[before:] if written_behind(one)]
    end(broker)
    return found


def begin_busy(disk: SimulatedDisk) -> SimulatedBroker:
    slow(disk, journal=0.004, segments=0.003, reads=0.001)
    return SimulatedBroker(small(log_checkpoint_interval_ms=3_000), disk=disk)


def kind_of(one) -> tuple[str, str]:
    return type(one).__name__, "".join("#" if c.isdigit() else c for c in one.path).replace("#", "")


@pytest.mark.parametrize("times", first_only([40, 1]))
def test_enospc_at_a_flush_roll_checkpoint_or_new_journal_file_loses_no_records(busy_operations, times):
    """Operations of each kind, for each kind of file, are made to fail: the last one of the kind, or 40 from the first
    one on, so that retries fail too.
    """
    places: dict[tuple[str, str], list[int]] = {}
    for one in busy_operations:
        places.setdefault(kind_of(one), []).append(one.index)
    assert {"Write", "Link", "Rename"} <= {kind for kind, _ in places}
    for kind, indexes in places.items():
        index = indexes[-1] if times == 1 else indexes[0]
        disk = SimulatedDisk()
        broker = begin_busy(disk)
        disk.fail(
            lambda one, began=index, kind=kind: one.index >= began and kind_of(one) == kind,
            error=errno.ENOSPC,
            times=times,
            after_bytes=10,
        )
        run_traffic(broker, "busy", 9.0)
        assert broker.broker.halted is None, (kind, index)
        again = begin_busy(unplug(broker))
        try:
            check(again)
        except BaseException as error:
            error.add_note(f"no space for {kind} from {index} on")
            raise
        finally:
            end(again)


def test_enospc_in_a_write_to_the_journal_halts_the_broker():
    """A journal file is filled with zeros beforehand, so this cannot mean a full disk; the disk's state is unknown."""
    disk = SimulatedDisk()
    broker = begin_busy(disk)
    disk.fail(lambda one: isinstance(one, Write) and one.path.endswith(".journal"), error=errno.ENOSPC)
    run_traffic(broker, "busy", 2.0)
    assert isinstance(broker.broker.halted, OSError)
    left = unplug(broker)
    again = begin_busy(left)
    check(again)
    end(again)
