"""A connection with several waits is read again when the last of them ends."""

from collections.abc import Callable
from typing import Any

import pytest
from fencepost.broker.quotas.mutes import LOOKED_AT_AFTER_MS, Mutes


class Connection:
    """A connection with what Mutes uses of one."""

    def __init__(self) -> None:
        self.transport: object | None = object()
        self.is_muted = self.left = self.aborted = False

    def mute(self) -> None:
        assert not self.is_muted
        self.is_muted = True

    def unmute(self) -> None:
        assert self.is_muted
        self.is_muted = False

    def has_left(self) -> bool:
        return self.left

    def abort(self) -> None:
        self.aborted = True


class World:
    """Mutes with a clock and timers that pass_ms() moves."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.calls: list[tuple[float, Callable[..., object], tuple[Any, ...]]] = []
        self.mutes = Mutes(self, self.call_later)  # type: ignore[arg-type]

    def monotonic_ms(self) -> int:
        return self.now_ms

    def call_later(self, after_s: float, call: Callable[..., object], *given: Any) -> None:
        self.calls.append((self.now_ms + after_s * 1000, call, given))

    def pass_ms(self, ms: int) -> None:
        until_ms = self.now_ms + ms
        while due := sorted((each for each in self.calls if each[0] <= until_ms), key=lambda each: each[0]):
            self.calls.remove(due[0])
            self.now_ms = round(due[0][0])
            due[0][1](*due[0][2])
        self.now_ms = until_ms


@pytest.mark.parametrize("waits", [(8_000, 100), (100, 8_000), (8_000, 100, 200)])
def test_of_several_throttle_waits_begun_at_once_the_longest_applies(waits: tuple[int, ...]) -> None:
    """Mutes looks at a connection again every few seconds, so some waits here are longer than that."""
    world, connection = World(), Connection()
    for wait_ms in waits:
        world.mutes.mute(connection, wait_ms)
    world.pass_ms(7_999)
    assert connection.is_muted
    world.pass_ms(1)
    assert not connection.is_muted
    assert len(world.mutes) == 0
    assert world.calls == []


def test_of_two_throttle_waits_the_one_that_ends_later_applies() -> None:
    world, connection = World(), Connection()
    world.mutes.mute(connection, 3_000)
    world.pass_ms(2_900)
    world.mutes.mute(connection, 200)
    world.pass_ms(199)
    assert connection.is_muted
    world.pass_ms(1)
    assert not connection.is_muted


def test_a_throttled_connection_whose_client_disconnected_is_aborted() -> None:
    world, connection = World(), Connection()
    world.mutes.mute(connection, 10 * LOOKED_AT_AFTER_MS)
    connection.left = True
    world.pass_ms(LOOKED_AT_AFTER_MS)
    assert connection.aborted
    assert connection.is_muted
    assert len(world.mutes) == 0
