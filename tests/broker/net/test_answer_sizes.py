"""A text that a request names once is not repeated for each of the many small things that it names beside it.

Every list of every API gets many short entries, with long texts around it: the answer may be larger than the request by
a plain row for each entry, not by a text.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from fencepost.broker.net import turns
from fencepost.broker.requests.dispatch import load_handlers
from fencepost.protocol.schema import MISSING, Array, Blob, Fixed, Kind, Nested, schema_of
from produce_requests import create
from simulated_broker import SimulatedBroker
from simulated_client import SimulatedClient
from work_of_requests import frame_of

pytestmark = pytest.mark.slow

MANY = 400
LONG_TEXT, SHORT_TEXT = "x" * 20_000, "a"
ROW_BYTES = 300  # of an answer: codes, and a text of Kafka's with the name of a topic
APIS = {handler.api.name: handler.api for handler in load_handlers().values()}
CASES = 80  # at least; fewer would mean that the test does not find the lists

Path = tuple[str, ...]


def lists_in(message: type) -> Iterator[Path]:
    for field in schema_of(message).fields:
        kind = field.kind
        if isinstance(kind, Array):
            yield (field.name,)
            kind = kind.item
        if isinstance(kind, Nested):
            yield from ((field.name, *path) for path in lists_in(kind.cls))


def made(message: type, path: Path | None, text: str = LONG_TEXT) -> Any:
    """Return a message in which the list at `path` has many entries, each list on the way to it has one, and every
    other list none.
    """
    fields: dict[str, Any] = {}
    for field in schema_of(message).fields:
        rest = path[1:] if path and path[0] == field.name else None
        if rest is not None or not isinstance(field.kind, Fixed | Nested) or field.default is MISSING:
            fields[field.name] = value(field.kind, rest, text)
    return message(**fields)


def value(kind: Kind, rest: Path | None, text: str) -> Any:
    if isinstance(kind, Array):
        if rest is None:
            return []
        return [value(kind.item, rest, text)] if rest else [value(kind.item, None, SHORT_TEXT)] * MANY
    if isinstance(kind, Nested):
        return made(kind.cls, rest, text)
    if isinstance(kind, Fixed):
        return kind.zero
    return b"" if isinstance(kind, Blob) else text


def answer_bytes(broker: SimulatedBroker, frame: bytes) -> int:
    """Return the size of the answer to this frame; 0 if the connection is closed instead."""
    client = SimulatedClient(broker)
    client.send_raw(frame)
    try:
        return len(client.receive_frame())
    except (ConnectionError, EOFError):
        return 0
    finally:
        client.close()


def test_no_answer_repeats_a_long_text_of_its_request_for_each_item_of_the_request(monkeypatch):
    room_bytes = 10_000
    monkeypatch.setattr(turns, "LEAST_ANSWER_BYTES", 0)
    monkeypatch.setattr(turns, "MAX_ANSWER_BYTES", room_bytes)
    cases, too_large = 0, []
    with SimulatedBroker() as broker:
        broker.ask(create("t", 2))
        for name, api in APIS.items():
            for path in lists_in(api.request):
                frame = frame_of(made(api.request, path), api.max)
                size = answer_bytes(broker, frame)
                cases += size > 0
                if size > len(frame) + MANY * ROW_BYTES + room_bytes:
                    too_large.append((name, path, len(frame), size))
    assert too_large == []
    assert cases >= CASES
