"""A follower copies a data directory to a store beside scripted workloads: each moment that it shipped is restored."""

import os
import random

import pytest
from backed_up import first_checkpoint
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.effects.simulated.objects import Faults, SimulatedObjects
from fencepost.storage.shipping.claims import Fenced
from followed import RecordClock, follower, restored
from recovery_oracle import Acknowledged, Sent, check_present
from scripted_workloads import (
    WORKLOADS,
    a_restart_between,
    journal_files_are_used_again_that_were_never_synced,
    journal_files_change_and_are_used_again,
)
from travelling_disk import TravellingDisk

PACES = (0.05, 1)  # operations of the workload between two looks of the follower at the disk, on average
MOMENTS = int(os.environ.get("BACKUP_MOMENTS", "3"))  # of one follower, that are restored
BAD_DAYS = Faults(before=0.1, after=0.1, late=0.1, conflicts=0.1, reads=0.1, lists=0.1, keeps=0.1)


def followed(recorded, pace, faults=None, **how):
    """Let a follower back up the recorded broker until the record ends. Returns (the store then; the moments that the
    follower said were covered, each with what the store had when it said so).
    """
    rng = random.Random(f"{pace}")
    beside = TravellingDisk(recorded, first_checkpoint(recorded), lambda: int(rng.random() * (pace * 2 + 1)))
    objects = SimulatedObjects(int(pace * 100), faults)
    one = follower(beside, objects, RecordClock(beside), **how)
    moments = {}
    while True:
        ended = beside.now == len(recorded.operations)
        one.step()
        if one.loss_window_ms is not None:
            moments.setdefault(beside.now - one.loss_window_ms, dict(objects.content))
        if ended:
            return objects, moments


def check_is_of_one_moment(disk, notes):
    for note in notes:
        disk.note(note)
    recovered, present = check_present(disk)
    there = {log.topic for log in recovered.store.logs.values()}
    newest = max((note.unit for note in present), default=0)
    missing = [n for n in notes if isinstance(n, Sent) and n.topic in there and n.unit <= newest and n not in present]
    assert not missing, "a later unit is there"
    recovered.store.close()


def check_moments(recorded, objects, moments):
    """Restore some moments, the last among them, and compare each with what was acknowledged before it.

    Of each of these moments the loss window said that all before it is in the store. So it is restored twice: from the
    store as it was at that moment, and from the store as it is at the end.
    """
    objects.faults = Faults()
    may_be = [note for note in recorded.notes if not isinstance(note, Acknowledged)]
    places = sorted(moments)
    for moment in sorted({places[-1 - each * (len(places) - 1) // MOMENTS] for each in range(MOMENTS)}):
        sure = [note for note in recorded.notes_at(moment) if isinstance(note, Acknowledged)]
        then = SimulatedObjects()
        then.content = moments[moment]
        check_is_of_one_moment(restored(then)[0], sure + may_be)
        disk, fetched = restored(objects, moment)
        assert fetched.moment_ms <= moment
        check_is_of_one_moment(disk, sure + may_be)


@pytest.mark.slow
@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.__name__)
def test_a_restore_to_any_moment_gives_a_state_that_the_broker_had(workload):
    recorded = SimulatedDisk()
    workload(recorded)
    for number, pace in enumerate(PACES):
        objects, moments = followed(
            recorded, pace, point_bytes=100_000 * (1 - number), look_bytes=50_000, piece_bytes=5000
        )
        check_moments(recorded, objects, moments)
        disk, _ = restored(objects)
        everything = [note for note in recorded.notes if isinstance(note, Acknowledged)]
        check_is_of_one_moment(disk, everything + [n for n in recorded.notes if not isinstance(n, Acknowledged)])


@pytest.mark.slow
def test_despite_store_errors_a_backup_restores_to_every_moment_it_says_it_covers():
    recorded = SimulatedDisk()
    journal_files_are_used_again_that_were_never_synced(recorded)
    objects, moments = followed(recorded, 0.3, BAD_DAYS, point_bytes=0, look_bytes=50_000)
    check_moments(recorded, objects, moments)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(2))
def test_backup_followers_that_replace_each_other_lose_no_record(number):
    """Each follower begins at a random moment while the one before continues, which must then be fenced."""
    recorded = SimulatedDisk()
    (journal_files_change_and_are_used_again, a_restart_between)[number](recorded)
    rng = random.Random(number)
    beside = TravellingDisk(recorded, first_checkpoint(recorded), lambda: int(rng.random() * 1.2))
    objects, clock = SimulatedObjects(number), RecordClock(beside)
    followers, fenced, moments = [], 0, {}
    while beside.now < len(recorded.operations):
        if not followers or rng.random() < 0.1:
            followers.append(follower(beside, objects.client(), clock, point_bytes=0, look_bytes=50_000))
        for one in followers[:]:
            try:
                one.step()
            except Fenced:
                assert one is not followers[-1]
                followers.remove(one)
                fenced += 1
            else:
                if one is followers[-1] and one.loss_window_ms is not None:
                    moments.setdefault(beside.now - one.loss_window_ms, dict(objects.content))
    assert fenced > 1
    check_moments(recorded, objects, moments)
