"""Scans of a journal to which a broker is writing: damage is believed only if it stays at its place."""

import pytest
from fencepost.storage.backup import journal_copy
from fencepost.storage.backup.journal_copy import Changed, judge_beside
from fencepost.storage.journal.reading import JournalDamaged

SOUND = object()


@pytest.fixture
def scans(monkeypatch):
    """Replace the journal's scan. Returns (a function that sets what the next scans find: positions of damage, or
    SOUND; a list of what they found).
    """
    found, made = [], []

    def scan(*_):
        made.append(found[min(len(made), len(found) - 1)])
        if made[-1] is SOUND:
            return SOUND
        raise JournalDamaged("/data/journal/1", made[-1], "a round fails its checksum")

    monkeypatch.setattr(journal_copy, "scan_journal", scan)
    found_by = found.extend
    return found_by, made


def judge():
    """Scan as a backup beside a running broker does."""
    return judge_beside(None, "/data", None, lambda: None)


@pytest.mark.parametrize("found", [[4096, SOUND], [4096, 4096, SOUND], [4096, 4096, 8192, 8192, 4096, SOUND]])
def test_journal_damage_gone_at_a_later_scan_counts_as_a_round_being_written(scans, found):
    find, made = scans
    find(found)
    assert judge() is SOUND
    assert made == found


@pytest.mark.parametrize("found", [[4096] * 3, [8192, 4096, 4096, 4096]])
def test_journal_damage_at_the_same_place_in_three_scans_is_reported_as_damage(scans, found):
    find, made = scans
    find(found)
    with pytest.raises(JournalDamaged):
        judge()
    assert made == found


def test_journal_damage_at_another_place_in_every_scan_raises_changed(scans):
    find, made = scans
    find(range(4096, 4096 * 200, 4096))
    with pytest.raises(Changed):
        judge()
    assert len(made) == journal_copy.ATTEMPTS
