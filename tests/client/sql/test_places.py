"""Each record's effect once: the rule of client/sql/places.py in every order of steps, and what each change breaks."""

import pytest
from fencepost.client.sql.places import first_new, is_outside
from inbox_model import Model, Violated, look_at_all


@pytest.mark.slow
@pytest.mark.parametrize(("records", "least"), [(2, 5_000), pytest.param(3, 50_000, marks=pytest.mark.long)])
def test_in_every_order_of_steps_of_two_inbox_members_each_record_has_one_effect(records, least):
    states, steps = look_at_all(Model(records=records))
    print(f"{states} states, {steps} steps")
    assert states > least


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["only_the_place", "takes_no_answer_for_aborted"])
def test_without_claims_or_asking_for_outcomes_an_inbox_still_applies_records_once(variant):
    """A claim only fences a zombie earlier; an outcome is only asked for so that the caller is told what happened."""
    look_at_all(Model(variant))


@pytest.mark.slow
@pytest.mark.parametrize(
    "variant",
    [
        "no_condition",
        "only_the_claim",
        "uses_whole_batches",
        "goes_on_above_the_place",
        "asks_without_the_lock",
        "resets_only_its_position",
    ],
)
def test_the_model_of_an_inbox_detects_each_bug_planted_in_its_rules(variant):
    with pytest.raises(Violated) as found:
        look_at_all(Model(variant))
    print(found.value)


@pytest.mark.parametrize(
    ("place", "first", "end", "found"),
    [(5, 5, 8, 5), (6, 5, 8, 6), (7, 5, 8, 7), (8, 5, 8, None), (9, 5, 8, None), (4, 5, 8, None)],
)
def test_first_new_returns_the_first_offset_of_a_batch_not_below_the_stored_offset(place, first, end, found):
    assert first_new(place, first, end) == found


@pytest.mark.parametrize(("place", "is_it"), [(2, True), (3, False), (9, False), (10, True)])
def test_is_outside_is_true_for_a_stored_offset_below_the_log_start_or_above_its_end(place, is_it):
    assert is_outside(place, 3, 9) is is_it
