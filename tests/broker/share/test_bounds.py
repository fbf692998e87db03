"""Settings limit what members of share groups make the broker keep. Tested below each limit, at it, and above it."""

import pytest
from broker_lives import small
from fencepost.broker.share.memory import RUN_BYTES
from fencepost.broker.share.values import SharePartitionKey
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.configs import IncrementalAlterConfigsRequest
from fencepost.protocol.messages.monitoring import DescribeMetricsRequest
from fencepost.protocol.messages.share_groups import ShareGroupHeartbeatRequest
from produce_requests import batch, create, produce
from share_client import ACCEPT, RELEASE, ShareClient, got, initialize
from simulated_broker import SimulatedBroker

OK = ErrorCode.NONE


def begin(**settings: object) -> SimulatedBroker:
    return SimulatedBroker(small(**settings), disk=SimulatedDisk(history=False))


def test_a_share_group_refuses_members_beyond_its_maximum_size() -> None:
    def beating(member: str, epoch: int = 0) -> int:
        names = ["t"] if epoch == 0 else None
        asked = ShareGroupHeartbeatRequest(
            group_id="g", member_id=member, member_epoch=epoch, subscribed_topic_names=names
        )
        return int(broker.ask(asked).error_code)

    with begin(group_share_max_size=3) as broker:
        broker.ask(create("t"))
        assert [beating(name) for name in "abcd"] == [OK] * 3 + [ErrorCode.GROUP_MAX_SIZE_REACHED]
        assert beating("b") == OK, "a member may join again"
        assert beating("a", -1) == OK
        assert [beating(name) for name in "de"] == [OK, ErrorCode.GROUP_MAX_SIZE_REACHED]


def test_a_share_session_beyond_the_limit_is_refused_until_one_is_closed() -> None:
    with begin(group_share_max_size=1, group_share_max_share_sessions=3) as broker:
        broker.ask(create("t"))
        initialize(broker, "t", 0)
        members = [ShareClient(broker, member=name) for name in "abcd"]
        codes = [member.fetch(0).error_code for member in members]
        assert codes == [OK] * 3 + [ErrorCode.SHARE_SESSION_LIMIT_REACHED]
        assert members[0].fetch().error_code == OK
        assert members[1].fetch(epoch=-1).error_code == OK
        assert members[3].fetch(0).error_code == OK
        assert len(broker.broker.share_sessions) == 3


def test_the_broker_logs_once_that_share_sessions_are_refused_at_their_limit(caplog: pytest.LogCaptureFixture) -> None:
    """If there was room for a session in between, the broker logs it once more."""
    with begin(group_share_max_size=1, group_share_max_share_sessions=4) as broker:
        broker.ask(create("t"))
        initialize(broker, "t", 0)
        a, b, *others, last = [ShareClient(broker, member=name) for name in "abcde"]
        assert [each.fetch(0).error_code for each in (a, b, *others)] == [OK] * 4
        assert [last.fetch(0).error_code for _ in range(2)] == [ErrorCode.SHARE_SESSION_LIMIT_REACHED] * 2
        told = "members of share groups that begin now get no records: there are 4 share sessions, and 4 are allowed: "
        told += "group.share.max.share.sessions; the group with the most, 4, is 'g'"
        assert [each.getMessage() for each in caplog.records] == [told]
        assert [each.fetch(epoch=-1).error_code for each in (a, b)] == [OK] * 2
        codes = [each.fetch(0).error_code for each in (last, *(ShareClient(broker, member=name) for name in "fg"))]
        assert codes == [OK, OK, ErrorCode.SHARE_SESSION_LIMIT_REACHED]
        assert [each.getMessage() for each in caplog.records] == [told] * 2, "there was room in between"


@pytest.mark.slow
@pytest.mark.parametrize("records", [99, 100, 101])
def test_a_share_partition_delivers_at_most_max_record_locks_unacknowledged_records(records: int) -> None:
    with begin() as broker:
        broker.ask(create("t"))
        initialize(broker, "t", 0)
        made = IncrementalAlterConfigsRequest
        config = made.Resource.Config(name="share.partition.max.record.locks", config_operation=0, value="100")
        asked = made(resources=[made.Resource(resource_type=32, resource_name="g", configs=[config])])
        assert broker.ask(asked).responses[0].error_code == OK
        for _ in range(records):
            broker.ask(produce("t", batch()))
        member = ShareClient(broker)
        within = min(records, 100)
        assert member.take(0, batch_size=1_000) == [(0, within - 1, 1)]
        assert member.take() == []
        assert member.acknowledge((0, 0, ACCEPT)) == OK
        assert member.take() == ([(100, 100, 1)] if records > 100 else [])


@pytest.mark.slow
def test_the_runs_of_all_share_partitions_are_limited_until_their_group_is_deleted() -> None:
    """A run is consecutive records of one state; many acknowledged ranges make many runs. Above the limit no records
    are delivered; above twice the limit no acknowledgement may split a run.
    """
    limit = 1 << 20
    runs = limit // RUN_BYTES
    with begin(group_metadata_max_bytes=limit) as broker:
        broker.ask(create("t", 40))
        initialize(broker, "t", *range(40))
        shares = broker.broker.share_partitions
        memory = shares.state_log.memory
        member = ShareClient(broker)
        for number in range(40):
            broker.ask(produce("t", *[None] * number, batch(2_000)))
            member.fetch(number, max_records=2_000)
        codes = []
        for number in range(14):
            acks = [(offset, offset, (ACCEPT, RELEASE)[offset % 2]) for offset in range(1, 2_000)]
            codes.append(member.acknowledge(*acks, partition=number))
        held = sum(len(kept.machine.runs) for kept in shares.state_log.known.values())
        assert memory.size_bytes == held * RUN_BYTES
        assert codes.count(OK) == 2 * runs // 2_000 + 1
        assert set(codes) == {OK, ErrorCode.INVALID_RECORD_STATE}
        broker.ask(produce("t", batch(1)))
        assert member.take(max_records=1_000) != [], "records that are available again are delivered"
        windows = [shares.window(key) for key in shares.state_log.known]
        assert [each.lacks_memory for each in windows] == [each.runs > limit // RUN_BYTES // 40 for each in windows]
        assert member.acknowledge((0, 0, ACCEPT), partition=39) == OK, "one that makes no more runs is accepted"
        shares.delete("g").apply()
        assert memory.size_bytes == 0


@pytest.mark.slow
def test_a_share_group_that_uses_up_its_memory_for_runs_does_not_block_other_groups(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Partitions of the same group that have few runs are served too, and the log names the limit."""
    with begin(group_metadata_max_bytes=1 << 20) as broker:
        broker.ask(create("t", 9))
        for group in ("hoarder", "other"):
            initialize(broker, "t", *range(9), group=group)
        for number in range(8):
            broker.ask(produce("t", *[None] * number, batch(2_000)))
        hoarder, other = ShareClient(broker, group="hoarder"), ShareClient(broker, group="other")
        hoarder.fetch(*range(8), max_records=20_000)
        shares = broker.broker.share_partitions
        keys = [SharePartitionKey("hoarder", hoarder.topic_id, number) for number in range(9)]
        assert not any(shares.window(key).lacks_memory for key in keys)
        for number in range(8):
            acks = [(offset, offset, ACCEPT) for offset in range(1, 2_000, 2)]
            assert hoarder.acknowledge(*acks, partition=number) == OK
        assert [shares.window(key).lacks_memory for key in keys] == [True] * 8 + [False]
        for number in range(9):
            broker.ask(produce("t", *[None] * number, batch(5)))
        assert shares.next_offset(keys[0]) is None
        assert shares.next_offset(keys[8]) == 0, "a partition of its own that has few runs"
        given = got(other.fetch(*range(9), max_records=20_000))
        assert sum(last - first + 1 for each in given.values() for first, last, _ in each.ranges) == 8 * 2_000 + 5
        assert other.acknowledge(*[(offset, offset, ACCEPT) for offset in range(1, 100, 2)], partition=3) == OK
        assert not shares.window(SharePartitionKey("other", other.topic_id, 3)).lacks_memory
        families = broker.ask(DescribeMetricsRequest()).families
        (found,) = (each for each in families if each.name == "fencepost_share_partitions_without_memory")
        assert found.samples[0].value == 8
        told = [each.getMessage() for each in caplog.records if "gets nothing new" in each.getMessage()]
        assert len(told) == 1
        assert told[0].startswith(
            "share group hoarder gets nothing new of t-0: its 2000 runs of records there take more"
        )
