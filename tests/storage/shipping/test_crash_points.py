"""A follower dies at any call to the store, before or after its effect: what its successor and a restore find."""

import pytest
from fencepost.effects.simulated.clock import SimulatedClock
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.effects.simulated.objects import SimulatedObjects, StoreCut
from fencepost.storage.shipping.fetching import Fetching
from fencepost.storage.shipping.names import place_of_rounds
from fencepost.storage.shipping.point import is_seal
from fencepost.storage.shipping.verifying import Verifying
from followed import DIRECTORY, Waiting, claim, follower, restored
from recovery_oracle import SETTINGS, Workload
from store_driver import Driven, values_of

ROUNDS = 4


class Life:
    """A backup follower beside a broker that writes, until the client of its store dies. covered: how many values the
    store has for sure.
    """

    def __init__(self, objects):
        self.objects, self.clock = objects, SimulatedClock()
        self.work = Workload(SimulatedDisk())
        self.count = 0
        self.covered = 0
        self.add(self.work.make("a"))
        self.turn()

    def add(self, log):
        self.work.send(log, b"%d" % self.count)
        self.count += 1
        self.work.sync()

    def turn(self):
        self.work.flush()
        self.work.checkpoint()
        self.clock.advance(1000)

    def follow(self, client):
        """Begin, take points and ship rounds between them (each point deletes old ones), end. Raises: StoreCut."""
        one = follower(self.work.disk, client, self.clock, begins=False, keep_ms=1500, point_bytes=0, piece_bytes=2000)
        one.begin(claim(), lambda: None, take_over=True)
        log = self.work.log("a")
        for _ in range(ROUNDS):
            for _ in range(2):
                one.step()
                self.covered = self.count
                self.add(log)
            self.turn()
        one.step()
        self.covered = self.count
        one.end()


def values_in(objects):
    store = Driven(restored(objects)[0], settings=SETTINGS).store
    found = [int(value) for log in store.logs.values() if log.topic == "a" for _, value in values_of(log)]
    store.close()
    return found


def calls_of_a_life():
    """Return the calls to the store that a whole life of a follower makes."""
    life = Life(SimulatedObjects())
    client = life.objects.client()
    life.follow(client)
    return client.calls


def check_a_death(call, *, after):
    life = Life(SimulatedObjects())
    dying = life.objects.client()
    dying.cut_at(call, after=after)
    with pytest.raises(StoreCut):
        life.follow(dying)
    if life.covered:
        found = values_in(life.objects.client())
        assert found == list(range(len(found)))
        assert life.covered <= len(found) <= life.count
    life.follow(life.objects.client())
    assert values_in(life.objects.client()) == list(range(life.count))
    verifying = Verifying(life.objects.client(), Waiting())
    assert verifying.run() == []
    last = follower(life.work.disk, life.objects.client(), life.clock, keep_ms=1500)
    last.step()
    kept = last._collector.points
    named = set().union(*(known.parts for known in kept.values()))
    there = {name for name in life.objects.content if name.startswith(("0/parts/", "0/pieces/", "0/rounds/"))}
    assert named <= there
    behind_kept = {name for name in there if (parsed := place_of_rounds(name)) and parsed[0] in kept}
    left = there - named - behind_kept
    assert all(is_seal(life.objects.content[name]) for name in left), left


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True])
def test_a_backup_follower_killed_at_a_sampled_store_call_loses_no_record_it_shipped(after):
    calls = len(calls_of_a_life())
    step = 7 if after else 5  # a sample; the long test has each call
    for call in range(0, calls, step):
        check_a_death(call, after=after)


@pytest.mark.long
@pytest.mark.parametrize("after", [False, True])
def test_a_backup_follower_killed_at_each_store_call_loses_no_record_it_shipped(after):
    for call in range(len(calls_of_a_life())):
        check_a_death(call, after=after)


@pytest.mark.slow
def test_a_restore_that_dies_at_any_store_call_leaves_no_files_and_can_be_repeated():
    life = Life(SimulatedObjects())
    life.follow(life.objects.client())
    whole = life.objects.client()
    values_in(whole)
    for call in range(len(whole.calls)):
        dying, target = life.objects.client(), SimulatedDisk()
        dying.cut_at(call, after=bool(call % 2))
        with pytest.raises(StoreCut):
            Fetching(dying, target, DIRECTORY, Waiting(), threads=1).run()
        assert not target.exists(DIRECTORY) or target.list(DIRECTORY) == []  # the directory may have been made
        Fetching(life.objects.client(), target, DIRECTORY, Waiting(), threads=1).run()
