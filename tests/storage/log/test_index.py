"""Sparse indexes: Kafka's formats, and look-ups in them."""

from struct import pack

import pytest
from fencepost.storage.log.index import IndexCache, Indexes, IndexGrowth, IndexRow
from fencepost.storage.log.segment import parse_name
from fencepost.storage.producers.aborted import AbortedTransaction, TransactionSpans
from fencepost.storage.producers.aborted import pack as pack_aborted
from fencepost.storage.producers.aborted import unpack as unpack_aborted
from log_driver import DIRECTORY, LogDriver

ENTRIES = [(10, 0), (20, 500), (35, 900)]  # (relative last offset, position)


@pytest.fixture
def indexes() -> Indexes:
    times = [(100, 10), (250, 35)]
    return Indexes(b"".join(pack(">ii", *e) for e in ENTRIES), b"".join(pack(">qi", *e) for e in times))


def test_an_index_finds_the_entry_at_or_before_an_offset_and_where_to_read_from(indexes: Indexes) -> None:
    assert [indexes.entry_at_or_before(offset) for offset in (0, 9, 10, 19, 20, 34, 35, 99)] == [
        -1,
        -1,
        0,
        0,
        1,
        1,
        2,
        2,
    ]
    assert [indexes.entry_of(offset) for offset in (0, 10, 11, 35, 36)] == [0, 0, 1, 2, 3]
    assert [indexes.place_before(offset) for offset in (0, 10, 11, 21)] == [(0, -1), (0, -1), (0, 10), (500, 20)]


def test_boundary_after_returns_the_next_indexed_file_position_or_minus_1(indexes: Indexes) -> None:
    assert [indexes.boundary_after(position) for position in (0, 499, 500, 900, 5000)] == [500, 500, 900, -1, -1]


def test_a_search_by_time_starts_at_the_latest_earlier_index_entry(indexes: Indexes) -> None:
    assert [indexes.offset_before_time(t) for t in (0, 100, 101, 250, 251)] == [0, 0, 10, 10, 35]


def test_an_index_row_grown_by_appended_bytes_equals_the_row_of_the_whole_file() -> None:
    content = bytes(range(48))
    row = IndexRow().grown(content[:8], 8).grown(b"", 8).grown(content[8:], 8)
    assert row == IndexRow.of(content, 8)
    assert row.entries == 6


def test_an_index_entry_is_added_only_after_more_bytes_than_index_interval_bytes() -> None:
    growth = IndexGrowth(100, 50)
    position = 0
    for number in range(6):
        growth.add(100 + number, position, 30, 1000 - number)
        position += 30
    assert [entry.hex() for entry in growth.offset_entries] == [pack(">ii", 2, 60).hex(), pack(">ii", 4, 120).hex()]
    assert growth.time_entries == [pack(">qi", 1000, 0)]  # the largest so far, once


def test_offset_and_time_index_files_have_kafkas_binary_layout() -> None:
    """OffsetIndex: 4 + 4 bytes; TimeIndex: 8 + 4. An offset entry has the batch's last offset (relative) and its start
    position.
    """
    driver = LogDriver(index_interval_bytes=0, segment_bytes=10_000)
    positions = []
    for number in range(4):
        positions.append(driver.log.tail_bytes)
        driver.values(b"a", b"b", timestamp=100 * number)
    driver.flush()
    stem = f"{DIRECTORY}/{0:020d}.0"
    offsets = driver.disk.open(stem + ".index").read(100, 0)
    times = driver.disk.open(stem + ".timeindex").read(100, 0)
    assert offsets == b"".join(pack(">ii", 2 * n + 1, positions[n]) for n in (1, 2, 3))
    assert times == b"".join(pack(">qi", 100 * n + 1, 2 * n + 1) for n in (1, 2, 3))


def test_aborted_transaction_entries_in_a_txnindex_file_have_kafkas_binary_layout() -> None:
    entry = AbortedTransaction(7, 10, 20, 15)
    content = pack_aborted([entry, entry])
    assert content == pack(">hqqqq", 0, 7, 10, 20, 15) * 2
    assert unpack_aborted(content) == [entry, entry]
    with pytest.raises(ValueError):
        unpack_aborted(pack(">hqqqq", 1, 7, 10, 20, 15))


def test_aborted_transactions_derived_from_batches_equal_those_recorded_by_the_log() -> None:
    from fencepost.protocol.records import Marker

    driver = LogDriver(segment_bytes=100)
    for producer in (1, 2):
        driver.values(b"v", producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True)
    for producer, kind in ((2, Marker.ABORT), (1, Marker.ABORT), (1, Marker.ABORT), (2, Marker.COMMIT)):
        driver.marker(producer, 0, kind)
    spans = TransactionSpans()
    derived = [entry for batch in driver.batches() if (entry := spans.follow(batch)) is not None]
    reported = driver.log.aborted_between(0, 6)
    assert isinstance(reported, list)
    assert sorted(derived) == sorted(reported) == [(1, 0, 3, 4), (2, 1, 2, 0)]


def test_the_index_cache_is_bounded_and_evicts_the_least_recently_used() -> None:
    cache = IndexCache(limit_bytes=200)
    for name in "abc":
        cache.put(name, Indexes(bytes(80), covers_bytes=10))
    assert cache.get("a", 10) is None
    assert cache.get("b", 10) is not None
    assert cache.get("c", 11) is None  # it covers fewer bytes than are asked for


def test_a_cached_index_extended_from_beyond_the_bytes_it_covers_is_discarded() -> None:
    cache = IndexCache()
    cache.put("a", Indexes(covers_bytes=100))
    cache.extend("a", 200, 300, pack(">ii", 1, 1), b"", [])
    assert cache.get("a", 300) is None
    cache.put("a", Indexes(covers_bytes=300))
    cache.extend("a", 300, 400, pack(">ii", 1, 1), b"", [])
    found = cache.get("a", 400)
    assert found is not None
    assert len(found.offsets) == 1


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("00000000000000000012.3.log", (12, 3, ".log")),
        ("00000000000000000012.0.txnindex", (12, 0, ".txnindex")),
        ("00000000000000000012.log", None),
        ("12.0.log", None),
        ("00000000000000000012.x.log", None),
        ("00000000000000000012.0.log.tmp", None),
        ("00000000000000000012.0.producers", None),
    ],
)
def test_parse_name_returns_the_parts_of_a_segment_file_name_and_none_for_others(
    name: str, parsed: tuple[int, int, str] | None
) -> None:
    assert parse_name(name) == parsed
