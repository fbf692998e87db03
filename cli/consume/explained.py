"""`fencepost consume --explain` and `--show-control`: the whole log, and which records readers see.

The rule: partitions are shown one after the other, from the requested position to their current high watermark. The
open transactions are listed before, so that their records can be printed before the end of the log is reached.
"""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...client.records.fates import ABORTED, COMMITTED, MARKER, OPEN, PLAIN, Entry, Fates, marker_word
from ...effects.counts import count_text
from ..arguments.connecting import Target, partitions_of
from ..arguments.places import Places, resolve
from ..output.record_text import as_facts
from ..output.tables import GAP, now_ms
from ..output.writing import Cell, as_json, flush, show, show_bytes, show_styled, styled
from ..txn.blocking import blocked_facts, sentence
from ..txn.facts import blockers_or_empty

if TYPE_CHECKING:
    from ...client.admin.admin import Admin
    from ...client.values import TopicPartition
    from ...protocol.batches import Batch

SIGNS = {
    COMMITTED: Cell(" C ", "green"),
    ABORTED: Cell(" A ", "red"),
    OPEN: Cell(" ? ", "yellow"),
    MARKER: Cell(" ◆ ", "cyan"),
    PLAIN: Cell(" · ", dim=True),
}
RULE = "─"
_SHOWN_BYTES = 200


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to show. isolation: "" for all records. explain: show the sign of each record; else format it with
    `write`.
    """

    where: str
    place: Places
    most: int | None
    isolation: str
    explain: bool
    write: Callable[[Any], bytes]


async def print_explained(to: Target, wanted: Wanted) -> None:
    """Show each record and its fate (committed, aborted, open), one partition after the other."""
    from ...client.settings import ConsumerSettings

    left = wanted.most
    async with to.admin(ConsumerSettings) as admin:
        partitions = sorted(await partitions_of(admin, [wanted.where]))
        starts = await resolve(admin, partitions, wanted.place, now_ms())
        for partition, start in sorted(starts.items()):
            view = await _view(admin, partition, start)
            if wanted.explain and not to.output.json and len(starts) > 1:
                _heading(view)
            left = await _show(admin, to, wanted, view, left)
            if left == 0:
                break
            if wanted.explain and not view.ruled:
                await _rule(admin, to, view)


@dataclass(slots=True)
class View:
    """The state of a partition when the command began with it. open_from: the first offset of each open transaction, by
    producer id.

    ruled: the line at the last stable offset was printed.
    """

    partition: "TopicPartition"
    start: int
    last_stable_offset: int
    high_watermark: int
    open_from: dict[int, int]
    ruled: bool = False


async def _view(admin: "Admin", partition: "TopicPartition", start: int) -> View:
    """Read the partition's last stable offset, high watermark and the first offset of each open transaction."""
    from ...client.admin.offsets import LATEST
    from ...client.errors import UnsupportedVersionError

    try:
        found = await admin.open_transactions([partition])
    except UnsupportedVersionError:  # before Kafka 2.8: open transactions are known only at the end
        found = []
    open_from = {each.producer.producer_id: each.start_offset for each in found}
    stable = (await admin.ends([partition], LATEST, "read_committed"))[partition]
    end = (await admin.ends([partition], LATEST))[partition]
    return View(partition, start, stable, end, open_from)


async def _show(admin: "Admin", to: Target, wanted: Wanted, view: View, left: int | None) -> int | None:
    """Print the entries of one partition. Returns how many records may still be shown; None: no limit."""
    async for entries in _decided_entries(admin, view):
        page: list[str | bytes] = []
        for entry in entries:
            if left == 0:
                break
            if wanted.isolation == "read_committed" and not _is_readable(view, entry):
                continue
            if wanted.explain and not view.ruled and entry.offset >= view.last_stable_offset < view.high_watermark:
                _print(page)
                page = []
                await _rule(admin, to, view)
            page.append(_format_entry(to, wanted, view, entry))
            if left is not None and not entry.marker:
                left -= 1
        _print(page)
        if left == 0:
            break
    return left


def _is_readable(view: View, entry: Entry) -> bool:
    """Return whether a read_committed consumer is given this record now."""
    return entry.offset < view.last_stable_offset and entry.fate not in (ABORTED, OPEN)


async def _decided_entries(admin: "Admin", view: View) -> AsyncIterator[list[Entry]]:
    """Yield, after each batch that is read, the entries whose fate is now known, in order; at the end all others."""
    fates = Fates(view.open_from)
    async for batch in admin.read_batches(view.partition, view.start, view.high_watermark):
        entries = [each for each in _entries(view.partition, batch) if each.offset >= view.start]
        yield [each for entry in entries for each in fates.feed(entry)]
    yield list(fates.rest())


def _entries(partition: "TopicPartition", batch: "Batch") -> list[Entry]:
    """Return an entry for each record of a batch, or one for a control batch, before their fates are known."""
    from ...client.settings import LEAST_DECOMPRESSED_LIMIT
    from ...client.values import Record
    from ...protocol.records import records

    kind = int(batch.is_log_append_time)
    if batch.is_control:
        return [Entry(batch.base_offset, batch.producer_id, batch.producer_epoch, True, marker_word(batch))]
    return [
        Entry(
            each.offset,
            batch.producer_id,
            batch.producer_epoch,
            batch.is_transactional,
            record=Record(*partition, each.offset, each.timestamp, kind, each.key, each.value, each.headers),
        )
        for each in records(batch, limit=LEAST_DECOMPRESSED_LIMIT)
    ]


# ---- output --------------------------------------------------------------------------------------------------------


def _print(page: list[str | bytes]) -> None:
    """Print all lines with one write, which is much faster than one write for each."""
    texts = [each for each in page if isinstance(each, str)]
    if texts:
        show_styled(texts)
    else:
        show_bytes(b"".join(each for each in page if isinstance(each, bytes)))
        flush()


def _format_entry(to: Target, wanted: Wanted, view: View, entry: Entry) -> str | bytes:
    """Return an entry for output: with JSON or --explain a str without the line end, else bytes, complete as they are:
    a line about a marker, or a record as wanted.write formats it.
    """
    if to.output.json:
        return as_json(_facts(view, entry))
    if wanted.explain:
        return _line(view, entry)
    if entry.marker:
        at = f"{view.partition.topic}[{view.partition.partition}]@{entry.offset}"
        return f"◆ {entry.marker} {at} producer {entry.producer_id} epoch {entry.producer_epoch}\n".encode()
    return wanted.write(entry.record)


def _facts(view: View, entry: Entry) -> dict[str, Any]:
    """Return an entry as a JSON object: the record or marker, its fate, and the producer of its transaction."""
    place = {"topic": view.partition.topic, "partition": view.partition.partition, "offset": entry.offset}
    facts = as_facts(entry.record) if entry.record is not None else place | {"marker": entry.marker}
    transaction = {"producer_id": entry.producer_id, "producer_epoch": entry.producer_epoch}
    return facts | {"fate": entry.fate} | (transaction if entry.producer_id >= 0 else {})


def _line(view: View, entry: Entry) -> str:
    """Format an entry: sign, offset, producer id and epoch, then key and value, which may be long."""
    at = f"{entry.offset:>{len(str(max(0, view.high_watermark - 1)))}}"
    owner = f"{entry.producer_id}:{entry.producer_epoch}" if entry.producer_id >= 0 else "-"
    if entry.marker:
        content = Cell(entry.marker, "cyan")
    elif entry.record.value is None:
        content = Cell("null", dim=True)
    else:
        content = Cell(_text(entry.record.value))
    key = "" if entry.record is None or entry.record.key is None else _text(entry.record.key)
    named: tuple[str | Cell, ...] = (Cell(key, "blue"), GAP) if key else ()
    parts: tuple[str | Cell, ...] = (SIGNS[entry.fate], f" {at}  ", Cell(f"{owner:<7}", dim=True), " ", *named, content)
    return "".join(map(styled, parts))


def _text(content: bytes) -> str:
    """Return bytes as text, shortened if long."""
    text = content[:_SHOWN_BYTES].decode(errors="replace")
    return text + (f"… ({len(content):,} bytes)" if len(content) > _SHOWN_BYTES else "")


def _heading(view: View) -> None:
    """Print the partition, the range of offsets shown, and how many of them are above the last stable offset."""
    at = f"{view.partition.topic}[{view.partition.partition}]"
    waits = view.high_watermark - view.last_stable_offset
    text = f"{at}: from {view.start} to {view.high_watermark}" + (f", {waits} not yet stable" if waits else "")
    show(Cell(text, bold=True))


async def _rule(admin: "Admin", to: Target, view: View) -> None:
    """Print the line at which read_committed readers stop, and which transactions stop them; nothing if they can
    read everything.
    """
    view.ruled = True
    if view.last_stable_offset >= view.high_watermark or to.output.json:
        return
    waits = count_text(view.high_watermark - view.last_stable_offset, "offset")
    text = f" LSO {view.last_stable_offset} < HW {view.high_watermark}: read_committed stops here, {waits} wait "
    show(Cell(f"{RULE * 3}{text}{RULE * 12}", "yellow"))
    for each in await blockers_or_empty(admin, [view.partition]):
        show(Cell(f"    {sentence(blocked_facts(each, now_ms()))}", "yellow"))
