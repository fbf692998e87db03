"""The notation of scenarios: files of commands with, indented below each, the answer that Apache Kafka gave.

    scenario: a gap in sequences is refused
    shows: S-20

    topic $t
    producer $p
    produce $t-0 pid=$p epoch=0 seq=1 records=1
      $t-0 NONE base_offset=0

Rule kept here: reading a file and writing it back changes nothing but answers. README.md explains the commands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

Value = str | None | list["Value"] | dict[str, "Value"]

HEADER = re.compile(r"(scenario|shows|broker|needs): *(.*)")
DIFFERS = "differs:"
COMMAND = re.compile(
    r"(?:(?P<label>[a-z][a-z0-9]*): +)?(?:(?P<how>eventually|await) /(?P<until>(?:[^/\\]|\\.)*)/ +)?"
    r"(?P<verb>[A-Za-z-]+)(?P<rest>.*)",
    re.S,
)


class BadNotation(Exception):
    """Raised for a scenario file that cannot be read. The message names file and line."""


@dataclass(frozen=True)
class Pair:
    """A `name=value` of a command line."""

    name: str
    value: Value


Token = str | Pair


@dataclass
class Command:
    """One line of a scenario: a request, or a step of the runner itself."""

    verb: str
    tokens: list[Token]
    connection: str = "main"
    until: str | None = None  # ask again until the answer matches this
    is_quiet: bool = False  # `await`: how the answer looked does not matter
    only_sent: bool = False  # `&`: the answer is read by a later `answer`
    with_next: bool = False  # `&&`: so too, and it arrives in one piece with the next request of the connection


@dataclass
class Step:
    """A command with Kafka's answer, and with ours where that differs on purpose."""

    command: Command
    text: str
    line: int
    answer: list[str] = field(default_factory=list)
    reason: str | None = None  # why ours differs
    ours: list[str] = field(default_factory=list)


@dataclass
class Scenario:
    """Steps that begin with their own topics and connections, so that no other scenario affects them."""

    name: str
    path: Path
    line: int
    shows: list[str] = field(default_factory=list)
    broker: str = "plain"
    steps: list[Step] = field(default_factory=list)


# ------------------------------------------------------------------ files


def read(path: Path) -> list[Scenario]:
    """Return all scenarios of one file, in order. Raises BadNotation."""
    scenarios: list[Scenario] = []
    lines = path.read_text().splitlines()
    position = 0
    while position < len(lines):
        first, text = position, lines[position]
        position += 1
        while text.endswith("\\"):
            text = text[:-1].rstrip() + " " + lines[position].strip()
            position += 1
        if not text.strip() or text.startswith("#"):
            continue
        try:
            _read_line(scenarios, path, first, text)
        except BadNotation as bad:
            raise BadNotation(f"{path}:{first + 1}: {bad}") from None
    return scenarios


def _read_line(scenarios: list[Scenario], path: Path, number: int, text: str) -> None:
    header = HEADER.fullmatch(text)
    if header and header[1] == "scenario":
        scenarios.append(Scenario(header[2], path, number))
        return
    if not scenarios:
        raise BadNotation("the file must begin with 'scenario: …'")
    scenario = scenarios[-1]
    if header and not scenario.steps:
        if header[1] == "shows":
            scenario.shows = header[2].replace(",", " ").split()
        elif header[1] == "broker":
            scenario.broker = header[2]
        else:
            raise BadNotation(f"unknown header {header[1]}")
    elif text.startswith(" "):
        step = scenario.steps[-1]
        (step.answer if step.reason is None else step.ours).append(text.removeprefix("  "))
    elif text.startswith(DIFFERS):
        scenario.steps[-1].reason = text.removeprefix(DIFFERS).strip()
    else:
        scenario.steps.append(Step(command(text), text, number))


def with_answers(path: Path, answers: dict[int, list[str]]) -> str:
    """Return the file's text with other answers below these command lines (by number, from 0)."""
    out: list[str] = []
    lines = path.read_text().splitlines()
    position = 0
    while position < len(lines):
        number, line = position, lines[position]
        out.append(line)
        position += 1
        if number not in answers:
            continue
        while out[-1].endswith("\\"):
            out.append(lines[position])
            position += 1
        while position < len(lines) and lines[position].startswith(" "):
            position += 1
        out.extend("  " + answer for answer in answers[number])
    return "\n".join(out) + "\n"


# ------------------------------------------------------------------ one command


def command(text: str) -> Command:
    """Read a command line."""
    found = COMMAND.fullmatch(text)
    if not found:
        raise BadNotation(f"no command in {text!r}")
    tokens = list(_tokens(found["rest"]))
    ends_with = tokens.pop() if tokens and tokens[-1] in ("&", "&&") else ""
    label = found["label"] or "main"
    quiet = found["how"] == "await"
    return Command(found["verb"], tokens, label, found["until"], quiet, bool(ends_with), ends_with == "&&")


def _tokens(text: str) -> Iterator[Token]:
    position = _skip_blanks(text, 0)
    while position < len(text):
        token, position = _token(text, position)
        yield token
        position = _skip_blanks(text, position)


def _token(text: str, position: int) -> tuple[Token, int]:
    named = re.compile(r"([A-Za-z_][\w.-]*)=").match(text, position)
    if not named:
        word, position = _word(text, position)
        return word, position
    value, position = _value(text, named.end())
    return Pair(named[1], value), position


def _value(text: str, position: int) -> tuple[Value, int]:
    if text.startswith("[", position):
        return _items(text, position + 1)
    if text.startswith("{", position):
        return _fields(text, position + 1)
    if text.startswith('"', position):
        quoted = re.compile(r'"((?:[^"\\]|\\.)*)"').match(text, position)
        if not quoted:
            raise BadNotation(f"no end of quotes in {text!r}")
        return quoted[1].encode().decode("unicode_escape"), quoted.end()
    if text.startswith("/", position):
        pattern = re.compile(r"/((?:[^/\\]|\\.)*)/").match(text, position)
        if not pattern:
            raise BadNotation(f"no end of /…/ in {text!r}")
        return pattern[1], pattern.end()
    word, position = _word(text, position)
    return (None if word == "null" else word), position


def _items(text: str, position: int) -> tuple[Value, int]:
    items: list[Value] = []
    while not text.startswith("]", position := _skip_blanks(text, position)):
        item, position = _value(text, position)
        items.append(item)
    return items, position + 1


def _fields(text: str, position: int) -> tuple[Value, int]:
    fields: dict[str, Value] = {}
    while not text.startswith("}", position := _skip_blanks(text, position)):
        token, position = _token(text, position)
        if not isinstance(token, Pair):
            raise BadNotation(f"{{…}} holds name=value, not {token!r}")
        fields[token.name] = token.value
    return fields, position + 1


def _word(text: str, position: int) -> tuple[str, int]:
    found = re.compile(r"[^\s\[\]{}]*").match(text, position)
    assert found is not None
    if found.end() == position:
        raise BadNotation(f"unexpected {text[position:]!r}")
    return found[0], found.end()


def _skip_blanks(text: str, position: int) -> int:
    while position < len(text) and text[position] in " \n":
        position += 1
    return position
