"""The decisions of the fence, case by case. test_fence_model.py shows that they suffice.

An epoch is the time of one owner of the journal. A round is the object that the owner creates with each write. A seal
is the object that ends an epoch.
"""

import pytest
from fencepost.storage.objects import fence
from fencepost.storage.objects.fence import Answer, Found, Header, Owner, Phase, Place, Run, Step, Taker


def test_after_a_create_answered_exists_or_unclear_the_next_step_reads_the_object():
    # the answers are: created, exists, unclear
    assert [fence.after_create(answer) for answer in Answer] == [Step.CREATED, Step.LOOK, Step.LOOK]


def test_after_look_returns_a_step_for_each_thing_found_in_place_of_a_created_round():
    """An owner whose create had no clear answer reads the object: its own counts as created, a seal fences it, nothing
    there is created again, anything else is damage.
    """
    steps = {found: fence.after_look(found) for found in Found}
    assert steps == {
        Found.OWN: Step.CREATED,
        Found.SEAL: Step.FENCED,
        Found.NOTHING: Step.CREATE,
        Found.OTHER: Step.DAMAGED,
    }


def test_journal_rounds_are_released_in_order_for_any_order_of_creates():
    owner = Owner(3).begin().begin().begin()
    assert not owner.may_begin
    owner = owner.create(2)
    assert (owner.released, owner.may_begin) == (0, False)
    owner = owner.create(0)
    assert (owner.released, owner.may_begin) == (1, True)
    owner = owner.create(1)
    assert owner.released == 3
    assert owner.create(1) is owner


def test_beginning_a_journal_round_while_a_full_window_is_unreleased_raises():
    with pytest.raises(RuntimeError, match="window 1"):
        Owner(1).begin().begin()


def test_first_kept_is_the_checkpoints_start_but_leaves_at_least_the_newest_rounds():
    assert fence.first_kept(released=20, start=15, kept=8) == 12
    assert fence.first_kept(released=20, start=5, kept=8) == 5


def test_garbage_has_the_journal_rounds_below_a_number_and_never_a_seal():
    # by number: True for a round, False for a seal
    assert fence.garbage({0: True, 1: False, 2: True, 3: True}, below=3) == [0, 2]


@pytest.mark.parametrize(
    ("rounds", "end"),
    [
        ({}, None),
        ({0: False}, 0),
        ({0: True, 1: True}, None),
        ({0: True, 1: True, 2: False}, 2),
        ({0: True, 1: False, 2: True}, 1),  # round 2 was created beside round 1, which found the seal
        ({0: True, 1: False, 2: True, 3: True}, None),  # round 3 begins only after round 1 exists
        ({1: False, 3: True, 4: True, 5: False}, 5),
        ({5: False, 6: False}, 5),
    ],
)
def test_an_epoch_ends_at_the_first_seal_after_which_no_journal_round_was_released(rounds, end):
    assert fence.valid_end(rounds, window=2) == end


@pytest.mark.parametrize(
    ("rounds", "place"),
    [
        ({}, 0),
        ({0: True}, 1),
        ({0: True, 2: True}, 1),
        ({7: True, 8: True}, 9),
        ({3: False, 4: True, 5: True}, 6),
        ({0: True, 2: True, 6: True, 7: True}, 8),
    ],
)
def test_a_seal_is_placed_at_the_first_free_name_of_the_window(rounds, place):
    assert fence.seal_place(rounds, window=2) == place


def test_is_proof_is_true_for_a_listing_that_is_ordered_or_fits_in_one_page():
    """Only of such a listing is it certain that it leaves out no object."""
    assert fence.is_proof([1, 2, 3, 4], page=2)
    assert not fence.is_proof([1, 3, 2, 4], page=2)
    assert not fence.is_proof([1, 2, 2], page=2)
    assert fence.is_proof([2, 1], page=2)


def test_a_takeover_ends_the_newest_begun_epoch_and_all_later_ones():
    """It lists each epoch, seals its first free name, and lists again, until an epoch has no rounds."""
    taker = Taker(epoch=5, window=2).looked(begun=3, passed=False, ended={})
    assert (taker.phase, taker.ending) == (Phase.LIST, 3)
    taker = taker.listed({0: True, 1: True})
    assert (taker.phase, taker.ending, taker.place) == (Phase.SEAL, 3, 2)
    taker = taker.sealed()
    assert (taker.phase, taker.ending) == (Phase.LIST, 3)
    taker = taker.listed({0: True, 1: True, 2: False})
    assert (taker.phase, taker.ending) == (Phase.LIST, 4)
    taker = taker.listed({}).sealed().listed({0: False})
    assert (taker.phase, taker.base) == (Phase.READ, (3, 2))
    assert taker.complete().began(created=True).phase is Phase.OWNER


def test_a_takeover_lists_epochs_from_the_first_one_that_was_not_ended_yet():
    taker = Taker(epoch=6, window=2).looked(begun=2, passed=False, ended={2: 7, 3: 0, 5: 0})
    assert (taker.phase, taker.ending, taker.ends) == (Phase.LIST, 4, ((2, 7), (3, 0)))
    taker = taker.listed({0: False})
    assert (taker.phase, taker.ending) == (Phase.LIST, 5)  # listed again, since epoch 4 before it had not ended


def test_a_takeover_continues_at_the_end_of_the_newest_ended_epoch_that_has_rounds():
    assert Taker(epoch=4, window=2).looked(begun=2, passed=False, ended={2: 7, 3: 0}).base == (2, 7)


def test_a_takeover_of_the_first_epoch_continues_none_and_reads_no_journal_rounds():
    taker = Taker(epoch=1, window=2).looked(begun=1, passed=False, ended={})
    assert (taker.phase, taker.base) == (Phase.READ, (0, 0))
    assert fence.runs(*taker.base, header=lambda place: pytest.fail(f"reads {place}")) == []


def test_a_takeover_that_misses_a_round_begins_again_if_overtaken_else_is_damaged():
    taker = Taker(epoch=5, window=2).looked(begun=4, passed=False, ended={}).listed({0: True, 1: False})
    assert taker.phase is Phase.READ
    assert taker.missed(overtaken=True) == Taker(epoch=5, window=2)
    assert taker.missed(overtaken=False).phase is Phase.DAMAGED
    # it also begins again if another broker has sealed its epoch before its round 0
    assert taker.complete().began(created=False) == Taker(epoch=5, window=2)


def test_a_takeover_whose_epoch_is_sealed_or_passed_by_a_later_one_is_gone():
    assert Taker(epoch=5, window=2).looked(begun=4, passed=True, ended={}).phase is Phase.GONE


def test_runs_returns_the_rounds_since_the_checkpoint_as_one_range_per_epoch():
    headers = {
        Place(7, 3): Header(Place(2, 40)),
        Place(7, 0): Header(Place(2, 40), base=5, base_end=2),
        Place(5, 0): Header(Place(2, 40), base=2, base_end=44),
    }
    assert fence.runs(7, 4, headers.__getitem__) == [Run(2, 40, 44), Run(5, 0, 2), Run(7, 0, 4)]
    assert fence.runs(7, 4, lambda place: Header(Place(7, 2))) == [Run(7, 2, 4)]
    assert fence.runs(7, 4, lambda place: Header(Place(7, 4))) == []
    first = {Place(7, 3): Header(), Place(7, 0): Header(base=5, base_end=1), Place(5, 0): Header()}
    assert fence.runs(7, 4, first.__getitem__) == [Run(5, 0, 1), Run(7, 0, 4)]
