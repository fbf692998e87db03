"""Positions in a topic: start, end, an offset, a distance before the end, a time; for all partitions or each one.

    start | end | 42 | -10 | @-5m | @2026-11-20T08:00 | @1795000000000 | 0:42,1:end

The rule: a position is parsed before any request; a time after the last record means the end.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from .ranges import DURATION

if TYPE_CHECKING:
    from ...client.admin.admin import Admin
    from ...client.values import TopicPartition

START, END, OFFSET, BEFORE_END, TIME = "start", "end", "offset", "before end", "time"
_FORMS = "start, end, an offset, -10 (before the end), @-5m, @2026-11-20T08:00, or 0:42,1:end for each partition"


@dataclass(frozen=True, slots=True)
class Place:
    """A position in a topic. number: the offset, how many before the end, or ms since 1970 (negative: that many ms
    ago).
    """

    kind: str
    number: int = 0


Places = Mapping[int | None, Place]
"""By partition; None: all other partitions."""

if TYPE_CHECKING:
    _OfPlaces = click.ParamType[Places]
else:
    _OfPlaces = click.ParamType


class PlaceType(_OfPlaces):
    """An option with positions in a topic, converted to Places."""

    name = "place"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Places:
        """Parse the positions of a command line, such as `start`, `0:120` or `-5m`, into Places."""
        if not isinstance(value, str):
            return value  # type: ignore[no-any-return]
        try:
            return places(value)
        except ValueError:
            self.fail(f"{value!r} is not a position: use {_FORMS}", param, ctx)


PLACE = PlaceType()


def places(text: str) -> Places:
    """Parse positions, one for all partitions or one for each. Raises ValueError."""
    found: dict[int | None, Place] = {}
    for part in text.split(","):
        partition, colon, where = part.partition(":")
        if colon and partition.isascii() and partition.isdigit():
            found[int(partition)] = _place(where)
        else:
            found[None] = _place(part)
    return found


def _place(text: str) -> Place:
    """Parse one position such as `start`, `end`, `5`, `-10` or `@-5m`. Raises ValueError."""
    word = text.strip().lower()
    if word in (START, "earliest", "beginning"):
        return Place(START)
    if word in (END, "latest"):
        return Place(END)
    if word.startswith("@"):
        return Place(TIME, _time(word[1:]))
    offset = int(word)
    return Place(BEFORE_END, -offset) if offset < 0 else Place(OFFSET, offset)


def _time(text: str) -> int:
    """Parse a time in ISO 8601 or in ms. Returns ms since 1970; for a duration with a minus, a negative number of
    ms: that long ago. Raises ValueError.
    """
    if text.startswith("-"):
        try:
            return -max(1, DURATION.convert(text[1:], None, None))
        except click.BadParameter:
            raise ValueError(text) from None
    if text.isdigit():
        return int(text)
    return int(datetime.fromisoformat(text.upper().replace(" ", "T")).timestamp() * 1000)


async def resolve(
    admin: "Admin", partitions: Sequence["TopicPartition"], where: Places, now_ms: int
) -> dict["TopicPartition", int]:
    """Return the offset of each partition for which a position is given, within its log. now_ms: wall clock, for
    durations.
    """
    from ...client.admin.offsets import EARLIEST, LATEST

    wanted = {each: where.get(each.partition, where.get(None)) for each in partitions}
    placed = {each: place for each, place in wanted.items() if place is not None}
    starts = await admin.ends(placed, EARLIEST)
    ends = await admin.ends(placed, LATEST)
    times = {
        each: place.number if place.number >= 0 else now_ms + place.number
        for each, place in placed.items()
        if place.kind == TIME
    }
    at_time = await admin.list_offsets(times) if times else {}
    found = {}
    for each, place in placed.items():
        offset = {
            START: starts[each],
            END: ends[each],
            OFFSET: place.number,
            BEFORE_END: ends[each] - place.number,
            TIME: at_time[each].offset if each in at_time and at_time[each].offset >= 0 else ends[each],
        }[place.kind]
        found[each] = min(max(offset, starts[each]), ends[each])
    return found
