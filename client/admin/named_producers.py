"""Admin's calls about named producers: who uses a name, its highest sequences, and its removal. Needs fencepost.

Source: docs/apis.md.
"""

from collections.abc import Iterable

from ...protocol.messages.named_producers import (
    DescribeNamedProducersRequest,
    DescribeNamedProducersResponse,
    RemoveNamedProducersRequest,
    RemoveNamedProducersResponse,
)
from ..values import TopicPartition
from .asking import Answer, Asking, one_or_more, refuse
from .values import NamedProducerDescription


class NamedProducerAdmin(Asking):
    """Named producers. Needs a fencepost broker."""

    async def describe_named_producers(
        self, names: str | Iterable[str] | None = None
    ) -> dict[str, NamedProducerDescription]:
        """Return these named producers, or all, by name. Raises RESOURCE_NOT_FOUND. Needs fencepost."""
        request = DescribeNamedProducersRequest(names=None if names is None else list(one_or_more(names)))
        response: DescribeNamedProducersResponse = await self._ask("any", request, lambda r: [r.error_code])
        refuse([Answer("named producers", response.error_code, response.error_message)])
        refuse(Answer(f"named producer {each.name}", each.error_code) for each in response.producers)
        return {
            each.name: NamedProducerDescription(
                each.epoch,
                each.owner,
                {TopicPartition(part.topic, part.index): part.highest for part in each.partitions},
            )
            for each in response.producers
        }

    async def remove_named_producers(self, names: str | Iterable[str]) -> None:
        """Make the broker forget these names and their sequences, so that records of the same numbers can be written
        again.

        Needs Alter on the cluster. Raises RESOURCE_NOT_FOUND. Needs fencepost.
        """
        request = RemoveNamedProducersRequest(names=list(one_or_more(names)))
        response: RemoveNamedProducersResponse = await self._ask(
            "any", request, lambda r: [each.error_code for each in r.producers]
        )
        refuse(
            Answer(f"named producer {each.name}", each.error_code, each.error_message) for each in response.producers
        )
