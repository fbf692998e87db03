"""`fencepost produce`: sends lines of standard input to a topic, also in transactions that commit, abort or stay open.

The rule: the final message counts only what the broker has acknowledged. An interrupted transaction is aborted; if the
outcome of a commit is unknown, the command finds it out, or reports that it is unknown.
"""

import os
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from ...effects.counts import count_text
from ..arguments.connecting import Target, connecting
from ..arguments.ranges import COUNT, DURATION
from ..output.failures import TIMED_OUT, WRONG_USAGE, Failure
from ..output.record_text import BadLine, Line, parse
from ..output.tables import duration

if TYPE_CHECKING:
    from ...client.producer.producer import Producer
    from ...client.producer.transaction import Transaction
    from ...client.values import RecordMetadata

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
MARGIN_AFTER_HOLD_MS = 30_000  # between the end of --hold and the transaction's timeout
DEFAULT_TRANSACTION_TIMEOUT_MS = 60_000


class _Abort(Exception):
    """Raised inside a transaction to abort it."""


@dataclass(slots=True)
class Acknowledged:
    """Counts of acknowledged records. in_transaction: those of the open transaction."""

    topic: str
    records: int = 0
    transactions: int = 0
    aborted: int = 0
    in_transaction: int = 0
    last: Any = None
    extra: dict[str, Any] = field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        """Return the counts as a JSON object."""
        return {
            "topic": self.topic,
            "records": self.records,
            "transactions": self.transactions,
            "aborted": self.aborted,
            **self.extra,
        }


@dataclass(frozen=True, slots=True)
class Shape:
    """How a line of the input becomes a record. separator: the text between key and value."""

    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    partition: int | None
    separator: bytes | None
    jsonl: bool

    def line(self, text: bytes, number: int) -> Line:
        """Parse a line into a record. Raises Failure."""
        if self.jsonl:
            try:
                given = parse(text)
            except BadLine as error:
                raise Failure(
                    f"line {number}: {error}", "--jsonl needs a JSON object on each line", WRONG_USAGE
                ) from None
            return given._replace(
                key=self.key if given.key is None else given.key,
                headers=self.headers + given.headers,
                partition=self.partition if given.partition is None else given.partition,
            )
        key = self.key
        if self.separator is not None:
            before, found, after = text.partition(self.separator)
            if not found:
                shown = self.separator.decode(errors="replace")
                raise Failure(f"line {number} has no {shown!r} in it", "-K is the text between key and value", 2)
            key, text = before, after
        return Line(text, key, self.headers, self.partition)


@click.command()
@click.argument("topic", metavar="TOPIC")
@click.option("-k", "--key", default=None, help="The key of every record.")
@click.option(
    "-K", "--key-separator", "separator", default=None, metavar="TEXT", help="The text between key and value in a line."
)
@click.option("-H", "--header", "headers", multiple=True, metavar="NAME:VALUE", help="A header of every record.")
@click.option("-p", "--partition", type=click.IntRange(min=0), default=None, help="[default: by the key]")
@click.option("-z", "--compression", type=click.Choice(CODECS), default="none", show_default=True)
@click.option("--jsonl", is_flag=True, help="Lines are JSON objects: value, key, headers, partition, timestamp_ms.")
@click.option(
    "--txn",
    "transactional_id",
    metavar="ID",
    default=None,
    help="In a transaction, committed at the end. Fences the producer that uses ID, even without records.",
)
@click.option("--abort", is_flag=True, help="Abort the transaction instead.")
@click.option(
    "--txn-every", type=COUNT, default=None, metavar="N", help="Begin a new transaction after every N records."
)
@click.option(
    "--hold", type=DURATION, default=None, metavar="30s", help="Keep the transaction open for this time before its end."
)
@connecting
def produce(
    to: Target,
    topic: str,
    key: str | None,
    separator: str | None,
    headers: Sequence[str],
    partition: int | None,
    compression: str,
    jsonl: bool,
    transactional_id: str | None,
    abort: bool,
    txn_every: int | None,
    hold: int | None,
) -> None:
    """Send each line of standard input as a record.

    \b
    seq 3   | fencepost produce orders --txn t1           commits at the end of the input
    seq 4 6 | fencepost produce orders --txn t1 --abort   nobody sees them
    """
    if transactional_id is None and (abort or txn_every or hold is not None):
        raise Failure("--abort, --txn-every and --hold need a transaction", "add --txn ID", WRONG_USAGE)
    if separator is not None and (jsonl or not separator):
        raise Failure(
            "-K must not be empty, and cannot be used with --jsonl",
            "with --jsonl, the key is in the JSON object",
            WRONG_USAGE,
        )
    shape = Shape(
        None if key is None else os.fsencode(key),
        tuple(_header(each) for each in headers),
        partition,
        None if separator is None else os.fsencode(separator),
        jsonl,
    )
    more: dict[str, Any] = {"compression_type": compression, "delivery_timeout_ms": to.timeout_ms}
    if transactional_id is not None:
        more["transactional_id"] = transactional_id
        more["transaction_timeout_ms"] = max(DEFAULT_TRANSACTION_TIMEOUT_MS, (hold or 0) + MARGIN_AFTER_HOLD_MS)
    counts = Acknowledged(topic)

    async def work() -> None:
        """Send the lines of the input, with or without transactions."""
        async with to.producer(**more) as producer:
            if transactional_id is None:
                await _without_transactions(producer, shape, counts)
            else:
                await _in_transactions(to, producer, shape, counts, abort=abort, every=txn_every, hold_ms=hold)

    _check_input(to)
    try:
        to.run(work, interrupted=lambda: to.output.remark(_interruption_text(counts, transactional_id)))
    except Failure:
        if counts.records:
            done = "acknowledged" if transactional_id is None else "committed"
            to.output.remark(f"{count_text(counts.records, 'record')} {done} before that")
        raise
    to.output.result(_sentence(counts, transactional_id), counts.facts())


def _header(text: str) -> tuple[str, bytes | None]:
    """Parse -H NAME:VALUE. Raises Failure."""
    name, colon, value = text.partition(":")
    if not colon or not name:
        raise Failure(f"-H {text} is not NAME:VALUE", "write -H source:web", WRONG_USAGE)
    return name, os.fsencode(value)


def _check_input(to: Target) -> None:
    """Raise Failure if standard input is closed. At a terminal, print how to end the input."""
    import sys

    if sys.stdin is None:  # it was closed, and another file may have its descriptor now
        raise Failure("standard input is closed", "records are read from it, one on each line", WRONG_USAGE)
    if sys.stdin.isatty():
        to.output.remark("type one record on each line; Ctrl-D ends the input")


async def _records(shape: Shape) -> AsyncIterator[list[Line]]:
    """Yield the lines of standard input as lists of records, each list with all lines that have arrived."""
    from .lines import lines

    number = 0
    async for some in lines():
        made = []
        for number, text in enumerate(some, number + 1):  # noqa: B020 (goes on counting)
            made.append(shape.line(text, number))
        yield made


async def _without_transactions(producer: "Producer", shape: Shape, counts: Acknowledged) -> None:
    """Send all records, and count each one that the broker acknowledges."""
    waiting: deque[Any] = deque()

    def settled() -> Iterator[Any]:
        while waiting and waiting[0].done():
            yield waiting.popleft()

    async for some in _records(shape):
        for line in some:
            waiting.append(await _send(producer, counts.topic, line))
        for delivery in settled():
            await _await_acknowledgement(delivery, counts)
    await producer.flush()
    while waiting:
        await _await_acknowledgement(waiting.popleft(), counts)


async def _await_acknowledgement(delivery: Any, counts: Acknowledged) -> None:
    counts.last = await delivery
    counts.records += 1


def _send(through: "Producer | Transaction", topic: str, line: Line) -> Any:
    """Send one line as a record. Returns what the producer's or transaction's send() returns."""
    return through.send(
        topic,
        line.value,
        key=line.key,
        partition=line.partition,
        timestamp_ms=line.timestamp_ms,
        headers=list(line.headers),
    )


async def _in_transactions(
    to: Target,
    producer: "Producer",
    shape: Shape,
    counts: Acknowledged,
    *,
    abort: bool,
    every: int | None,
    hold_ms: int | None,
) -> None:
    """Send records in transactions of `every` records (None: all in one). abort: abort them instead of committing.
    hold_ms: how long the last one is kept open.
    """
    waiting: deque[Line] = deque()
    source = _records(shape)
    more = await _fill(source, waiting)
    while waiting or more:
        try:
            async with producer.transaction() as tx:
                counts.in_transaction = 0
                while (waiting or more) and counts.in_transaction != every:
                    if not waiting:
                        more = await _fill(source, waiting)
                        continue
                    await _send(tx, counts.topic, waiting.popleft())
                    counts.in_transaction += 1
                if hold_ms is not None:
                    await _hold(to, producer, counts, hold_ms)
                if abort:
                    await producer.flush()  # an abort would drop unsent records; here they should be in the log
                    raise _Abort
        except _Abort:
            counts.aborted += counts.in_transaction
        except Exception as error:
            if not await _was_committed(error, counts):
                raise
        else:
            counts.records += counts.in_transaction
        counts.transactions += 1
        counts.in_transaction = 0
        if not waiting and more:
            more = await _fill(source, waiting)


async def _fill(source: AsyncIterator[list[Line]], waiting: deque[Line]) -> bool:
    """Wait for more lines of the input, and add them to `waiting`. Returns False at the end of the input."""
    async for some in source:
        waiting.extend(some)
        return True
    return False


async def _hold(to: Target, producer: "Producer", counts: Acknowledged, hold_ms: int) -> None:
    """Keep the transaction open for hold_ms, for demonstrations."""
    import asyncio

    await producer.flush()
    records = count_text(counts.in_transaction, "record")
    to.output.remark(f"{records} in an open transaction, held for {duration(hold_ms)} (Ctrl-C aborts it)")
    await asyncio.sleep(hold_ms / 1000)


async def _was_committed(error: Exception, counts: Acknowledged) -> bool:
    """Return whether a commit of unknown outcome was carried out, and if so, count its records as committed. Returns
    False for any other error. Raises Failure if the outcome stays unknown.
    """
    from ...client.errors import CommitOutcomeUnknownError

    if not isinstance(error, CommitOutcomeUnknownError):
        return False
    outcome = await error.resolve()
    if outcome == "committed":
        counts.records += counts.in_transaction
        return True
    if outcome == "aborted":
        return False
    raise Failure(
        f"it is unknown whether the last {count_text(counts.in_transaction, 'record')} were committed: {error}",
        f"fencepost consume {counts.topic} --explain shows whether they are committed",
        TIMED_OUT,
    )


def _sentence(counts: Acknowledged, transactional_id: str | None) -> str:
    """Return the last line: how many records were sent, committed or aborted."""
    if not counts.records and not counts.aborted:
        return "no records, nothing sent"
    if transactional_id is None:
        return f"sent {count_text(counts.records, 'record')} to {counts.topic}" + _where(counts.last)
    if counts.aborted:
        return f"aborted {count_text(counts.aborted, 'record')}" + _in(counts)
    return f"committed {count_text(counts.records, 'record')}" + _in(counts)


def _where(last: "RecordMetadata | None") -> str:
    return f", the last to partition {last.partition} at offset {last.offset}" if last and last.offset >= 0 else ""


def _in(counts: Acknowledged) -> str:
    return f" in {count_text(counts.transactions, 'transaction')}"


def _interruption_text(counts: Acknowledged, transactional_id: str | None) -> str:
    """Return the last line after a signal: what was acknowledged or committed until then, and what was aborted."""
    done = count_text(counts.records, "record")
    if transactional_id is None:
        return f"interrupted; {done} acknowledged"
    open_too = f", aborted {count_text(counts.in_transaction, 'record')}" if counts.in_transaction else ""
    return f"interrupted; committed {done}{_in(counts)}{open_too}"
