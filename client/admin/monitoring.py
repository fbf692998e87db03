"""Admin's calls about a running broker: its clients, the owners of transactions, its metrics. Needs fencepost.

The rule: another broker raises UnsupportedVersionError; nothing is guessed in its place. Source: docs/apis.md.
"""

from collections.abc import Iterable

from ...protocol.errors import ErrorCode
from ...protocol.messages.monitoring import (
    COUNTER,
    GAUGE,
    HISTOGRAM,
    DescribeClientsRequest,
    DescribeClientsResponse,
    DescribeMetricsRequest,
    DescribeMetricsResponse,
    DescribeTransactionOwnersRequest,
    DescribeTransactionOwnersResponse,
)
from .asking import Answer, Asking, one_or_more, refuse
from .values import ClientDescription, MetricFamily, MetricSample, TransactionOwner

_KINDS = {GAUGE: "gauge", COUNTER: "counter", HISTOGRAM: "histogram"}
_AT_ONCE = 1_000  # ids of one request


class MonitoringAdmin(Asking):
    """What only the APIs of fencepost report about a running broker. docs/security.md has the right that each needs."""

    async def describe_clients(self) -> list[ClientDescription]:
        """Return the connected clients, those with the most requests first. Needs fencepost."""
        response: DescribeClientsResponse = await self._ask("any", DescribeClientsRequest(), lambda r: [r.error_code])
        refuse([Answer("clients", response.error_code, response.error_message)])
        found = [
            ClientDescription(
                each.client_id,
                each.software,
                each.host,
                each.listener,
                each.principal,
                each.connections,
                each.bytes_in,
                each.bytes_out,
                each.requests,
                each.idle_ms,
            )
            for each in response.clients
        ]
        return sorted(found, key=lambda each: (-each.requests, each.client_id or "", each.host))

    async def describe_transaction_owners(
        self, transactional_ids: str | Iterable[str] | None = None
    ) -> dict[str, TransactionOwner]:
        """Return, by transactional id, the client that initialised it last, of these ids or of all with an open
        transaction.

        Left out is an id whose owner the broker does not know. Needs fencepost.
        """
        names = None if transactional_ids is None else list(one_or_more(transactional_ids))
        if names is None:
            return await self._owners_of(None)
        found: dict[str, TransactionOwner] = {}
        for start in range(0, len(names), _AT_ONCE):
            found |= await self._owners_of(names[start : start + _AT_ONCE])
        return found

    async def _owners_of(self, names: list[str] | None) -> dict[str, TransactionOwner]:
        """Return, by transactional id, which client owns it, as DescribeTransactionOwners answers. names: the ids to
        ask for, None for all. Raises the broker's errors, except for ids that do not exist.
        """
        response: DescribeTransactionOwnersResponse = await self._ask(
            "any", DescribeTransactionOwnersRequest(transactional_ids=names), lambda r: [r.error_code]
        )
        refuse([Answer("owners of transactions", response.error_code, response.error_message)])
        refuse(
            Answer(f"transactional id {each.transactional_id}", each.error_code)
            for each in response.owners
            if each.error_code != ErrorCode.RESOURCE_NOT_FOUND
        )
        return {
            each.transactional_id: TransactionOwner(
                each.client_id, each.software, each.host, each.listener, each.principal, each.connected
            )
            for each in response.owners
            if each.error_code == ErrorCode.NONE
        }

    async def describe_metrics(self) -> list[MetricFamily]:
        """Return what the broker counts since its start, under the names that Prometheus gets. Needs fencepost."""
        response: DescribeMetricsResponse = await self._ask("any", DescribeMetricsRequest(), lambda r: [r.error_code])
        refuse([Answer("metrics", response.error_code, response.error_message)])
        return [
            MetricFamily(
                family.name,
                _KINDS.get(family.kind, "gauge"),
                family.help,
                tuple(family.label_names),
                tuple(
                    MetricSample(
                        tuple(sample.labels),
                        sample.value,
                        tuple((bucket.bound, bucket.count) for bucket in sample.buckets),
                    )
                    for sample in family.samples
                ),
            )
            for family in response.families
        ]
