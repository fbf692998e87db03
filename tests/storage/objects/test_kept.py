"""Rounds (objects of a journal) that are read once and kept in memory, also before a take-over needs them."""

import pytest
from fencepost.effects.objects import Missing
from fencepost.effects.simulated.objects import SimulatedObjects
from fencepost.storage.objects import format as form
from fencepost.storage.objects.creating import create_seal
from fencepost.storage.objects.fence import Place
from fencepost.storage.objects.kept import KeptRounds, ReadingAhead
from owner_driver import Owning, pause


def written(rounds: int) -> tuple[SimulatedObjects, Owning]:
    """Return a store with an owner that has written this many rounds after round 0."""
    objects = SimulatedObjects()
    owner = Owning(objects.client())
    owner.create("t")
    while owner.store.journal.released_rounds <= rounds:
        owner.send("t", b"x")
    return owner.objects, owner


def reads(objects: SimulatedObjects) -> list[str]:
    """Return the names of rounds that were read, in order."""
    return [name for call, name in objects.calls if call == "read" and name.startswith(form.JOURNAL)]


def newest(owner: Owning) -> Place:
    """Return the place of the newest released round."""
    return Place(1, owner.store.journal.released_rounds - 1)


def test_journal_rounds_that_were_read_ahead_are_not_read_again():
    written_to, owner = written(20)
    objects = written_to.client()
    kept = KeptRounds(objects)
    ahead = ReadingAhead(kept, pause, whole=True)
    assert ahead.newer(Place(1, 0)) == (newest(owner), False)
    ahead.read_before(newest(owner))
    before = len(reads(objects))
    for number in range(newest(owner).number + 1):
        kept.read(form.place_name(Place(1, number)))
        kept.read(form.place_name(Place(1, number)), 0, form.HEADER_BYTES)
    assert len(reads(objects)) == before
    assert [reads(objects).count(name) for name in objects.content if name.startswith(form.JOURNAL)] == [1] * 21


def test_newer_finds_the_newest_journal_round_and_reads_once_if_none_is_newer():
    written_to, owner = written(40)
    objects = written_to.client()
    found = ReadingAhead(KeptRounds(objects), pause, whole=False).newer(Place(1, 0))
    assert found == (newest(owner), False)
    idle = len(reads(objects))
    ReadingAhead(KeptRounds(objects), pause, whole=False).newer(newest(owner))
    assert len(reads(objects)) == idle + 1


def test_newer_returns_the_place_of_a_seal_after_the_newest_journal_round():
    written_to, owner = written(5)
    last = newest(owner)
    create_seal(written_to, owner.store.journal.end(), pause)
    ahead = ReadingAhead(KeptRounds(written_to.client()), pause, whole=True)
    assert ahead.newer(Place(1, 0)) == (Place(1, last.number + 1), True)


def test_kept_rounds_keeps_no_more_than_most_bytes_and_can_forget_journal_rounds():
    written_to, _ = written(10)
    names = [form.place_name(Place(1, number)) for number in range(6)]
    sizes = [len(written_to.content[name]) for name in names]
    objects = written_to.client()
    kept = KeptRounds(objects, most_bytes=sum(sizes[:3]))
    for name in names:
        kept.read(name)
    assert [kept.has(Place(1, number)) for number in range(6)] == [True] * 3 + [False] * 3
    kept.forget_before(Place(1, 2))
    assert [kept.has(Place(1, number)) for number in range(3)] == [False, False, True]
    kept.read(names[3])
    assert kept.has(Place(1, 3))
    kept.keep_nothing()
    objects.content.pop(names[3])
    with pytest.raises(Missing):
        kept.read(names[3])


def test_reading_ahead_ends_at_a_damaged_journal_round_without_an_error():
    written_to, owner = written(8)
    objects = written_to.client()
    objects.rot(form.place_name(Place(1, 3)), 0)
    ReadingAhead(KeptRounds(objects), pause, whole=True).read_before(newest(owner))
    assert form.place_name(Place(1, 3)) in reads(objects)
