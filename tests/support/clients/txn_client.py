"""Transactions over one simulated connection, in few words; answers are error codes.

A Txn speaks one protocol: version 1 (librdkafka's requests) or 2 (KIP-890). What it was told last, pid and epoch, is
what it sends, unless a test says otherwise; sequences go on by themselves and begin anew with an epoch.
"""

from collections import defaultdict
from typing import Any

from fencepost.protocol.batches import walk
from fencepost.protocol.messages.offsets import OffsetFetchRequest
from fencepost.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
    TxnTopic,
)
from fencepost.protocol.records import records
from produce_requests import answers, batch, bytes_of, fetch, fetched, produce
from simulated_broker import SimulatedBroker
from simulated_client import SimulatedClient

PRODUCE = {1: 10, 2: 12}
INIT = {1: 4, 2: 5}
END = {1: 3, 2: 5}
TXN_OFFSET_COMMIT = {1: 3, 2: 5}


class Txn:
    """A transactional producer on a connection of its own, or a given one. version: of transactions, 1 or 2."""

    def __init__(
        self, broker: SimulatedBroker, name: str = "x", version: int = 1, client: SimulatedClient | None = None
    ) -> None:
        self.broker = broker
        self.name = name
        self.version = version
        self.client = client or SimulatedClient(broker)
        self.producer_id = self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = defaultdict(int)

    def init(self, timeout_ms: int = 60_000, *, keep: bool = False, version: int | None = None) -> int:
        """Send InitProducerId and return the error code. keep: send the present producer id and epoch in
        it (KIP-360).
        """
        pair = {"producer_id": self.producer_id, "producer_epoch": self.epoch} if keep else {}
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=timeout_ms, **pair)
        response = self.client.ask(request, INIT[self.version] if version is None else version)
        if not response.error_code:
            self.goes_on_as(response.producer_id, response.producer_epoch)
        return int(response.error_code)

    def goes_on_as(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.sequences.clear()
        self.producer_id, self.epoch = producer_id, epoch

    def adding(self, topic: str, *partitions: int) -> AddPartitionsToTxnRequest:
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[TxnTopic(name=topic, partitions=list(partitions))],
        )

    def add(self, topic: str, *partitions: int, version: int = 3) -> list[int]:
        response = self.client.ask(self.adding(topic, *partitions), version)
        return [
            each.partition_error_code
            for found in response.results_by_topic_v3_and_below
            for each in found.results_by_partition
        ]

    def producing(self, topic: str, value: bytes, partition: int = 0, *, sequence: int | None = None) -> Any:
        sequence = self.sequences[topic, partition] if sequence is None else sequence
        self.sequences[topic, partition] = sequence + 1
        made = batch(
            value=value,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        return produce(topic, made, partition=partition, transactional_id=self.name)

    def send(self, topic: str, value: bytes, partition: int = 0, **more: Any) -> int:
        """Send one record and return the error code; `offset` then has its offset."""
        version = more.pop("version", PRODUCE[self.version])
        ((code, self.offset),) = answers(self.client.ask(self.producing(topic, value, partition, **more), version))
        return int(code)

    def write(self, topic: str, value: bytes, *partitions: int) -> None:
        """Write one record to each of these partitions; with version 1 add them to the transaction before."""
        partitions = partitions or (0,)
        if self.version == 1:
            assert self.add(topic, *partitions) == [0] * len(partitions)
        for partition in partitions:
            assert self.send(topic, value, partition) == 0

    def ending(self, commit: bool) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self.name, producer_id=self.producer_id, producer_epoch=self.epoch, committed=commit
        )

    def end(self, commit: bool, *, version: int | None = None) -> int:
        version = END[self.version] if version is None else version
        response = self.client.ask(self.ending(commit), version)
        if not response.error_code and version >= 5:
            self.goes_on_as(response.producer_id, response.producer_epoch)
        return int(response.error_code)

    def commit(self) -> int:
        return self.end(True)

    def abort(self) -> int:
        return self.end(False)

    def add_offsets(self, group: str = "g") -> int:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.name, producer_id=self.producer_id, producer_epoch=self.epoch, group_id=group
        )
        return int(self.client.ask(request, 3).error_code)

    def committing(self, topic: str, offset: int, *, group: str = "g", partition: int = 0) -> TxnOffsetCommitRequest:
        part = TxnOffsetCommitRequest.Topic.Partition(partition_index=partition, committed_offset=offset)
        return TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequest.Topic(name=topic, partitions=[part])],
        )

    def send_offset(self, topic: str, offset: int, **more: Any) -> int:
        version = more.pop("version", TXN_OFFSET_COMMIT[self.version])
        response = self.client.ask(self.committing(topic, offset, **more), version)
        return int(response.topics[0].partitions[0].error_code)

    def write_offset(self, topic: str, offset: int, group: str = "g") -> None:
        if self.version == 1:
            assert self.add_offsets(group) == 0
        assert self.send_offset(topic, offset, group=group) == 0


def state(broker: SimulatedBroker, name: str = "x") -> str:
    """Return the id's state as DescribeTransactions names it, or the error code as text."""
    (found,) = broker.ask(DescribeTransactionsRequest(transactional_ids=[name])).transaction_states
    return found.transaction_state or str(found.error_code)


def values(
    broker: SimulatedBroker, topic: str, partition: int = 0, *, committed: bool = True, first: int = 0
) -> list[bytes]:
    """Return the values that a reader of this partition gets, who skips aborted records as clients do."""
    found: list[bytes] = []
    skipped: set[int] = set()
    offset = first
    while True:
        part = fetched(broker.ask(fetch(topic, offset, partition=partition, committed=committed), 11))
        assert part.error_code == 0, part
        aborted = {(each.producer_id, each.first_offset) for each in part.aborted_transactions or ()}
        whole = list(walk(memoryview(bytes_of(part))))
        if not whole:
            return found
        for one in whole:
            skipped |= {producer_id for producer_id, first in aborted if first <= one.last_offset}
            aborted = {entry for entry in aborted if entry[1] > one.last_offset}
            if one.is_control:
                skipped.discard(one.producer_id)
            elif not (one.is_transactional and one.producer_id in skipped):
                found += [record.value or b"" for record in records(one)]
            offset = one.last_offset + 1


def begun(broker: SimulatedBroker, version: int = 1, name: str = "x", timeout_ms: int = 60_000) -> Txn:
    """Return a producer that has sent InitProducerId."""
    txn = Txn(broker, name, version)
    assert txn.init(timeout_ms) == 0
    return txn


def stable(broker: SimulatedBroker, topic: str, partition: int = 0) -> int:
    """Return the partition's last stable offset."""
    return int(fetched(broker.ask(fetch(topic, 0, partition=partition, committed=True), 11)).last_stable_offset)


def offset_of(
    broker: SimulatedBroker, topic: str, group: str = "g", partition: int = 0, *, stable: bool = False
) -> int:
    """Return the group's committed offset; -1 for none, the negative error code for an error."""
    asked = OffsetFetchRequest.Group(
        group_id=group, topics=[OffsetFetchRequest.Group.Topic(name=topic, partition_indexes=[partition])]
    )
    (found,) = broker.ask(OffsetFetchRequest(groups=[asked], require_stable=stable), 8).groups
    part = found.topics[0].partitions[0]
    return -int(part.error_code) if part.error_code else int(part.committed_offset)
