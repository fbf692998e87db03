"""Runs, compared with a dict that has a state for each offset."""

from itertools import pairwise
from unittest import mock

import pytest
from fencepost.broker.share import runs
from fencepost.broker.share.runs import Change, Runs, Standing, is_final
from fencepost.broker.share.values import State
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

FREE, FREE_TWICE = Standing(State.AVAILABLE, 1), Standing(State.AVAILABLE, 2)
LOCKED, OTHERS = Standing(State.ACQUIRED, 1, "a", 10), Standing(State.ACQUIRED, 1, "b", 10)
DONE, GONE = Standing(State.ACKNOWLEDGED, 1), Standing(State.ARCHIVED, 1)
STANDINGS = (FREE, FREE_TWICE, LOCKED, OTHERS, DONE, GONE)
OFFSETS = 24

offsets = st.integers(0, OFFSETS - 1)


class RunsBesideADict(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.runs = Runs()
        self.known: dict[int, Standing] = {}

    @rule(one=offsets, other=offsets, standing=st.sampled_from((None, *STANDINGS)))
    def something_is_known(self, one: int, other: int, standing: Standing | None) -> None:
        first, last = sorted((one, other))
        self.runs.put(first, last, standing)
        for offset in range(first, last + 1):
            self.known.pop(offset, None)
            if standing is not None:
                self.known[offset] = standing

    @rule(
        lengths=st.lists(
            st.tuples(st.integers(0, 3), st.integers(1, 4), st.sampled_from((None, *STANDINGS))), max_size=9
        )
    )
    def much_is_known(self, lengths: list[tuple[int, int, Standing | None]]) -> None:
        pieces, at = [], 0
        for gap, length, standing in lengths:
            pieces.append((at + gap, at + gap + length - 1, standing))
            at += gap + length
        pieces = [piece for piece in pieces if piece[1] < OFFSETS]
        self.runs.overlay(pieces)
        for first, last, standing in pieces:
            for offset in range(first, last + 1):
                self.known.pop(offset, None)
                if standing is not None:
                    self.known[offset] = standing

    @rule(
        first=offsets,
        lengths=st.lists(st.integers(1, 5), min_size=1, max_size=5),
        standings=st.lists(st.sampled_from((None, *STANDINGS)), min_size=5, max_size=5),
        changed=st.lists(offsets, min_size=5, max_size=5),
    )
    def parts_are_replaced(
        self, first: int, lengths: list[int], standings: list[Standing | None], changed: list[int]
    ) -> None:
        """Replace some adjacent parts; in each of them the state of one offset has changed."""
        changes = []
        for length, standing, offset in zip(lengths, standings, changed, strict=False):
            last = min(first + length, OFFSETS) - 1
            if first > last:
                break
            before = Runs.of(self.runs.part(first, last))
            after = before.copy()
            offset = first + offset % (last - first + 1)
            after.put(offset, offset, standing)
            changes.append(Change(first, last, before, after))
            self.known.pop(offset, None)
            if standing is not None:
                self.known[offset] = standing
            first = last + 1
        self.runs.replace(changes)

    @rule(offset=offsets)
    def ask_what_is_final(self, offset: int) -> None:
        expected = next(each for each in range(offset, OFFSETS + 1) if not is_final(self.known.get(each)))
        assert self.runs.final_until(offset) == expected

    @rule(offset=offsets)
    def cut(self, offset: int) -> None:
        self.runs.cut(offset)
        self.known = {each: standing for each, standing in self.known.items() if each >= offset}

    @rule()
    def make_again(self) -> None:
        self.runs = Runs(list(self.runs))

    @rule(one=offsets, other=offsets)
    def ask_for_pieces(self, one: int, other: int) -> None:
        pieces = list(self.runs.pieces(one, other))
        asked = [(offset, standing) for first, last, standing in pieces for offset in range(first, last + 1)]
        assert asked == [(offset, self.known.get(offset)) for offset in range(one, other + 1)]

    @rule(offset=offsets)
    def ask_for_one(self, offset: int) -> None:
        run = self.runs.at(offset)
        assert (run and run[2]) == self.known.get(offset)
        assert run is None or run[0] <= offset <= run[1]
        open_ones = (None, FREE, FREE_TWICE)
        expected = next(each for each in range(offset, OFFSETS + 1) if self.known.get(each) in open_ones)
        assert self.runs.first_open(offset) == expected

    @rule(first=offsets, last=offsets, count=st.integers(1, 5))
    def something_is_looked_up(self, first: int, last: int, count: int) -> None:
        at = first
        while is_final(self.known.get(at)):
            at += 1
        with mock.patch.object(runs, "BLOCK", 3):
            assert self.runs.final_until(first) == at
        behind = [run[1] for run in self.runs if run[1] >= first]
        assert self.runs.count(first, last) == sum(run[0] <= last and run[1] >= first for run in self.runs)
        assert self.runs.last_of(first, count) == (behind[count - 1] if len(behind) >= count else None)

    @invariant()
    def they_know_the_same(self) -> None:
        runs = list(self.runs)
        assert {offset: run[2] for run in runs for offset in range(run[0], run[1] + 1)} == self.known
        for before, after in pairwise(runs):
            assert before[1] < after[0], "they overlap or are out of order"
            assert before[1] + 1 < after[0] or before[2] != after[2], "neighbours that are alike are one"
        assert self.runs.complete == sum(map(is_final, self.known.values()))
        assert self.runs.last == max(self.known, default=None)
        assert len(self.runs) == len(runs)


TestRuns = pytest.mark.slow(RunsBesideADict.TestCase)
TestRuns.settings = settings(max_examples=25, stateful_step_count=30)


@pytest.mark.long
def test_runs_give_each_offset_the_state_that_a_dict_by_offset_has() -> None:
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(RunsBesideADict, settings=settings(max_examples=2_000, stateful_step_count=50))


@given(st.lists(st.booleans(), max_size=30))
def test_neighbouring_records_of_equal_state_are_one_run_in_any_order_of_changes(flags: list[bool]) -> None:
    forth, back = Runs(), Runs()
    for offset, done in enumerate(flags):
        forth.put(offset, offset, DONE if done else FREE)
    for offset, done in reversed(list(enumerate(flags))):
        back.put(offset, offset, DONE if done else FREE)
    assert list(forth) == list(back)
    assert len(forth) == sum(1 for before, after in pairwise([None, *flags]) if before != after)


@pytest.mark.slow
def test_kafka_20691_putting_100_000_records_one_by_one_merges_them_into_one_run() -> None:
    runs = Runs()
    for offset in range(100_000):
        runs.put(offset, offset, DONE)
    assert list(runs) == [(0, 99_999, DONE)]
