"""Reading the words of a command: options, and targets such as `$t/0` with what stands behind each."""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Any

from .notation import BadNotation, Token, Value
from .runner import Run


def options(
    tokens: list[Token],
    known: Set[str],
    *,
    flags: Set[str] = frozenset(),
    strict: bool = False,
) -> tuple[dict[str, Value], dict[str, Value]]:
    """Return the pairs with a known name (and the flags that are set), and all other pairs. strict: there may be no
    other pairs. Raises BadNotation, also for a bare word that is no flag.
    """
    options: dict[str, Value] = {}
    rest: dict[str, Value] = {}
    for token in tokens:
        if isinstance(token, str):
            if token not in flags:
                raise BadNotation(f"unexpected {token!r}")
            options[token] = token
        elif token.name in known:
            options[token.name] = token.value
        elif strict:
            raise BadNotation(f"unknown {token.name}=; known: {', '.join(sorted(known))}")
        else:
            rest[token.name] = token.value
    return options, rest


def targets(tokens: list[Token]) -> tuple[list[Token], list[tuple[str, int, list[Token]]]]:
    """Return the words before the first `topic/partition`, and (topic, partition, the words behind it) for each of
    those.
    """
    head: list[Token] = []
    targets: list[tuple[str, int, list[Token]]] = []
    for token in tokens:
        if isinstance(token, str) and "/" in token:
            targets.append((*target(token), []))
        elif token == ";":
            continue
        elif targets:
            targets[-1][2].append(token)
        else:
            head.append(token)
    return head, targets


def target(word: Any) -> tuple[str, int]:
    topic, _, partition = str(word).rpartition("/")
    return topic, int(partition)


def by_topic(targets: list[tuple[str, int, list[Token]]]) -> Iterator[tuple[str, list[tuple[int, list[Token]]]]]:
    """Group neighbouring targets of the same topic, in the order written."""
    groups: list[tuple[str, list[tuple[int, list[Token]]]]] = []
    for topic, index, words in targets:
        if not groups or groups[-1][0] != topic:
            groups.append((topic, []))
        groups[-1][1].append((index, words))
    return iter(groups)


def topic(run: Run, field: str, word: str, by_id: bool) -> dict[str, Any]:
    """Return the field that names a topic: by name, or by the id that it has now. `$t.id` and an id as text are used
    unchanged.
    """
    if not by_id:
        return {field: run.names.text(word)}
    newest = run.names.newest_topic_id(run.names.text(word)) if "." not in word and word.startswith("$") else None
    return {"topic_id": newest or run.names.uuid(word)}


def text(run: Run, value: Value) -> str | None:
    return None if value is None else run.names.text(str(value))
