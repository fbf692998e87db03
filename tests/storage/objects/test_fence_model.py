"""The fence in every order of steps; and with each of twelve planted bugs, which the model has to find."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from fence_model import Bounds, Model, Violated, look_at_all
from fencepost.storage.objects import fence
from fencepost.storage.objects.fence import Answer, Owner, Phase, Step, Taker

COMPLETE = {
    "one taker": (Bounds(), 7_895),
    "a retry, and deletes that land late": (Bounds(window=1, top=2, dups=1, late=True), 2_000),
    "listings in two pages": (Bounds(window=1, paged=1), 2_000),
    "two takers": (Bounds(takers=2, top=1), 2_000),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPLETE)
def test_in_every_order_of_steps_of_owners_no_acknowledged_round_is_after_the_seal(name: str):
    """Rounds after the seal of an epoch are ignored by the next owner, so an acknowledged one would be lost."""
    bounds, least = COMPLETE[name]
    states, complete = look_at_all(Model(bounds))
    print(name, states)
    assert complete
    assert states >= least


MAX_STATES = 2_500_000  # of each model; of more states, those with the fewest steps
LONG = {
    "one taker, six rounds": (Bounds(top=5), 216_000),
    "one taker, wide, a retry, late deletes": (Bounds(window=3, top=4, dups=1, late=True), 840_000),
    "two takers, two pages, late deletes": (Bounds(takers=2, top=2, paged=1, late=True), 100_000),
    "two takers, one round at a time, a retry": (Bounds(window=1, takers=2, top=2, dups=1), 516_000),
    "two takers, a retry": (Bounds(takers=2, dups=1), MAX_STATES),
    "two takers, a retry, five rounds": (Bounds(takers=2, top=4, dups=1), MAX_STATES),
    "two takers, two retries": (Bounds(takers=2, dups=2), MAX_STATES),
    "three takers": (Bounds(takers=3, top=1), 773_000),
    "three takers, a retry": (Bounds(takers=3, dups=1), MAX_STATES),
}


@pytest.mark.long
@pytest.mark.parametrize("name", LONG)
def test_in_ten_million_orders_no_acknowledged_journal_round_is_after_the_seal(name: str):
    bounds, least = LONG[name]
    states, complete = look_at_all(Model(bounds), MAX_STATES)
    print(name, states, complete)
    assert states >= least


# ---- bugs ----------------------------------------------------------------------------------------------------

Planting = Callable[[pytest.MonkeyPatch], None]
MUTANTS: dict[str, tuple[Planting, Bounds, str]] = {}


def mutant(bounds: Bounds, letters: str) -> Callable[[Planting], Planting]:
    """Add to MUTANTS the bug that the decorated function plants. letters: the letters, in fence_model.py, of the rules
    that it may violate.
    """

    def added(plant: Planting) -> Planting:
        MUTANTS[plant.__name__] = plant, bounds, letters
        return plant

    return added


@mutant(Bounds(top=4, kept=1), "AB")
def the_owner_deletes_rounds_of_the_newest_window(patch: pytest.MonkeyPatch) -> None:
    """The bug is in the bounds of the model: kept=1 is fewer than the window."""


@mutant(Bounds(), "ABD")
def seals_are_deleted_with_rounds(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fence, "garbage", lambda rounds, below: [number for number in rounds if number < below + 2])


@mutant(Bounds(), "AB")
def a_seal_goes_to_the_first_name_above_the_lowest_round(patch: pytest.MonkeyPatch) -> None:
    def place(rounds: Mapping[int, bool], window: int) -> int:
        first = min((number for number, is_round in rounds.items() if is_round), default=0)
        while first in rounds:
            first += 1
        return first

    patch.setattr(fence, "seal_place", place)


@mutant(Bounds(), "AB")
def a_round_is_released_though_one_before_it_is_missing(patch: pytest.MonkeyPatch) -> None:
    create = Owner.create

    def created(self: Owner, number: int) -> Owner:
        after = create(self, number)
        return after._replace(released=max(after.released, number + 1))

    patch.setattr(Owner, "create", created)


@mutant(Bounds(top=4), "AB")
def the_window_counts_rounds_that_are_on_their_way(patch: pytest.MonkeyPatch) -> None:
    def may_begin(self: Owner) -> bool:
        return self.next_round - self.released - len(self.created) < self.window

    patch.setattr(Owner, "may_begin", property(may_begin))


@mutant(Bounds(top=2, dups=1), "D")
def a_name_that_exists_is_taken_for_a_seal(patch: pytest.MonkeyPatch) -> None:
    _after_exists(patch, Step.FENCED)


@mutant(Bounds(), "A")
def a_name_that_exists_is_taken_for_the_own_round(patch: pytest.MonkeyPatch) -> None:
    _after_exists(patch, Step.CREATED)


def _after_exists(patch: pytest.MonkeyPatch, step: Step) -> None:
    after_create = fence.after_create
    patch.setattr(fence, "after_create", lambda answer: step if answer is Answer.EXISTS else after_create(answer))


@mutant(Bounds(top=4), "AB")
def a_seal_is_valid_as_soon_as_it_is_created(patch: pytest.MonkeyPatch) -> None:
    def sealed(self: Taker) -> Taker:
        return self._replace(ends=(*self.ends, (self.ending, self.place)))._end(self.ending + 1)

    patch.setattr(Taker, "sealed", sealed)


@mutant(Bounds(window=1, paged=2), "AB")
def pages_of_a_listing_may_come_in_no_order(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fence, "is_proof", lambda numbers, page: True)


@mutant(Bounds(takers=2, top=2), "B")
def what_is_missing_is_damage_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Taker, "missed", lambda self, overtaken: self._replace(phase=Phase.DAMAGED))


@mutant(Bounds(takers=2, top=1), "AC")
def the_base_is_judged_before_later_epochs_are_ended(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Taker, "base", property(lambda self: self.ends[0] if self.ends[0][1] else (0, 0)))


@mutant(Bounds(takers=2, top=1), "AC")
def epochs_that_have_not_begun_are_not_ended(patch: pytest.MonkeyPatch) -> None:
    end = Taker._end

    def ends(self: Taker, epoch: int) -> Taker:
        return end(self, self.epoch if self.ends else epoch)

    patch.setattr(Taker, "_end", ends)


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_the_fence_model_finds_each_bug_planted_in_the_fencing_rules(name: str, monkeypatch: Any):
    plant, bounds, letters = MUTANTS[name]
    plant(monkeypatch)
    with pytest.raises(Violated) as violated:
        print(look_at_all(Model(bounds)))
    assert str(violated.value)[0] in letters
