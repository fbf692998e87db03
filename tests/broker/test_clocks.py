"""Somebody sets the wall clock: nothing expires early, nobody waits longer, and restarts in between change nothing.

Durations count on a clock that only goes forward, ages on the data directory's own uptime. The wall clock is asked
only where Kafka compares the timestamps of records with it.
"""

import pytest
from broker_lives import EARLIEST, LATEST, end, kill, offset_at, read_all, small, unplug
from fencepost.effects.simulated.clock import SimulatedClock
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.transactions import DescribeProducersRequest
from produce_requests import (
    EARLY_MS,
    answers,
    batch,
    bytes_of,
    create,
    fetch,
    fetched,
    idempotent,
    list_offsets,
    produce,
)
from simulated_broker import SimulatedBroker
from simulated_client import SimulatedClient
from store_driver import Driven
from txn_client import begun, state

OK = ErrorCode.NONE
FAST = 11  # a version of Produce that takes the fast path; also the version of other requests
SECOND, MINUTE, HOUR, YEAR = 1_000, 60_000, 3_600_000, 365 * 86_400_000
TO_1970 = -EARLY_MS
TO_2038 = (2**31 - 1) * 1000 - EARLY_MS + 5_000  # past what 32 bits of seconds hold
JUMPS = pytest.mark.parametrize(
    "jump_ms", [-HOUR, YEAR, TO_1970, TO_2038], ids=["back an hour", "forward a year", "to 1970", "past 2038"]
)
BOTH_WAYS = pytest.mark.parametrize("jump_ms", [-HOUR, YEAR], ids=["back an hour", "forward a year"])
ENDINGS = pytest.mark.parametrize("leave", [kill, unplug, None], ids=["killed", "unplugged", "stopped"])
ANY_TIME = {"message_timestamp_after_max_ms": 2**63 - 1}  # what is sent does not depend on the wall clock
SETTINGS = small(
    producer_id_expiration_ms=MINUTE,
    producer_id_expiration_check_interval_ms=SECOND,
    log_retention_check_interval_ms=SECOND,
    log_checkpoint_interval_ms=SECOND,
)


def begin(disk=None, settings=SETTINGS, *, wall_ms=0):
    """Start a broker. wall_ms: how far its wall clock has jumped against that of the broker before."""
    broker = SimulatedBroker(settings, disk=disk or SimulatedDisk(history=False))
    broker.broker.clock.jump_wall(wall_ms)
    return broker


@pytest.fixture
def broker():
    with begin() as broker:
        yield broker
        assert broker.broker.halted is None


def restarted(broker, leave, jump_ms=0):
    """Stop the broker, or end it with `leave`, and start another on its directory. Meanwhile the wall clock has jumped
    by jump_ms, and the monotonic clock begins anew.
    """
    if leave is None:
        broker.stop()
        return begin(broker.disk, wall_ms=jump_ms)
    return begin(leave(broker), wall_ms=jump_ms)


def knows_producer(broker):
    """Return whether the partition remembers producer 7, and so would know its last batch as a duplicate."""
    asked = DescribeProducersRequest(topics=[DescribeProducersRequest.Topic(name="t", partition_indexes=[0])])
    (part,) = broker.ask(asked).topics[0].partitions
    return [one.producer_id for one in part.active_producers] == [7]


# ---- producers -----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.requirement("S-22")
@JUMPS
def test_no_producer_id_expires_early_when_the_wall_clock_jumps(broker, jump_ms):
    broker.ask(create("t", **ANY_TIME))
    broker.ask(produce("t", idempotent(0)), FAST)
    broker.wait(30)
    broker.broker.clock.jump_wall(jump_ms)
    broker.wait(25)
    assert knows_producer(broker)
    assert answers(broker.ask(produce("t", idempotent(0)), FAST)) == [(OK, 0)]
    assert offset_at(broker, "t", LATEST) == 1
    broker.wait(10)
    assert not knows_producer(broker), "and it is forgotten when its time has come"


@pytest.mark.slow
@ENDINGS
@BOTH_WAYS
def test_no_producer_id_expires_early_over_restarts_and_wall_clock_jumps(leave, jump_ms):
    broker = begin()
    broker.ask(create("t", **ANY_TIME))
    broker.ask(produce("t", idempotent(0)), FAST)
    for _ in range(4):
        broker.wait(13)
        broker = restarted(broker, leave, jump_ms)
    assert knows_producer(broker), "52 seconds of uptime are not a minute"
    assert answers(broker.ask(produce("t", idempotent(0)), FAST)) == [(OK, 0)]
    broker.wait(20 if leave is None else 70)
    assert not knows_producer(broker), "the seconds of lives that ended in order count"
    end(broker)


# ---- segments ------------------------------------------------------------------------------------------------


@pytest.mark.slow
@JUMPS
def test_no_segment_expires_early_when_the_wall_clock_jumps(broker, jump_ms):
    broker.ask(create("t", retention_ms=MINUTE, segment_ms=5 * SECOND))
    for _ in range(3):
        broker.ask(produce("t", batch()), FAST)
        broker.wait(10)
    broker.broker.clock.jump_wall(jump_ms)
    broker.wait(25)
    assert offset_at(broker, "t", EARLIEST) == 0
    assert len(read_all(broker, "t")) == 3
    broker.wait(40)
    assert offset_at(broker, "t", EARLIEST) > 0, "and it expires when its time has come"


@pytest.mark.slow
@ENDINGS
@BOTH_WAYS
def test_no_segment_expires_early_over_restarts_and_wall_clock_jumps(leave, jump_ms):
    broker = begin()
    broker.ask(create("t", retention_ms=MINUTE, segment_ms=5 * SECOND))
    broker.ask(produce("t", batch()), FAST)
    for _ in range(4):
        broker.wait(13)
        broker = restarted(broker, leave, jump_ms)
    assert offset_at(broker, "t", EARLIEST) == 0, "52 seconds of uptime are not a minute"
    broker.wait(20 if leave is None else 70)
    assert offset_at(broker, "t", EARLIEST) == 1, "the seconds of lives that ended in order count"
    end(broker)


@pytest.mark.slow
@JUMPS
def test_a_wall_clock_jump_rolls_no_segment(broker, jump_ms):
    broker.ask(create("t", segment_ms=MINUTE, **ANY_TIME))
    for _ in range(4):
        broker.ask(produce("t", batch()), FAST)
        broker.wait(5)
        broker.broker.clock.jump_wall(jump_ms // 4)
    (log,) = (log for log in broker.broker.store.logs.values() if log.topic == "t")
    assert log.flushed_offset == 4
    assert len(log.segments) == 1


def test_retention_ignores_record_timestamps_far_ahead_or_far_back(broker):
    """Retention is by the time of the append, whatever producers stamp."""
    settings = {"retention_ms": MINUTE, "segment_ms": 5 * SECOND, "message_timestamp_after_max_ms": 2 * YEAR}
    for name, timestamp in (("future", EARLY_MS + YEAR), ("past", 1_000)):
        broker.ask(create(name, **settings))
        broker.ask(produce(name, batch(timestamp=timestamp)), FAST)
    broker.wait(40)
    assert [offset_at(broker, name, EARLIEST) for name in ("future", "past")] == [0, 0]
    broker.wait(40)
    assert [offset_at(broker, name, EARLIEST) for name in ("future", "past")] == [1, 1]


@pytest.mark.slow
@JUMPS
def test_a_wall_clock_jump_removes_no_tombstone_before_delete_retention_ms(broker, jump_ms):
    """The tombstone of "a" is written 4 s before the jump. Compaction then removes the record before it."""
    broker.ask(
        create(
            "c",
            **ANY_TIME,
            cleanup_policy="compact",
            delete_retention_ms=3 * MINUTE,
            segment_ms=SECOND,
            min_cleanable_dirty_ratio=0,
        )
    )
    keyed = [(b"a", b"1"), (b"b", b"2"), (b"a", None)]
    for key, value in keyed:
        broker.ask(produce("c", batch(key=key, value=value)), FAST)
        broker.wait(4)
    broker.broker.clock.jump_wall(jump_ms)
    for n in range(8):
        broker.ask(produce("c", batch(key=b"other", value=b"%d" % n)), FAST)
        broker.wait(10)
    values = {record.key: record.value for record in read_all(broker, "c")}
    assert values[b"b"] == b"2"
    assert b"a" in values
    assert values[b"a"] is None
    assert b"1" not in [record.value for record in read_all(broker, "c")]


# ---- the store's own age -------------------------------------------------------------------------------------


@pytest.mark.slow
@JUMPS
def test_the_age_of_a_data_directory_grows_only_by_monotonic_time_while_served(jump_ms):
    """The age is the time for which brokers have served the directory; a power cut sets it back to the last
    checkpoint.
    """
    disk = SimulatedDisk()
    age = 0
    for life in range(5):
        clock = SimulatedClock(now_ms=EARLY_MS + life * jump_ms, monotonic_ms=life * 1_000_003)
        driven = Driven(disk, clock)
        assert driven.store.age_ms() == age
        clock.advance(10_000)
        clock.jump_wall(jump_ms)
        driven.checkpoint()
        age += 10_000
        clock.advance(700)  # lost in the crash: an age may go back a little, never forward
        disk = disk.after_power_cut()


@pytest.mark.slow
@pytest.mark.parametrize("leave", [kill, unplug], ids=["killed", "unplugged"])
def test_a_crash_loses_at_most_ten_minutes_of_the_directorys_age(leave):
    broker = begin()
    broker.ask(create("t"))
    broker.wait(800)
    later = begin(leave(broker))
    assert later.broker.store.age_ms() >= (800 - 610) * SECOND
    end(later)


def test_after_a_crash_records_newer_than_the_last_checkpoint_expire_no_earlier(broker):
    """A crash sets the directory's age back to its last checkpoint; records appended later than that are not taken for
    older than they are.
    """
    broker.ask(create("t", retention_ms=MINUTE, segment_ms=5 * SECOND))
    broker.wait(30)
    broker.ask(produce("t", idempotent(0)), FAST)
    later = begin(unplug(broker))
    later.wait(50)
    assert offset_at(later, "t", EARLIEST) == 0
    assert knows_producer(later)
    end(later)


@pytest.mark.slow
@pytest.mark.parametrize("leave", [kill, unplug], ids=["killed", "unplugged"])
@pytest.mark.parametrize("silence_s", [0, 500], ids=["a new broker", "after a long silence"])
@pytest.mark.parametrize("life_s", [11, 15, 25])
def test_an_open_transaction_times_out_although_the_broker_is_killed_again_and_again(leave, silence_s, life_s):
    """While a timeout is pending, the directory's age is saved at every checkpoint interval (10 s), so that each kill
    loses less than half of a life.
    """
    broker = begin(settings=small())
    broker.ask(create("t"))
    broker.wait(silence_s)
    begun(broker, timeout_ms=MINUTE).write("t", b"never ended")
    lived_s = 0
    while state(broker) == "Ongoing" and lived_s < 2 * 60:
        broker.wait(life_s)
        lived_s += life_s
        broker = begin(leave(broker), settings=small())
    assert state(broker) == "CompleteAbort"
    assert lived_s >= 60, "and not early"
    end(broker)


# ---- those who wait ------------------------------------------------------------------------------------------


@JUMPS
def test_a_wall_clock_jump_does_not_change_how_long_a_fetch_waits(broker, jump_ms):
    broker.ask(create("t"))
    client = SimulatedClient(broker)
    client.send(fetch("t", max_wait_ms=10_000), FAST)
    broker.wait(5)
    broker.broker.clock.jump_wall(jump_ms)
    assert client.quiet(4.9)
    assert not client.quiet(0.2)
    assert fetched(client.receive()).error_code == OK


@JUMPS
def test_a_wall_clock_jump_closes_no_idle_connection_early(jump_ms):
    with begin(settings=small(connections_max_idle_ms=MINUTE)) as broker:
        client = SimulatedClient(broker)
        broker.wait(20)
        broker.broker.clock.jump_wall(jump_ms)
        assert client.quiet(20)
        assert not client.quiet(60)
        assert client.line.closed


# ---- timestamps of records -----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [3, FAST])
@pytest.mark.parametrize(
    ("ahead_ms", "code"), [(HOUR, OK), (HOUR + 1_000, ErrorCode.INVALID_TIMESTAMP), (-YEAR, OK), (-EARLY_MS, OK)]
)
def test_a_record_too_far_ahead_of_the_wall_clock_gets_invalid_timestamp(broker, version, ahead_ms, code):
    """message.timestamp.after.max.ms is an hour; before.max.ms has no limit."""
    broker.ask(create("t"))
    now_ms = broker.broker.clock.now_ms()
    ((found, _),) = answers(broker.ask(produce("t", batch(timestamp=now_ms + ahead_ms)), version))
    assert found == code


@pytest.mark.parametrize(("jump_ms", "code"), [(-HOUR // 2, OK), (-2 * HOUR, ErrorCode.INVALID_TIMESTAMP), (YEAR, OK)])
def test_after_a_wall_clock_jump_timestamp_limits_count_from_the_new_time(broker, jump_ms, code):
    broker.ask(create("t"))
    now_ms = broker.broker.clock.now_ms()
    broker.broker.clock.jump_wall(jump_ms)
    assert answers(broker.ask(produce("t", batch(timestamp=now_ms)), FAST))[0][0] == code


def test_timestamps_beyond_the_topics_own_limits_get_invalid_timestamp(broker):
    broker.ask(create("t", message_timestamp_after_max_ms=1_000, message_timestamp_before_max_ms=2_000))
    now_ms = broker.broker.clock.now_ms()
    codes = {}
    for ahead_ms in (-3_000, -1_900, 0, 900, 1_500):
        ((codes[ahead_ms], _),) = answers(broker.ask(produce("t", batch(timestamp=now_ms + ahead_ms)), FAST))
    refused = ErrorCode.INVALID_TIMESTAMP
    assert codes == {-3_000: refused, -1_900: OK, 0: OK, 900: OK, 1_500: refused}


def test_after_the_clock_went_back_list_offsets_finds_the_first_record_at_a_time(broker):
    broker.ask(create("t", message_timestamp_type="LogAppendTime"))
    stamps = []
    for jump_ms in (0, HOUR, -2 * HOUR, 3 * HOUR):
        broker.broker.clock.jump_wall(jump_ms)
        stamps.append(broker.broker.clock.now_ms())
        broker.ask(produce("t", batch()), FAST)
        broker.wait(3)
    assert [record.timestamp - EARLY_MS for record in read_all(broker, "t")] == pytest.approx(
        [stamp - EARLY_MS for stamp in stamps], abs=50
    )

    def first_at(timestamp):
        return broker.ask(list_offsets("t", timestamp)).topics[0].partitions[0].offset

    assert first_at(stamps[0] - 10) == 0
    assert first_at(stamps[0] + MINUTE) == 1, "the first at or after that time, in the order of the log"
    assert first_at(stamps[1] + MINUTE) == 3
    assert first_at(stamps[3] + MINUTE) == -1
    assert bytes_of(fetched(broker.ask(fetch("t", 2), FAST)))
