"""What differs from run to run has a name: topics, ids, the broker's address, times.

The rule: equal values have equal names and different values different ones, wherever they appear in a scenario, so
that the text of an answer is the same on every run and on every broker that behaves alike.
"""

from __future__ import annotations

import base64
import re
import secrets
import time
from collections import Counter

from .notation import BadNotation

NAME = re.compile(r"\$[A-Za-z][A-Za-z0-9]*(?:\.(?:id[0-9]*|pad[0-9]+))?")
TIME = re.compile(r"now(?:([+-]\d+)(ms|s|m|h|d))?")
UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
LAG_MS = 2000  # `now` is that long before the scenario began, so that the broker's own clock is never mistaken for it

Bound = str | int | bytes


class Names:
    """The names that one run of a scenario has for its values."""

    def __init__(self) -> None:
        self.prefix = f"c-{secrets.token_hex(4)}-"
        self.now_ms = time.time_ns() // 1_000_000 - LAG_MS
        self._values: dict[str, Bound] = {}
        self._spoken: dict[tuple[str, Bound], str] = {}
        self._counts: Counter[str] = Counter()

    def bind(self, name: str, kind: str, value: Bound) -> None:
        """Let `name` stand for `value` from now on, and show `value` as `name`."""
        self._values[name] = value
        self._spoken[kind, value] = name

    def topic_id(self, topic: str, topic_id: bytes) -> None:
        """Name the id that a topic has now; an earlier id keeps its name."""
        owner = self.show_text(topic)
        if ("topic_id", topic_id) not in self._spoken:
            self._counts[owner] += 1
            count = self._counts[owner]
            self.bind(f"{owner}.id" + (str(count) if count > 1 else ""), "topic_id", topic_id)

    def newest_topic_id(self, topic: str) -> bytes | None:
        """Return the last id that was seen of the topic with this name; None if none was."""
        owner, count = self.show_text(topic), self._counts[self.show_text(topic)]
        found = self._values.get(f"{owner}.id" + (str(count) if count > 1 else ""))
        return found if isinstance(found, bytes) else None

    # From the notation to the wire.

    def value(self, name: str) -> Bound:
        """Return what a `$name` stands for. A name not yet bound becomes a new text, such as a topic's name;
        `$t.pad249` becomes one of that length.
        """
        if name not in self._values:
            stem, _, suffix = name[1:].partition(".")
            if suffix.startswith("id"):
                raise BadNotation(f"{name} is not known yet")
            size = int(suffix.removeprefix("pad") or 0)
            self.bind(name, "text", (self.prefix + stem).ljust(size, "x"))
        return self._values[name]

    def text(self, word: str) -> str:
        """Return `word` with every `$name` in it replaced by its value."""

        def one(found: re.Match[str]) -> str:
            value = self.value(found[0])
            return base64url(value) if isinstance(value, bytes) else str(value)

        return NAME.sub(one, word)

    def number(self, word: str) -> int:
        """Return the number that is written as digits, as a `$name`, or as a time like `now-1h`."""
        moment = TIME.fullmatch(word)
        if moment:
            value = self.now_ms + (int(moment[1]) * UNITS_MS[moment[2]] if moment[1] else 0)
            self._spoken["time", value] = word
            return value
        try:
            return int(self.text(word), 0)
        except ValueError:
            raise BadNotation(f"{word} is no number") from None

    def uuid(self, word: str) -> bytes:
        """Return the topic id that is written as `$t.id`, as 22 characters of base64url, or as 0 for none."""
        if word == "0":
            return bytes(16)
        value = self.value(word) if word.startswith("$") else base64.urlsafe_b64decode(word + "==")
        if not isinstance(value, bytes) or len(value) != 16:
            raise BadNotation(f"{word} is no topic id")
        if not word.startswith("$"):
            self._spoken["topic_id", value] = word
        return value

    def literal(self, kind: str, value: Bound, word: str) -> None:
        """Show this value, which the scenario itself made up, as the word by which it is written."""
        self._spoken.setdefault((kind, value), word)

    # From the wire to the notation.

    def show(self, kind: str, value: Bound, stem: str) -> str:
        """Return the name of a value of this kind. A value without a name gets `$stem1`, the next one `$stem2`."""
        if (kind, value) not in self._spoken:
            self._counts[stem] += 1
            self.bind(f"${stem}{self._counts[stem]}", kind, value)
        return self._spoken[kind, value]

    def is_named(self, kind: str, value: Bound) -> bool:
        return (kind, value) in self._spoken

    def show_text(self, text: str) -> str:
        """Return a text of the broker's with the unique names in it replaced by the scenario's names."""
        if self.prefix not in text:
            return self._spoken.get(("text", text), text)
        for (kind, value), name in sorted(self._spoken.items(), key=lambda item: -len(str(item[0][1]))):
            if kind == "text":
                text = text.replace(str(value), name)
        return text

    def show_time(self, value: int) -> str:
        """Return the scenario's name for a time, or `~now` for the broker's clock, or the number itself."""
        if ("time", value) in self._spoken:
            return self._spoken["time", value]
        age_ms = time.time_ns() // 1_000_000 - value
        return "~now" if -1000 <= age_ms <= time.time_ns() // 1_000_000 - self.now_ms else str(value)


def base64url(value: bytes) -> str:
    """Return the textual form of a topic id."""
    return base64.urlsafe_b64encode(value).decode().rstrip("=")
