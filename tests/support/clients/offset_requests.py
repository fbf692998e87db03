"""Requests about a group's offsets, in few words. Offsets are given as {partition: offset} of one topic."""

from typing import Any

from fencepost.protocol.messages.offsets import OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest
from fencepost.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
)

Asked = Any  # whoever has ask(request, version)


def commit(asked: Asked, group: str, topic: str, offsets: dict[int, int], **more: Any) -> list[int]:
    """Commit offsets, and return the error code of each partition."""
    made = OffsetCommitRequest.Topic
    partitions = [made.Partition(partition_index=index, committed_offset=at) for index, at in offsets.items()]
    request = OffsetCommitRequest(group_id=group, topics=[made(name=topic, partitions=partitions)], **more)
    answer = asked.ask(request, 9)
    return [part.error_code for part in answer.topics[0].partitions]


def fetch(
    asked: Asked, group: str, topics: dict[str, list[int]] | None = None, stable: bool = False
) -> dict[tuple[str, int], int]:
    """Return the committed offset by (topic, partition): -1 for none, -100 minus the error code for an error. stable:
    require stable offsets.
    """
    made = OffsetFetchRequest.Group
    wanted = None if topics is None else [made.Topic(name=name, partition_indexes=all) for name, all in topics.items()]
    request = OffsetFetchRequest(groups=[made(group_id=group, topics=wanted)], require_stable=stable)
    (answer,) = asked.ask(request, 9).groups
    assert not answer.error_code, answer
    return {
        (topic.name, part.partition_index): -100 - part.error_code if part.error_code else part.committed_offset
        for topic in answer.topics
        for part in topic.partitions
    }


def delete(asked: Asked, group: str, topic: str, *partitions: int) -> Any:
    """Send OffsetDelete for these partitions, and return its response."""
    made = OffsetDeleteRequest.Topic
    parts = [made.Partition(partition_index=index) for index in partitions]
    return asked.ask(OffsetDeleteRequest(group_id=group, topics=[made(name=topic, partitions=parts)]), 0)


class Producer:
    """A transactional producer that commits offsets, with transaction version 1 or 2."""

    def __init__(self, asked: Asked, transactional_id: str, *, tv: int = 1) -> None:
        self.asked = asked
        self.transactional_id = transactional_id
        self.tv = tv
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=600_000)
        answer = asked.ask(request, 5 if tv == 2 else 4)
        assert not answer.error_code, answer
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    @property
    def who(self) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }

    def send_offsets(self, group: str, topic: str, offsets: dict[int, int], **more: Any) -> list[int]:
        """Commit offsets in the transaction, and return the error code of each partition."""
        if self.tv == 1:
            added = self.asked.ask(AddOffsetsToTxnRequest(**self.who, group_id=group), 3)
            assert not added.error_code, added
        made = TxnOffsetCommitRequest.Topic
        partitions = [made.Partition(partition_index=index, committed_offset=at) for index, at in offsets.items()]
        request = TxnOffsetCommitRequest(
            **self.who, group_id=group, topics=[made(name=topic, partitions=partitions)], **more
        )
        answer = self.asked.ask(request, 5 if self.tv == 2 else 4)
        return [part.error_code for part in answer.topics[0].partitions]

    def end(self, commit: bool) -> None:
        answer = self.asked.ask(EndTxnRequest(**self.who, committed=commit), 5 if self.tv == 2 else 4)
        assert not answer.error_code, answer
        if self.tv == 2:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
