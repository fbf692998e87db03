"""The coordinators of groups and transactional ids.

The rule: `find` makes one attempt; its result is kept until an error code, or the end of the connection to that broker,
shows that it may be stale. Source: FindCoordinator, KIP-699 (several keys in one request).
"""

from collections.abc import Awaitable, Callable
from typing import Literal

from ...protocol.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse
from ..addresses import Address
from ..errors import BrokerUnreachableError, error_of, refusal
from .connection import Connection

CoordinatorKind = Literal["group", "transaction"]

COORDINATORS = "coordinator"
"""The purpose of connections for requests to coordinators."""

_KEY_TYPES = {"group": 0, "transaction": 1}
_BATCHED = 4  # FindCoordinator has a list of keys from this version on


class Coordinators:
    """Finds and remembers the coordinators. any_node: returns a connection to any broker. timeout_ms: of a
    FindCoordinator request.
    """

    def __init__(self, any_node: Callable[[], Awaitable[Connection]], timeout_ms: float) -> None:
        self._any_node = any_node
        self._timeout_ms = timeout_ms
        self._nodes: dict[tuple[CoordinatorKind, str], int] = {}
        self._addresses: dict[int, Address] = {}

    def address_of(self, node_id: int) -> Address | None:
        """Return the address of a coordinator that find() has found, which the metadata may lack; None for others."""
        return self._addresses.get(node_id)

    def known(self, kind: CoordinatorKind, key: str) -> int | None:
        """Return the node id of the coordinator if it is known; sends nothing."""
        return self._nodes.get((kind, key))

    def forget(self, kind: CoordinatorKind, key: str) -> None:
        """Forget which broker has the coordinator of this key, so that the next use looks it up again."""
        self._nodes.pop((kind, key), None)

    def forget_node(self, node_id: int) -> None:
        """Forget all coordinators on this node: its connection has ended, so they may have moved."""
        self._nodes = {key: node for key, node in self._nodes.items() if node != node_id}

    async def find(self, kind: CoordinatorKind, key: str) -> int:
        """Return the node id of the coordinator, known or from FindCoordinator. Raises that request's error,
        BrokerUnreachableError and others.
        """
        known = self._nodes.get((kind, key))
        if known is not None:
            return known
        connection = await self._any_node()
        version = connection.version_of(FindCoordinatorRequest)
        request = FindCoordinatorRequest(key=key, key_type=_KEY_TYPES[kind])
        if version >= _BATCHED:
            request = FindCoordinatorRequest(key_type=_KEY_TYPES[kind], coordinator_keys=[key])
        response: FindCoordinatorResponse = await connection.send(request, version, timeout_ms=self._timeout_ms)
        found: FindCoordinatorResponse | FindCoordinatorResponse.Coordinator = response
        if version >= _BATCHED:
            if len(response.coordinators) != 1:
                raise BrokerUnreachableError(f"{connection.name} returned no coordinator for {kind} {key!r}", sent=True)
            found = response.coordinators[0]
        if found.error_code:
            error = refusal(found.error_code, found.error_message)
            raise error_of(found.error_code, f"the coordinator of {kind} {key!r}: {error}")
        self._addresses[found.node_id] = (found.host, found.port)
        self._nodes[kind, key] = found.node_id
        return found.node_id
