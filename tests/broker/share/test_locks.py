"""Locks that end with a session or at their deadline: of thousands of runs, a few in each step.

A letter of states(): A available, L acquired, K acknowledged, X archived, P pending.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from fencepost.broker.config.settings import BrokerSettings
from fencepost.broker.net import turns
from fencepost.broker.share import locks, portions
from fencepost.broker.share.logged import EncodedUpdate
from fencepost.broker.share.partitions import SharePartitions
from fencepost.broker.share.state_log import ShareStateLog
from fencepost.broker.share.values import AckRange, AcquiredRange, State
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.protocol.errors import ErrorCode, KafkaError
from produce_requests import batch, create, produce
from share_client import ACCEPT, ShareClient, got, initialize
from simulated_broker import SimulatedBroker

PARTITIONS, RECORDS = 3, 90
STEP, PORTION = 20, 10
LOCK_S = 30


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimulatedBroker]:
    monkeypatch.setattr(locks, "RUNS", STEP)
    monkeypatch.setattr(portions, "RUNS", PORTION)
    monkeypatch.setattr(turns, "SLICE_UNITS", STEP)  # so that each slice is a step
    settings = BrokerSettings(share_coordinator_state_topic_num_partitions=2)
    with SimulatedBroker(settings, disk=SimulatedDisk(history=False)) as broker:
        broker.ask(create("t", PARTITIONS))
        initialize(broker, "t", *range(PARTITIONS))
        broker.ask(produce("t", *[batch(RECORDS)] * PARTITIONS))
        yield broker


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the number of ranges whose states each committed unit changes."""
    sizes: list[int] = []
    commit = ShareStateLog.commit

    def counting(self: ShareStateLog, changes: Any) -> None:
        sizes.append(sum(what.states.number for _, what in changes if isinstance(what, EncodedUpdate)))
        commit(self, changes)

    monkeypatch.setattr(ShareStateLog, "commit", counting)
    return sizes


def with_many_runs(world: SimulatedBroker, member: str = "m") -> ShareClient:
    """Return a member that has acquired all records. Neighbours have different delivery counts, so each is a run of its
    own.
    """
    client = ShareClient(world, member=member)
    client.fetch(*range(PARTITIONS), max_records=1)
    until_ms = world.broker.clock.monotonic_ms() + LOCK_S * 1000
    for key, kept in world.broker.share_partitions.state_log.known.items():
        kept.machine.acquire([AcquiredRange(n, n, 1 + n % 2) for n in range(RECORDS)], member, until_ms)
        world.broker.share_partitions.locks.ensure_alarm(key, kept)
    return client


def holders(world: SimulatedBroker) -> set[str]:
    """Return the members that have acquired records."""
    known = world.broker.share_partitions.state_log.known.values()
    return {one.member for kept in known for *_, one in kept.machine.runs if one.state is State.ACQUIRED}


def test_closing_a_share_session_releases_its_records_in_steps_before_the_answer(
    world: SimulatedBroker, logged
) -> None:
    client = with_many_runs(world)
    closed = client.client.ask(client.acknowledging({}, epoch=-1), 2)
    assert closed.error_code == 0
    assert [client.states(number) for number in range(PARTITIONS)] == ["A" * RECORDS] * PARTITIONS
    assert sum(logged) == PARTITIONS * RECORDS
    assert max(logged) == STEP


def test_while_a_disconnect_releases_records_in_steps_others_already_get_the_first(world, logged, monkeypatch) -> None:
    client, other = with_many_runs(world), ShareClient(world, member="n")
    other.fetch(*range(PARTITIONS))
    acquire, steps_before = SharePartitions.acquire, []

    def noting(*asked: Any) -> Any:
        steps_before.append(len(logged))
        return acquire(*asked)

    monkeypatch.setattr(SharePartitions, "acquire", noting)
    other.client.send(other.fetching(max_wait_ms=1_000), 2)
    client.client.close()
    assert got(other.client.receive())
    world.wait(0.1)
    assert holders(world) == {"n"}
    assert sum(logged) == PARTITIONS * RECORDS
    assert max(logged) == STEP
    assert 0 < steps_before[0] < len(logged) / 2, "the other member need not wait for all steps"


def test_acquisition_locks_that_time_out_are_released_in_small_units(world: SimulatedBroker, logged: list[int]) -> None:
    client = with_many_runs(world)
    world.wait(LOCK_S - 1)
    assert client.states() == "L" * RECORDS
    world.wait(1.2)
    assert [client.states(number) for number in range(PARTITIONS)] == ["A" * RECORDS] * PARTITIONS
    assert sum(logged) == PARTITIONS * RECORDS
    assert max(logged) == STEP
    assert world.broker.metrics.share_locks_timed_out == PARTITIONS * RECORDS


def test_one_lock_over_many_separate_records_times_out_in_small_units(
    world: SimulatedBroker, logged: list[int]
) -> None:
    client = ShareClient(world)
    assert client.take(0) == [(0, RECORDS - 1, 1)]
    assert client.acknowledge(*[(n, n, ACCEPT) for n in range(1, RECORDS, 2)]) == 0
    del logged[:]
    world.wait(LOCK_S + 0.2)
    assert client.states() == "AK" * (RECORDS // 2)
    assert sum(logged) == RECORDS // 2
    assert max(logged) <= STEP


def test_a_new_share_session_gets_the_records_of_the_members_last_one_and_keeps_them(
    world: SimulatedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When a session ends, its locks are released in several turns of the event loop. A new session of the same member
    first finishes that release; otherwise the rest of it would end the locks of the new session.
    """
    client = with_many_runs(world)
    shares = world.broker.share_partitions
    again = ShareClient(world, member="m")
    monkeypatch.setattr(locks.Locks, "_begin_work", lambda self: None)  # the broker stops releasing
    client.client.close()
    world.wait(0.1)
    found = got(again.fetch(*range(PARTITIONS), max_records=1_000))
    assert sum(last - first + 1 for each in found.values() for first, last, _ in each.ranges) == PARTITIONS * RECORDS
    monkeypatch.undo()
    shares.locks._begin_work()
    world.wait(1)
    assert [again.states(number) for number in range(PARTITIONS)] == ["L" * RECORDS] * PARTITIONS
    assert not shares.locks._releases


def test_a_second_release_of_a_members_share_locks_works_during_the_first(world: SimulatedBroker) -> None:
    """A release ends the acquisition locks of a member on some share partitions, in steps. A second release of the same
    member, for other partitions, begun before the first is done, is carried out as well.
    """
    client = with_many_runs(world)
    shares = world.broker.share_partitions
    first, *others = [key[1:] for key in shares.of_group(client.group)]
    shares.begin_release(client.group, "m", [first])
    assert holders(world) == {"m"}
    shares.begin_release(client.group, "m", others)
    world.wait(0.5)
    assert holders(world) == set()


def test_locks_of_an_ended_session_stay_until_their_release_can_be_logged(world, logged, monkeypatch) -> None:
    client = with_many_runs(world)

    def refuse(self: ShareStateLog, changes: Any) -> None:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "a test")

    with monkeypatch.context() as patch:
        patch.setattr(ShareStateLog, "commit", refuse)
        client.client.close()
        world.wait(3)
        assert [client.states(number) for number in range(PARTITIONS)] == ["L" * RECORDS] * PARTITIONS
    world.wait(2)
    assert [client.states(number) for number in range(PARTITIONS)] == ["A" * RECORDS] * PARTITIONS
    assert sum(logged) == PARTITIONS * RECORDS
    assert max(logged) == STEP


def test_an_acknowledged_range_is_checked_in_steps_and_logged_as_one_unit(world: SimulatedBroker, logged) -> None:
    """The range covers many runs, which are consecutive records in the same state."""
    client = with_many_runs(world)
    shares = world.broker.share_partitions
    acks = {(client.topic_id, number): [AckRange(0, RECORDS - 1, [ACCEPT])] for number in range(PARTITIONS)}
    acknowledging = shares.begin_acknowledging("g", "m", acks)
    steps = list(acknowledging.decide_ahead())
    assert len(steps) == PARTITIONS * RECORDS // PORTION
    assert max(steps) <= 1 + 4 * PORTION
    assert logged == []
    assert set(shares.finish(acknowledging).values()) == {None}
    assert logged == [PARTITIONS * RECORDS]
    assert [client.states(number) for number in range(PARTITIONS)] == [""] * PARTITIONS
