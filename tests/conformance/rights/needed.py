"""Which rights an API asks for, as the recorded answers show it.

A right counts if it alone, or beside others that somebody has, changes what is answered, or its want does. Not so one
that only stands for another, as Read does for Describe. What answers say may be done is left aside.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from .grants import NOTHING, SUPER, TOGETHER, Operation, ResourceType, rights, word
from .rows import Row
from .table import Answers

INCLUDE_DESCRIBE = (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER)
STANDS_FOR = {
    **dict.fromkeys(INCLUDE_DESCRIBE, Operation.DESCRIBE),
    Operation.ALTER_CONFIGS: Operation.DESCRIBE_CONFIGS,
}
Right = tuple[ResourceType, Operation]


def needed(rows: Iterable[Row], answers: Answers) -> set[str]:
    """Return the rights that an API asks for, such as `Read on Topic`. rows: the rows of this API."""
    tables = [
        {user: re.sub(r" ?may [\w+]+", "", answer) for user, answer in answers[f"{row.name} v{version}"].items()}
        for row in rows
        for version in row.versions
    ]
    found = {right for right in rights() if right[1] is not Operation.ALL and any(_counts(right, t) for t in tables)}
    return {
        f"{word(operation)} on {word(kind)}" for kind, operation in found if not _only_stands(kind, operation, tables)
    }


def _counts(right: Right, table: dict[str, str]) -> bool:
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


def _only_stands(kind: ResourceType, operation: Operation, tables: list[dict[str, str]]) -> bool:
    if operation not in STANDS_FOR:
        return False
    other = kind, STANDS_FOR[operation]
    pairs = [(_text((kind, operation)), _text(other))]
    for several in TOGETHER:
        if (kind, operation) in several:
            swapped = tuple(other if each == (kind, operation) else each for each in several)
            pairs += [(_joined(several), _joined(swapped))] if swapped in TOGETHER else []
    return (
        any(_counts(other, table) for table in tables)
        and all(table[mine] == table[others] for table in tables for mine, others in pairs)
        and all(table[f"not {_text((kind, operation))}"] == table[SUPER] for table in tables)
    )


def _joined(several: Iterable[Right]) -> str:
    return " + ".join(map(_text, several))


def _text(right: Right) -> str:
    return f"{word(right[0])} {word(right[1])}"
