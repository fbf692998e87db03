"""What members of classic consumer groups tell each other, in words: Kafka's ConsumerProtocol.

    topics:$t,$u          a subscription of version 3; behind it `+owned:$t/0,$u/1`, `+rack:r`, `+v1` for another one
    parts:$t/0,$t/1       an assignment; `parts:` is an empty one

Answers show such bytes in the same words, without the version where it is 3; other bytes are text.
"""

from __future__ import annotations

from struct import Struct, error, pack

from .names import Names
from .notation import BadNotation

VERSION = 3
_INT16, _INT32 = Struct(">h"), Struct(">i")


def encoded(names: Names, word: str) -> bytes | None:
    """Return the bytes that `topics:…` or `parts:…` stands for; None for any other text."""
    if not word.startswith(("topics:", "parts:")):
        return None
    first, *more = word.split("+")
    kind, _, listed = first.partition(":")
    given: dict[str, str | None] = {"owned": "", "rack": None}
    version = VERSION
    for each in more:
        name, _, value = each.partition(":")
        if name[1:].isdigit() and name[0] == "v":
            version = int(name[1:])
        elif name in given:
            given[name] = value
        else:
            raise BadNotation(f"{each} is nothing that a member tells")
    if kind == "parts":
        return pack(">h", version) + _partitions(names, listed) + pack(">i", -1)
    topics = [names.text(topic).encode() for topic in listed.split(",") if topic]
    parts = [pack(">hi", version, len(topics)), *(pack(">h", len(each)) + each for each in topics), pack(">i", -1)]
    if version >= 1:
        parts.append(_partitions(names, given["owned"] or ""))
    if version >= 2:
        parts.append(pack(">i", -1))
    if version >= 3:
        rack = None if given["rack"] is None else names.text(given["rack"]).encode()
        parts.append(pack(">h", -1) if rack is None else pack(">h", len(rack)) + rack)
    return b"".join(parts)


def _partitions(names: Names, listed: str) -> bytes:
    by_topic: dict[bytes, list[int]] = {}
    for each in listed.split(","):
        topic, _, partition = each.rpartition("/")
        if each:
            by_topic.setdefault(names.text(topic).encode(), []).append(int(partition))
    found = [pack(">i", len(by_topic))]
    for name, numbers in by_topic.items():
        found.append(pack(f">h{len(name)}si{len(numbers)}i", len(name), name, len(numbers), *numbers))
    return b"".join(found)


def shown(names: Names, content: bytes, *, assignment: bool) -> str | None:
    """Return the notation for such bytes; None if they are anything else, or more bytes follow."""
    try:
        reader = _Reader(content)
        version, more = reader.number(_INT16), []
        if assignment:
            text = "parts:" + reader.partitions(names)
            data = reader.data()
        else:
            topics = [names.show_text(reader.text() or "") for _ in range(reader.number(_INT32))]
            text, data = "topics:" + ",".join(sorted(topics)), reader.data()
            if version >= 1 and (owned := reader.partitions(names)):
                more.append(f"owned:{owned}")
            if version >= 2:
                reader.number(_INT32)
            if version >= 3 and (rack := reader.text()) is not None:
                more.append(f"rack:{rack}")
    except (error, ValueError, IndexError):
        return None
    if not 0 <= version <= VERSION or reader.position != len(content) or data:
        return None
    return "+".join([text, *more, *([] if version == VERSION else [f"v{version}"])])


class _Reader:
    def __init__(self, content: bytes) -> None:
        self._content = content
        self.position = 0

    def number(self, form: Struct) -> int:
        found: int = form.unpack_from(self._content, self.position)[0]
        self.position += form.size
        return found

    def text(self) -> str | None:
        length = self.number(_INT16)
        return None if length < 0 else self._take(length).decode()

    def data(self) -> bytes:
        length = self.number(_INT32)
        return b"" if length < 0 else self._take(length)

    def _take(self, length: int) -> bytes:
        end = self.position + length
        if end > len(self._content):
            raise ValueError("too short")
        found = self._content[self.position : end]
        self.position = end
        return found

    def partitions(self, names: Names) -> str:
        found = []
        for _ in range(self.number(_INT32)):
            topic = names.show_text(self.text() or "")
            found += [(topic, self.number(_INT32)) for _ in range(self.number(_INT32))]
        return ",".join(f"{topic}/{partition}" for topic, partition in sorted(found))
