"""Measures how much CPU time the broker needs to serve a range with very many aborted transactions, by isolation level.

For a read_committed reader the broker looks up the aborted transactions and sends a list of them along. The same range
is read again and again with large fetches, alternately at both levels, so that caches are equally warm for both.
"""

import struct
from dataclasses import dataclass

from ...protocol import records
from ...protocol.messages.fetch import FetchRequest
from ...protocol.messages.produce import ProduceRequest
from ...protocol.messages.transactions import EndTxnRequest, InitProducerIdRequest
from .. import accounting, topics
from ..peers import peers
from ..wire import Wire

ABORTED = 10_000
TOPIC = "aborted"
FETCH_BYTES = 1 << 20
READS = 20  # of the whole range, for one measurement
READ_UNCOMMITTED, READ_COMMITTED = 0, 1


@dataclass(slots=True)
class _Producer:
    """Producer id and epoch. With transaction version 2 each transaction increases the epoch."""

    producer_id: int
    epoch: int


def measure(transactions: int, rounds: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Write and abort this many transactions, then read them at both isolation levels. Returns the broker's CPU time in
    µs for reading them once, in each round: (read_committed, read_uncommitted).
    """
    with peers.fencepost("os") as broker:
        topics.create(broker.host, broker.port, TOPIC, 1)
        wire = Wire(broker.host, broker.port, 30)
        _abort_many(wire, transactions)
        cost: dict[int, list[float]] = {READ_COMMITTED: [], READ_UNCOMMITTED: []}
        for number in range(rounds):
            levels = (READ_COMMITTED, READ_UNCOMMITTED) if number % 2 else (READ_UNCOMMITTED, READ_COMMITTED)
            for level in levels:
                cost[level].append(_cost(broker, wire, level, 2 * transactions))  # a record and a marker each
        wire.close()
    return tuple(cost[READ_COMMITTED]), tuple(cost[READ_UNCOMMITTED])


def _abort_many(wire: Wire, transactions: int) -> None:
    """Write and abort this many transactions of one record each."""
    asked = InitProducerIdRequest(transactional_id="aborts", transaction_timeout_ms=60_000)
    while (answer := wire.call(asked, 5)).error_code:  # the transaction coordinator is not ready yet
        pass
    producer = _Producer(answer.producer_id, answer.producer_epoch)
    for _ in range(transactions):
        batch = records.build(
            [records.Record(0, 0, None, b"x" * 100)],
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=0,
            transactional=True,
        )
        part = ProduceRequest.Topic.Partition(index=0, records=memoryview(batch))
        topic = ProduceRequest.Topic(name=TOPIC, partition_data=[part])
        sent = ProduceRequest(transactional_id="aborts", acks=-1, timeout_ms=30_000, topic_data=[topic])
        _check_success(wire.call(sent, 12).responses[0].partition_responses[0].error_code)
        end = EndTxnRequest(
            transactional_id="aborts",
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            committed=False,
        )
        ended = wire.call(end, 5)
        _check_success(ended.error_code)
        producer = _Producer(ended.producer_id, ended.producer_epoch)


def _check_success(error_code: int) -> None:
    """Raise RuntimeError if the broker answered with an error."""
    if error_code:
        raise RuntimeError(f"the broker answered with {topics.error_name(error_code)}")


def _cost(broker: peers.Peer, wire: Wire, level: int, end: int) -> float:
    """Return the broker's CPU time in µs for reading the range once. level: isolation level. end: the range's end
    offset.
    """
    before = accounting.usage(broker.pid)
    for _ in range(READS):
        _read(wire, level, end)
    return accounting.usage(broker.pid).since(before).cpu_ns / 1e3 / READS


def _read(wire: Wire, level: int, end: int) -> None:
    """Fetch offsets 0 to `end` (exclusive), in fetches as large as those of consumers. level: isolation level."""
    offset = 0
    while offset < end:
        part = FetchRequest.Topic.Partition(partition=0, fetch_offset=offset, partition_max_bytes=FETCH_BYTES)
        topic = FetchRequest.Topic(topic=TOPIC, partitions=[part])
        request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=FETCH_BYTES, isolation_level=level, topics=[topic])
        found = wire.call(request, 11).responses[0].partitions[0]
        _check_success(found.error_code)
        offset = _end_of(b"".join(found.records or ()), offset)


def _end_of(data: bytes, offset: int) -> int:
    """Return the offset after the last whole batch in fetched data, read from the batches' headers; `offset` if there
    is none.
    """
    position = 0
    while position + 61 <= len(data):
        base, length = struct.unpack_from(">qi", data, position)
        (delta,) = struct.unpack_from(">i", data, position + 23)
        offset = base + delta + 1
        position += 12 + length
    return int(offset)
