"""A member of a share group over one simulated connection: its session, fetches and acknowledgements, in few words."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from fencepost.broker.share.values import SharePartitionKey
from fencepost.protocol.batches import walk
from fencepost.protocol.messages.share_fetch import (
    AcknowledgementBatch,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareFetchResponse,
)
from fencepost.protocol.records import records
from simulated_broker import SimulatedBroker
from simulated_client import SimulatedClient

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
Range = tuple[int, int, int]
"""First and last offset, and what became of them; or how often they were delivered."""
Ack = tuple[int, int, int | list[int]]


class Got(NamedTuple):
    """One partition of an answer: ranges that were acquired; offset and value of each record in them; errors."""

    ranges: list[Range]
    values: dict[int, str]
    error: int
    ack_error: int


class ShareClient:
    """One member of a share group."""

    def __init__(
        self, broker: SimulatedBroker, topic: str = "t", *, member: str = "m", group: str = "g", version: int = 2
    ) -> None:
        self.broker = broker
        self.topic_id = broker.broker.topics.by_name[topic].id
        self.member = member
        self.group = group
        self.version = version
        self.client = SimulatedClient(broker)
        self.epoch = 0

    def fetching(
        self,
        *partitions: int,
        acks: dict[int, Iterable[Ack]] | None = None,
        forget: Iterable[int] = (),
        topic_id: bytes | None = None,
        epoch: int | None = None,
        **more: Any,
    ) -> ShareFetchRequest:
        """Return the session's next ShareFetch. partitions: those to name in it."""
        asked = dict.fromkeys(partitions, ()) | {index: tuple(found) for index, found in (acks or {}).items()}
        topic_id = topic_id or self.topic_id
        Topic, Forgotten = ShareFetchRequest.Topic, ShareFetchRequest.ForgottenTopic
        parts = [
            Topic.Partition(partition_index=index, acknowledgement_batches=_batches(found))
            for index, found in asked.items()
        ]
        values = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 50 << 20, "max_records": 500, "batch_size": 500} | more
        forgotten = [Forgotten(topic_id=topic_id, partitions=list(forget))] if forget else []
        return ShareFetchRequest(
            group_id=self.group,
            member_id=self.member,
            share_session_epoch=self.epoch if epoch is None else epoch,
            topics=[Topic(topic_id=topic_id, partitions=parts)] if parts else [],
            forgotten_topics_data=forgotten,
            **values,
        )

    def fetch(self, *partitions: int, **more: Any) -> ShareFetchResponse:
        """Send the session's next ShareFetch and return its response, also an error."""
        response: ShareFetchResponse = self.client.ask(self.fetching(*partitions, **more), self.version)
        self.count(response)
        return response

    def count(self, response: Any) -> None:
        """Count a response: the session's next request has the next epoch."""
        if not response.error_code:
            self.epoch += 1

    def take(self, *partitions: int, **more: Any) -> list[Range]:
        """Fetch, and return the ranges acquired in the only partition of the response; empty if it has none."""
        found = got(self.fetch(*partitions, **more))
        assert len(found) <= 1
        for each in found.values():
            assert (each.error, each.ack_error) == (0, 0)
            return each.ranges
        return []

    def acknowledging(
        self, acks: dict[int, Iterable[Ack]], *, epoch: int | None = None, **more: Any
    ) -> ShareAcknowledgeRequest:
        Topic = ShareAcknowledgeRequest.Topic
        parts = [
            Topic.Partition(partition_index=index, acknowledgement_batches=_batches(found))
            for index, found in acks.items()
        ]
        return ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.member,
            share_session_epoch=self.epoch if epoch is None else epoch,
            topics=[Topic(topic_id=more.pop("topic_id", self.topic_id), partitions=parts)],
            **more,
        )

    def acknowledge(self, *acks: Ack, partition: int = 0, **more: Any) -> int:
        """Acknowledge, and return the error code of the request or of the partition."""
        response = self.client.ask(self.acknowledging({partition: acks}, **more), self.version)
        if response.error_code:
            return int(response.error_code)
        self.epoch += more.get("epoch") is None
        ((part,),) = (topic.partitions for topic in response.responses)
        return int(part.error_code)

    def states(self, partition: int = 0) -> str:
        """Return a letter for each record of the window: available (A), acquired (L), acknowledged (K), archived (X),
        or pending in a transaction (P).
        """
        shares = self.broker.broker.share_partitions
        machine = shares.state_log.known[SharePartitionKey(self.group, self.topic_id, partition)].machine
        letters = {0: "A", 1: "L", 2: "K", 4: "X", 10: "P"}
        pieces = machine.runs.pieces(machine.start, machine.end)
        return "".join(("A" if one is None else letters[one.state]) * (last - first + 1) for first, last, one in pieces)


def _batches(acks: Iterable[Ack]) -> list[AcknowledgementBatch]:
    return [
        AcknowledgementBatch(
            first_offset=first, last_offset=last, acknowledge_types=types if isinstance(types, list) else [types]
        )
        for first, last, types in acks
    ]


def got(response: ShareFetchResponse) -> dict[int, Got]:
    """Return the partitions of a response for one topic, by number."""
    return {part.partition_index: _got(part) for topic in response.responses for part in topic.partitions}


def _got(part: ShareFetchResponse.Topic.Partition) -> Got:
    ranges = [(each.first_offset, each.last_offset, each.delivery_count) for each in part.acquired_records]
    values = {}
    for batch in walk(memoryview(b"".join(part.records))):
        for record in records(batch):
            if any(first <= record.offset <= last for first, last, _ in ranges):
                values[record.offset] = (record.value or b"").decode()
    return Got(ranges, values, part.error_code, part.acknowledge_error_code)


def initialize(broker: SimulatedBroker, topic: str = "t", *partitions: int, group: str = "g", start: int = 0) -> None:
    """Create the group's share partitions, as its first heartbeat does."""
    shares = broker.broker.share_partitions
    topic_id = broker.broker.topics.by_name[topic].id
    unit = shares.initialize(group, {(topic_id, partition): start for partition in partitions or (0,)})
    shares.state_log.topic.commit(unit.parts)
    unit.apply()
