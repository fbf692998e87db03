"""Every scenario: fencepost answers as Apache Kafka did, or as the scenario says that it does instead."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from oracle.commands import perform  # noqa: E402
from oracle.notation import Scenario, read  # noqa: E402
from oracle.runner import run  # noqa: E402

SCENARIOS = [scenario for path in sorted((HERE / "scenarios").rglob("*.txt")) for scenario in read(path)]


LAST_EPOCHS = (
    "the last epoch is followed by a new producer id",
    "an init while a transaction at the last epoch is open",
)


def as_parameter(scenario: Scenario) -> object:
    shown = [identifier for identifier in scenario.shows if identifier.startswith("S-")]  # C-n correct them
    marks = [pytest.mark.requirement(*shown)] if shown else []
    if scenario.path.stem == "exhaustion" and scenario.name not in LAST_EPOCHS:  # each uses up 32,767 epochs
        marks.append(pytest.mark.long)
    return pytest.param(scenario, id=f"{scenario.path.parent.name}: {scenario.name}", marks=marks)


@pytest.mark.parametrize("scenario", [as_parameter(scenario) for scenario in SCENARIOS])
def test_each_scenario_gets_kafkas_recorded_answer_or_the_stated_difference(
    scenario: Scenario, broker_for: Callable[[str], tuple[str, int]]
) -> None:
    expected: list[str] = []
    actual: list[str] = []
    for step, answer in run(scenario, *broker_for(scenario.broker), perform):
        expected += [step.text, *("  " + line for line in (step.ours if step.reason is not None else step.answer))]
        actual += [step.text, *("  " + line for line in answer or [])]
    if expected != actual:
        where = f"{scenario.path.relative_to(HERE)}:{scenario.line + 1}"
        difference = difflib.unified_diff(expected, actual, "Kafka (or as stated)", "fencepost", lineterm="", n=1)
        pytest.fail(f"{where}: {scenario.name}\n" + "\n".join(difference), pytrace=False)


def test_no_two_conformance_scenarios_of_a_folder_have_the_same_name() -> None:
    names = [(scenario.path.parent.name, scenario.name) for scenario in SCENARIOS]
    assert len(names) == len(set(names))


def test_each_step_where_fencepost_differs_states_a_reason_and_its_own_answer() -> None:
    for scenario in SCENARIOS:
        for step in scenario.steps:
            where = f"{scenario.path.name}:{step.line + 1}"
            assert step.reason != "", where
            assert step.reason is None or (step.ours and step.ours != step.answer), where
