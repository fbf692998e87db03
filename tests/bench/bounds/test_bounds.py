"""The bounds, each with a thousandth of the work of a full run: each figure that an aim judges is measured."""

import pytest
from fencepost.bench.bounds import bounds, following, idle, sizes
from fencepost.bench.bounds.bounds import BOUNDS, Bound
from fencepost.bench.bounds.sizes import Size, by_figure, in_turns
from fencepost.bench.contest.aims import AIMS
from fencepost.bench.measured import FIGURES, Measured
from fencepost.bench.peers.names import FLOOR, FSYNC, NAMES, OS
from this_machine import has_compiler

TINY = Size(rounds=2, seconds=0.1, share=0.001)
PLAIN = [name for name in BOUNDS if name != "bound Spark"]  # "bound Spark" is tested in tests/spark
QUICK = ("bound aborted",)
ONE_BY_ONE = [pytest.param(name, marks=[] if name in QUICK else pytest.mark.long) for name in PLAIN]


def ignore(line: str) -> None:
    pass


def test_the_measured_bounds_are_exactly_those_that_the_aims_name() -> None:
    """A bound is a ratio to a peer of the same run, or a limit for one figure; an aim says which value it must have."""
    judged = {aim.scenario for aim in AIMS if aim.scenario.startswith("bound ")}
    spark = {f"bound Spark {what}" for what in ("read", "write", "copy", "guarantees")}
    assert judged == set(PLAIN) | spark


@pytest.mark.parametrize("name", ONE_BY_ONE)
def test_each_bound_measures_all_figures_its_aims_need_in_every_round(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle, "REST_S", 0.0)
    monkeypatch.setattr(bounds, "SHORTEST_S", 0.1)
    monkeypatch.setattr(following, "SHORTEST_S", 0.1)
    found = {(each.scenario, each.peer): each for each in BOUNDS[name].measure(name, TINY, ignore)}
    for aim in AIMS:
        if aim.scenario == name and (aim.theirs != FLOOR or has_compiler()):
            for peer in (aim.ours, aim.theirs):
                assert peer is None or len(found[name, peer].figures[aim.figure]) == TINY.rounds
    assert {figure for each in found.values() for figure in each.figures} <= set(FIGURES)


def test_each_bound_of_a_quick_run_is_in_the_table_of_bounds() -> None:
    assert set(QUICK) < set(PLAIN)


def test_in_turns_makes_measurements_in_reversed_order_in_every_other_round() -> None:
    order: list[str] = []

    def measure(name: str) -> int:
        order.append(name)
        return len(order)

    assert in_turns(3, lambda: measure("a"), lambda: measure("b")) == [[1, 4, 5], [2, 3, 6]]
    assert "".join(order) == "abbaab"


def test_by_figure_turns_a_dict_of_figures_per_round_into_a_tuple_per_figure() -> None:
    assert by_figure([{"a": 1.0, "b": 2.0}, {"a": 3.0, "b": 4.0}]) == {"a": (1.0, 3.0), "b": (2.0, 4.0)}
    assert by_figure([]) == {}


def test_quick_count_is_a_hundredth_and_at_least_one() -> None:
    assert [sizes.QUICK.count(whole) for whole in (1_000, 10)] == [10, 1]
    assert sizes.FULL.count(1_000) == 1_000


def test_a_failing_bound_is_reported_in_a_line_and_the_others_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(name: str, size: Size, say: sizes.Say) -> list[Measured]:
        raise RuntimeError("no disk")

    def gives(name: str, size: Size, say: sizes.Say) -> list[Measured]:
        return [Measured(name, "start", OS, {})]

    made = {"bound a": Bound(FSYNC, fails), "bound b": Bound(OS, gives), "bound c": Bound(OS, gives)}
    monkeypatch.setattr(bounds, "BOUNDS", made)
    steps: list[str] = []
    failures: list[str] = []
    found = bounds.outside(["bound a", "bound b"], NAMES, TINY, steps.append, failures.append)
    assert [each.scenario for each in found] == ["bound b"]
    assert steps == ["bound a", "bound b"]
    assert failures == ["bound a: RuntimeError: no disk"]
    assert [each.scenario for each in bounds.outside(list(made), [OS], TINY, ignore, failures.append)] == [
        "bound b",
        "bound c",
    ]
    assert len(failures) == 1
