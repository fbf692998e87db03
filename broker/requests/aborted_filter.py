"""Removes the batches of aborted transactions from what was read, for readers that would not skip them. Pure.

The rules: only the 61 bytes of each batch's header are read. Control batches stay, because the marker that ends an
aborted transaction moves the reader's position past it. The remaining batches are returned as slices, one for each
series of consecutive batches.

Source: Kafka's FetchedRecords; the same rule on the reader's side is in client/records/isolation.py.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ...protocol.batches import CONTROL_BIT, LENGTH_ENDS_AT, TRANSACTIONAL_BIT, unpack_header
from ...storage.producers.aborted import AbortedTransaction


class Header(NamedTuple):
    """A batch's place in the bytes read (position inclusive, end exclusive), and fields of its header."""

    position: int
    end: int
    base_offset: int
    last_offset: int
    attributes: int
    producer_id: int
    record_count: int

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0


class Committed(NamedTuple):
    """The batches that remain after the removal of aborted ones.

    next_offset: one above the last offset that was looked at. is_full: whether a batch was left out because it would
    have exceeded max_bytes.
    """

    buffers: list[memoryview]
    size_bytes: int
    next_offset: int
    is_full: bool


class AbortedRanges:
    """The offset ranges of some aborted transactions, by producer id."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._ranges: dict[int, list[tuple[int, int]]] = {}
        for producer_id, first_offset, last_offset, _ in aborted:
            self._ranges.setdefault(producer_id, []).append((first_offset, last_offset))

    def hold(self, header: Header) -> bool:
        """Return whether the batch is data of one of these aborted transactions. A marker is not, and so it is kept."""
        if header.attributes & (TRANSACTIONAL_BIT | CONTROL_BIT) != TRANSACTIONAL_BIT:
            return False
        base_offset, last_offset = header.base_offset, header.last_offset
        return any(
            first <= last_offset and base_offset <= marker for first, marker in self._ranges.get(header.producer_id, ())
        )


def headers(data: memoryview) -> Iterator[Header]:
    """Yield the header of each batch in `data`: complete, consecutive batches that the log has checked."""
    position, end = 0, len(data)
    while position < end:
        base, length, _, _, _, attributes, last_delta, _, _, producer_id, _, _, count = unpack_header(data, position)
        after = position + length + LENGTH_ENDS_AT
        yield Header(position, after, base, base + last_delta, attributes, producer_id, count)
        position = after


def leave_out_aborted(
    data: memoryview, aborted: Iterable[AbortedTransaction], max_bytes: int, *, at_least_one: bool
) -> Committed:
    """Return the batches that were not aborted, up to max_bytes in total; next_offset is -1 if `data` has no batch.

    at_least_one: the first remaining batch is returned even if it alone exceeds max_bytes.
    """
    ranges = AbortedRanges(aborted)
    buffers: list[memoryview] = []
    begin = size = 0  # of the run of batches that stay
    next_offset, is_full = -1, False
    for header in headers(data):
        if ranges.hold(header):
            if begin < header.position:
                buffers.append(data[begin : header.position])
            begin = header.end
        else:
            more = header.end - header.position
            if size + more > max_bytes and (size or not at_least_one):
                data, is_full = data[: header.position], True
                break
            size += more
        next_offset = header.last_offset + 1
    if begin < len(data):
        buffers.append(data[begin:])
    return Committed(buffers, size, next_offset, is_full)
