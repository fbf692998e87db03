"""A model of acknowledgements inside a transaction, explored in every order of events: each planted flaw is found."""

import pytest
from share_worlds import FLAWED_SCENES, SCENES, SMALL_SCENES, Broken, Flaw, Scenario, explore


@pytest.mark.slow
@pytest.mark.parametrize("scene", SMALL_SCENES)
def test_in_the_share_model_a_record_is_acknowledged_iff_one_output_is_committed(scene: str) -> None:
    scenario = Scenario(SMALL_SCENES[scene])
    assert explore(scenario.first, scenario.after) > 100  # states; explore() checks each of them


@pytest.mark.slow
@pytest.mark.parametrize("flaw", [flaw for flaw in Flaw if flaw is not Flaw.NONE])
def test_the_share_transaction_model_detects_each_planted_flaw(flaw: Flaw) -> None:
    scenario = Scenario(FLAWED_SCENES[flaw], flaw)
    with pytest.raises(Broken):
        explore(scenario.first, scenario.after)


@pytest.mark.long
@pytest.mark.parametrize("scene", SCENES)
def test_the_share_transaction_model_keeps_its_invariants_with_many_faults(scene: str) -> None:
    scenario = Scenario(SCENES[scene])
    assert explore(scenario.first, scenario.after) > 100_000
