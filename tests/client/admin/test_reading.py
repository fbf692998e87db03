"""Batches as they lie in the log, of brokers that cut the last one off and of logs that are damaged."""

from typing import Any

import pytest
from fencepost.client.admin.reading import FETCH_BYTES, MAX_BYTES, ReadingAdmin
from fencepost.client.errors import CorruptRecordError, RecordTooLargeError
from fencepost.client.values import TopicPartition
from fencepost.protocol.messages.fetch import FetchResponse
from fencepost.protocol.records import Record, build

TP = TopicPartition("t", 0)


class Cutting(ReadingAdmin):
    """Reads a log of batches of one record, the first at offset 0, which is cut off where the bytes asked for end."""

    def __init__(self, *batches: bytes) -> None:
        self._batches = batches
        self.asked: list[tuple[int, int]] = []

    async def _fetch(
        self, partition: TopicPartition, offset: int, max_bytes: int, isolation: int, wait_ms: int, retry: bool
    ) -> FetchResponse.Topic.Partition:
        self.asked.append((offset, max_bytes))
        assert len(self.asked) < 50, "it asks for ever"
        found = b"".join(self._batches[offset:])[:max_bytes]
        return FetchResponse.Topic.Partition(partition_index=0, records=[memoryview(found)] if found else [])

    async def read(self, end: int = 100) -> list[int]:
        return [batch.base_offset async for batch in self.read_batches(TP, 0, end)]

    async def read_until_it_fails(self, error: type[Exception]) -> tuple[list[int], Any]:
        found: list[int] = []
        try:
            async for batch in self.read_batches(TP, 0, 100):
                found.append(batch.base_offset)
        except error as raised:
            return found, raised
        pytest.fail("nothing is raised")


def batch(offset: int, size: int = 10) -> bytes:
    return build([Record(offset, 5, None, bytes(size))], base_offset=offset)


async def test_read_batches_fetches_a_batch_above_the_fetch_size_again_with_its_own_size() -> None:
    large = batch(1, 5 * FETCH_BYTES)
    admin = Cutting(batch(0), large, batch(2))
    assert await admin.read() == [0, 1, 2]
    assert admin.asked == [(0, FETCH_BYTES), (1, FETCH_BYTES), (1, len(large)), (2, len(large)), (3, len(large))]


async def test_read_batches_stops_before_the_given_end_offset() -> None:
    assert await Cutting(batch(0), batch(1), batch(2)).read(end=2) == [0, 1]


@pytest.mark.parametrize(("at", "what"), [(8, "size"), (16, "magic"), (-1, "CRC")])
async def test_read_batches_raises_damage_with_its_offset_after_the_valid_batches(at: int, what: str) -> None:
    damaged = bytearray(batch(1))
    damaged[at] ^= 0xFF
    found, error = await Cutting(batch(0), bytes(damaged), batch(2)).read_until_it_fails(CorruptRecordError)
    assert (found, error.offset, what in str(error)) == ([0], 1, True), error


async def test_read_batches_raises_if_a_batch_does_not_fit_into_a_fetch_of_most_bytes() -> None:
    damaged = bytearray(batch(1))
    damaged[8] = 0x7F
    admin = Cutting(batch(0), bytes(damaged), batch(2))
    found, error = await admin.read_until_it_fails(RecordTooLargeError)
    assert (found, "offset 1" in str(error), admin.asked[-1]) == ([0], True, (1, MAX_BYTES))


async def test_read_page_returns_the_batches_before_damage_and_the_next_call_raises() -> None:
    damaged = bytearray(batch(1))
    damaged[-1] ^= 0xFF
    admin = Cutting(batch(0), bytes(damaged))
    page = await admin.read_page(TP, 0)
    assert ([each.base_offset for each in page.batches], page.next_offset) == ([0], 1)
    with pytest.raises(CorruptRecordError):
        await admin.read_page(TP, 1)


async def test_read_page_raises_record_too_large_for_a_batch_above_its_most_bytes() -> None:
    admin = Cutting(batch(0, 3 * FETCH_BYTES))
    with pytest.raises(RecordTooLargeError):
        await admin.read_page(TP, 0, most_bytes=2 * FETCH_BYTES)
    assert [each for _, each in admin.asked] == [FETCH_BYTES, 2 * FETCH_BYTES]
