"""Which broker is read from: the follower that the leader names for our rack, and the leader again after trouble."""

import pytest
from fencepost.client.group.subscription import Need
from fencepost.effects.simulated.loop import SimulatedLoop
from fencepost.protocol.errors import ErrorCode
from scripted_fetches import ScriptedFetches


@pytest.fixture
def cluster():
    loop = SimulatedLoop()
    made = ScriptedFetches(loop, client_rack="r1")
    yield made
    made.fetcher.close()
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


def followed(cluster):
    """Let the leader, broker 1, name broker 2 as the preferred replica. Returns the first fetch from broker 2."""
    first = cluster.next()
    assert (first.node_id, first.request.rack_id) == (1, "r1")
    first.answer(replica=2)
    asked = cluster.next()
    assert (asked.node_id, asked.offset) == (2, 0)
    return asked


def test_a_consumer_reads_from_the_preferred_replica(cluster):
    asked = followed(cluster)
    for offset in range(3):
        assert (asked.node_id, asked.offset) == (2, offset)
        asked.answer(offset, b"%d" % offset)
        asked = cluster.next()
    assert cluster.values() == [b"0", b"1", b"2"]


@pytest.mark.parametrize("code", [ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.NOT_LEADER_OR_FOLLOWER, None])
def test_after_an_error_of_the_follower_records_are_read_from_the_leader(cluster, code):
    """The leader is asked at once: the back-off is only for the broker that failed."""
    asked = followed(cluster)
    if code is None:
        asked.fail()
    else:
        asked.answer(code=code)
    asked = cluster.next()
    assert (asked.node_id, asked.offset, asked.request.rack_id) == (1, 0, "")
    assert cluster.state.refused is None
    asked.answer(0, b"from the leader")
    assert cluster.next().node_id == 1
    assert cluster.values() == [b"from the leader"]


def test_a_follower_behind_the_consumer_is_not_reported_as_a_truncated_log(cluster):
    """To a fetch with an epoch, such a follower answers the end of its own log, and not OFFSET_OUT_OF_RANGE."""
    followed(cluster).answer(0, b"0")
    asked = cluster.next()
    assert (asked.node_id, asked.offset) == (2, 1)
    asked.answer(ends_at=0)
    again = cluster.next()
    assert (again.node_id, again.offset, again.request.rack_id) == (1, 1, "")
    assert cluster.values() == [b"0"]
    assert cluster.state.refused is None
    again.answer(ends_at=0)  # from the leader, it means that the log was truncated
    cluster.wait()
    assert cluster.state.refused is not None


@pytest.mark.parametrize("answer", [{"code": ErrorCode.OFFSET_OUT_OF_RANGE}, {"ends_at": 0}])
def test_a_late_answer_of_a_former_follower_changes_no_position(cluster, answer):
    asked = followed(cluster)
    asked.answer(0, b"0")
    asked = cluster.next()
    cluster.brokers = (1,)
    cluster.lead(1, epoch=0)  # the follower is gone from the metadata, and its last answer is on the way
    cluster.values()
    again = cluster.next()
    assert (again.node_id, again.offset) == (1, 1)
    asked.answer(**answer)
    cluster.wait()
    assert cluster.state.refused is None
    assert (cluster.state.position, cluster.state.need) == (1, Need.NOTHING)


def test_the_leader_is_asked_periodically_for_a_preferred_replica(cluster):
    followed(cluster).fail()
    cluster.wait(2)
    cluster.next().answer()
    cluster.wait(60)
    cluster.next().answer()
    assert cluster.next().request.rack_id == "r1", "with its rack, the consumer asks for a preferred replica"


@pytest.mark.parametrize("moved", ["leader", "brokers"])
def test_a_metadata_change_makes_the_consumer_ask_the_leader_again(cluster, moved):
    asked = followed(cluster)
    if moved == "leader":
        cluster.lead(1, epoch=1)
    else:
        cluster.brokers = (1,)
        cluster.lead(1, epoch=0)
    asked.answer()
    again = [one for one in (cluster.next(), *cluster.asked) if one.node_id == 1]
    assert [one.request.rack_id for one in again] == ["r1"]


def test_a_preferred_replica_that_is_not_in_the_metadata_is_ignored(cluster):
    cluster.next().answer(replica=7)
    asked = cluster.next()
    assert (asked.node_id, asked.request.rack_id) == (1, "")
    assert cluster.refreshes


def test_an_old_leaders_late_error_after_the_new_leaders_answer_is_ignored(cluster):
    old = cluster.next()
    cluster.lead(2, epoch=1)
    new = cluster.next()
    assert (old.node_id, new.node_id, old.offset, new.offset) == (1, 2, 0, 0)
    new.answer(0, b"a")
    cluster.wait()
    cluster.wait()
    assert cluster.values() == [b"a"]
    old.answer(code=ErrorCode.OFFSET_OUT_OF_RANGE)  # for an offset that is below the position by now
    cluster.wait()
    assert cluster.state.refused is None
    assert cluster.state.position == cluster.state.fetch_offset == 1
