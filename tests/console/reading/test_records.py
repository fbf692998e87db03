"""Records, the timeline and raw values of a real broker, as the console shows them."""

import base64
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio
from confluent_kafka import Producer
from fencepost.client.admin.admin import Admin
from fencepost.client.values import TopicPartition
from fencepost.console.http.problems import Problem
from fencepost.console.reading import records, timeline
from fencepost.console.reading.records import SHOWN_BYTES, shown
from fencepost.console.reading.window import Limits, read_window
from fencepost.protocol.errors import ErrorCode, KafkaError
from served_broker import ServedBroker

TOPIC = "stories"
STORY = ["plain", "committed", "marker", "aborted", "marker", "plain", "open", "committed", "marker", "plain"]
"""The fate of each offset; `late` begins and ends after `open` began, so it is committed above the LSO."""


@pytest.fixture(scope="module")
def broker() -> Iterator[ServedBroker]:
    with ServedBroker() as served:
        holder = write_story(f"127.0.0.1:{served.port}")
        yield served
        holder.abort_transaction()


@pytest_asyncio.fixture
async def admin(broker: ServedBroker) -> AsyncIterator[Admin]:
    async with Admin(f"127.0.0.1:{broker.port}") as opened:
        yield opened


def write_story(servers: str) -> Producer:
    """Write the records of STORY. Returns the producer whose transaction is still open."""
    common = {"bootstrap.servers": servers}

    def transactional(name: str) -> Producer:
        producer = Producer(common | {"transactional.id": name})
        producer.init_transactions(10)
        producer.begin_transaction()
        return producer

    def write(producer: Producer, value: bytes, **more: Any) -> None:
        producer.produce(TOPIC, value, partition=0, **more)
        assert producer.flush(10) == 0

    plain = Producer(common)
    write(plain, b"first", key=b"k", headers=[("h", b"\xff\x00"), ("none", None)])
    payer = transactional("payer")
    write(payer, b"paid")
    payer.commit_transaction()
    loser = transactional("loser")
    write(loser, b"lost")
    loser.abort_transaction()
    write(plain, bytes(SHOWN_BYTES) + b"end")
    holder = transactional("holder")
    write(holder, b"held")
    late = transactional("late")
    write(late, b"late")
    late.commit_transaction()
    write(plain, b"last")
    return holder


async def test_a_page_of_records_shows_outcome_producer_sizes_and_headers_of_each_record(admin: Admin) -> None:
    """Binary values are in base64, and those above SHOWN_BYTES are cut."""
    page = await records.browse(admin, TOPIC, 0, {"offset": "0"})
    rows = page["data"]
    assert [row["state"] for row in rows] == STORY
    assert [row["offset"] for row in rows] == list(range(10))
    assert (page["last_stable_offset"], page["high_watermark"], page["next_offset"]) == (6, 10, 10)
    assert [row["transactional_id"] for row in rows[:4]] == [None, "payer", "payer", "loser"]
    assert [row.get("marker") for row in rows if row["state"] == "marker"] == ["commit", "abort", "commit"]
    assert (rows[1]["producer_epoch"], rows[1]["sequence"]) == (0, 0)
    assert rows[0]["key"] == {"size": 1, "truncated": False, "text": "k"}
    assert rows[0]["headers"][0]["value"]["base64"] == base64.b64encode(b"\xff\x00").decode()
    assert rows[0]["headers"][1] == {"name": "none", "value": None}
    assert (rows[5]["value"]["truncated"], rows[5]["value"]["size"]) == (True, SHOWN_BYTES + 3)


async def test_the_read_committed_view_shows_only_what_read_committed_returns(admin: Admin) -> None:
    page = await records.browse(admin, TOPIC, 0, {"offset": "0", "isolation": "read_committed"})
    assert [row["offset"] for row in page["data"]] == [0, 1, 5]


async def test_the_last_records_of_the_read_committed_view_end_before_the_lso(admin: Admin) -> None:
    asked = {"last": "1", "isolation": "read_committed"}
    page = await records.browse(admin, TOPIC, 0, asked)
    assert (page["last_stable_offset"], page["high_watermark"]) == (6, 10)
    assert [each["offset"] for each in page["data"]] == [5]
    assert page["next_offset"] == 6


async def test_records_can_be_shown_from_an_offset_a_time_or_before_the_end(admin: Admin) -> None:
    page = await records.browse(admin, TOPIC, 0, {"last": "2"})
    assert [row["offset"] for row in page["data"]] == [8, 9]
    at = (await records.browse(admin, TOPIC, 0, {"offset": "5", "limit": "1"}))["data"][0]["timestamp_ms"]
    found = await records.browse(admin, TOPIC, 0, {"time_ms": str(at)})
    assert found["start_offset"] <= 5  # records before it may be of the same millisecond
    assert (await records.browse(admin, TOPIC, 0, {"offset": "999"}))["start_offset"] == 10


async def test_a_page_of_0_records_is_refused(admin: Admin) -> None:
    with pytest.raises(Problem, match="limit"):
        await records.browse(admin, TOPIC, 0, {"limit": "0"})


async def test_pages_of_records_follow_each_other_without_gap_or_repetition(admin: Admin) -> None:
    offset, seen = 0, list[int]()
    while offset < 10:
        page = await records.browse(admin, TOPIC, 0, {"offset": str(offset), "limit": "3"})
        seen += [row["offset"] for row in page["data"]]
        assert page["next_offset"] > offset
        offset = page["next_offset"]
    assert seen == list(range(10))


async def test_the_timeline_has_the_state_of_each_batch_and_the_last_stable_offset(admin: Admin) -> None:
    line = await timeline.read(admin, TOPIC, 0, {})
    assert [block["state"] for block in line["blocks"]] == STORY
    assert (line["last_stable_offset"], line["high_watermark"], line["complete"]) == (6, 10, True)
    part = await timeline.read(admin, TOPIC, 0, {"from": "3", "to": "5"})
    assert [(block["base_offset"], block["marker"]) for block in part["blocks"]] == [(3, None), (4, "abort")]
    assert part["blocks"][0]["transactional_id"] == "loser"


async def test_the_timeline_shows_a_remembered_transactional_id_without_asking_the_broker(admin: Admin) -> None:
    rows = (await records.browse(admin, TOPIC, 0, {"offset": "1", "limit": "1"}))["data"]
    who = rows[0]["producer_id"], rows[0]["producer_epoch"]
    line = await timeline.read(admin, TOPIC, 0, {"from": "1", "to": "2"}, names={who: "once"})
    assert line["blocks"][0]["transactional_id"] == "once"  # the broker would say "payer"


async def test_a_batch_too_large_to_decompress_is_one_row_with_a_problem_and_no_value(
    admin: Admin, broker: ServedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{broker.port}", "compression.type": "gzip"})
    producer.produce("bombs", bytes(100_000), partition=0)
    assert producer.flush(10) == 0
    assert "value" in (await records.browse(admin, "bombs", 0, {"offset": "0"}))["data"][0]
    monkeypatch.setattr(records, "DECOMPRESSED_BYTES", 50_000)
    (row,) = (await records.browse(admin, "bombs", 0, {"offset": "0"}))["data"]
    assert row["offset"] == 0
    assert "problem" in row
    assert "value" not in row
    with pytest.raises(KafkaError) as refused:
        await records.raw(admin, "bombs", 0, 0, "value")
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE


async def test_a_page_of_records_ends_when_its_values_reach_page_bytes(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "PAGE_BYTES", SHOWN_BYTES)
    page = await records.browse(admin, TOPIC, 0, {"offset": "5"})
    assert [row["offset"] for row in page["data"]] == [5]
    assert page["next_offset"] == 6


async def test_a_record_is_shown_with_a_limited_number_of_headers_and_shortened_names(
    admin: Admin, broker: ServedBroker
) -> None:
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{broker.port}"})
    headers = [("n" * (SHOWN_BYTES + 1), b"")] * (records.MAX_HEADERS + 1)
    producer.produce("many-headers", b"", partition=0, headers=headers)
    assert producer.flush(10) == 0
    (row,) = (await records.browse(admin, "many-headers", 0, {"offset": "0"}))["data"]
    assert (len(row["headers"]), row["headers_count"]) == (records.MAX_HEADERS, records.MAX_HEADERS + 1)
    assert {each["name"] for each in row["headers"]} == {"n" * SHOWN_BYTES}


async def test_raw_returns_a_records_whole_value_or_header_and_404_if_there_is_none(admin: Admin) -> None:
    assert await records.raw(admin, TOPIC, 0, 5, "value") == bytes(SHOWN_BYTES) + b"end"
    assert await records.raw(admin, TOPIC, 0, 0, "header-0") == b"\xff\x00"
    for offset, what in ((0, "header-1"), (0, "header-9"), (1, "key"), (2, "value"), (99, "value"), (0, "x")):
        with pytest.raises(Problem) as refused:
            await records.raw(admin, TOPIC, 0, offset, what)
        assert refused.value.status == 404


def test_text_truncated_inside_a_character_is_still_shown_as_text() -> None:
    whole = "é" * SHOWN_BYTES
    found = shown(b"x" + whole.encode())
    assert found is not None
    assert found["text"] == "x" + whole[: SHOWN_BYTES // 2 - 1]
    assert "base64" in (shown(b"\xff") or {})
    assert shown(None) is None


async def test_a_read_committed_page_has_records_however_many_aborted_ones_lie_before_them(
    admin: Admin, broker: ServedBroker
) -> None:
    """Aborted records do not count for the length of a page; otherwise somebody would page through empty ones."""
    common = {"bootstrap.servers": f"127.0.0.1:{broker.port}", "linger.ms": 0, "batch.num.messages": 1}
    loser = Producer(common | {"transactional.id": "loser-of-many"})
    loser.init_transactions(10)
    loser.begin_transaction()
    for _ in range(3_000):  # each a batch of its own: more than a page has
        loser.produce("aborted", b"lost", partition=0)
    assert loser.flush(30) == 0
    loser.abort_transaction()
    plain = Producer({"bootstrap.servers": common["bootstrap.servers"]})
    plain.produce("aborted", b"kept", partition=0)
    assert plain.flush(10) == 0
    query = {"offset": "0", "limit": "50", "isolation": "read_committed"}
    page = await records.browse(admin, "aborted", 0, query)
    assert [each["value"]["text"] for each in page["data"]] == ["kept"]
    assert page["next_offset"] == page["high_watermark"]


async def test_a_page_ends_empty_once_the_aborted_batches_it_skips_reach_hidden_bytes(
    admin: Admin, broker: ServedBroker
) -> None:
    loser = Producer({"bootstrap.servers": f"127.0.0.1:{broker.port}", "transactional.id": "loser-of-much"})
    loser.init_transactions(10)
    loser.begin_transaction()
    for _ in range(4):
        loser.produce("passed", bytes(1_000), partition=0)
        assert loser.flush(10) == 0
    loser.abort_transaction()
    limits = Limits(5, hidden=frozenset({"aborted"}), hidden_bytes=2_000)
    window = await read_window(admin, TopicPartition("passed", 0), 0, limits)
    assert (window.entries, window.next_offset) == ([], 2)
