"""A worker that takes records of a share group and acknowledges them inside its producer's transaction, as requests."""

from typing import Any

from fencepost.broker.share.values import AckType, AcquiredRange, Found, SharePartitionKey, Wanted
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.share_fetch import AcknowledgementBatch
from fencepost.protocol.messages.share_transactions import TxnShareAcknowledgeRequest
from offset_requests import Producer
from produce_requests import batch, code, produce
from simulated_broker import SimulatedBroker

_Topic = TxnShareAcknowledgeRequest.Topic


def begin(world: SimulatedBroker, topic: str, group: str = "g", partitions: int = 1) -> list[SharePartitionKey]:
    """Create share partitions that begin at offset 0."""
    topic_id = world.broker.topics.by_name[topic].id
    shares = world.broker.share_partitions
    unit = shares.initialize(group, {(topic_id, index): 0 for index in range(partitions)})
    shares.state_log.topic.commit(unit.parts)
    unit.apply()
    return [SharePartitionKey(group, topic_id, index) for index in range(partitions)]


def acquire(
    world: SimulatedBroker, key: SharePartitionKey, first: int, last: int, member: str = "m"
) -> list[AcquiredRange]:
    """Acquire records as a ShareFetch does, without reading them."""
    found = [Found(offset, offset) for offset in range(first, last + 1)]
    return world.broker.share_partitions.acquire(key, member, first, found, Wanted(5_000, 5_000))


class ShareWorker:
    """A worker with one member id and one transactional id."""

    def __init__(self, world: SimulatedBroker, transactional_id: str = "x", *, member: str = "m", tv: int = 2) -> None:
        self.world = world
        self.member = member
        self.producer = Producer(world, transactional_id, tv=tv)
        self.sequence = 0

    def write(self, topic: str) -> None:
        """Write one record in the transaction."""
        producer = self.producer
        records = batch(
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=self.sequence,
            transactional=True,
        )
        self.sequence += 1
        asked = produce(topic, records, transactional_id=producer.transactional_id)
        assert code(self.world.ask(asked)) is ErrorCode.NONE

    def acknowledge(
        self,
        *ranges: tuple[SharePartitionKey, int, int],
        kind: int = AckType.ACCEPT,
        **more: Any,
    ) -> list[int]:
        """Acknowledge records in the transaction. Returns the error code of each partition, or that of the request if
        it has one.
        """
        topics: dict[bytes, dict[int, list[AcknowledgementBatch]]] = {}
        for key, first, last in ranges:
            made = AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[kind])
            topics.setdefault(key.topic_id, {}).setdefault(key.partition, []).append(made)
        asked = {**self.producer.who, "group_id": ranges[0][0].group, "member_id": self.member, **more}
        request = TxnShareAcknowledgeRequest(
            **asked,
            topics=[
                _Topic(
                    topic_id=topic_id,
                    partitions=[
                        _Topic.Partition(partition_index=index, acknowledgement_batches=made)
                        for index, made in partitions.items()
                    ],
                )
                for topic_id, partitions in topics.items()
            ],
        )
        answer = self.world.ask(request, 0)
        if answer.error_code:
            return [answer.error_code]
        return [part.error_code for topic in answer.topics for part in topic.partitions]

    def end(self, commit: bool) -> None:
        self.producer.end(commit)
        self.sequence = 0


def states(world: SimulatedBroker, key: SharePartitionKey) -> str:
    """Return the window's start offset and one letter for each record in it: A available, L acquired (locked), K
    acknowledged, X archived, P pending.
    """
    machine = world.broker.share_partitions.state_log.known[key].machine
    letters = {0: "A", 1: "L", 2: "K", 4: "X", 10: "P"}
    pieces = machine.runs.pieces(machine.start, machine.end)
    shown = "".join(("A" if one is None else letters[one.state]) * (last - first + 1) for first, last, one in pieces)
    return f"{machine.start} {shown}".strip()
