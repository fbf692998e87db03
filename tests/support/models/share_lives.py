"""Share partitions over the life of a broker that runs by itself, and what a start would know of them at any time."""

import random
from collections.abc import Iterable, Sequence
from typing import Any

from fencepost.broker.config.settings import BrokerSettings
from fencepost.broker.share.state_log import ShareStateLog
from fencepost.broker.share.values import AckRange, AckType, Found, SharePartitionKey, Wanted
from fencepost.broker.transactions.states.transaction import MarkerOrder
from fencepost.protocol.errors import ErrorCode, KafkaError
from share_acknowledging import acknowledge_now
from share_driver import durable_view
from simulated_broker import SimulatedBroker

WANTED = Wanted(5_000, 500)
HOMES = 2


def settings(**more: object) -> BrokerSettings:
    return BrokerSettings(share_coordinator_state_topic_num_partitions=HOMES, **more)  # type: ignore[arg-type]


def view(state_log: ShareStateLog) -> dict[SharePartitionKey, object]:
    """Return everything of the state that a restart must restore."""
    return {
        key: (
            *(kept.epoch, kept.snapshot_offset, kept.snapshot_bytes, kept.needs_from, kept.updates, kept.update_bytes),
            durable_view(kept.machine),
        )
        for key, kept in state_log.known.items()
    }


def replayed(
    world: SimulatedBroker, rows: Iterable[Any] = (), positions: dict[int, int] | None = None
) -> dict[SharePartitionKey, object]:
    """Return the state that a coordinator reads from these rows of the log alone."""
    fresh = ShareStateLog(world.broker.shared)
    for row in rows:
        fresh.put_row(fresh.read_row(row))
    fresh.topic.replay_from = positions or {}
    fresh.load()
    return view(fresh)


def positions(world: SimulatedBroker) -> dict[int, int]:
    return {part.index: part.log.end_offset for part in state_partitions(world)}


def state_partitions(world: SimulatedBroker) -> list[Any]:
    topic = world.broker.topics.by_name.get("__share_group_state")
    return topic.partitions if topic else []


def begin(world: SimulatedBroker, group: str, starts: dict[tuple[bytes, int], int]) -> None:
    """Initialise share partitions in a unit (journal entry) of its own, as a group does."""
    unit = world.broker.share_partitions.initialize(group, starts)
    if unit.parts:
        world.broker.share_partitions.state_log.topic.commit(unit.parts)
    unit.apply()


def one_partition(world: SimulatedBroker, *, group: str = "g", start: int = 0) -> SharePartitionKey:
    topic = world.broker.topics.by_name.get("t") or world.broker.topics.create("t", 3)
    begin(world, group, {(topic.id, 0): start})
    return SharePartitionKey(group, topic.id, 0)


def acquire(world: SimulatedBroker, key: SharePartitionKey, first: int, last: int, member: str = "me") -> None:
    found = [Found(offset, offset) for offset in range(first, last + 1)]
    world.broker.share_partitions.acquire(key, member, first, found, WANTED)


def acknowledge(world: SimulatedBroker, key: SharePartitionKey, *acks: AckRange, member: str = "me") -> None:
    answer = acknowledge_now(world.broker.share_partitions, key.group, member, {(key.topic_id, key.partition): acks})
    assert answer == {(key.topic_id, key.partition): None}


def accept(world: SimulatedBroker, key: SharePartitionKey, offset: int) -> None:
    acquire(world, key, offset, offset)
    acknowledge(world, key, AckRange(offset, offset, [AckType.ACCEPT]))


class Life:
    """The clients of two groups, which act at random."""

    def __init__(self, world: SimulatedBroker, seed: int) -> None:
        self.world = world
        self.chance = random.Random(seed)
        self.topics = [world.broker.topics.create(name, 2) for name in ("t", "u")]
        self.homes: dict[int, set[int]] = {producer_id: set() for producer_id in range(3)}
        self.places = [(topic.id, index) for topic in self.topics for index in range(2)]

    @property
    def shares(self) -> Any:
        return self.world.broker.share_partitions

    def step(self) -> None:
        often = [self.fetch] * 4 + [self.acknowledge] * 4 + [self.acknowledge_in_transaction] * 3
        rarely = [self.begin, self.release, self.wait, self.alter, self.end, self.end_transaction, self.write_whole]
        self.chance.choice([*often, *rarely])()

    def group(self) -> str:
        return self.chance.choice("gh")

    def member(self) -> str:
        return self.chance.choice("ab")

    def begin(self) -> None:
        begin(self.world, self.group(), dict.fromkeys(self.places, self.chance.randrange(10)))

    def fetch(self) -> None:
        for key in self.shares.of_group(self.group()):
            offset = self.shares.next_offset(key)
            found = [Found(offset + n, offset + n, self.chance.random() < 0.8) for n in range(self.chance.randrange(8))]
            self.shares.acquire(key, self.member(), offset, found, Wanted(self.chance.randrange(1, 9), 3))

    def acknowledge(self) -> None:
        group, member = self.group(), self.member()
        acknowledge_now(self.shares, group, member, self.acks(group, member, range(5)))

    def acks(self, group: str, member: str, kinds: Sequence[int]) -> dict[tuple[bytes, int], list[AckRange]]:
        acks = {}
        for key in self.shares.of_group(group):
            runs = list(self.shares.state_log.known[key].machine.runs)
            theirs = [run for run in runs if run[2].member == member and run[2].state == 1]
            acks[key.topic_id, key.partition] = [
                AckRange(first, last, [self.chance.choice(kinds) for _ in range(first, last + 1)])
                for first, last, _ in theirs[: self.chance.randrange(4)]
            ]
        return acks

    def acknowledge_in_transaction(self) -> None:
        group, member, producer_id = self.group(), self.member(), self.chance.randrange(3)
        acks = self.acks(group, member, (1, 3))
        acknowledging = self.shares.begin_acknowledging_in_transaction(group, member, producer_id, acks)
        changes, wrong = acknowledging.finish_in_transaction()
        assert not wrong
        if changes:
            unit = self.shares.state_log.pending_unit(changes, producer_id, 0)
            self._commit(unit)
            self.homes[producer_id] |= {self.shares.state_log.home(key) for key, _ in changes}

    def end_transaction(self) -> None:
        """End the transaction in the partitions of share groups, as EndTxn does."""
        producer_id, commit = self.chance.randrange(3), self.chance.random() < 0.5
        logs = {("__share_group_state", home): self._log_id(home) for home in self.homes.pop(producer_id)}
        self.homes[producer_id] = set()
        unit = self.world.broker.transactions.new_unit()
        unit.mark(MarkerOrder(commit, producer_id, 0, logs), 1_000)
        unit.commit()

    def _log_id(self, home: int) -> int:
        return int(state_partitions(self.world)[home].log.log_id)

    def write_whole(self) -> None:
        if keys := list(self.shares.state_log.known):
            self.shares.state_log.write_snapshots([self.chance.choice(keys)])

    def prune(self) -> None:
        if self.chance.random() < 0.5:
            for _ in range(9):
                self.end_transaction()
            if keys := list(self.shares.state_log.known):
                self.shares.state_log.write_snapshots(keys)
        self.world.wait(1)
        for home, keys in self.shares.state_log._by_home().items():
            self.shares.state_log.prune(home, keys)

    def release(self) -> None:
        self.shares.begin_release(self.group(), self.member(), self.places)

    def wait(self) -> None:
        self.world.wait(self.chance.choice([1, 40]))

    def alter(self) -> None:
        group = self.group()
        if self.shares.of_group(group) and self.chance.random() < 0.5 and not self.is_pending(group):
            self._commit(self.shares.alter(group, {self.chance.choice(self.places): self.chance.randrange(20)}))

    def end(self) -> None:
        group = self.group()
        if self.chance.random() < 0.1 and not self.is_pending(group):
            self._commit(self.shares.delete(group))

    def is_pending(self, group: str) -> bool:
        try:
            self.shares.check_nothing_pending(group)
        except KafkaError as error:
            return error.code is ErrorCode.NON_EMPTY_GROUP
        return False

    def _commit(self, unit: Any) -> None:
        if unit.parts:
            self.shares.state_log.topic.commit(unit.parts)
        unit.apply()
