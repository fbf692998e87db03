"""Types of number options, with bounds."""

import math
from typing import TYPE_CHECKING, Any, ClassVar

import click

COUNT = click.IntRange(min=1, max=2**31 - 1)
PARTITIONS = click.IntRange(min=1, max=10_000)
RECORD_BYTES = click.IntRange(min=1, max=100 << 20)


class Finite(click.FloatRange):
    """A range that refuses NaN, which click's own type accepts, because no comparison with NaN fails."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return a number in the range; NaN and infinity are refused."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} must be a finite number", param, ctx)
        return number


SECONDS = Finite(min=0, min_open=True, max=86_400)
SHARE = Finite(min=0, max=0.5)


if TYPE_CHECKING:
    Whole = click.ParamType[int]
else:
    Whole = click.ParamType  # not generic in older versions of click


class Duration(Whole):
    """A duration such as 500ms, 30s, 5m, 2h or 7d, converted to milliseconds. A plain number is seconds."""

    name = "duration"
    _UNITS: ClassVar = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return milliseconds from a duration such as 500ms, 30s, 5m, 2h or 7d; without a unit it is seconds."""
        if isinstance(value, int):
            return value
        text = str(value).strip()
        digits = text.rstrip("abcdefghijklmnopqrstuvwxyz")
        unit = text[len(digits) :] or "s"
        try:
            ms = float(digits) * self._UNITS[unit]
        except (KeyError, ValueError):
            self.fail(f"{value!r} is not a duration: write 500ms, 30s, 5m, 2h or 7d", param, ctx)
        if not 0 <= ms < 2**53:
            self.fail(f"{value!r} is out of range", param, ctx)
        return int(ms)


DURATION = Duration()
