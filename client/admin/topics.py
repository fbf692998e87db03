"""Admin's calls about topics: list, describe, create and delete them, add partitions, delete records.

Sources: KIP-4, KIP-107, KIP-195, KIP-464; Kafka's KafkaAdminClient.
"""

from collections.abc import Iterable, Mapping

from ...protocol.messages.cluster import NO_OPERATIONS, MetadataRequest, MetadataResponse
from ...protocol.messages.topics import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
)
from ..values import TopicPartition
from .asking import Answer, Asking, by_topic, one_or_more, refuse
from .security_values import operations_in
from .values import NewTopic, PartitionDescription, TopicDescription

TO_THE_END = -1
"""An offset for delete_records: the high watermark, so that all records that readers can see are deleted."""
_DEFAULTS_SINCE = 4  # of CreateTopics: before version 4 the request must contain both numbers
_BY_NAME_UNTIL = 5  # of DeleteTopics


class TopicAdmin(Asking):
    """Topics."""

    async def list_topics(self, *, internal: bool = False) -> list[str]:
        """Return the names of all topics, sorted. internal: with Kafka's internal topics, such as
        __consumer_offsets.
        """
        topics = (await self._metadata(None)).topics
        return sorted(each.name or "" for each in topics if internal or not each.is_internal)

    async def describe_topics(self, topics: str | Iterable[str] | None = None) -> dict[str, TopicDescription]:
        """Return the descriptions of these topics, or of all, by name. Raises UnknownTopicError."""
        found = (await self._metadata(None if topics is None else list(one_or_more(topics)))).topics
        return {
            each.name or "": TopicDescription(
                each.name or "",
                each.topic_id,
                each.is_internal,
                tuple(
                    PartitionDescription(
                        one.partition_index,
                        one.leader_id,
                        one.leader_epoch,
                        tuple(one.replica_nodes),
                        tuple(one.isr_nodes),
                    )
                    for one in sorted(each.partitions, key=lambda one: one.partition_index)
                ),
            )
            for each in sorted(found, key=lambda each: each.name or "")
        }

    async def allowed_operations(self, topics: str | Iterable[str]) -> dict[str, frozenset[str]]:
        """Return what this login may do with each topic, as words such as "write". Raises UnknownTopicError.

        A broker without an authorizer allows everything. A broker before Kafka 2.3 does not tell, and the result is
        empty.
        """
        request = MetadataRequest(
            topics=[MetadataRequest.Topic(name=name) for name in one_or_more(topics)],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=True,
        )
        response: MetadataResponse = await self._ask("any", request, lambda r: [each.error_code for each in r.topics])
        refuse(Answer(f"topic {each.name}", each.error_code) for each in response.topics)
        return {
            each.name or "": operations_in(each.topic_authorized_operations)
            for each in response.topics
            if each.topic_authorized_operations != NO_OPERATIONS
        }

    async def create_topics(
        self, topics: str | NewTopic | Iterable[str | NewTopic], *, validate_only: bool = False
    ) -> None:
        """Create topics; a `str` creates one with the broker's defaults. Raises TOPIC_ALREADY_EXISTS and others."""
        listed = [topics] if isinstance(topics, str | NewTopic) else list(topics)
        wanted = [NewTopic(each) if isinstance(each, str) else each for each in listed]
        if await self._version(CreateTopicsRequest) < _DEFAULTS_SINCE:
            wanted = [
                NewTopic(each.name, max(1, each.num_partitions), max(1, each.replication_factor), each.configs)
                for each in wanted
            ]
        request = CreateTopicsRequest(
            topics=[
                CreateTopicsRequest.Topic(
                    name=each.name,
                    num_partitions=each.num_partitions,
                    replication_factor=each.replication_factor,
                    configs=[CreateTopicsRequest.Topic.Config(name=k, value=v) for k, v in each.configs.items()],
                )
                for each in wanted
            ],
            timeout_ms=self._settings.request_timeout_ms,
            validate_only=validate_only,
        )
        response = await self._ask("controller", request, lambda r: [each.error_code for each in r.topics])
        refuse(Answer(f"topic {each.name}", each.error_code, each.error_message) for each in response.topics)

    async def delete_topics(self, topics: str | Iterable[str]) -> None:
        """Delete topics with all their records. Raises UnknownTopicError and others."""
        request = DeleteTopicsRequest(
            topic_names=list(one_or_more(topics)), timeout_ms=self._settings.request_timeout_ms
        )
        response = await self._ask(
            "controller", request, lambda r: [each.error_code for each in r.responses], cap=_BY_NAME_UNTIL
        )
        refuse(Answer(f"topic {each.name}", each.error_code, each.error_message) for each in response.responses)

    async def create_partitions(self, counts: Mapping[str, int], *, validate_only: bool = False) -> None:
        """Add partitions: `counts` has the new total of each topic. Raises INVALID_PARTITIONS and others."""
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsRequest.Topic(name=name, count=count) for name, count in counts.items()],
            timeout_ms=self._settings.request_timeout_ms,
            validate_only=validate_only,
        )
        response = await self._ask("controller", request, lambda r: [each.error_code for each in r.results])
        refuse(Answer(f"topic {each.name}", each.error_code, each.error_message) for each in response.results)

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete the records before these offsets; TO_THE_END: all that readers can see.

        Returns: the new first offset of each partition.
        """

        def request(partitions: list[TopicPartition]) -> DeleteRecordsRequest:
            """Return the DeleteRecords request for these partitions."""
            Topic = DeleteRecordsRequest.Topic
            return DeleteRecordsRequest(
                topics=[
                    Topic(
                        name=name,
                        partitions=[
                            Topic.Partition(partition_index=each, offset=before[TopicPartition(name, each)])
                            for each in numbers
                        ],
                    )
                    for name, numbers in by_topic(partitions).items()
                ],
                timeout_ms=self._settings.request_timeout_ms,
            )

        def answers(response: DeleteRecordsResponse) -> Iterable[tuple[TopicPartition, int, None, int]]:
            """Yield partition, error code and new first offset of each answer."""
            for topic in response.topics:
                for each in topic.partitions:
                    yield (
                        TopicPartition(topic.name, each.partition_index),
                        each.error_code,
                        None,
                        each.low_watermark,
                    )

        return await self._at_leaders(before, request, answers)
