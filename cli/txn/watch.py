"""`fencepost txn watch`: open transactions, redrawn in place on a terminal; in a pipe, one table after another.

The rule: while the broker does not answer, the error is shown and the previous rows stay.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..arguments.connecting import Target
from ..output import screen
from ..output.tables import Column, Output, count, duration, now_ms, number, table
from ..output.writing import Cell, is_terminal, styled
from .facts import OLD_SHARE, facts_of, open_now, state

if TYPE_CHECKING:
    from ...client.admin.admin import Admin

BAR = 12
ENDED_SHOWN_S = 5.0
ANSWER_MS = 2_000  # after this time without an answer, the error is shown


async def watch_open(to: Target, every_ms: int) -> None:
    """Show the open transactions until cancelled."""
    from ...client.errors import RetriableError

    drawn = is_terminal() and not to.output.json
    if drawn:
        screen.begin()
    try:
        async with replace(to, timeout_ms=min(to.timeout_ms, ANSWER_MS)).admin() as admin:
            view = View()
            while True:
                trouble = ""
                try:
                    await view.look(admin)
                except RetriableError as error:
                    trouble = str(error)
                _show(to, view.rows, trouble, drawn)
                await asyncio.sleep(every_ms / 1000)
    finally:
        if drawn:
            screen.end()


class View:
    """The open transactions, and, for some seconds, those that have ended."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self._ended: dict[str, tuple[float, dict[str, Any]]] = {}

    async def look(self, admin: "Admin") -> None:
        """Update the rows. Raises KafkaError; the rows are unchanged then."""
        rows = await open_now(admin)
        held: dict[int, int] = {}
        if rows:
            for each in await admin.find_blockers():
                producer = each.open.producer.producer_id
                held[producer] = held.get(producer, 0) + each.high_watermark - each.last_stable_offset
        ids = {row["transactional_id"] for row in rows}
        gone = [row["transactional_id"] for row in self.rows if row["open"] and row["transactional_id"] not in ids]
        for name, found in (await admin.describe_transactions(gone)).items():
            self._ended[name] = (time.monotonic(), facts_of(found, now_ms()))
        now = time.monotonic()
        self._ended = {
            name: (at, row) for name, (at, row) in self._ended.items() if name not in ids and now - at < ENDED_SHOWN_S
        }
        shown = [{**row, "open": True, "blocks": held.get(row["producer_id"], 0)} for row in rows]
        shown += [{**row, "open": False, "blocks": 0} for _, row in self._ended.values()]
        self.rows = [{**row, "bar": row} for row in shown]


def _show(to: Target, rows: list[dict[str, Any]], trouble: str, drawn: bool) -> None:
    """Show the open transactions: as JSON, as a table, or, with `drawn`, drawn over the table before. trouble:
    printed instead of the summary.
    """
    if to.output.json:
        for row in rows:
            to.output.object({"at_ms": now_ms(), **{k: v for k, v in row.items() if k != "bar"}})
        return
    if not drawn:
        Output().rows(rows, COLUMNS)
        to.output.line(trouble or _summary(rows))
        return
    above = [styled(f"{_summary(rows)} on {to.bootstrap}   (Ctrl-C ends)"), styled(trouble)]
    screen.draw(above + (table(rows, COLUMNS) if rows else []))


def _summary(rows: list[dict[str, Any]]) -> str:
    """Return a line with the number of open transactions, and of those that block read_committed readers."""
    blocking, still = sum(1 for row in rows if row["blocks"]), sum(1 for row in rows if row["open"])
    return f"{still} open, {blocking} of them blocking readers" if still else "no transactions are open"


def bar(row: Mapping[str, Any] | None) -> Cell:
    """Draw a bar that shows how much of the timeout has passed."""
    if row is None or row["age_ms"] is None or row["timeout_ms"] <= 0:
        return Cell("-")
    share = min(1.0, row["age_ms"] / row["timeout_ms"])
    full = round(share * BAR)
    colour = "red" if share > OLD_SHARE else "yellow" if share > OLD_SHARE / 2 else "green"
    return Cell("█" * full + "░" * (BAR - full), colour)


COLUMNS = (
    Column("TRANSACTIONAL-ID", "transactional_id"),
    Column("STATE", "state", state),
    number("AGE", "age_ms", duration),
    Column("", "bar", bar),
    number("TIMEOUT", "timeout_ms", duration),
    number("PRODUCER", "producer_id"),
    number("EPOCH", "producer_epoch"),
    number("BLOCKS", "blocks", count),
    Column("PARTITIONS", "partitions"),
)
