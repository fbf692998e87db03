"""What a client may send as the records of one partition, and what Apache Kafka 4.3.1 answers.

`python tests/support/wire/bad_batches.py HOST:PORT` asks a running Kafka again, over Produce v7, and prints
what differs.
"""

import gzip
import socket
import struct
import sys
import time
from typing import NamedTuple

import cramjam
from raw_batches import batch, record, sized, varint

NONE, SERVER_ERROR, CORRUPT, TOO_LARGE, EPOCH, TXN_ID, INVALID = 0, -1, 2, 10, 47, 53, 87


class Case(NamedTuple):
    """`kafka` is the recorded answer; `ours` the answer of the header checks, where it differs, and `why` it does."""

    sent: bytes
    kafka: int
    ours: int | None = None
    why: str = ""


STRICTER = "nothing but one whole batch is accepted: bytes that nobody asked for are not dropped in silence"
CRASH = "Kafka fails with an exception of its own"
UNREAD = "the records are opaque here; reading them does not go"
NOT_REWRITTEN = "Kafka lets it pass; the next reader would stumble"
THREE = record(0) + record(1) + record(2)

FRAMES = {
    "one record": Case(batch(), NONE),
    "three records": Case(batch(records=3), NONE),
    "no bytes": Case(b"", INVALID),
    "ten NUL": Case(bytes(10), INVALID),
    "sixteen NUL": Case(bytes(16), CORRUPT),
    "sixty-one NUL": Case(bytes(61), CORRUPT),
    "a header cut by one byte": Case(batch()[:60], INVALID),
    "a batch cut by one byte": Case(batch()[:-1], INVALID),
    "one byte more": Case(batch() + b"\0", NONE, INVALID, STRICTER),
    "twenty NUL more": Case(batch() + bytes(20), CORRUPT, INVALID, STRICTER),
    "half a batch more": Case(batch() + batch()[:-5], NONE, INVALID, STRICTER),
    "two batches": Case(batch() + batch(), INVALID),
    "magic 0": Case(batch(magic=0), INVALID),
    "magic 1": Case(batch(magic=1), INVALID),
    "magic 3": Case(batch(magic=3), CORRUPT),
    "magic -1": Case(batch(magic=-1), CORRUPT),
    "a wrong CRC": Case(batch(crc=1), CORRUPT),
    "a wrong CRC and base offset": Case(batch(crc=1, base_offset=1), INVALID),
    "base offset 1": Case(batch(base_offset=1), INVALID),
    "base offset -1": Case(batch(base_offset=-1), INVALID),
    "length 0": Case(batch(length=0), CORRUPT),
    "length 2": Case(batch(length=2), CORRUPT),
    "length -1": Case(batch(length=-1), CORRUPT),
    "length 48": Case(batch(length=48), CORRUPT),
    "length one too short": Case(batch(length=49 + len(record()) - 1), CORRUPT),
    "length 2^31-1": Case(batch(length=2**31 - 1), SERVER_ERROR, INVALID, CRASH),
    "leader epoch 7": Case(batch(leader_epoch=7), NONE),
}

COUNTS = {
    "no records": Case(batch(b"", count=0, last_offset_delta=-1), INVALID),
    "count 0": Case(batch(count=0), INVALID),
    "count 1 and no bytes": Case(batch(b""), INVALID),
    "count -1": Case(batch(count=-1), INVALID),
    "last offset delta -1": Case(batch(last_offset_delta=-1), INVALID),
    "count -1 and last offset delta -2": Case(batch(count=-1, last_offset_delta=-2), INVALID),
    "last offset delta 1 of one record": Case(batch(last_offset_delta=1), INVALID),
    "count 2 of one record": Case(batch(count=2, last_offset_delta=1), INVALID),
    "count 1 of two records": Case(batch(record(0) + record(1)), INVALID, NONE, UNREAD),
    "count 2^31-1": Case(batch(count=2**31 - 1, last_offset_delta=2**31 - 2), INVALID),
}

ATTRIBUTES = {
    "codec 5": Case(batch(attributes=5), SERVER_ERROR, INVALID, CRASH),
    "codec 6": Case(batch(attributes=6), SERVER_ERROR, INVALID, CRASH),
    "codec 7": Case(batch(attributes=7), SERVER_ERROR, INVALID, CRASH),
    "control bit": Case(batch(attributes=0x20), INVALID),
    "delete horizon bit": Case(
        batch(attributes=0x40), NONE, INVALID, "the cleaner alone says when a tombstone may go; Kafka believes anyone"
    ),
    "bit 7": Case(batch(attributes=0x80), NONE),
    "sign bit": Case(batch(attributes=-32768), NONE),
    "LogAppendTime bit": Case(batch(attributes=8), NONE),
}

PRODUCERS = {
    "producer id, sequence -1": Case(batch(producer_id=5, producer_epoch=0), INVALID),
    "producer id, sequence -2": Case(batch(producer_id=5, producer_epoch=0, base_sequence=-2), INVALID),
    "producer id, epoch -1": Case(
        batch(producer_id=6, base_sequence=0), NONE, EPOCH, "no such epoch was ever given; Kafka keeps it as the first"
    ),
    "producer id, epoch -1, sequence -1": Case(batch(producer_id=6), INVALID),
    "producer id, epoch -2": Case(batch(producer_id=6, producer_epoch=-2, base_sequence=0), EPOCH),
    "producer id -2": Case(batch(producer_id=-2, producer_epoch=0, base_sequence=0), NONE),
    "no producer id, epoch 3": Case(batch(producer_epoch=3), NONE),
    "no producer id, sequence 3": Case(batch(base_sequence=3), NONE),
    "transactional without a producer id": Case(
        batch(attributes=0x10), TXN_ID, INVALID, "the handler answers 53 before, when there is no transactional id"
    ),
}

RECORDS = {
    "bytes FF": Case(batch(b"\xff" * 20), SERVER_ERROR, NONE, CRASH),
    "bytes NUL": Case(batch(bytes(20)), INVALID, NONE, UNREAD),
    "record length one too long": Case(batch(record(lies_by=1)), INVALID, NONE, UNREAD),
    "record length one too short": Case(batch(record(lies_by=-1)), INVALID, NONE, UNREAD),
    "record length -5": Case(batch(record(length=-5)), INVALID, NONE, UNREAD),
    "record length 2^31-1": Case(batch(record(length=2**31 - 1)), INVALID, NONE, UNREAD),
    "bytes after the last record": Case(batch(record() + b"abc"), INVALID, NONE, UNREAD),
    "key length -2": Case(batch(varint(7) + bytes(3) + varint(-2) + b"\2v\0\0"), INVALID, NONE, UNREAD),
    "key length beyond the record": Case(batch(varint(7) + bytes(3) + varint(63) + b"\2v\0"), INVALID, NONE, UNREAD),
    "header with a null key": Case(
        batch(varint(8) + bytes(3) + b"\1\1" + varint(1) + sized(None) * 2), INVALID, NONE, UNREAD
    ),
    "header count -1": Case(batch(varint(6) + bytes(3) + b"\1\1" + varint(-1)), INVALID, NONE, UNREAD),
    "header count 5000": Case(batch(varint(7) + bytes(3) + b"\1\1" + varint(5000)), INVALID, NONE, UNREAD),
    "a varint of six bytes": Case(batch(b"\xff" * 5 + b"\1" + bytes(20)), SERVER_ERROR, NONE, CRASH),
    "offset deltas 0 0": Case(batch(record(0) + record(0), count=2, last_offset_delta=1), NONE, None, NOT_REWRITTEN),
    "offset deltas 1 0": Case(batch(record(1) + record(0), count=2, last_offset_delta=1), NONE, None, NOT_REWRITTEN),
    "offset deltas 0 5": Case(batch(record(0) + record(5), count=2, last_offset_delta=1), NONE, None, NOT_REWRITTEN),
    "offset delta -1": Case(batch(record(-1)), NONE, None, NOT_REWRITTEN),
    "record attributes 1": Case(batch(record(attributes=1)), NONE),
    "a header key that is no UTF-8": Case(batch(record(headers=[(b"\xff\xfe", b"x")])), NONE),
}

COMPRESSED = {
    "gzip": Case(batch(gzip.compress(record()), attributes=1), NONE),
    "gzip, two members": Case(
        batch(gzip.compress(record(0)) + gzip.compress(record(1)), attributes=1, count=2, last_offset_delta=1), NONE
    ),
    "gzip, bytes after it": Case(batch(gzip.compress(record()) + b"abcdef", attributes=1), NONE),
    "gzip garbage": Case(batch(b"garbage!", attributes=1), SERVER_ERROR, NONE, CRASH),
    "gzip cut": Case(
        batch(gzip.compress(THREE)[:-9], attributes=1, count=3, last_offset_delta=2), SERVER_ERROR, NONE, CRASH
    ),
    "gzip of no bytes": Case(batch(b"", attributes=1), SERVER_ERROR, NONE, CRASH),
    "gzip count too low": Case(
        batch(gzip.compress(THREE), attributes=1, count=2, last_offset_delta=1), INVALID, NONE, UNREAD
    ),
    "gzip count too high": Case(
        batch(gzip.compress(THREE), attributes=1, count=4, last_offset_delta=3), INVALID, NONE, UNREAD
    ),
    "gzip offset deltas 0 2": Case(
        batch(gzip.compress(record(0) + record(2)), attributes=1, count=2, last_offset_delta=1),
        SERVER_ERROR,
        NONE,
        CRASH,
    ),
    "gzip bytes after the last record": Case(
        batch(gzip.compress(record() + b"abc"), attributes=1), INVALID, NONE, UNREAD
    ),
    "snappy raw": Case(batch(bytes(cramjam.snappy.compress_raw(record())), attributes=2), NONE),
    "snappy garbage": Case(batch(b"garbage!", attributes=2), SERVER_ERROR, NONE, CRASH),
    "lz4 garbage": Case(batch(b"garbage!", attributes=3), SERVER_ERROR, NONE, CRASH),
    "lz4 of dependent blocks": Case(
        batch(bytes(cramjam.lz4.compress(record())), attributes=3),
        SERVER_ERROR,
        NONE,
        "Java cannot read this frame, we can; it is the client's choice",
    ),
    "zstd": Case(batch(bytes(cramjam.zstd.compress(record())), attributes=4), NONE),
    "zstd garbage": Case(batch(b"garbage!", attributes=4), SERVER_ERROR, NONE, CRASH),
}

CASES = {**FRAMES, **COUNTS, **ATTRIBUTES, **PRODUCERS, **RECORDS, **COMPRESSED}
ACCEPTED_BY_BOTH = [name for name, case in CASES.items() if case.kafka == NONE and not case.ours]


class _Kafka:
    """Just enough of a client to send any bytes as records."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=30)

    def call(self, api: int, version: int, body: bytes) -> bytes:
        frame = struct.pack(">hhih", api, version, 1, 1) + b"b" + body
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)
        return self._receive(struct.unpack(">i", self._receive(4))[0])[4:]

    def _receive(self, size: int) -> bytes:
        received = b""
        while len(received) < size:
            received += self.socket.recv(size - len(received))
        return received

    def create(self, topic: str) -> None:
        self.call(
            19, 2, struct.pack(">ih", 1, len(topic)) + topic.encode() + struct.pack(">ihiii?", 1, 1, 0, 0, 9999, 0)
        )

    def produce(self, topic: str, records: bytes) -> int:
        body = struct.pack(">hhiih", -1, -1, 9999, 1, len(topic)) + topic.encode()
        answer = self.call(0, 7, body + struct.pack(">iii", 1, 0, len(records)) + records)
        return int(struct.unpack_from(">h", answer, 4 + 2 + len(topic) + 4 + 4)[0])


def ask(address: str) -> dict[str, int]:
    """Produce the batch of every case to a running Kafka, and return its error codes by the case's name."""
    kafka, topic = _Kafka(address), f"b-{time.time_ns()}"
    kafka.create(topic)
    time.sleep(1)
    return {name: kafka.produce(topic, case.sent) for name, case in CASES.items()}


if __name__ == "__main__":
    answers = ask(sys.argv[1])
    print(
        len(answers),
        "asked;",
        {name: code for name, code in answers.items() if code != CASES[name].kafka} or "as recorded",
    )
