"""A transactional producer of the old protocol (TV1) on bare sockets, and a reader: for races that must be exact.

It does what the libraries do: a connection for each class of request (coordinator, group, data), ApiVersions first on
each, and when a connection dies the same request again on a new one. It does not do what newer libraries do to be safe:
after an abort it goes on with the same epoch and sequence (KIP-360 came later).
"""

import time
from collections.abc import Iterator
from typing import Any

from fencepost.protocol.batches import Batch, walk
from fencepost.protocol.errors import ErrorCode, KafkaError
from fencepost.protocol.messages.cluster import ApiVersionsRequest
from fencepost.protocol.messages.groups import FindCoordinatorRequest
from fencepost.protocol.messages.offsets import OffsetFetchRequest
from fencepost.protocol.messages.produce import ProduceRequest
from fencepost.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
    TxnTopic,
)
from fencepost.protocol.records import Record, build, records
from produce_requests import bytes_of, create, fetch, fetched
from wire_client import Closed, WireClient

# The newest versions before KIP-890, and what the libraries send.
_PRODUCE, _INIT, _ADD, _ADD_OFFSETS, _END, _OFFSETS = 10, 4, 3, 3, 3, 3
PATIENCE_S = 15


def connected(bootstrap: str) -> WireClient:
    """Return a connection that has sent ApiVersions first, as libraries do, and got its response."""
    host, _, port = bootstrap.rpartition(":")
    client = WireClient(host, int(port))
    client.call(ApiVersionsRequest(client_software_name="old-client", client_software_version="1"), 3)
    return client


class OldClient:
    """A transactional producer with one transactional id. `producer_id` and `epoch` are those that init() got."""

    def __init__(self, bootstrap: str, transactional_id: str, *, timeout_ms: int = 60_000) -> None:
        self.bootstrap = bootstrap
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms
        self.producer_id, self.epoch = -1, -1
        self.sequences: dict[tuple[str, int], int] = {}
        self._connections: dict[str, WireClient] = {}
        self._added: set[tuple[str, int]] = set()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def init(self) -> None:
        """Send InitProducerId, which gives a new epoch."""
        self.call("coordinator", FindCoordinatorRequest(key=self.transactional_id, key_type=1), 3)
        answer = self.call(
            "coordinator",
            InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=self.timeout_ms),
            _INIT,
        )
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self.sequences.clear()

    def begin(self) -> None:
        """Begin a transaction, of which the broker is not told."""
        self._added.clear()

    def add(self, topic: str, *partitions: int) -> None:
        """Add partitions to the transaction."""
        self._added.update((topic, partition) for partition in partitions)
        self.call(
            "coordinator",
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=[TxnTopic(name=topic, partitions=list(partitions))],
            ),
            _ADD,
        )

    def send(self, topic: str, value: bytes, partition: int = 0) -> int:
        """Send one record, and return its offset."""
        if (topic, partition) not in self._added:
            self.add(topic, partition)
        request = self.produce_request(topic, value, partition)
        answer = self.call("data", request, _PRODUCE)
        self.sequences[topic, partition] = self.sequences.get((topic, partition), 0) + 1
        offset: int = answer.responses[0].partition_responses[0].base_offset
        return offset

    def give_up(self, topic: str, value: bytes, partition: int = 0) -> None:
        """Send a record whose connection dies, and do not send it again: the next record has the same
        sequence number.
        """
        connection = self._connection("data")
        connection.send(self.produce_request(topic, value, partition), _PRODUCE)
        try:
            connection.receive()
        except Closed:
            self._forget("data")
            return
        raise AssertionError("the connection was to be cut")

    def produce_request(self, topic: str, value: bytes, partition: int) -> ProduceRequest:
        batch = build(
            [Record(0, int(time.time() * 1000), None, value)],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequences.get((topic, partition), 0),
            transactional=True,
        )
        part = ProduceRequest.Topic.Partition(index=partition, records=memoryview(batch))
        return ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[ProduceRequest.Topic(name=topic, partition_data=[part])],
        )

    def send_offset(self, group: str, topic: str, offset: int) -> None:
        """Commit the offset of partition 0 in the transaction, for a group without members."""
        self.call(
            "coordinator",
            AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                group_id=group,
            ),
            _ADD_OFFSETS,
        )
        self.call("group", FindCoordinatorRequest(key=group, key_type=0), 3)
        Topic = TxnOffsetCommitRequest.Topic
        part = Topic.Partition(partition_index=0, committed_offset=offset)
        self.call(
            "group",
            TxnOffsetCommitRequest(
                transactional_id=self.transactional_id,
                group_id=group,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                topics=[Topic(name=topic, partitions=[part])],
            ),
            _OFFSETS,
        )

    def commit(self) -> None:
        self._end(True)

    def abort(self) -> None:
        self._end(False)

    def _end(self, committed: bool) -> None:
        self.call(
            "coordinator",
            EndTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                committed=committed,
            ),
            _END,
        )

    def call(self, kind: str, request: Any, version: int) -> Any:
        """Send a request and return its answer; send it again if its connection dies or the error is retriable. Raises
        KafkaError.
        """
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                answer = self._connection(kind).call(request, version)
            except (Closed, ConnectionError):
                self._forget(kind)
                continue
            code = next((code for code in _codes(answer) if code), 0)
            if not code:
                return answer
            if ErrorCode(code) not in _PATIENCE or time.monotonic() > until:
                raise KafkaError(ErrorCode(code), type(request).__name__)
            time.sleep(0.01)

    def _connection(self, kind: str) -> WireClient:
        if kind not in self._connections:
            self._connections[kind] = connected(self.bootstrap)
        return self._connections[kind]

    def _forget(self, kind: str) -> None:
        if kind in self._connections:
            self._connections.pop(kind).close()


_PATIENCE = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
}


def _codes(value: Any) -> Iterator[int]:
    """Yield every error code in an answer."""
    if isinstance(value, list):
        for item in value:
            yield from _codes(item)
        return
    for name in getattr(type(value), "__slots__", ()):
        content = getattr(value, name)
        if name.endswith("error_code"):
            yield content
        elif isinstance(content, list):
            yield from _codes(content)


class Looker:
    """Reads what others have written, without a group."""

    def __init__(self, bootstrap: str) -> None:
        self._client = connected(bootstrap)

    def __enter__(self) -> "Looker":
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def topic(self, name: str, partitions: int = 1) -> str:
        """Create a topic and wait until it can be read."""
        (created,) = self._client.call(create(name, partitions), 5).topics
        assert not created.error_code, created.error_message
        for partition in range(partitions):
            until = time.monotonic() + PATIENCE_S
            while fetched(self._client.call(fetch(name, 0, partition=partition), 11)).error_code:
                assert time.monotonic() < until
                time.sleep(0.01)
        return name

    def committed(self, topic: str, partition: int = 0, *, at: int = 0) -> list[bytes]:
        """Return the values that a read_committed reader gets from offset `at` on, in one fetch that does not wait."""
        return self._values(topic, partition, at, committed=True)

    def all(self, topic: str, partition: int = 0) -> list[bytes]:
        """Return the values that a read_uncommitted reader gets."""
        return self._values(topic, partition, 0, committed=False)

    def ends(self, topic: str, partition: int = 0) -> tuple[int, int]:
        """Return (last stable offset, high watermark)."""
        part = fetched(self._client.call(fetch(topic, 0, partition=partition, committed=True), 11))
        return part.last_stable_offset, part.high_watermark

    def offset(self, group: str, topic: str, partition: int = 0) -> int:
        """Return the committed offset of a group, once no transaction has one pending."""
        Topic = OffsetFetchRequest.Topic
        request = OffsetFetchRequest(
            group_id=group, topics=[Topic(name=topic, partition_indexes=[partition])], require_stable=True
        )
        until = time.monotonic() + PATIENCE_S
        while True:
            answer = self._client.call(request, 7)
            codes = [code for code in _codes(answer) if code]
            if not codes:
                offset: int = answer.topics[0].partitions[0].committed_offset
                return offset
            assert ErrorCode(codes[0]) in _PATIENCE, codes
            assert time.monotonic() < until
            time.sleep(0.005)

    def _values(self, topic: str, partition: int, at: int, *, committed: bool) -> list[bytes]:
        found: list[bytes] = []
        while True:
            part = fetched(self._client.call(fetch(topic, at, partition=partition, committed=committed), 11))
            assert not part.error_code, part.error_code
            batches = list(walk(memoryview(bytes_of(part))))
            if not batches:
                return found
            aborted = sorted((t.first_offset, t.producer_id) for t in part.aborted_transactions or ())
            found += [r.value or b"" for batch in visible(batches, aborted) for r in records(batch) if r.offset >= at]
            at = batches[-1].base_offset + batches[-1].last_offset_delta + 1


def visible(batches: list[Batch], aborted: list[tuple[int, int]]) -> Iterator[Batch]:
    """Yield the batches that a read_committed reader shows: no markers, and none of the aborted transactions."""
    waiting = list(aborted)
    out: set[int] = set()
    for batch in batches:
        while waiting and waiting[0][0] <= batch.base_offset + batch.last_offset_delta:
            out.add(waiting.pop(0)[1])
        if batch.is_control:
            out.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in out):
            yield batch
