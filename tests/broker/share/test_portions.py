"""A request that is decided in portions, between which others change the share partition, has the same result as one
that is decided in one step at the end.

A letter of states(): A available, L acquired, K acknowledged, X archived, P pending.
"""

import random
from collections.abc import Callable, Iterator
from copy import deepcopy

import pytest
from fencepost.broker.share import portions
from fencepost.broker.share.machine import SharePartition
from fencepost.broker.share.portions import Portions
from fencepost.broker.share.values import AckRange, AckType, AcquiredRange, State, Update
from fencepost.protocol.errors import ErrorCode, KafkaError
from share_driver import ShareDriver, durable_view

MEMBERS = ("me", "other")
T, U = (1, 1), (1, 2)
LIMIT, UNTIL = 3, 900


@pytest.fixture(autouse=True)
def few_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portions, "RUNS", 2)


def of_member(machine: SharePartition, acks: list[AckRange], until: int | None = UNTIL) -> Portions:
    return Portions(machine, acks, lambda ranges, above: machine.decide_acks("me", ranges, above, LIMIT, until))


def in_transaction(machine: SharePartition, acks: list[AckRange]) -> Portions:
    return Portions(machine, acks, lambda ranges, above: machine.decide_pending("me", ranges, above, T))


def view(machine: SharePartition) -> object:
    return list(machine.runs), machine.end, machine.next_offset, durable_view(machine)


class Others:
    """Changes the share partition as other requests do between two portions."""

    def __init__(self, driver: ShareDriver, chance: random.Random) -> None:
        self.driver, self.chance = driver, chance
        self.now_ms = 0

    def act(self) -> None:
        driver, chance = self.driver, self.chance
        machine = driver.machine
        member = chance.choice(MEMBERS)
        at = machine.start + chance.randrange(12)
        actions: list[Callable[[], object]] = [
            lambda: driver.acquire(member, (at, at + 3), offset=at, until=self.now_ms + chance.randrange(1, 9)),
            lambda: driver.acknowledge(member, *self.theirs(member, tuple(AckType))),
            lambda: driver.acknowledge_in(chance.choice((T, U)), member, *self.theirs(member, (1, 3))),
            lambda: driver.settle(chance.choice((T, U)), commit=chance.random() < 0.5),
            lambda: driver.expire(self.now_ms),
        ]
        if chance.random() < 0.2:
            actions = [lambda: driver.release(member), lambda: driver.log_begins(machine.start + 1), driver.snapshot]
            if not machine.transactions:
                actions.append(lambda: driver.snapshot(start=chance.randrange(9)))
        self.now_ms += chance.randrange(2)
        chance.choice(actions)()

    def theirs(self, member: str, kinds: tuple[int, ...]) -> list[AckRange]:
        """Return acknowledgements of some records that the member has acquired, with random types."""
        chance, machine = self.chance, self.driver.machine
        runs = [run for run in machine.runs if run[2].state is State.ACQUIRED and run[2].member == member]
        acks = []
        for first, last, _ in runs[: chance.randrange(6)]:
            each = [chance.choice(kinds) for _ in range(first, last + 1)]
            acks.append(AckRange(first, last, each if chance.random() < 0.8 else each[:1]))
        return acks


def lives() -> Iterator[tuple[ShareDriver, Others, random.Random]]:
    """Yield share partitions after random actions of other members, each with records that "me" has just acquired."""
    for seed in range(400):
        chance = random.Random(seed)
        driver = ShareDriver(limit=LIMIT, locks=20)
        others = Others(driver, chance)
        for _ in range(chance.randrange(4, 30)):
            others.act()
        driver.acquire("me", (driver.machine.next_offset, driver.machine.next_offset + 9), until=UNTIL)
        yield driver, others, chance


@pytest.mark.slow
def test_acknowledgements_checked_in_portions_apply_as_if_checked_at_the_end() -> None:
    """A portion that another member's change made stale is checked again."""
    stale = made = 0
    for driver, others, chance in lives():
        machine = driver.machine
        acks = others.theirs("me", (0, 1, 2, 3))
        of = of_member(machine, acks)
        again = 0
        try:
            for _ in of.decide_ahead():
                others.act()
            for _ in range(chance.randrange(3)):
                for _ in of.decide_again():
                    again += 1
                    others.act()
        except KafkaError:
            continue
        stale += again > 0
        before, twin = view(machine), deepcopy(machine)
        at_once = of_member(twin, acks)
        try:
            at_once.finish()
        except KafkaError:
            with pytest.raises(KafkaError) as refused:
                of.finish()
            assert refused.value.code is ErrorCode.INVALID_RECORD_STATE
            assert view(machine) == before, "a refused request changes nothing"
            continue
        of.finish()
        assert view(machine) == before, "nothing changes before apply()"
        assert of.position() == at_once.position()
        of.apply()
        twin.apply(Update(*at_once.position(), at_once.batches))
        assert view(machine) == view(twin), "apply() changes the same as a replay of the record"
        made += bool(at_once.batches)
    assert stale > 20 < made  # both cases came up often enough


@pytest.mark.slow
def test_transactional_acknowledgements_in_portions_apply_as_if_checked_at_the_end() -> None:
    made = 0
    for driver, others, _ in lives():
        machine = driver.machine
        of = in_transaction(machine, others.theirs("me", (1, 3)))
        try:
            for _ in of.decide_ahead():
                others.act()
            of.finish()
        except KafkaError:
            continue
        twin = deepcopy(machine)
        twin.apply_pending(T, 5_000, of.batches)
        of.apply_pending(T, 5_000)
        assert view(machine) == view(twin)
        made += bool(of.batches)
    assert made > 20  # the results were compared often enough


def test_share_locks_renewed_in_portions_last_until_the_new_deadline() -> None:
    driver = ShareDriver()
    machine = driver.machine
    driver.acquire("me", (0, 9), until=30)
    renewing = of_member(machine, [AckRange(n, n, [AckType.RENEW]) for n in range(0, 10, 2)])
    list(renewing.decide_ahead())
    driver.acknowledge("me", AckRange(1, 1, [AckType.ACCEPT]))
    renewing.finish()
    renewing.apply()
    driver.expire(30)
    assert driver.states() == "LKLALALALA"
    driver.expire(UNTIL)
    assert driver.states() == "AKAAAAAAAA"


@pytest.mark.parametrize("ranges", [3, 4, 5])
def test_an_acknowledged_range_repeating_the_last_of_an_earlier_portion_is_refused(ranges: int) -> None:
    driver = ShareDriver()
    driver.acquire("me", (0, 9))
    acks = [AckRange(n, n, [1]) for n in range(ranges)]
    acks[-1] = acks[-2]
    with pytest.raises(KafkaError) as refused:
        of_member(driver.machine, acks).finish()
    assert refused.value.code is ErrorCode.INVALID_RECORD_STATE
    assert driver.states() == "L" * 10


def in_runs_of_one() -> SharePartition:
    """Return a share partition with ten acquired records, each a run of its own, as neighbours differ in deliveries."""
    driver = ShareDriver()
    driver.machine.acquire([AcquiredRange(n, n, 1 + n % 2) for n in range(10)], "me", UNTIL)
    return driver.machine


@pytest.mark.parametrize("kind", [AckType.ACCEPT, AckType.RELEASE, AckType.RENEW])
@pytest.mark.parametrize(("first", "last"), [(0, 9), (1, 8), (3, 3), (5, 6)])
def test_an_acknowledged_range_checked_in_portions_acts_like_one_range_per_record(
    kind: AckType, first: int, last: int
) -> None:
    machine, whole = in_runs_of_one(), in_runs_of_one()
    of = of_member(machine, [AckRange(first, last, [kind])])
    touched = list(of.decide_ahead())
    assert max(touched) <= 2  # RUNS
    assert sum(touched) == last - first + 1
    of.finish()
    of.apply()
    one_by_one = of_member(whole, [AckRange(n, n, [kind]) for n in range(first, last + 1)])
    one_by_one.finish()
    assert (of.batches, of.records_by_type()) == (one_by_one.batches, one_by_one.records_by_type())
    one_by_one.apply()
    assert view(machine) == view(whole)


@pytest.mark.parametrize(
    ("ack", "code"),
    [
        (AckRange(0, 10, [1]), ErrorCode.INVALID_REQUEST),
        (AckRange(0, 9, [1]), ErrorCode.INVALID_RECORD_STATE),
    ],
)
def test_an_acknowledged_range_invalid_in_a_later_portion_is_refused_whole(ack: AckRange, code: ErrorCode) -> None:
    machine = in_runs_of_one()
    machine.acquire([AcquiredRange(7, 7, 3)], "other", UNTIL)
    before = view(machine)
    of = of_member(machine, [ack])
    with pytest.raises(KafkaError) as refused:
        of.finish()
    assert refused.value.code is code
    assert view(machine) == before


def test_a_range_that_begins_below_the_window_changes_only_records_in_the_window() -> None:
    machine = in_runs_of_one()
    for n in range(4):
        accepted = of_member(machine, [AckRange(n, n, [1])])
        accepted.finish()
        accepted.apply()
    rest = of_member(machine, [AckRange(0, 9, [1])])
    assert list(rest.decide_ahead()) == [2, 2, 2]  # steps of RUNS runs each, for the six records in the window
    rest.apply()
    assert (machine.start, list(machine.runs)) == (10, [])
