"""When keys of tokens are fetched, and that those there are outlive what cannot be fetched."""

import pytest
from fencepost.broker.security.jwks import SOONEST_MS, KeyRefresher
from fencepost.effects.net.fetching import CannotFetch
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.effects.simulated.loop import SimulatedLoop
from signed_tokens import jwk, key_set

EVERY_MS = 60_000
FIRST, SECOND = key_set(jwk("p256-1")), key_set(jwk("p256-2"))


class World:
    """A KeyRefresher in virtual time. `text` is what it fetches, or the error; `fetched_s` is when it did; `put` has
    the key ids that it set.
    """

    def __init__(self):
        self.loop = SimulatedLoop()
        self.text = FIRST
        self.fetched_s = []
        self.put = []
        executor = SimulatedDisk(history=False).executor("keys", 1)
        self.refresher = KeyRefresher(
            self.fetch, lambda keys: self.put.append(set(keys)), executor, self.loop, EVERY_MS, "https://keys.example"
        )
        self.do(self.refresher.start)

    def fetch(self):
        self.fetched_s.append(round(self.loop.time()))
        if isinstance(self.text, Exception):
            raise self.text
        return self.text

    def do(self, act):
        async def run():
            act()

        self.loop.run_until_complete(run())

    def wait(self, seconds):
        import asyncio

        self.loop.run_until_complete(asyncio.sleep(seconds))


@pytest.fixture
def world():
    world = World()
    yield world
    world.refresher.stop()
    world.loop.close()


def test_jwks_keys_are_fetched_at_once_and_then_periodically(world):
    began = world.fetched_s[0] if world.fetched_s else round(world.loop.time())
    world.wait(1)
    assert world.put == [{"p256-1"}]
    world.text = SECOND
    world.wait(2 * EVERY_MS / 1000)
    assert [when - began for when in world.fetched_s] == [0, 60, 120]
    assert world.put == [{"p256-1"}, {"p256-2"}, {"p256-2"}]


def test_an_unknown_key_id_makes_the_next_jwks_fetch_earlier_at_most_every_10_s(world):
    """Two fetches are at least SOONEST_MS (10 s) apart."""
    world.wait(1)
    began = world.fetched_s[0]
    for _ in range(100):
        world.do(world.refresher.hurry)
    world.wait(SOONEST_MS / 1000 + 1)
    assert [when - began for when in world.fetched_s] == [0, 10]
    world.wait(20)
    world.do(world.refresher.hurry)
    world.wait(0)
    assert [when - began for when in world.fetched_s] == [0, 10, 32]


@pytest.mark.parametrize("failure", [OSError("no route"), b"no keys", key_set(), CannotFetch("why it is so")])
def test_a_failed_fetch_keeps_the_old_keys_and_is_repeated_soon(world, failure, caplog):
    world.wait(1)
    world.text = failure
    world.wait(EVERY_MS / 1000)
    assert world.put == [{"p256-1"}]
    assert "cannot be fetched from https://keys.example" in caplog.text
    assert not isinstance(failure, CannotFetch) or str(failure) in caplog.text
    world.text = SECOND
    world.wait(SOONEST_MS / 1000)
    assert world.put == [{"p256-1"}, {"p256-2"}]


def test_after_stop_no_jwks_keys_are_fetched(world):
    world.wait(1)
    world.refresher.stop()
    world.do(world.refresher.hurry)
    world.wait(EVERY_MS)
    assert len(world.fetched_s) == len(world.put) == 1
