"""Each record's effect once: the rule of client/sql/places.py in every order of steps, and what each change breaks."""

import pytest
from fencepost.client.sql.places import first_new, is_outside
from inbox_model import Model, Violated, look_at_all


@pytest.mark.slow
@pytest.mark.parametrize(("records", "least"), [(2, 5_000), pytest.param(3, 50_000, marks=pytest.mark.long)])
def test_whatever_two_members_do_each_record_has_one_effect(records, least):
    states, steps = look_at_all(Model(records=records))
    print(f"{states} states, {steps} steps")
    assert states > least


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["only_the_place", "takes_no_answer_for_aborted"])
def test_the_place_alone_makes_it_exactly_once(variant):
    """The claim only ends zombies early, and an outcome is only asked so that the caller is told the truth."""
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
def test_each_change_of_the_rule_is_found_by_the_model(variant):
    with pytest.raises(Violated) as found:
        look_at_all(Model(variant))
    print(found.value)


@pytest.mark.parametrize(
    ("place", "first", "end", "found"),
    [(5, 5, 8, 5), (6, 5, 8, 6), (7, 5, 8, 7), (8, 5, 8, None), (9, 5, 8, None), (4, 5, 8, None)],
)
def test_only_the_records_from_the_place_on_are_new(place, first, end, found):
    assert first_new(place, first, end) == found


@pytest.mark.parametrize(("place", "is_it"), [(2, True), (3, False), (9, False), (10, True)])
def test_a_place_below_the_log_or_above_its_end_is_outside(place, is_it):
    assert is_outside(place, 3, 9) is is_it
