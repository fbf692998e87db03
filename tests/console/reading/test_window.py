"""read_window: the fate of each batch in any range of a log, compared with what the whole log says."""

from dataclasses import dataclass
from typing import Any, cast

import pytest
from fencepost.client.admin.admin import Admin
from fencepost.client.admin.reading import FetchedPage
from fencepost.client.admin.values import OpenTransaction, ProducerState
from fencepost.client.errors import CorruptRecordError
from fencepost.client.records.fates import ABORTED, COMMITTED, MARKER, OPEN, PLAIN, UNDECIDED
from fencepost.client.values import TopicPartition
from fencepost.console.reading.window import LARGEST_BATCH_BYTES, Limits, Window, read_window
from fencepost.protocol.batches import Batch, batch_of
from fencepost.protocol.records import Marker, Record, build, control_marker
from hypothesis import given
from hypothesis import strategies as st

TP = TopicPartition("t", 0)


@dataclass
class Log:
    """A partition as a broker keeps it: its batches, and where transactions are open or were aborted."""

    batches: list[Batch]
    open_from: dict[int, int]
    aborted: list[tuple[int, int, int]]  # producer id, first offset, last offset

    @property
    def high(self) -> int:
        return self.batches[-1].next_offset if self.batches else 0

    @property
    def stable(self) -> int:
        return min(self.open_from.values(), default=self.high)


def log_of(script: list[tuple[str, int, int]]) -> Log:
    """Return the log that a script gives. Its steps are ("records", producer, number of records), with producer -1 for
    none, and ("commit" or "abort", producer, ignored), in which producer -1 means producer 0.
    """
    log = Log([], {}, [])
    for what, producer, count in script:
        at = log.high
        if what == "records":
            rows = [Record(at + each, 0, None, b"x") for each in range(count)]
            more: dict[str, Any] = {"producer_id": producer, "producer_epoch": 0, "base_sequence": 0}
            raw = build(rows, base_offset=at, **(more | {"transactional": True} if producer >= 0 else {}))
            if producer >= 0:
                log.open_from.setdefault(producer, at)
        else:
            first = log.open_from.pop(max(producer, 0), None)
            kind = Marker.COMMIT if what == "commit" else Marker.ABORT
            raw = control_marker(kind, max(producer, 0), 0, 0, 0)
            if what == "abort" and first is not None:
                log.aborted.append((max(producer, 0), first, at))
        batch = batch_of(memoryview(raw))
        batch.base_offset = at
        log.batches.append(batch)
    return log


class Broker:
    """An Admin with what a window uses of one. page: how many batches one fetch returns."""

    def __init__(self, log: Log, page: int, *, lists_open: bool = True) -> None:
        self.log, self.page, self.lists_open = log, page, lists_open
        self.pages = 0

    async def read_page(self, _: TopicPartition, start: int, *, isolation_level: str, most_bytes: int) -> FetchedPage:
        log = self.log
        assert most_bytes == LARGEST_BATCH_BYTES
        self.pages += 1
        end = log.stable if isolation_level == "read_committed" else log.high
        found = [each for each in log.batches if each.next_offset > start and each.base_offset < end][: self.page]
        after = found[-1].next_offset if found else start
        aborted = [(who, first) for who, first, last in log.aborted if last >= start and first < after]
        reported = aborted if isolation_level == "read_committed" else []
        return FetchedPage(found, reported, 0, log.stable, log.high, after, most_bytes)

    async def open_transactions(self, _: list[TopicPartition]) -> list[OpenTransaction]:
        if not self.lists_open:
            return []
        return [OpenTransaction(TP, ProducerState(who, 0, 0, 0, 0, first)) for who, first in self.log.open_from.items()]


def expected(log: Log, batch: Batch) -> str:
    if batch.is_control:
        return MARKER
    if not batch.is_transactional:
        return PLAIN
    later = [each for each in log.batches if each.is_control and each.base_offset > batch.base_offset]
    for each in later:
        if each.producer_id == batch.producer_id:
            ended = any(
                first <= batch.base_offset <= last and who == each.producer_id for who, first, last in log.aborted
            )
            return ABORTED if ended else COMMITTED
    return OPEN


async def window_of(broker: Broker, start: int, limits: Limits) -> Window:
    return await read_window(cast("Admin", broker), TP, start, limits)


STEPS = st.lists(
    st.tuples(st.sampled_from(["records", "records", "commit", "abort"]), st.integers(-1, 3), st.integers(1, 4)),
    max_size=30,
)


@given(STEPS, st.integers(1, 6), st.data())
async def test_read_window_finds_the_outcomes_that_reading_the_whole_log_would_find(
    script: list[tuple[str, int, int]], page: int, data: st.DataObject
) -> None:
    log = log_of(script)
    start = data.draw(st.integers(0, log.high))
    end = data.draw(st.integers(start, log.high))
    window = await window_of(Broker(log, page), start, Limits(end))
    shown = [each for each in log.batches if each.next_offset > start and each.base_offset < end]
    assert [each.offset for each in window.entries] == [each.base_offset for each in shown]
    for entry in window.entries:
        assert entry.fate == expected(log, entry.record), entry.offset
    if window.entries:
        assert window.next_offset == window.entries[-1].record.next_offset


@given(STEPS, st.integers(1, 6), st.integers(1, 5), st.booleans(), st.data())
async def test_if_the_search_for_markers_stops_early_each_outcome_is_right_or_undecided(
    script: list[tuple[str, int, int]], page: int, batches: int, lists_open: bool, data: st.DataObject
) -> None:
    log = log_of(script)
    start = data.draw(st.integers(0, log.high))
    broker = Broker(log, page, lists_open=lists_open)
    limits = Limits(log.high, batches=batches, scan_bytes=data.draw(st.integers(0, 500)))
    window = await window_of(broker, start, limits)
    assert len(window.entries) <= batches
    for entry in window.entries:
        right = expected(log, entry.record)
        if entry.fate == UNDECIDED:
            assert right in (OPEN, COMMITTED, ABORTED)
            assert entry.offset >= log.stable
            assert right != OPEN or not lists_open, "the partition lists what is open"
        else:
            assert entry.fate == right


async def test_the_search_for_markers_reads_at_most_scan_bytes_after_the_page_of_records() -> None:
    broker = Broker(log_of([("records", 1, 1)] + [("records", -1, 1)] * 50), page=1)
    size = broker.log.batches[1].size
    window = await window_of(broker, 0, Limits(1, scan_bytes=3 * size))
    assert [each.fate for each in window.entries] == [OPEN]
    # A read_committed fetch that returns nothing, one for the batch that is shown, and the search for its marker.
    assert broker.pages <= 1 + 1 + 3


@pytest.mark.parametrize("limit", ["records", "batches", "bytes"])
async def test_a_console_page_of_records_ends_at_its_limit_of_records_batches_or_bytes(limit: str) -> None:
    broker = Broker(log_of([("records", -1, 2)] * 50), page=5)
    most = {"records": 6, "batches": 3, "bytes": 3 * broker.log.batches[0].size}
    window = await window_of(broker, 0, Limits(100, **{limit: most[limit]}))
    assert (len(window.entries), window.next_offset, broker.pages) == (3, 6, 1)


async def test_the_marker_search_stops_once_every_batchs_outcome_is_known() -> None:
    steps = [("records", 1, 1), ("records", 2, 1), ("commit", 2, 0)] + [("records", -1, 1)] * 50
    broker = Broker(log_of(steps), page=1)
    window = await window_of(broker, 1, Limits(2))
    assert [each.fate for each in window.entries] == [COMMITTED]
    assert broker.pages < 6, "of the 50 batches after the marker, hardly any are read"


async def test_a_page_of_records_ends_with_the_batch_that_reaches_its_number_of_records() -> None:
    log = log_of([("records", -1, 4)] * 5)
    window = await window_of(Broker(log, 10), 2, Limits(log.high, records=5))
    assert (window.records, window.next_offset, len(window.entries)) == (6, 8, 2)  # 2 of the first batch, and 4


async def test_records_before_a_damaged_batch_are_shown_with_the_error() -> None:
    class Damaged(Broker):
        async def read_page(
            self, tp: TopicPartition, start: int, *, isolation_level: str, most_bytes: int
        ) -> FetchedPage:
            if start >= 2:
                raise CorruptRecordError(f"{TP}: at offset 2: bad", partition=TP, offset=2)
            return await super().read_page(tp, start, isolation_level=isolation_level, most_bytes=most_bytes)

    log = log_of([("records", -1, 2)] * 3)
    window = await window_of(Damaged(log, 1), 0, Limits(log.high))
    assert [each.offset for each in window.entries] == [0]
    assert window.next_offset == 2
    assert "offset 2" in window.problem


@pytest.mark.parametrize("scan", [0, 1 << 20])
async def test_a_page_of_a_range_without_records_is_empty(scan: int) -> None:
    window = await window_of(Broker(log_of([]), 1), 0, Limits(0, scan_bytes=scan))
    assert (window.entries, window.next_offset, window.problem) == ([], 0, "")
