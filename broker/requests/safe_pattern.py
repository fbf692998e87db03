"""Matches regular expressions from clients in time that grows only linearly with the text, whatever the pattern. Pure.

The rule is that of RE2, which Kafka uses for them: no back references and no lookaround, so a pattern is an automaton.
All its states are followed at once, and sets of states that were reached are remembered. A pattern that needs more than
that is refused, and so is one that would be too large. Python's own parser parses the pattern; its matcher, which may
take for ever, is not used. Source: R. Cox, Regular Expression Matching Can Be Simple And Fast; KIP-1152. Decision 18
says why it is not RE2 itself.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any

LONGEST = 1_000  # characters of a pattern
MAX_STATES = 5_000
MAX_SETS = 2_000  # remembered; then the cache is emptied
MAX_WORK = 500_000  # states followed to sets that were not remembered: a fifth of a second, and some tens of megabytes
MAX_WORK_AT_ONCE = 150_000  # of these for one text, which is one step: everybody else waits for it

_parser: Any = re._parser  # type: ignore[attr-defined]
_constants: Any = re._constants  # type: ignore[attr-defined]

Test = Callable[[str], bool]
_MATCH, _BEGIN, _END = "match", "begin", "end"

_CATEGORIES: dict[Any, Test] = {
    _constants.CATEGORY_DIGIT: lambda c: "0" <= c <= "9",
    _constants.CATEGORY_NOT_DIGIT: lambda c: not "0" <= c <= "9",
    _constants.CATEGORY_SPACE: lambda c: c in " \t\n\r\f",
    _constants.CATEGORY_NOT_SPACE: lambda c: c not in " \t\n\r\f",
    _constants.CATEGORY_WORD: lambda c: c.isascii() and (c.isalnum() or c == "_"),
    _constants.CATEGORY_NOT_WORD: lambda c: not (c.isascii() and (c.isalnum() or c == "_")),
}


class InvalidPattern(ValueError):
    """Raised for text that is not a regular expression, or uses features that are not supported here."""


class SafePattern:
    """A regular expression that a whole text must match."""

    def __init__(self, pattern: str) -> None:
        """Compile the pattern. Raises InvalidPattern."""
        if len(pattern) > LONGEST:
            raise InvalidPattern(f"the pattern has {len(pattern)} characters, {LONGEST} are allowed")
        try:
            tree = _parser.parse(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            raise InvalidPattern(str(error)) from None
        self._flags = int(tree.state.flags)
        self._work_left = MAX_WORK
        self._work_left_of_text = MAX_WORK_AT_ONCE
        self._made_tests: dict[tuple[Any, int, int], Test] = {}  # by their item, which has several states if repeated
        self._tests: list[Test | str | None] = []  # of each state: for a character; or _BEGIN, _END, _MATCH; or None
        self._next: list[list[int]] = []
        accept = self._state(_MATCH)
        try:
            start = self._sequence(tree, accept, self._flags)
        except RecursionError:
            raise InvalidPattern("the pattern is nested too deeply") from None
        self._accept = accept
        self._begin = self._closure([start], begins=True)
        self._empty_matches = accept in self._closure([start], begins=True, ends=True)
        self._sets: dict[frozenset[int], dict[str, frozenset[int]]] = {}
        self._accepts: dict[frozenset[int], bool] = {}
        self._made_tests.clear()

    def matches(self, text: str) -> bool:
        """Return whether the pattern matches all of the text. Raises InvalidPattern if that takes too long.

        The sets of states that were reached are remembered. If there are too many of them, they are computed again for
        each character.
        """
        if not text:
            return self._empty_matches
        self._work_left_of_text = MAX_WORK_AT_ONCE
        current = self._begin
        for character in text:
            known = self._sets.get(current)
            if known is None:
                if len(self._sets) >= MAX_SETS:
                    self._sets.clear()
                known = self._sets[current] = {}
            after = known.get(character)
            if after is None:
                after = known[character] = self._after(current, character)
            if not after:
                return False
            current = after
        accepts = self._accepts.get(current)
        if accepts is None:
            if len(self._accepts) >= MAX_SETS:
                self._accepts.clear()
            accepts = self._accepts[current] = self._accept in self._closure(current, ends=True)
        return accepts

    def _after(self, states: frozenset[int], character: str) -> frozenset[int]:
        """Return the set of states that is reached from these by reading this character. Raises InvalidPattern after
        too much work.
        """
        self._work_left -= len(states)
        self._work_left_of_text -= len(states)
        if min(self._work_left, self._work_left_of_text) < 0:
            raise InvalidPattern("the pattern takes too long to match")
        reached = []
        passed: dict[Test, bool] = {}  # states of a repeated part have the same test
        for state in states:
            test = self._tests[state]
            if callable(test):
                passes = passed.get(test)
                if passes is None:
                    passes = passed[test] = test(character)
                if passes:
                    reached += self._next[state]
        return self._closure(reached)

    def _closure(self, states: Iterable[int], *, begins: bool = False, ends: bool = False) -> frozenset[int]:
        """Return these states, and all that are reached from them without reading a character. begins, ends: whether
        `^` and `$` match here.
        """
        found: set[int] = set()
        waiting = list(states)
        while waiting:
            state = waiting.pop()
            if state in found:
                continue
            found.add(state)
            test = self._tests[state]
            if test is None or (test == _BEGIN and begins) or (test == _END and ends):
                waiting += self._next[state]
        return frozenset(found)

    # ---- from the tree to states: each part is built before the state that follows it ------------------------------

    def _state(self, test: Test | str | None, *following: int) -> int:
        """Add a state with its test and the states after it. Returns its number. Raises InvalidPattern if there are
        too many.
        """
        if len(self._tests) >= MAX_STATES:
            raise InvalidPattern("the pattern is too large")
        self._tests.append(test)
        self._next.append(list(following))
        return len(self._tests) - 1

    def _test(self, op: Any, value: Any, flags: int) -> Test:
        """Return the test of one character for this item of the pattern. The copies of an item in a repeated part share
        one test.
        """
        key = op, id(value), flags
        if key not in self._made_tests:
            self._made_tests[key] = _test(op, value, flags)
        return self._made_tests[key]

    def _sequence(self, items: Any, following: int, flags: int) -> int:
        """Add the states of consecutive items, before the state `following`. Returns the first of them."""
        for op, value in reversed(list(items)):
            following = self._part(op, value, following, flags)
        return following

    def _part(self, op: Any, value: Any, following: int, flags: int) -> int:
        """Add the states of one item of the parsed pattern, before the state `following`. Returns the first of them.
        Raises InvalidPattern if the item is not supported.
        """
        if op in (_constants.LITERAL, _constants.NOT_LITERAL, _constants.ANY, _constants.IN):
            return self._state(self._test(op, value, flags), following)
        if op is _constants.BRANCH:
            return self._state(None, *[self._sequence(branch, following, flags) for branch in value[1]])
        if op is _constants.SUBPATTERN:
            _, added, removed, items = value
            return self._sequence(items, following, (flags | added) & ~removed)
        if op in (_constants.MAX_REPEAT, _constants.MIN_REPEAT):
            return self._repeat(value, following, flags)
        if op is _constants.AT and value in (_constants.AT_BEGINNING, _constants.AT_BEGINNING_STRING):
            return self._state(_BEGIN, following)
        if op is _constants.AT and value in (_constants.AT_END, _constants.AT_END_STRING):
            return self._state(_END, following)
        raise InvalidPattern(f"{str(op).lower()} is not supported")

    def _repeat(self, value: Any, following: int, flags: int) -> int:
        """Add the states of a repetition such as `a{2,5}`, before the state `following`. Returns the first of them.
        Raises InvalidPattern if they are too many.
        """
        least, most, items = value
        if most is _constants.MAXREPEAT:
            loop = self._state(None, following)
            self._next[loop].append(self._sequence(items, loop, flags))
            following = loop
        else:
            if most > MAX_STATES:
                raise InvalidPattern("the pattern is too large")
            end = following
            for _ in range(most - least):
                following = self._state(None, end, self._sequence(items, following, flags))
        if least > MAX_STATES:
            raise InvalidPattern("the pattern is too large")
        for _ in range(least):
            following = self._sequence(items, following, flags)
        return following


def _test(op: Any, value: Any, flags: int) -> Test:
    """Return a function that tells if a character matches this item, with its case flag."""
    plain = _plain_test(op, value, flags)
    if flags & re.IGNORECASE and op is not _constants.ANY:
        return lambda c: plain(c) or plain(c.lower()) or plain(c.upper())
    return plain


def _plain_test(op: Any, value: Any, flags: int) -> Test:
    """Return a function that tells if a character matches this item, case-sensitively."""
    if op is _constants.ANY:
        return (lambda c: True) if flags & re.DOTALL else (lambda c: c != "\n")
    if op is _constants.LITERAL:
        return chr(value).__eq__
    if op is _constants.NOT_LITERAL:
        return chr(value).__ne__
    negated = bool(value) and value[0][0] is _constants.NEGATE
    items = value[1:] if negated else value
    letters = {chr(item[1]) for item in items if item[0] is _constants.LITERAL}
    tests = [_item_test(item) for item in items if item[0] is not _constants.LITERAL]
    return lambda c: (c in letters or any(test(c) for test in tests)) is not negated


def _item_test(item: Any) -> Test:
    """Return the test of one character for a range or class inside `[...]`. Raises InvalidPattern for anything else."""
    op, value = item
    if op is _constants.RANGE:
        low, high = chr(value[0]), chr(value[1])
        return lambda c: low <= c <= high
    if op is _constants.CATEGORY and value in _CATEGORIES:
        return _CATEGORIES[value]
    raise InvalidPattern(f"{str(op).lower()} is not supported in a set")
