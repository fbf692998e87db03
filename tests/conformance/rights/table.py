"""Answers on disk: of each row and version, which users got which.

    Produce v3
      [t NONE]
        super user, Topic Write, …
      [t TOPIC_AUTHORIZATION_FAILED]
        everybody else

Everybody else is who is not named; the answer of most users is written last, for them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

ELSE = "everybody else"
Answers = dict[str, dict[str, str]]
"""By row and version, as `Produce v3`; then by user."""


def text_of(answers: Answers) -> str:
    """Return the text of all answers, as read() reads it."""
    return "\n\n".join(_section(name, by_user) for name, by_user in answers.items()) + "\n"


def _section(name: str, by_user: dict[str, str]) -> str:
    by_answer: dict[str, list[str]] = {}
    for user, answer in by_user.items():
        by_answer.setdefault(answer, []).append(user)
    lines = [name]
    ordered = sorted(by_answer.items(), key=lambda item: len(item[1]))
    for answer, users in ordered:
        who = ELSE if users is ordered[-1][1] else ", ".join(users)
        lines += [f"  {answer}", f"    {who}"]
    return "\n".join(lines)


def read(path: Path, users: Iterable[str]) -> Answers:
    """Read the answers from a file that text_of() has made."""
    everybody = list(users)
    found: Answers = {}
    for section in path.read_text().split("\n\n"):
        name, *lines = section.strip("\n").split("\n")
        by_user: dict[str, str] = {}
        for answer, who in zip(lines[::2], lines[1::2], strict=True):
            named = (
                [user for user in everybody if user not in by_user] if who.strip() == ELSE else who.strip().split(", ")
            )
            assert set(named) <= set(everybody), (name, set(named) - set(everybody))
            by_user |= dict.fromkeys(named, answer.strip())
        found[name] = {user: by_user[user] for user in everybody}
    return found
