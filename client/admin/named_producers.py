"""Admin's calls about named producers: who uses a name, its highest sequences, and its removal. Needs fencepost.

Source: docs/apis.md.
"""

from collections.abc import Iterable

from ...protocol.errors import ErrorCode
from ...protocol.messages.named_producers import (
    DescribeNamedProducersRequest,
    DescribeNamedProducersResponse,
    RemoveNamedProducersRequest,
    RemoveNamedProducersResponse,
)
from ..values import TopicPartition
from .asking import Answer, Asking, first_retriable, one_or_more, refuse
from .values import NamedProducerDescription


def _is_retriable(code: int) -> bool:
    """Return whether Admin asks again upon this error code."""
    return first_retriable([code]) is not ErrorCode.NONE


class NamedProducerAdmin(Asking):
    """Named producers. Needs a fencepost broker."""

    async def describe_named_producers(
        self, names: str | Iterable[str] | None = None
    ) -> dict[str, NamedProducerDescription]:
        """Return these named producers, or all, by name. Raises RESOURCE_NOT_FOUND. Needs fencepost."""
        asked, found = None if names is None else list(one_or_more(names)), dict[str, NamedProducerDescription]()
        while True:
            response = await self._described(asked)
            later = {each.name for each in response.producers if _is_retriable(each.error_code)}
            for each in response.producers:
                is_removed = names is None and each.error_code == ErrorCode.RESOURCE_NOT_FOUND  # between two answers
                if is_removed or each.name in later:
                    continue
                refuse([Answer(f"named producer {each.name}", each.error_code)])
                highest = {TopicPartition(part.topic, part.index): part.highest for part in each.partitions}
                found[each.name] = NamedProducerDescription(each.epoch, each.owner, highest)
            if not later:
                return found
            asked = sorted(later)

    async def _described(self, names: list[str] | None) -> DescribeNamedProducersResponse:
        """Return the broker's answer about these named producers, or all. Asks again while all names in the answer have
        a retriable error; if only some have one, returns the answer with their errors.
        """

        def codes(response: DescribeNamedProducersResponse) -> list[int]:
            """Return the error codes by which Admin decides to ask again. Those of the names count only if all
            names have a retriable one.
            """
            of_names = [each.error_code for each in response.producers]
            return [response.error_code, *(of_names if all(map(_is_retriable, of_names)) else ())]

        response: DescribeNamedProducersResponse = await self._ask(
            "any", DescribeNamedProducersRequest(names=names), codes
        )
        refuse([Answer("named producers", response.error_code, response.error_message)])
        return response

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
