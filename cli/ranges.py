"""Numbers that options take: within bounds, and numbers at all."""

import math
from typing import Any

import click

COUNT = click.IntRange(min=1, max=2**31 - 1)
PARTITIONS = click.IntRange(min=1, max=10_000)
RECORD_BYTES = click.IntRange(min=1, max=100 << 20)


class Finite(click.FloatRange):
    """A range that NaN is not in; click's own lets it pass, since it compares with nothing."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a number that can be measured with", param, ctx)
        return number


SECONDS = Finite(min=0, min_open=True, max=86_400)
SHARE = Finite(min=0, max=0.5)
