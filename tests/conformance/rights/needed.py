"""Which rights an API needs, found by comparing the recorded answers of users.

A right is needed if a user who has it gets another answer than one who differs only in not having it, or if a user who
is denied it gets another answer than the super user. A right that has an effect only because it includes another one,
as Read includes Describe, is not needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from .grants import NOTHING, SUPER, TOGETHER, Operation, ResourceType, rights, word
from .rows import Row
from .table import Answers

INCLUDE_DESCRIBE = (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER)
INCLUDES = {
    **dict.fromkeys(INCLUDE_DESCRIBE, Operation.DESCRIBE),
    Operation.ALTER_CONFIGS: Operation.DESCRIBE_CONFIGS,
}
Right = tuple[ResourceType, Operation]


def needed(rows: Iterable[Row], answers: Answers) -> set[str]:
    """Return the rights that an API needs, such as `Read on Topic`. rows: the rows of this API."""
    # The operations that an answer says are allowed (`may Read+Write`) depend on rights that other APIs need.
    tables = [
        {user: re.sub(r" ?may [\w+]+", "", answer) for user, answer in answers[f"{row.name} v{version}"].items()}
        for row in rows
        for version in row.versions
    ]
    found = {
        right
        for right in rights()
        if right[1] is not Operation.ALL and any(_changes_answers(right, table) for table in tables)
    }
    return {
        f"{word(operation)} on {word(kind)}"
        for kind, operation in found
        if not _only_includes_another(kind, operation, tables)
    }


def _changes_answers(right: Right, table: dict[str, str]) -> bool:
    return table[f"not {_text(right)}"] != table[SUPER] or any(
        table[with_it] != table[without_it] for with_it, without_it in _pairs(right)
    )


def _pairs(right: Right) -> Iterable[tuple[str, str]]:
    """Yield pairs of users who differ only in this right: the first has it."""
    yield _text(right), NOTHING
    for several in TOGETHER:
        others = [each for each in several if each != right]
        if right in several and (len(others) == 1 or tuple(others) in TOGETHER):
            yield _joined(several), _joined(others)


def _only_includes_another(kind: ResourceType, operation: Operation, tables: list[dict[str, str]]) -> bool:
    if operation not in INCLUDES:
        return False
    other = kind, INCLUDES[operation]
    pairs = [(_text((kind, operation)), _text(other))]
    for several in TOGETHER:
        if (kind, operation) in several:
            swapped = tuple(other if each == (kind, operation) else each for each in several)
            pairs += [(_joined(several), _joined(swapped))] if swapped in TOGETHER else []
    return (
        any(_changes_answers(other, table) for table in tables)
        and all(table[mine] == table[others] for table in tables for mine, others in pairs)
        and all(table[f"not {_text((kind, operation))}"] == table[SUPER] for table in tables)
    )


def _joined(several: Iterable[Right]) -> str:
    return " + ".join(map(_text, several))


def _text(right: Right) -> str:
    return f"{word(right[0])} {word(right[1])}"
