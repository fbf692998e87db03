"""Formats facts as lines: a heading for each file, its contents below, numbers in columns."""

import json
from collections.abc import Callable, Iterable, Iterator

from .facts import Fact

_HEAD = ("is", "path")


def lines(facts: Iterable[Fact]) -> Iterator[str]:
    """Yield the lines of each fact; most facts have one line."""
    for fact in facts:
        yield from _LINES.get(fact["is"], _anything)(fact)


def _heading(fact: Fact) -> Iterator[str]:
    """Yield the lines that begin a file."""
    yield ""
    yield f"{fact['path']}"
    yield "  " + _rest(fact)


def _rest(fact: Fact, *left_out: str) -> str:
    """Return the fact as one line, without the fields with which every line begins, and without those in left_out."""
    shown = [f"{name} {_value(value)}" for name, value in fact.items() if name not in (*_HEAD, *left_out)]
    return f"{fact['is']}: {', '.join(shown)}"


def _value(value: object) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value)


def _anything(fact: Fact) -> Iterator[str]:
    yield "  " + _rest(fact)


def _log(fact: Fact) -> Iterator[str]:
    """Yield the lines of a log in a checkpoint, with its segments."""
    offsets = f"{fact['start_offset']}…{fact['end_offset']}" if "start_offset" in fact else "no segments yet"
    name = f"{fact['topic']}-{fact['partition']}"
    yield f"    log {fact['log_id']:<6} {name:<32} {fact['topic_id']}  {offsets}  {_value(fact['settings'])}"
    for segment in fact.get("segments", ()):
        yield (
            f"        segment {segment['base_offset']:020d}.{segment['generation']}  to {segment['end_offset']}  "
            f"{segment['size_bytes']:>12,} bytes"
        )


def _round(fact: Fact) -> Iterator[str]:
    """Yield the line of a round of the journal."""
    units = f"units {fact['first_unit']}…{fact['first_unit'] + fact['units'] - 1}" if fact["units"] else "no units"
    fault = f"  FAULT: {fact['fault']}" if "fault" in fact else ""
    yield (
        f"  @{fact['position']:<10} round {fact['round']:<8} {units:<22} synced through {fact['synced_through']:<8} "
        f"{fact['length']:>10,} bytes{fault}"
    )


def _unit(fact: Fact) -> Iterator[str]:
    yield f"    @{fact['position']:<10} unit {fact['unit']:<8} {fact['parts']} part{'s' if fact['parts'] != 1 else ''}"


def _part(fact: Fact) -> Iterator[str]:
    """Yield the line of a part of a unit: what it changes in which log."""
    log = f"log {fact['log_id']}" + (f" ({fact['log']})" if fact["log"] else "")
    if "batch" in fact:
        what = _batch_text(fact["batch"] | {"base_offset": fact["offset"]})
    elif fact["kind"] == "create":
        what = f"{fact.get('topic')}-{fact.get('partition')} {fact.get('topic_id')} {_value(fact.get('settings'))}"
    else:
        what = f"offset {fact['offset']}" if fact["kind"] == "log start" else ""
    damage = f"  DAMAGED: {fact['damage']}" if "damage" in fact else ""
    yield f"      {fact['kind']:<9} {log:<28} {what}{damage}".rstrip()


def _batch(fact: Fact) -> Iterator[str]:
    """Yield the line of a batch in a segment."""
    yield f"  @{fact['position']:<10} {_batch_text(fact)}"


def _batch_text(fact: Fact) -> str:
    """Return offsets, size, time, codec, producer and marks of a batch, in columns."""
    offsets = f"{fact['base_offset']}…{fact['last_offset']}"
    text = f"{offsets:<20} {fact['records']:>6} records {fact['size_bytes']:>9,} bytes  {fact['time'] or '-':<24}"
    text += f"  {fact['codec']:<6}  {_producer_text(fact)}"
    if fact.get("transactional"):
        text += "  transactional"
    if "control" in fact:
        text += f"  CONTROL {fact['control']} (coordinator epoch {fact.get('coordinator_epoch', '-')})"
    if fact.get("delete_horizon"):
        text += f"  delete horizon {fact['delete_horizon']}"
    if fact["crc"] != "ok":
        text += "  CRC BAD"
    return text.rstrip()


def _producer_text(fact: Fact) -> str:
    """Return producer id, epoch and sequences of a batch; "" without a producer id."""
    if "producer_id" not in fact:
        return ""
    sequences = f" sequences {fact['base_sequence']}…{fact['last_sequence']}" if "base_sequence" in fact else ""
    return f"producer {fact['producer_id']} epoch {fact['producer_epoch']}{sequences}"


def _record(fact: Fact) -> Iterator[str]:
    headers = f"  headers {_value(fact['headers'])}" if "headers" in fact else ""
    yield f"        {fact['offset']:>10}  {_value(fact['key'])} = {_value(fact['value'])}{headers}"


def _producer(fact: Fact) -> Iterator[str]:
    """Yield the line of a producer in a snapshot."""
    windows = " ".join(f"{batch['base_sequence']}@{batch['base_offset']}" for batch in fact["batches"])
    next_sequence = "any" if fact["next_sequence"] is None else fact["next_sequence"]
    opened = "" if fact["first_open_offset"] is None else f"  open from {fact['first_open_offset']}"
    yield (
        f"    producer {fact['producer_id']:<10} epoch {fact['producer_epoch']:<6} next sequence {next_sequence:<10}"
        f"  {fact['time'] or '-'}{opened}  batches {windows}"
    )


def _index_entry(fact: Fact) -> Iterator[str]:
    yield "    " + "  ".join(f"{name} {value}" for name, value in fact.items() if name != "is")


def _finding(fact: Fact) -> Iterator[str]:
    """Yield the line of something that verify found."""
    place = fact.get("path", "")
    if "position" in fact:
        place += f" at byte {fact['position']}"
    yield f"{fact['is']:<8} {place + ': ' if place else ''}{fact['what']}"


def _summary(fact: Fact) -> Iterator[str]:
    yield fact["what"]


_LINES: dict[str, Callable[[Fact], Iterator[str]]] = {
    "checkpoint": _heading,
    "coordinators": _heading,
    "snapshot": _heading,
    "journal file": _heading,
    "segment": _heading,
    "index": _heading,
    "log": _log,
    "round": _round,
    "unit": _unit,
    "part": _part,
    "batch": _batch,
    "record": _record,
    "producer": _producer,
    "index entry": _index_entry,
    "damage": _finding,
    "note": _finding,
    "rest": _finding,
    "summary": _summary,
}
