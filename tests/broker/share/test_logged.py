"""A whole share partition, encoded in steps between which it changes."""

import random

import pytest
from fencepost.broker.share import logged
from fencepost.broker.share.logged import Encoding
from fencepost.broker.share.records import EncodedStates, encode_states, read_snapshot, snapshot_of, snapshot_value
from fencepost.broker.share.values import AckRange, AckType, AcquiredRange, Snapshot, StateBatch
from share_driver import ShareDriver


def states_of(batches: list[StateBatch]) -> dict[int, tuple[int, int]]:
    return {offset: (each.state, each.deliveries) for each in batches for offset in range(each.first, each.last + 1)}


@pytest.mark.slow
@pytest.mark.parametrize("interrupted", [False, True])
def test_share_states_encoded_in_steps_include_changes_made_between_the_steps(
    interrupted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logged, "RUNS", 3)
    for seed in range(60):
        chance = random.Random(seed)
        driver = ShareDriver(locks=200)

        def change(driver: ShareDriver = driver, chance: random.Random = chance) -> None:
            machine = driver.machine
            member, at = chance.choice("ab"), machine.start + chance.randrange(30)
            if chance.random() < 0.5:
                driver.acquire(member, (at, at + 5), offset=at)
                return
            if chance.random() < 0.1:
                driver.snapshot(start=max(0, at - chance.randrange(60)))
                return
            runs = [run for run in machine.runs if run[2].member == member and run[2].state == 1]  # 1: acquired
            driver.acknowledge(member, *(AckRange(*run[:2], [chance.choice((1, 2, 3))]) for run in runs[:2]))

        for _ in range(30):
            change()
        driver.machine.acquire([AcquiredRange(driver.machine.end + 1, driver.machine.end + 2, 1)], "a", 30)
        encoding = Encoding(driver.machine)
        for _ in encoding.encode_ahead() if interrupted else ():
            change()
        head = Snapshot(1, 0, driver.machine.start, driver.machine.runs.complete, ())
        found = read_snapshot(snapshot_of(head, encoding.finish()))
        assert states_of(list(found.batches)) == states_of(driver.machine.durable())


@pytest.mark.parametrize("all_steps", [False, True])
def test_share_states_encoded_in_steps_are_complete_after_the_start_was_lowered(
    all_steps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logged, "RUNS", 2)
    driver = ShareDriver(100)
    driver.acquire("me", (100, 109))
    driver.acknowledge("me", *(AckRange(offset, offset, [AckType.ACCEPT]) for offset in range(101, 110, 2)))
    encoding = Encoding(driver.machine)
    steps = encoding.encode_ahead()
    next(steps)
    driver.snapshot(start=0)
    driver.acquire("me", (0, 99))
    driver.acknowledge("me", *(AckRange(offset, offset, [AckType.ACCEPT]) for offset in range(1, 100, 2)))
    assert not all_steps or sum(steps) == len(driver.machine.runs)
    found = encoding.finish()
    assert found == EncodedStates(len(driver.machine.durable()), encode_states(driver.machine.durable()))


def test_a_share_snapshot_of_states_encoded_ahead_has_the_bytes_of_one_made_at_once() -> None:
    driver = ShareDriver()
    driver.acquire("me", (0, 9))
    driver.acknowledge("me", *(AckRange(offset, offset, [1 + offset % 2]) for offset in range(10)))
    machine = driver.machine
    whole = Snapshot(3, 1, machine.start, machine.runs.complete, machine.durable(), 5, 6)
    assert snapshot_of(whole, Encoding(machine).finish()) == snapshot_value(whole)
    assert encode_states(machine.durable()) in snapshot_value(whole)
