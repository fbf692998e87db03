"""Patterns of clients: what Python's own matcher says, in time that nothing can blow up."""

import random
import re

import pytest
from fencepost.broker.requests import safe_pattern
from fencepost.broker.requests.safe_pattern import InvalidPattern, SafePattern
from hypothesis import given
from hypothesis import strategies as st
from lines_run import lines_run

TEXTS = ["", "a", "b", "ab", "aab", "abc", "abab", "payments-1", "payments-22", "Payments-1", "x\ny", "é", "a.b", "_1"]
PATTERNS = [
    "",
    "a",
    "a|b",
    "(ab)+",
    "a*b?c{0,2}",
    "payments-.*",
    "payments-[0-9]+",
    r"payments-\d{2}",
    "(?i)payments-1",
    "[^a]+",
    r"\w+",
    r"\W|\s|.",
    "^a.*$",
    "(?:a|b){2,3}",
    "(?s).*",
    ".*",
    r"a\.b",
    "(a?){5}b",
    "(|a)+b",
    "[a-c_]*[0-9]",
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_matches_the_same_texts_as_python(pattern):
    found = SafePattern(pattern)
    assert [text for text in TEXTS if found.matches(text)] == [
        text for text in TEXTS if re.fullmatch(pattern, text, re.ASCII)
    ]


@given(st.text("ab", max_size=12), st.text("ab()|*+?", max_size=9))
def test_any_small_pattern_agrees_with_pythons_matcher(text, pattern):
    try:
        expected = re.fullmatch(pattern, text) is not None
        found = SafePattern(pattern)
    except (re.error, InvalidPattern):
        return
    assert found.matches(text) == expected


REFUSED = ["(", "[", "*", r"(a)\1", "(?=a)", "(?<!a)b", r"\b", "a" * 1001, "(a{500}){500}"]


@pytest.mark.slow
@pytest.mark.parametrize("pattern", REFUSED)
def test_an_unsafe_or_invalid_pattern_is_refused(pattern):
    with pytest.raises(InvalidPattern):
        SafePattern(pattern)


@pytest.mark.slow
@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", "(.*)*(.*)*(.*)*x", "(a?){100}a{100}b", "((a*)*)*c"])
def test_matching_a_pattern_takes_time_linear_in_the_text(pattern):
    found = SafePattern(pattern)

    def steps(length):
        return lines_run(lambda: not found.matches("a" * length) or pytest.fail("it matches"))

    steps(200)  # fills the cache of the pattern, which makes later texts cheaper
    assert steps(4_000) - steps(2_000) <= 10 * 2_000


@pytest.mark.slow
def test_a_pattern_that_needs_too_many_states_is_refused_as_taking_too_long():
    """Matching the longest text would take a minute, in one piece."""
    pattern = SafePattern("(?s).*a.{900}b.{900}c.{900}")
    chance = random.Random(1)
    text = "".join(chance.choice("abc") for _ in range(32_767))
    with pytest.raises(InvalidPattern, match="takes too long"):
        pattern.matches(text)


def test_a_pattern_can_match_20000_texts_within_its_limit_of_states():
    pattern = SafePattern("payments-[0-9]{1,9}-(eu|us)")
    assert all(pattern.matches(f"payments-{number}-eu") for number in range(20_000))


def test_a_repeated_character_set_is_built_and_evaluated_once():
    letters = "".join(chr(0x4E00 + number) for number in range(900))
    found = []
    assert lines_run(lambda: found.append(SafePattern(f"[{letters}]{{0,2000}}"))) < 200_000
    assert lines_run(lambda: found[0].matches("\u4e00" * 3 + "!")) < 200_000


@pytest.mark.slow
def test_a_pattern_is_refused_when_one_text_takes_more_work_than_one_text_may():
    pattern = SafePattern("(.?.?){1200}")
    with pytest.raises(InvalidPattern, match="too long"):
        pattern.matches("abcdefgh" * 30)
    assert pattern._work_left > safe_pattern.MAX_WORK / 2, "the limit for all texts together is not reached"
