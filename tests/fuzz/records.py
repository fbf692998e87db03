"""Targets: record batches, the records in them by every decoder, markers, compression.

The rule: the plain decoder, `protocol.records.records`, is right; each other one gives the same, or refuses where that
refuses. What was read is written as bytes that read as the same. The CRC and length of a batch are made right first,
or nothing would come past them.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import cramjam
from fencepost.client.records.columns import Columns, WantedColumns
from fencepost.client.records.decoding import Records, records_of
from fencepost.client.records.fetched import Fetched
from fencepost.client.records.whole_batches import WholeBatches
from fencepost.client.values import TopicPartition
from fencepost.protocol import producing
from fencepost.protocol.batches import (
    CRC_COVERS_FROM,
    HEADER_BYTES,
    LENGTH_ENDS_AT,
    MAGIC,
    MAGIC_AT,
    Batch,
    CorruptBatch,
    check_produced,
    read,
    stamp_header,
    verify,
    walk,
    with_log_append_time,
)
from fencepost.protocol.compression import Codec, compress, decompress
from fencepost.protocol.errors import KafkaError
from fencepost.protocol.raw_records import drop_records, raw_records, rewrite, times
from fencepost.protocol.record_scan import MAX_NAMED, NO_TIMESTAMP, check_keys, outside
from fencepost.protocol.records import (
    HIGHEST,
    LOWEST,
    Marker,
    Record,
    _read_any_marker,
    build,
    control_marker,
    payload_of,
    read_marker,
    recompress,
    records,
)
from fuzz.target import REFUSED, Target, all_joined, outcome, several, with_crc

LIMIT = 1 << 16
NOW_MS = 1_790_000_000_000
TP = TopicPartition("t", 7)


def whole(data: bytes) -> bytearray:
    """Return the batch with length, magic and CRC made to fit its bytes."""
    batch = bytearray(data.ljust(HEADER_BYTES, b"\0"))
    batch[8:LENGTH_ENDS_AT] = (len(batch) - LENGTH_ENDS_AT).to_bytes(4, "big")
    batch[MAGIC_AT] = MAGIC
    return with_crc(batch, 17, slice(CRC_COVERS_FROM, None))


def some_batches() -> Iterator[bytes]:
    """Records of every shape for which a decoder has code of its own."""
    alike = [Record(n, NOW_MS + n, b"key", b"v" * 5) for n in range(30)]
    wide = [Record(n, NOW_MS + 9_000 * n, None, b"w" * 70) for n in range(20)]
    odd = [Record(3 * n, NOW_MS - n, b"k" * (n * 30), None, (("h", b"1"), ("n", None))) for n in range(4)]
    for codec in Codec:
        yield build(alike, codec=codec)
    yield build(wide)
    yield build(odd, producer_id=9, producer_epoch=1, base_sequence=5, transactional=True)
    yield build(alike[:2], log_append_time=NOW_MS + 5, base_offset=0)
    yield build([Record(2**62 + n, 2**62 + n, b"far", b"") for n in range(3)], base_offset=2**62)
    yield build([Record(0, -(2**61), b"k", b"v"), Record(1, 2**62, b"k", b"v")])
    yield build([Record(n, NOW_MS, b"k", b"v") for n in range(70)])
    yield control_marker(Marker.COMMIT, 9, 1, 3, NOW_MS)
    yield build([], last_offset_delta=4)


# ---- batches -----------------------------------------------------------------------------------------------------


def look_at_batches(data: bytes) -> None:
    """Read any bytes as a sequence of batches; then again with length and CRC of the first one corrected."""
    for content in (data, bytes(whole(data))):
        view = memoryview(content)
        batches: list[Batch] = []
        damaged_at = _walk(view, batches)
        assert damaged_at in (None, sum(batch.size for batch in batches))
        for batch in batches:
            outcome(partial(verify, batch), CorruptBatch)
            _ = repr(batch), batch.last_sequence, batch.codec, batch.delete_horizon_ms
        assert sum(batch.size for batch in batches) <= len(content)
        found = WholeBatches(5, [view])
        assert [batch.size for batch in found.batches] == [batch.size for batch in batches]
        assert found.next_offset == max([5, *(batch.next_offset for batch in batches)])
        _look_at_produced(view)


def _walk(view: memoryview, found: list[Batch]) -> int | None:
    """Collect the batches, and return the position of the first damaged one, if any."""
    try:
        for batch in walk(view):
            found.append(batch)
    except CorruptBatch as damage:
        return damage.position
    return None


def _look_at_produced(view: memoryview) -> None:
    batch = outcome(lambda: check_produced(view), KafkaError)
    if batch is REFUSED:
        return
    verify(read(batch.buffer))
    assert batch.record_count == batch.last_offset_delta + 1
    assert not batch.is_log_append_time
    dated = with_log_append_time(batch, NOW_MS)
    verify(dated)
    assert (dated.max_timestamp, dated.is_log_append_time) == (NOW_MS, True)
    placed = read(memoryview(stamp_header(batch, 77) + bytes(batch.buffer[16:])))
    verify(placed)
    assert placed.last_offset == 77 + batch.last_offset_delta


def look_at_fetched(data: bytes) -> None:
    """Decode an answer as a consumer does: records, then at most one error; the position never goes back."""
    fetched = Fetched(TP, 3, -1, [memoryview(data)], [(9, 0)], limit=LIMIT)
    position = fetched.position
    for _ in range(len(data) + 2):
        try:
            run = fetched.run(5)
        except KafkaError:
            assert fetched.position >= position
            return
        assert all(record.offset >= 3 for record in run)
        assert fetched.position >= position
        position = fetched.position
        if not run:
            break
    assert fetched.is_done


def _fetches() -> Iterator[bytes]:
    every = list(some_batches())
    yield from every
    placed = []
    offset = 0
    for each in every[:6]:
        batch = read(memoryview(each))
        placed.append(stamp_header(batch, offset) + each[16:])
        offset += batch.last_offset_delta + 1
    yield b"".join(placed)
    yield b"".join(placed)[:-9]


# ---- records -----------------------------------------------------------------------------------------------------


def look_at_records(data: bytes) -> None:
    batch = outcome(lambda: read(memoryview(bytes(whole(data)))), CorruptBatch)
    if batch is REFUSED:
        return
    plain = outcome(lambda: list(records(batch, limit=LIMIT)), KafkaError)
    _compare_consumer(batch, plain)
    _compare_columns(batch, plain)
    payload = outcome(lambda: payload_of(batch, LIMIT), KafkaError)
    if payload is REFUSED:
        assert plain is REFUSED
        return
    raw = outcome(lambda: list(raw_records(batch, payload)), KafkaError)
    dated = outcome(lambda: list(times(batch, payload)), KafkaError)
    keyed = outcome(lambda: check_keys(batch, payload), KafkaError)
    late = outcome(lambda: outside(batch, payload, NOW_MS - 3, NOW_MS + 3), KafkaError)
    verify(read(memoryview(drop_records(batch))))
    if plain is REFUSED:
        return
    assert [(r.offset, r.key, r.is_tombstone) for r in raw] == [(r.offset, r.key, r.value is None) for r in plain]
    assert b"".join(payload[r.begin : r.end] for r in raw) == payload
    assert dated == [(r.offset, r.timestamp) for r in plain]
    in_place = all(r.offset - batch.base_offset == n and r.key is not None for n, r in enumerate(plain))
    assert (keyed is not REFUSED) == in_place
    own_times = [r.timestamp for r in raw]
    early_or_late = [(n, t) for n, t in enumerate(own_times) if not NOW_MS - 3 <= t <= NOW_MS + 3 and t != NO_TIMESTAMP]
    assert late == (early_or_late[:MAX_NAMED], len(early_or_late))
    _write_again(batch, payload, plain, own_times)


def _compare_consumer(batch: Batch, plain: Any) -> None:
    def pieces() -> list[Any]:
        rest, found = Records(batch, "t", 7, limit=LIMIT), []
        while rest.left:
            found += rest.take(3)
        return found

    for decode in (lambda: records_of(batch, "t", 7, limit=LIMIT), pieces):
        fast = outcome(decode, KafkaError)
        assert (fast is REFUSED) == (plain is REFUSED), (fast, plain)
        if plain is not REFUSED:
            assert [(r.offset, r.timestamp_ms, r.key, r.value, r.headers) for r in fast] == list(map(tuple, plain))


def _compare_columns(batch: Batch, plain: Any) -> None:
    def columns(wanted: WantedColumns) -> Any:
        found = Columns(wanted)
        found.add(batch, -1, HIGHEST + 1, limit=LIMIT)
        return found

    found = outcome(lambda: columns(WantedColumns()), KafkaError)
    assert (found is REFUSED) == (plain is REFUSED)
    fewer = outcome(lambda: columns(WantedColumns(False, True, False, False)), KafkaError)
    if plain is REFUSED:
        return
    assert list(zip(found.offsets, found.timestamps, found.keys, found.values, found.headers, strict=True)) == (
        list(map(tuple, plain))
    )
    assert fewer.values == found.values


def _write_again(batch: Batch, payload: bytes, plain: list[Record], own_times: list[int]) -> None:
    """Write the records by each writer that can represent their timestamps."""
    contents = list(map(tuple, plain))
    # What cannot be written: records without a base to go by, and timestamps whose distance does not fit into a delta.
    built = outcome(
        lambda: build(
            plain, base_offset=batch.base_offset, last_offset_delta=batch.last_offset_delta, codec=batch.codec
        ),
        KafkaError,
    )
    if built is not REFUSED:
        assert list(map(tuple, records(read(memoryview(built)), limit=LIMIT))) == contents
    if batch.record_count:
        other = read(memoryview(recompress(batch, payload, Codec.LZ4)))
        verify(other)
        assert list(map(tuple, records(other, limit=LIMIT))) == contents
        kept = [n % 2 == 0 for n in range(len(plain))]
        for horizon in (None, NOW_MS):
            written = outcome(
                lambda horizon=horizon: rewrite(batch, payload, kept, delete_horizon_ms=horizon), KafkaError
            )
            if written is REFUSED:
                assert horizon is not None or not all(LOWEST <= t <= HIGHEST for t in own_times)
                continue
            rest = read(memoryview(written))
            verify(rest)
            assert list(map(tuple, records(rest, limit=LIMIT))) == contents[::2]


def look_at_markers(data: bytes) -> None:
    """Reading a marker in place gives the same marker as decoding its record."""
    batch = outcome(lambda: read(memoryview(bytes(whole(data)))), CorruptBatch)
    if batch is REFUSED or not batch.is_control:
        return
    fast = outcome(lambda: read_marker(batch), KafkaError)
    general = outcome(lambda: _read_any_marker(batch), KafkaError)
    assert fast == general, (fast, general)


def _markers() -> Iterator[bytes]:
    for kind in Marker:
        yield control_marker(kind, 9, 1, 3, NOW_MS)
    for key in (b"\0\0\0\1", b"\0\0\0\7", b"\0\1\0\0"):
        for value in (b"\0\0\0\0\0\5", b"\0\1\0\0\0\5\0", b""):
            yield build(
                [Record(0, NOW_MS, key, value)], control=True, transactional=True, producer_id=3, producer_epoch=0
            )


# ---- compression -------------------------------------------------------------------------------------------------


def look_at_compression(data: bytes) -> None:
    """Decompression stays within its limit, and its output survives compressing and decompressing again."""
    codec, limit = int.from_bytes(data[:1], "big") % 6, int.from_bytes(data[1:3], "big")
    found = outcome(lambda: decompress(codec, data[3:], limit=limit), KafkaError)
    if found is REFUSED:
        return
    assert len(found) <= limit
    assert decompress(codec, compress(codec, found), limit=limit) == found
    assert decompress(codec, memoryview(data)[3:], limit=limit) == found


def _compressed() -> Iterator[bytes]:
    for codec in Codec:
        for payload in (b"", b"a", b"text " * 40, bytes(3000)):
            yield bytes((codec, 0x10, 0)) + compress(codec, payload)
            yield bytes((codec, 0, 3)) + compress(codec, payload)
    yield bytes((Codec.SNAPPY, 0x10, 0)) + bytes(cramjam.snappy.compress_raw(b"raw " * 40))
    yield bytes((Codec.GZIP, 0x10, 0)) + 2 * compress(Codec.GZIP, b"twice")


def look_at_producing(data: bytes) -> None:
    """A batch written from columns equals the one built record by record, and decodes to the same records."""
    parts = several(data)
    keys = [part[1:] if part[:1] != b"\0" else None for part in parts[0::4]]
    values = [part[1:] if part[:1] != b"\0" else None for part in parts[1::4]]
    stamps = [int.from_bytes(part[:8], "big", signed=True) for part in parts[2::4]]
    names = [part.decode("utf-8", "surrogateescape") for part in parts[3::4]]
    count = min(map(len, (keys, values, stamps, names)))
    if not count:
        return
    headers = {n: ((name, keys[n]),) for n, name in enumerate(names[:count]) if name}
    contents = [Record(n, stamps[n], keys[n], values[n], headers.get(n, ())) for n in range(count)]
    built = outcome(lambda: build(contents), KafkaError)
    written = outcome(lambda: producing.payload(keys[:count], values[:count], stamps[:count], headers), KafkaError)
    assert (built is REFUSED) == (written is REFUSED)
    if built is not REFUSED:
        framed = producing.frame_batch(written, count, stamps[0], max(stamps[:count]))
        assert framed == built
        assert list(records(read(memoryview(framed)))) == contents


def _produced() -> Iterator[bytes]:
    stamp = NOW_MS.to_bytes(8, "big")
    yield all_joined([b"\1key", b"\1value", stamp, b"header"])
    yield all_joined([b"\0", b"\0", stamp, b""] * 3)
    yield all_joined([b"\1" + b"k" * 70, b"\1" + b"v" * 300, stamp, b""])
    yield all_joined([b"\0", b"\1v", b"\x7f" + b"\xff" * 7, b"", b"\0", b"\1v", b"\x80" + bytes(7), b"\xff\xfe"])


TARGETS = [
    Target("batches", look_at_batches, some_batches),
    Target("fetched", look_at_fetched, _fetches, at_most_bytes=4096),
    Target("records", look_at_records, some_batches, lines_per_byte=600, memory=1_500_000),
    Target("markers", look_at_markers, _markers, at_most_bytes=200, memory=1_500_000),
    Target("compression", look_at_compression, _compressed),
    Target("producing", look_at_producing, _produced),
]
