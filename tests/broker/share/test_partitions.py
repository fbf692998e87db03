"""Share partitions as fetches and groups use them: locks that time out, fetches that are woken, deleted topics.

A letter of states(): A available, L acquired, K acknowledged, X archived, P pending.
"""

from collections.abc import Callable
from typing import Any

import pytest
from fencepost.broker.config.settings import BrokerSettings
from fencepost.broker.net.waiting import Waiter
from fencepost.broker.share import acknowledging, portions
from fencepost.broker.share.values import AckRange, AckType, AcquiredRange, Found, SharePartitionKey, Wanted
from fencepost.protocol.batches import Batch, read
from fencepost.protocol.errors import ErrorCode, KafkaError
from fencepost.protocol.records import Record, build
from share_acknowledging import acknowledge_now
from share_driver import durable_view
from simulated_broker import SimulatedBroker

WANTED = Wanted(500, 500)
LOCK_S = 30


class World:
    """A broker with one share partition."""

    def __init__(self, world: SimulatedBroker) -> None:
        self.world = world
        self.shares = world.broker.share_partitions
        self.topic = world.broker.topics.create("t", 2)
        self.place = self.topic.id, 0
        self.key = SharePartitionKey("g", *self.place)
        self.commit(self.shares.initialize("g", {self.place: 0}))
        self.woken: list[str] = []

    def commit(self, unit: Any) -> None:
        self.shares.state_log.topic.commit(unit.parts)
        unit.apply()

    def acquire(self, first: int, last: int, member: str = "me") -> list[AcquiredRange]:
        return self.shares.acquire(self.key, member, first, [Found(first, last)], WANTED)

    def acknowledge(self, first: int, last: int, kind: AckType, member: str = "me") -> KafkaError | None:
        return acknowledge_now(self.shares, "g", member, {self.place: [AckRange(first, last, [kind])]})[self.place]

    def abort(self, first: int, last: int, producer_id: int = 7) -> None:
        """Acknowledge these records in a transaction, and abort it."""
        acks = {self.place: [AckRange(first, last, [AckType.ACCEPT])]}
        found = self.shares.begin_acknowledging_in_transaction("g", "me", producer_id, acks)
        changes, _ = found.finish_in_transaction()
        self.commit(self.shares.state_log.pending_unit(changes, producer_id, 0))
        home = self.shares.state_log.home(self.key)
        self.shares.settle(home, producer_id, False).apply(self.shares.state_log.topic.log(home).end_offset)

    def states(self) -> str:
        machine = self.shares.state_log.known[self.key].machine
        letters = {0: "A", 1: "L", 2: "K", 4: "X", 10: "P"}
        pieces = machine.runs.pieces(machine.start, machine.end)
        return "".join(("A" if one is None else letters[one.state]) * (last - first + 1) for first, last, one in pieces)

    def park(self, name: str = "waiter") -> None:
        """Make something wait for the share partition. Its name is added to `woken` when it is woken."""

        def look(at_deadline: bool) -> bool:
            self.woken.append(name)
            return True

        deadline_ms = self.world.broker.clock.monotonic_ms() + 10_000_000

        async def park() -> None:
            self.world.broker.waiting.park(Waiter([self.key], deadline_ms, look))

        self.world.loop.run_until_complete(park())


@pytest.fixture
def world() -> Any:
    with SimulatedBroker(BrokerSettings(share_coordinator_state_topic_num_partitions=2)) as broker:
        yield World(broker)


def test_an_expired_share_lock_releases_its_records_and_wakes_waiting_fetches(world: World) -> None:
    world.acquire(0, 4)
    world.park()
    world.world.wait(LOCK_S - 0.1)
    assert (world.states(), world.woken) == ("LLLLL", [])
    world.world.wait(0.2)
    assert (world.states(), world.woken) == ("AAAAA", ["waiter"])


def test_locks_that_expire_within_25_ms_are_released_in_at_most_two_units(world: World) -> None:
    for offset in range(5):
        world.acquire(offset, offset)
        world.world.wait(0.005)
    unit = world.world.broker.store.last_unit
    world.world.wait(LOCK_S + 0.1)
    assert world.states() == "AAAAA"
    assert world.world.broker.store.last_unit <= unit + 2


def test_a_renewed_share_lock_expires_a_whole_lock_time_after_the_renewal(world: World) -> None:
    world.acquire(0, 1)
    world.world.wait(20)
    assert world.acknowledge(1, 1, AckType.RENEW) is None
    world.world.wait(11)
    assert world.states() == "AL"
    world.world.wait(20)
    assert world.states() == "AA"


def test_timers_of_acquisition_locks_do_not_grow_with_the_number_of_locks(world: World) -> None:
    for offset in range(500):
        assert len(world.acquire(offset, offset)) == 1
        if offset % 10 == 9:
            assert world.acknowledge(offset - 9, offset, AckType.RELEASE) is None
    assert world.states() == "A" * 500
    assert len(world.shares.locks) == 1


EVENTS: dict[str, Callable[[World], object]] = {
    "a release": lambda world: world.acknowledge(0, 0, AckType.RELEASE),
    "the window moves": lambda world: world.acknowledge(0, 0, AckType.ACCEPT),
    "a session ends": lambda world: world.shares.begin_release("g", "me", [world.place]),
    "a transaction ends": lambda world: world.abort(0, 4),
    "the offset is set": lambda world: world.commit(world.shares.alter("g", {world.place: 3})),
    "the share partition is deleted": lambda world: world.commit(world.shares.delete("g")),
    "its topic is deleted": lambda world: world.world.broker.topics.delete(world.topic),
    "a read ends": lambda world: world.shares.end_read(world.key),
}


@pytest.mark.parametrize("event", EVENTS)
def test_each_change_that_frees_records_wakes_waiting_share_fetches(event: str, world: World) -> None:
    world.acquire(0, 4)
    world.park("first")
    world.park("second")
    world.world.wait(0.01)
    EVENTS[event](world)
    assert world.woken == [], "they are woken in the next turn of the loop"
    world.world.wait(0)
    assert world.woken == ["first", "second"]


def test_a_full_window_delivers_only_records_in_it_that_are_available(world: World) -> None:
    assert world.shares.next_offset(world.key) == 0
    world.acquire(0, 1999)  # the window has 2,000 records at most
    assert world.shares.next_offset(world.key) is None
    world.acknowledge(7, 9, AckType.RELEASE)
    assert world.shares.next_offset(world.key) == 7
    world.acquire(7, 9)
    world.acknowledge(0, 0, AckType.ACCEPT)
    assert world.shares.next_offset(world.key) == 2000


def test_only_one_fetch_reads_a_share_partition_at_a_time(world: World) -> None:
    world.shares.begin_read(world.key)
    assert world.shares.next_offset(world.key) is None
    world.shares.end_read(world.key)
    assert world.shares.next_offset(world.key) == 0


def test_a_higher_log_start_becomes_the_start_offset_of_the_share_partition(world: World) -> None:
    log = world.topic.partitions[0].log
    store = world.world.broker.store
    store.append(log, batch_of(10))
    world.acquire(0, 9)
    store.commit([store.log_start_part(log, 6)])
    assert world.shares.next_offset(world.key) == 10
    described = world.shares.describe(world.key)
    assert described is not None
    assert described.start_offset == 6


def batch_of(count: int) -> Batch:
    return read(memoryview(build([Record(offset, 1, None, b"x") for offset in range(count)])))


def test_requests_for_a_missing_share_partition_get_unknown_topic_or_partition(world: World) -> None:
    other = SharePartitionKey("h", *world.place)
    assert (world.shares.knows(other), world.shares.describe(other)) == (False, None)
    for call in (
        lambda: world.shares.next_offset(other),
        lambda: world.shares.acquire(other, "me", 0, [Found(0, 1)], WANTED),
    ):
        with pytest.raises(KafkaError) as refused:
            call()
        assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    answer = acknowledge_now(world.shares, "h", "me", {world.place: [AckRange(0, 0, [1])]})[world.place]
    assert answer is not None
    assert answer.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_kafka_19201_deleting_a_topic_deletes_its_share_state_in_the_same_unit(world: World) -> None:
    world.acquire(0, 4)
    unit = world.world.broker.store.last_unit
    world.world.broker.topics.delete(world.topic)
    assert world.world.broker.store.last_unit == unit + 1
    assert world.shares.of_group("g") == []
    later = world.world.after_power_cut()
    with later:
        assert later.broker.share_partitions.of_group("g") == []


def test_a_share_group_lists_its_initialized_partitions_until_they_are_deleted(world: World) -> None:
    second = SharePartitionKey("g", world.topic.id, 1)
    world.commit(world.shares.initialize("g", {world.place: 5, (world.topic.id, 1): 7}))
    assert sorted(world.shares.of_group("g")) == sorted([world.key, second])
    assert [world.shares.describe(key)[0] for key in (world.key, second)] == [0, 7]  # type: ignore[index]
    world.commit(world.shares.delete("g", [world.place]))
    assert world.shares.of_group("g") == [second]
    assert world.shares.delete("h").parts == []


def test_altering_a_share_partitions_start_offset_releases_its_acquired_records(world: World) -> None:
    world.acquire(0, 4)
    world.commit(world.shares.alter("g", {world.place: 2, (world.topic.id, 1): 9}))
    answer = world.acknowledge(3, 3, AckType.ACCEPT)
    assert answer is not None
    assert answer.code is ErrorCode.INVALID_RECORD_STATE
    described = [world.shares.describe(key) for key in world.shares.of_group("g")]
    assert [each and (each.start_offset, each.state_epoch) for each in described] == [(2, 1), (9, 0)]


def test_acknowledgements_fail_if_their_share_partition_was_recreated_meanwhile(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were decided, in steps, before the share partition was deleted."""
    for module in (acknowledging, portions):
        monkeypatch.setattr(module, "RUNS", 2)
    world.acquire(0, 9)
    ranges = [AckRange(offset, offset, [AckType.ACCEPT]) for offset in range(0, 10, 2)]
    acks = world.shares.begin_acknowledging("g", "me", {world.place: ranges})
    assert len(list(acks.decide_ahead())) > 1
    world.commit(world.shares.delete("g", [world.place]))
    world.commit(world.shares.initialize("g", {world.place: 0}))
    error = world.shares.finish(acks)[world.place]
    assert error is not None
    assert error.code is ErrorCode.INVALID_RECORD_STATE  # nobody has acquired records of the new share partition
    view = durable_view(world.shares.state_log.known[world.key].machine)
    world.world.wait(0.1)
    with world.world.after_power_cut() as later:
        assert durable_view(later.broker.share_partitions.state_log.known[world.key].machine) == view


def test_share_fetches_fail_while_the_state_log_is_offline(world: World) -> None:
    """Acknowledgements fail too; locks that end meanwhile are released once the log is back."""
    home = world.shares.state_log.home(world.key)
    world.acquire(0, 4)
    world.world.broker.topics.by_name["__share_group_state"].partitions[home].log.offline = "a test"
    for call in (lambda: world.shares.next_offset(world.key), lambda: world.shares.check_online(world.key)):
        with pytest.raises(KafkaError) as refused:
            call()
        assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    answer = world.acknowledge(0, 0, AckType.ACCEPT)
    assert answer is not None
    assert answer.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.shares.begin_release("g", "me", [world.place])
    world.world.wait(LOCK_S + 5)
    assert world.states() == "LLLLL"
    world.world.broker.topics.by_name["__share_group_state"].partitions[home].log.offline = None
    world.world.wait(2)
    assert world.states() == "AAAAA"
