"""What groups hold is bounded for all of them together: what counts, and who is refused or makes room at the limit."""

import pytest
from group_client import alone, beating, begin, joining, leaving, listed, syncing
from offset_requests import commit, fetch
from produce_requests import create
from simulated_client import SimulatedClient

pytestmark = pytest.mark.slow

TOO_MANY = 81


@pytest.fixture
def broker():
    with begin() as broker:
        yield broker


def test_metadata_of_members_is_bounded_over_all_groups_and_freed_when_they_leave():
    with begin(group_metadata_max_bytes=1 << 20) as broker:
        client = SimulatedClient(broker)
        large = {"range": bytes(250_000)}  # it counts twice: as metadata of the member, and in the group's record
        members = [(group, alone(client, group, protocols=large)[0]) for group in ("a", "b")]
        assert client.ask(joining("c", protocols=large)).error_code == TOO_MANY
        client.ask(leaving(*members[0]))
        alone(client, "c", protocols=large)
        broker.wait(11)
        assert broker.broker.groups.memory.size_bytes < 20_000


def test_group_client_and_instance_ids_count_towards_the_group_memory(broker):
    """JoinGroup version 3 adds a member at once. If only the metadata counted, 3,000 joins with names of 30 KB would
    use 190 MB, and count as 3,000 bytes.
    """
    memory = broker.broker.groups.memory
    before = 0
    for number, more in enumerate([{}, {"instance_id": "i" * 30_000}, {"protocol_type": "t" * 30_000}]):
        client = SimulatedClient(broker, client_id="c" * 30_000)
        client.send(joining(f"{number}" + "g" * 30_000, **more), 5 if "instance_id" in more else 3)
        broker.wait(0.01)
        least = 60_000 + 30_000 * bool(more)
        assert least <= memory.size_bytes - before <= least + 10_000
        before = memory.size_bytes


@pytest.mark.parametrize("name", ["x", "é", "中", "😀"])
def test_group_memory_counts_names_with_the_most_bytes_a_character_can_take(broker, name):
    alone(broker, name * 5_000)
    assert broker.broker.groups.memory.size_bytes >= 5_000 * (1 if name == "x" else 4)


def test_protocols_with_empty_metadata_count_towards_the_memory_of_groups(broker):
    alone(broker, protocols={"range": b""} | {f"{number}": b"" for number in range(1_000)})
    assert broker.broker.groups.memory.size_bytes >= 200_000  # each of the 1,000 counts as 200 bytes at least


def fill(broker, letter="g", **more):
    """Make groups of one member each until a join is refused. Return (group, member, generation) of each."""
    members = []
    for number in range(1_000):
        name = f"{number}-" + letter * 30_000
        joined = broker.ask(joining(name, **more), 3)
        if joined.error_code == TOO_MANY:
            return members
        members.append((name, joined.member_id, joined.generation_id))
        assert broker.ask(syncing(name, *members[-1][1:])).error_code == 0
    raise AssertionError("there is no limit")


def test_at_the_group_memory_limit_members_may_rejoin_and_new_ones_are_refused():
    with begin(group_metadata_max_bytes=1 << 20) as broker:
        member, generation = alone(broker, "honest", session_timeout_ms=600_000)
        others = fill(broker, session_timeout_ms=600_000)
        assert 20 <= len(others) <= 40  # 1 MiB has room for about 30 groups whose names have 30 KB
        assert broker.ask(joining("honest", protocols={"range": bytes(60_000)})).error_code == TOO_MANY
        joined = broker.ask(joining("honest", member, session_timeout_ms=600_000))
        assert (joined.error_code, joined.generation_id) == (0, generation + 1)
        synced = broker.ask(syncing("honest", member, joined.generation_id, {member: bytes(10_000)}))
        assert (synced.error_code, len(synced.assignment)) == (0, 10_000)
        assert broker.ask(beating("honest", member, joined.generation_id)).error_code == 0


def test_at_the_memory_limit_empty_groups_are_dropped_but_their_offsets_kept():
    """A restart finds the same groups, and committed offsets of a dropped one."""
    with begin(group_metadata_max_bytes=1 << 20, offsets_retention_check_interval_ms=10**9) as broker:
        broker.ask(create("t"))
        kept, generation = alone(broker, "kept")
        of_member = {"member_id": kept, "generation_id_or_member_epoch": generation}
        assert commit(broker, "kept", "t", {0: 7}, **of_member) == [0]
        broker.ask(leaving("kept", kept))
        for name, member, _ in fill(broker):
            broker.ask(leaving(name, member))
        assert len(listed(broker)) > 20  # 1 MiB has room for about 30 names of 30 KB
        later = {name for name, *_ in fill(broker, "h")}
        assert len(later) > 20, "the room of all that are empty is given to others"
        left = listed(broker)
        assert later | {"kept"} <= set(left)
        assert len(left) <= len(later) + 2
        assert broker.broker.groups.memory.size_bytes <= 1 << 20
        again = broker.again()
        assert listed(again) == left
        assert fetch(again, "kept", {"t": [0]}) == {("t", 0): 7}
        again.stop()


def test_expired_sessions_free_group_memory():
    with begin(group_metadata_max_bytes=1 << 20) as broker:
        fill(broker)
        broker.wait(11)
        assert len(fill(broker)) > 20


def test_assignments_count_as_group_memory_and_may_take_up_to_twice_the_limit():
    with begin(group_metadata_max_bytes=1 << 20) as broker:
        codes = []
        for number in range(10):
            joined = broker.ask(joining(f"g{number}", session_timeout_ms=600_000), 3)
            if joined.error_code:
                codes.append(joined.error_code)
                continue
            asked = syncing(f"g{number}", joined.member_id, 1, {joined.member_id: bytes(300_000)})
            codes.append(broker.ask(asked).error_code)
        # An assignment counts twice. With the second one the limit is exceeded, so all later joins are refused.
        assert codes == [0, 0] + [TOO_MANY] * 8
