"""A backup beside each step of scripted workloads restores the state of one moment, not from before it began."""

import os

import pytest
from backed_up import first_checkpoint, restored_beside
from fencepost.effects.simulated.disk import SimulatedDisk
from long_runs import share_of
from recovery_oracle import Acknowledged, Sent, check_present
from scripted_workloads import WORKLOADS

pytestmark = pytest.mark.sampled

PACES = (0, 1, 12)  # operations of the workload between two looks, at most
MOMENTS = int(os.environ.get("BACKUP_MOMENTS", share_of(8)))  # at which a backup begins, of one workload


def promised(recorded, first, ended):
    """Return the notes that a backup is checked by: what was acknowledged before it began, and what was sent before it
    ended.
    """
    before = [note for note in recorded.notes_at(first) if isinstance(note, Acknowledged)]
    return before + [note for note in recorded.notes_at(ended) if not isinstance(note, Acknowledged)]


def check_is_of_one_moment(disk, notes):
    for note in notes:
        disk.note(note)
    recovered, present = check_present(disk)
    there = {log.topic for log in recovered.store.logs.values()}
    newest = max((note.unit for note in present), default=0)
    missing = [n for n in notes if isinstance(n, Sent) and n.topic in there and n.unit <= newest and n not in present]
    assert not missing, "a later unit is there"
    recovered.store.close()


@pytest.mark.slow
@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.__name__)
def test_a_backup_taken_during_writes_restores_a_state_that_the_broker_once_had(workload):
    recorded = SimulatedDisk()
    workload(recorded)
    begin, end = first_checkpoint(recorded), len(recorded.operations)
    for first in sorted({begin + (end - begin) * each // (MOMENTS - 1) for each in range(MOMENTS)}):
        for pace in PACES:
            try:
                disk, ended = restored_beside(recorded, first, pace)
                check_is_of_one_moment(disk, promised(recorded, first, ended))
            except BaseException as error:
                error.add_note(f"{workload.__name__}: begun at {first}, {pace} operations between two looks")
                raise
