"""Admin's calls about offsets: the ends of a log, and offsets by timestamp. Source: KIP-79, KIP-98, KIP-734."""

from collections.abc import Iterable, Mapping

from ...protocol.errors import KafkaError
from ...protocol.messages.offsets import ListOffsetsRequest, ListOffsetsResponse
from ..settings import IsolationLevel
from ..values import OffsetAndTimestamp, TopicPartition
from .asking import Asking, by_topic

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3


class OffsetAdmin(Asking):
    """The offsets of partitions' logs: those of a time, the first ones and the last ones."""

    async def list_offsets(
        self,
        timestamps_ms: Mapping[TopicPartition, int],
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
        skip_missing: bool = False,
        unavailable: dict[TopicPartition, KafkaError] | None = None,
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Return the first offset at or after each timestamp, or at LATEST or EARLIEST. Its offset is -1 if there is no
        record at or after the timestamp.

        LATEST is the high watermark, or with read_committed the last stable offset. skip_missing: leave out partitions
        that do not exist, instead of raising UnknownTopicError. unavailable: if it is given, partitions that have no
        leader now, or whose leader does not answer, are not waited for, but left out, and their errors put there.
        """
        isolation = 1 if isolation_level == "read_committed" else 0

        def request(partitions: list[TopicPartition]) -> ListOffsetsRequest:
            """Return the ListOffsets request for these partitions."""
            Topic = ListOffsetsRequest.Topic
            return ListOffsetsRequest(
                isolation_level=isolation,
                raw=not isolation,  # the log as it is, where that is allowed
                topics=[
                    Topic(
                        name=name,
                        partitions=[
                            Topic.Partition(partition_index=each, timestamp=timestamps_ms[TopicPartition(name, each)])
                            for each in numbers
                        ],
                    )
                    for name, numbers in by_topic(partitions).items()
                ],
                timeout_ms=self._settings.request_timeout_ms,
            )

        def answers(response: ListOffsetsResponse) -> Iterable[tuple[TopicPartition, int, None, OffsetAndTimestamp]]:
            """Yield partition, error code and offset of each answer."""
            for topic in response.topics:
                for each in topic.partitions:
                    found = OffsetAndTimestamp(each.offset, each.timestamp, each.leader_epoch)
                    yield TopicPartition(topic.name, each.partition_index), each.error_code, None, found

        return await self._at_leaders(
            timestamps_ms, request, answers, skip_missing=skip_missing, unavailable=unavailable
        )

    async def ends(
        self,
        partitions: Iterable[TopicPartition],
        which: int,
        isolation_level: IsolationLevel = "read_uncommitted",
        *,
        skip_missing: bool = False,
        unavailable: dict[TopicPartition, KafkaError] | None = None,
    ) -> dict[TopicPartition, int]:
        """Return the offsets of these partitions at EARLIEST or LATEST. skip_missing, unavailable: as in
        list_offsets.
        """
        found = await self.list_offsets(
            dict.fromkeys(partitions, which),
            isolation_level=isolation_level,
            skip_missing=skip_missing,
            unavailable=unavailable,
        )
        return {each: offset.offset for each, offset in found.items()}
