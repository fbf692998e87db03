"""The ring of events, and each browser's place in it."""

import asyncio
import json

from fencepost.console.model.events import KEPT_BYTES, KEPT_EVENTS, Events, encode


def test_an_event_is_one_data_line_whatever_it_contains() -> None:
    data = {"x": "a\nb\r\n\ndata: c\u2028<script>"}
    lines = encode("counts", "s-1", data).split(b"\n")
    assert lines[:2] == [b"event: counts", b"id: s-1"]
    assert lines[3:] == [b"", b""]
    assert json.loads(lines[2].removeprefix(b"data: ")) == data


def test_events_after_a_number_are_those_with_higher_ones_and_ids_parse_to_numbers() -> None:
    events = Events("s")
    for number in range(5):
        events.publish("n", number)
    assert (events.last_id, events.number_of("s-3")) == ("s-5", 3)
    assert [each.number for each in events.after(3)] == [4, 5]
    assert events.after(5) == []
    assert [each.number for each in events.after(0)] == [1, 2, 3, 4, 5]
    for wrong in ("", "s-", "s-6", "other-3", "s--1", "s-x", "3", "s-" + "9" * 30, "s-١"):
        assert events.number_of(wrong) is None


def test_the_events_kept_for_resuming_are_limited_in_number_and_in_bytes() -> None:
    events = Events("s")
    for number in range(KEPT_EVENTS + 10):
        events.publish("n", number)
    assert events.number_of("s-9") is None
    assert events.number_of("s-10") == 10
    assert len(events.after(10)) == KEPT_EVENTS
    for _ in range(5):
        events.publish("n", "x" * (KEPT_BYTES // 2))
    assert not events.has_all_after(events.last - 2)
    assert len(events.after(events.last - 1)) == 1


async def test_news_returns_at_an_event_at_close_or_after_its_timeout() -> None:
    """`Events.news(number, seconds)` waits for an event above that number."""
    events = Events("s")
    await events.news(0, 0.01)  # after its timeout
    waiting = asyncio.create_task(events.news(0, 60))
    await asyncio.sleep(0)
    events.publish("n", 1)
    await asyncio.wait_for(waiting, 5)
    await events.news(0, 60)  # at once: there is an event
    waiting = asyncio.create_task(events.news(1, 60))
    await asyncio.sleep(0)
    events.close()
    await asyncio.wait_for(waiting, 5)
