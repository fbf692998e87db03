"""ShareFetch and ShareAcknowledge as members of a share group see them.

states() gives a letter for each record of the window: A available, L acquired (locked), K acknowledged, X archived.
"""

import pytest
from config_requests import change
from fencepost.broker.config.settings import BrokerSettings
from fencepost.protocol.errors import ErrorCode as E
from fencepost.protocol.messages.topics import DeleteTopicsRequest
from produce_requests import batch, create, produce
from quota_client import set_quota
from share_client import ACCEPT, REJECT, RELEASE, RENEW, ShareClient, got, initialize
from simulated_broker import SimulatedBroker
from simulated_client import SimulatedClient
from txn_client import begun

LOCK_S = 30
GROUP = 32  # the resource type


@pytest.fixture
def broker():
    with SimulatedBroker(BrokerSettings(share_coordinator_state_topic_num_partitions=2)) as broker:
        broker.ask(create("t", 3))
        initialize(broker, "t", 0, 1, 2)
        yield broker


@pytest.fixture
def member(broker):
    return ShareClient(broker)


def fill(broker, batches=1, count=1, partition=0, **more):
    client = SimulatedClient(broker, "filling")
    for _ in range(batches):
        client.ask(produce("t", batch(count, **more), partition=partition), 9)


# What is acquired.


def test_share_fetch_gives_records_to_one_member_with_their_delivery_count(broker, member):
    fill(broker, 2, 5)
    other = ShareClient(broker, member="n")
    found = got(member.fetch(0))[0]
    assert found.ranges == [(0, 9, 1)]
    assert found.values == dict.fromkeys(range(10), "v")
    assert other.take(0) == []
    assert member.states() == "L" * 10


def test_share_fetch_acquires_whole_batches_even_beyond_max_records(broker, member):
    fill(broker, 4, 5)
    assert member.take(0, max_records=7, batch_size=5) == [(0, 4, 1), (5, 9, 1)]
    assert member.take(max_records=1) == [(10, 14, 1)]


def test_share_fetch_in_record_limit_mode_acquires_exactly_max_records(broker, member):
    fill(broker, 4, 5)
    assert member.take(0, max_records=7, share_acquire_mode=1) == [(0, 6, 1)]
    assert member.take(max_records=7, share_acquire_mode=1) == [(7, 13, 1)]


def test_share_fetch_delivers_each_record_alone_at_its_last_allowed_delivery(broker, member):
    configure(broker, **{"share.delivery.count.limit": "3"})
    fill(broker, 2, 5)
    for deliveries in (1, 2):
        assert member.take(*([0] if deliveries == 1 else [])) == [(0, 9, deliveries)]
        assert member.acknowledge((0, 9, RELEASE)) == 0
    assert [member.take() for _ in range(3)] == [[(number, number, 3)] for number in range(3)]


def test_share_fetch_returns_only_the_batches_that_have_available_records(broker, member):
    fill(broker, 4, 5)
    member.take(0)
    assert member.acknowledge((0, 4, ACCEPT), (5, 9, RELEASE), (10, 14, ACCEPT)) == 0
    found = got(member.fetch())[0]
    assert found.ranges == [(5, 9, 2)]
    assert list(found.values) == [5, 6, 7, 8, 9]


def test_share_fetch_max_bytes_is_for_all_partitions_but_never_stops_the_first_batch(broker, member):
    for partition in range(3):
        fill(broker, 3, 5, partition)
    assert [found.ranges for found in got(member.fetch(0, 1, 2, max_bytes=1)).values()] == [[(0, 4, 1)], [], []]
    size = 3 * len(batch(5))
    found = got(member.fetch(max_bytes=size))
    assert sum(last - first + 1 for each in found.values() for first, last, _ in each.ranges) == 15
    assert len(found) == 3


def test_share_fetch_starts_with_another_partition_each_time(broker, member):
    for partition in range(3):
        fill(broker, 3, 5, partition)
    firsts = [next(iter(got(member.fetch(*named, max_records=5)))) for named in ((0, 1, 2), (), ())]
    assert sorted(firsts) == [0, 1, 2]


def test_a_share_fetch_skips_markers_and_by_default_delivers_aborted_records(broker, member):
    txn = begun(broker)
    for commit in (True, False):
        txn.write("t", b"a")
        txn.end(commit)
    fill(broker)
    found = got(member.fetch(0))[0]
    assert found.ranges == [(0, 0, 1), (2, 2, 1), (4, 4, 1)], "share groups are read_uncommitted by default"
    assert member.states() == "LXLXL"


@pytest.mark.requirement("S-122")
def test_a_read_committed_share_group_gets_no_aborted_or_open_records(broker, member):
    configure(broker, **{"share.isolation.level": "read_committed"})
    txn = begun(broker)
    txn.write("t", b"a")
    txn.abort()
    txn.write("t", b"b")
    fill(broker)
    assert member.take(0) == []
    assert member.states() == ""
    txn.commit()
    assert member.take() == [(2, 3, 1)]


def test_a_committed_only_topic_hides_uncommitted_records_from_share_groups(broker):
    broker.ask(create("u", 1, fencepost_isolation_level_min="read_committed"))
    initialize(broker, "u")
    txn = begun(broker)
    txn.write("u", b"a")
    member = ShareClient(broker, "u")
    assert member.take(0) == []
    txn.abort()
    txn.write("u", b"b")
    txn.commit()
    assert got(member.fetch())[0].values == {2: "b"}


def test_share_fetch_reads_segments_that_are_not_in_memory(broker, member):
    fill(broker, 20, 5)
    broker.wait(30)
    log = broker.broker.topics.by_name["t"].partitions[0].log
    for state in log.segments:
        broker.broker.store.open_files.indexes.drop(f"{log.directory}/{state.stem}")
    reads = broker.broker.metrics.cold_reads
    assert member.take(0, max_wait_ms=500) == [(0, 99, 1)]
    assert broker.broker.metrics.cold_reads == reads + 1
    assert not broker.broker.share_partitions._reading


def test_share_fetch_returns_nothing_while_the_in_flight_window_is_full(broker, member):
    configure(broker, **{"share.partition.max.record.locks": "100"})
    fill(broker, 50, 5)
    assert member.take(0) == [(0, 99, 1)]
    assert member.take() == []
    assert member.acknowledge((5, 99, ACCEPT)) == 0
    assert member.take() == []
    assert member.acknowledge((0, 4, ACCEPT)) == 0
    assert member.take() == [(100, 199, 1)]


# Waiting.


def test_a_waiting_share_fetch_is_answered_when_records_arrive(broker, member):
    member.client.send(member.fetching(0, max_wait_ms=60_000), 2)
    assert member.client.quiet(1)
    fill(broker)
    assert got(member.client.receive())[0].ranges == [(0, 0, 1)]


def test_a_waiting_share_fetch_is_answered_when_a_member_releases_records(broker, member):
    fill(broker)
    member.take(0)
    other = ShareClient(broker, member="n")
    other.client.send(other.fetching(0, max_wait_ms=60_000), 2)
    assert other.client.quiet(1)
    member.acknowledge((0, 0, RELEASE))
    assert got(other.client.receive())[0].ranges == [(0, 0, 2)]


def test_a_control_batch_does_not_end_the_wait_of_a_share_fetch(broker, member):
    configure(broker, **{"share.isolation.level": "read_committed"})
    member.fetch(0)
    member.client.send(member.fetching(max_wait_ms=60_000), 2)
    txn = begun(broker)
    txn.write("t", b"a")
    txn.abort()
    assert member.client.quiet(1)
    fill(broker)
    assert got(member.client.receive())[0].ranges == [(2, 2, 1)]
    assert not broker.broker.metrics.failures


def test_a_share_fetch_waiting_for_300_partitions_is_answered_when_one_gets_records(broker):
    broker.ask(create("wide", 300))
    initialize(broker, "wide", *range(300))
    member = ShareClient(broker, "wide")
    assert len(got(member.fetch(*range(300)))) == 300
    member.client.send(member.fetching(max_wait_ms=60_000), 2)
    assert member.client.quiet(1)
    SimulatedClient(broker).ask(produce("wide", batch(2), partition=299), 9)
    assert {index: each.ranges for index, each in got(member.client.receive()).items()} == {299: [(0, 1, 1)]}
    assert len(broker.broker.waiting) == 0
    stranger = ShareClient(broker, "wide", member="n", group="nobody")
    assert {each.error for each in got(stranger.fetch(*range(300))).values()} == {E.UNKNOWN_TOPIC_OR_PARTITION}


def test_a_waiting_share_fetch_is_answered_when_an_acquisition_lock_expires(broker, member):
    fill(broker)
    member.take(0)
    other = ShareClient(broker, member="n")
    other.client.send(other.fetching(0, max_wait_ms=60_000), 2)
    assert other.client.quiet(LOCK_S - 1)
    broker.wait(1.2)
    assert got(other.client.receive())[0].ranges == [(0, 0, 2)]


def test_a_share_fetch_that_times_out_returns_an_empty_answer(broker, member):
    assert got(member.fetch(0))[0].ranges == [], "the first answer of a session lists all its partitions, as in Kafka"
    before = broker.loop.time()
    response = member.fetch(max_wait_ms=500)
    assert (response.error_code, response.responses) == (0, [])
    assert 0.5 <= broker.loop.time() - before < 0.6
    assert response.acquisition_lock_timeout_ms == 30_000


def test_the_share_fetch_that_waited_longest_is_served_first(broker):
    waiting = [ShareClient(broker, member=f"m{number}") for number in range(3)]
    for each in waiting:
        each.client.send(each.fetching(0, max_wait_ms=60_000, max_records=1), 2)
        assert each.client.quiet(0.1)
    for each in waiting:
        fill(broker)
        found = got(each.client.receive())[0].ranges
        assert len(found) == 1


def test_a_share_fetch_acquires_nothing_before_min_bytes_are_there(broker, member):
    member.client.send(member.fetching(0, max_wait_ms=60_000, min_bytes=150), 2)
    fill(broker)
    assert member.client.quiet(1)
    assert member.states() == ""
    fill(broker, 2)
    assert got(member.client.receive())[0].ranges == [(0, 2, 1)]


# Acknowledging.


def test_share_fetch_answers_the_acknowledgements_it_carries(broker, member):
    fill(broker, 2, 5)
    member.take(0, max_records=5)
    found = got(member.fetch(acks={0: [(0, 1, ACCEPT), (2, 4, [REJECT, RELEASE, 0])]}))[0]
    assert (found.ack_error, found.error) == (0, 0)
    assert found.ranges == [(3, 3, 2), (5, 9, 1)]
    assert member.states() == "LXLLLLL"


def test_all_acknowledgements_of_a_request_are_written_in_one_unit(broker, member):
    for partition in range(3):
        fill(broker, 1, 5, partition)
    member.fetch(0, 1, 2)
    before = broker.broker.store.last_unit
    member.fetch(acks={partition: [(0, 4, ACCEPT)] for partition in range(3)})
    assert broker.broker.store.last_unit == before + 1
    assert [member.states(partition) for partition in range(3)] == ["", "", ""]


def test_one_invalid_acknowledgement_fails_all_acknowledgements_of_its_partition(broker, member):
    fill(broker, 1, 5)
    fill(broker, 1, 5, 1)
    member.fetch(0, 1)
    found = got(member.fetch(acks={0: [(0, 2, ACCEPT), (3, 9, ACCEPT)], 1: [(0, 4, ACCEPT)]}))
    assert (found[0].ack_error, found[1].ack_error) == (E.INVALID_REQUEST, 0)
    assert (member.states(0), member.states(1)) == ("LLLLL", "")


def test_an_acknowledgement_below_the_window_is_ignored(broker, member):
    fill(broker, 1, 5)
    member.take(0)
    assert [member.acknowledge((0, 4, ACCEPT)) for _ in range(2)] == [0, 0]


def test_a_member_can_acknowledge_only_records_it_acquired(broker, member):
    fill(broker, 1, 5)
    member.take(0)
    other = ShareClient(broker, member="n")
    other.fetch(0)
    assert other.acknowledge((0, 4, ACCEPT)) == E.INVALID_RECORD_STATE
    assert member.acknowledge((0, 4, RELEASE)) == 0
    assert member.acknowledge((0, 4, ACCEPT)) == E.INVALID_RECORD_STATE


@pytest.mark.slow
@pytest.mark.parametrize(
    ("acks", "code"),
    [
        ([(3, 2, ACCEPT)], E.INVALID_REQUEST),
        ([(2, 3, ACCEPT), (0, 1, ACCEPT)], E.INVALID_REQUEST),
        ([(0, 4, [])], E.INVALID_REQUEST),
        ([(0, 4, [1, 1])], E.INVALID_REQUEST),
        ([(0, 4, 5)], E.INVALID_REQUEST),
        ([(0, 4, -1)], E.INVALID_REQUEST),
        ([(0, 4, RENEW)], E.INVALID_REQUEST),
        ([(0, 5, ACCEPT)], E.INVALID_REQUEST),
    ],
)
@pytest.mark.parametrize("how", ["fetch", "acknowledge"])
def test_invalid_acknowledgements_change_nothing(broker, member, acks, code, how):
    fill(broker, 1, 5)
    member.take(0)
    if how == "fetch":
        assert got(member.fetch(acks={0: acks}))[0].ack_error == code
    else:
        assert member.acknowledge(*acks) == code
    assert member.states() == "LLLLL"


def test_share_fetch_v1_refuses_lock_renewals(broker):
    fill(broker, 1, 5)
    member = ShareClient(broker, version=1)
    member.take(0)
    assert member.acknowledge((0, 4, RENEW)) == E.INVALID_REQUEST
    assert member.acknowledge((0, 4, REJECT)) == 0


def test_renewing_a_lock_restarts_its_whole_duration(broker, member):
    fill(broker, 1, 5)
    member.take(0)
    broker.wait(20)
    zeros = dict.fromkeys(("max_wait_ms", "min_bytes", "max_bytes", "max_records"), 0)
    found = got(member.fetch(acks={0: [(0, 4, RENEW)]}, is_renew_ack=True, **zeros))
    assert found[0].ack_error == 0
    broker.wait(20)
    assert member.states() == "LLLLL"
    assert member.acknowledge((0, 1, ACCEPT), (2, 4, RENEW), is_renew_ack=True) == 0
    broker.wait(31)  # longer than a lock, 30 s
    assert member.states() == "AAA"


def test_a_share_fetch_that_renews_locks_acquires_nothing(broker, member):
    assert member.fetch(0, is_renew_ack=True).error_code == E.INVALID_REQUEST  # max_records and the like must be 0
    fill(broker, 2, 5)
    member.take(0, max_records=5)
    zeros = dict.fromkeys(("max_wait_ms", "min_bytes", "max_bytes", "max_records"), 0)
    assert got(member.fetch(acks={0: [(0, 4, ACCEPT)]}, is_renew_ack=True, **zeros))[0].ranges == []


# Sessions.


def test_a_share_session_counts_epochs_and_remembers_its_partitions(broker, member):
    """A wrong epoch gets an error and changes nothing; a forgotten partition is not read."""
    fill(broker)
    assert member.fetch(0, epoch=1).error_code == E.SHARE_SESSION_NOT_FOUND
    assert member.fetch(epoch=-1).error_code == E.SHARE_SESSION_NOT_FOUND
    assert member.take(0) == [(0, 0, 1)]
    fill(broker)
    assert member.fetch(epoch=5).error_code == E.INVALID_SHARE_SESSION_EPOCH
    assert member.take() == [(1, 1, 1)]
    member.fetch(forget=[0])
    fill(broker)
    assert member.take() == []


def test_acknowledgements_in_the_first_request_of_a_share_session_are_refused(broker, member):
    assert member.fetch(acks={0: [(0, 0, ACCEPT)]}).error_code == E.INVALID_REQUEST
    assert member.acknowledge((0, 0, ACCEPT)) == E.INVALID_SHARE_SESSION_EPOCH


def test_closing_a_share_session_applies_acknowledgements_and_releases_the_rest(broker, member):
    fill(broker, 1, 5)
    member.take(0)
    assert member.acknowledge((0, 1, ACCEPT), epoch=-1) == 0
    assert member.states() == "AAA"
    assert member.acknowledge((2, 2, ACCEPT), epoch=-1) == E.SHARE_SESSION_NOT_FOUND


def test_a_share_fetch_with_the_final_epoch_closes_its_session(broker, member):
    fill(broker, 1, 5)
    member.take(0)
    found = got(member.fetch(acks={0: [(0, 1, ACCEPT)]}, epoch=-1))[0]
    assert (found.ranges, found.ack_error) == ([], 0)
    assert member.states() == "AAA"


def test_a_disconnect_releases_the_records_of_its_share_sessions(broker, member):
    fill(broker, 1, 5)
    member.take(0)
    member.client.close()
    broker.wait(0.1)
    assert member.states() == "AAAAA"
    assert ShareClient(broker, member="n").take(0) == [(0, 4, 2)]


def test_kafka_19950_19015_closing_an_old_connection_keeps_the_new_ones_records(broker, member):
    fill(broker, 1, 5)
    member.fetch(1)
    again = ShareClient(broker)
    assert again.take(0) == [(0, 4, 1)]
    member.client.close()
    broker.wait(0.1)
    assert again.states() == "LLLLL"
    assert again.acknowledge((0, 4, ACCEPT)) == 0


def test_reopening_a_share_session_keeps_the_members_acquired_records(broker, member):
    fill(broker, 1, 5)
    member.take(0)
    member.epoch = 0
    assert member.take(0) == []
    assert member.acknowledge((0, 4, ACCEPT)) == 0


def test_a_waiting_share_fetch_is_answered_when_its_session_ends(broker, member):
    member.client.send(member.fetching(0, max_wait_ms=60_000), 2)
    member.epoch += 1
    assert member.client.quiet(1)
    member.client.send(member.acknowledging({}, epoch=-1), 2)
    assert member.client.receive().responses == []
    assert member.client.receive().error_code == 0


def test_share_sessions_beyond_the_limit_are_refused_after_a_delay(broker):
    many = [ShareClient(broker, member=f"m{number}") for number in range(3)]
    broker.broker.live_settings.now = broker.broker.settings.with_layer(4, {"group.share.max.share.sessions": "200"})
    for number in range(200):
        broker.broker.share_sessions.open("h", f"{number}", (), None, 1_000)
    before = broker.loop.time()
    assert many[0].fetch(0, max_wait_ms=500).error_code == E.SHARE_SESSION_LIMIT_REACHED
    assert broker.loop.time() - before >= 0.5


# Quotas.


def test_a_share_fetch_over_quota_acquires_nothing_new(broker, member):
    """Kafka acquires records first and then returns none, so they wait for their locks to expire."""
    fill(broker, 40, value=b"v" * 1000)
    other = ShareClient(broker, member="n")  # of the same client id
    set_quota(broker, f"client-id={member.client.client_id}", consumer_byte_rate=1000)
    first, second = member.fetch(0, max_records=100), member.fetch(max_records=100)
    assert [response.throttle_time_ms > 0 for response in (first, second)] == [False, True]
    acquired = [each for response in (first, second) for each in got(response)[0].ranges]
    late = other.fetch(0, max_records=100)
    assert (late.responses, late.throttle_time_ms > 0) == ([], True)
    assert member.states() == "L" * sum(last - first + 1 for first, last, _ in acquired)


# Errors.


def test_a_share_fetch_reports_an_error_for_each_partition_that_has_one(broker, member):
    fill(broker)
    broker.ask(create("u"))
    unknown = bytes(range(16))
    found = member.fetch(0, 9)
    assert {index: (each.error, each.ranges) for index, each in got(found).items()} == {
        0: (0, [(0, 0, 1)]),
        9: (E.UNKNOWN_TOPIC_OR_PARTITION, []),
    }
    stranger = ShareClient(broker, "u")
    assert got(stranger.fetch(0))[0].error == E.UNKNOWN_TOPIC_OR_PARTITION
    assert got(ShareClient(broker, member="n").fetch(0, topic_id=unknown))[0].error == E.UNKNOWN_TOPIC_ID
    nobody = ShareClient(broker, group="nobody")
    assert got(nobody.fetch(0))[0].error == E.UNKNOWN_TOPIC_OR_PARTITION
    assert nobody.acknowledge((0, 0, ACCEPT)) == E.UNKNOWN_TOPIC_OR_PARTITION


def test_a_deleted_topic_is_reported_once_in_a_share_session(broker, member):
    member.fetch(0)
    broker.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1_000), 5)
    assert got(member.fetch())[0].error == E.UNKNOWN_TOPIC_ID
    assert member.fetch().responses == []
    assert member.acknowledge((0, 0, ACCEPT)) == E.UNKNOWN_TOPIC_ID


def test_invalid_share_fetch_requests_are_refused(broker, member):
    assert member.fetch(0, share_acquire_mode=2).error_code == E.INVALID_REQUEST
    for who in (None, "", "m" * 37):
        member.member = who
        assert member.fetch(0).error_code == E.INVALID_REQUEST
        assert member.acknowledge((0, 0, ACCEPT)) == E.INVALID_REQUEST
    member.member, member.group = "m", None
    assert member.fetch(0).error_code == E.INVALID_REQUEST


def configure(broker, **configs):
    changed = change(broker, GROUP, "g", *((name, 0, value) for name, value in configs.items()))
    assert changed[0] == 0, changed
