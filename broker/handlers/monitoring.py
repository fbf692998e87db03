"""Handlers of APIs that report about a broker what Kafka's own APIs do not.

The rules: these requests change nothing. With waits=False an answer may contain what is not durable yet. Each handler
checks the rights that docs/apis.md names for it.
"""

from ...protocol.errors import ErrorCode
from ...protocol.messages.monitoring import (
    DescribeClientsRequest,
    DescribeClientsResponse,
    DescribeMetricsRequest,
    DescribeMetricsResponse,
    DescribeTransactionOwnersRequest,
    DescribeTransactionOwnersResponse,
)
from ..net.connection import Connection
from ..net.turns import AnswerRoom, Steps
from ..requests.allowed_names import allowed_names
from ..requests.dispatch import Call, handles
from ..requests.exported_metrics import export
from ..requests.services import Services
from ..security.acls import Operation, ResourceType
from ..transactions.owners import Owner, owner_of

CLIENT_BYTES, OWNER_BYTES = 60, 12  # of an answer, about, beside the names

Client = DescribeClientsResponse.Client
Owned = DescribeTransactionOwnersResponse.Owner


@handles(DescribeClientsRequest, waits=False, may_be_long=True)
def describe_clients(broker: Services, call: Call, request: DescribeClientsRequest) -> Steps[DescribeClientsResponse]:
    """Answer with the connected clients. Connections that differ only in their number are combined into one entry."""
    broker.access.check_on_cluster(call.session, Operation.DESCRIBE)
    clients: dict[tuple[object, ...], Client] = {}
    room, left_out = AnswerRoom(len(broker.server.connections)), 0
    now_ms = broker.clock.monotonic_ms()
    for connection in list(broker.server.connections):
        yield 1
        owner = owner_of(connection)
        key = owner._replace(number=0)
        client = clients.get(key)
        if client is None:
            if room.is_full:
                left_out += 1
                continue
            room.take(CLIENT_BYTES + _bytes_of_names(owner))
            client = clients[key] = Client(
                client_id=owner.client_id,
                software=owner.software,
                host=owner.host,
                listener=owner.listener,
                principal=owner.principal,
                idle_ms=_idle_ms(connection, now_ms),
            )
        client.connections += 1
        client.bytes_in += connection.bytes_in
        client.bytes_out += connection.bytes_out
        client.requests += connection.requests
        client.idle_ms = min(client.idle_ms, _idle_ms(connection, now_ms))
    return DescribeClientsResponse(clients=list(clients.values()), left_out=left_out)


def _idle_ms(connection: Connection, now_ms: int) -> int:
    """Return for how many ms a connection has been idle; 0 if anything was received or sent since it was last
    checked.
    """
    if connection.is_active():
        connection.idle_since_ms = now_ms
    return max(0, now_ms - connection.idle_since_ms)


def _bytes_of_names(owner: Owner) -> int:
    """Return about how many bytes the owner's names take in the answer, at 3 bytes for each character."""
    names = (owner.client_id or "", owner.software, owner.host, owner.listener, owner.principal)
    return 3 * sum(map(len, names))


@handles(DescribeTransactionOwnersRequest, waits=False, may_be_long=True)
def describe_transaction_owners(
    broker: Services, call: Call, request: DescribeTransactionOwnersRequest
) -> Steps[DescribeTransactionOwnersResponse]:
    """Describe the owners of the transactional ids in the request.

    If it names none, describe those of all ids with an open transaction that the client may describe.
    """
    broker.access.check_on_cluster(call.session, Operation.DESCRIBE)
    coordinator, named = broker.transactions, request.transactional_ids
    asked = list(coordinator.open) if named is None else named
    described = Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID
    allowed = set((yield from allowed_names(broker, call, *described, dict.fromkeys(asked))))
    connected = {connection.number for connection in broker.server.connections}
    room, left_out, owners = AnswerRoom(len(connected)), 0, list[Owned]()
    for name in asked:
        yield 1
        owner = coordinator.owners.get(name)
        if name not in allowed:
            if named is not None:
                owners.append(_refusal(broker, name, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
        elif owner is None:
            if named is not None:
                owners.append(_refusal(broker, name, ErrorCode.RESOURCE_NOT_FOUND))
        elif room.is_full:
            left_out += 1
        else:
            room.take(OWNER_BYTES + 3 * len(name) + _bytes_of_names(owner))
            owners.append(_describe_owner(name, owner, connected))
    return DescribeTransactionOwnersResponse(owners=owners, left_out=left_out)


def _refusal(broker: Services, name: str, code: ErrorCode) -> Owned:
    """Count an error of DescribeTransactionOwners, and return the response row with its code."""
    broker.metrics.error("DescribeTransactionOwners", code)
    return Owned(transactional_id=name, error_code=code)


def _describe_owner(name: str, owner: Owner, connected: set[int]) -> Owned:
    """Return the response row for the client that owns a transactional id. connected: the numbers of open
    connections.
    """
    return Owned(
        transactional_id=name,
        client_id=owner.client_id,
        software=owner.software,
        host=owner.host,
        listener=owner.listener,
        principal=owner.principal,
        connected=owner.number in connected,
    )


@handles(DescribeMetricsRequest, waits=False, may_be_long=True)
def describe_metrics(broker: Services, call: Call, request: DescribeMetricsRequest) -> Steps[DescribeMetricsResponse]:
    """Answer with the broker's metrics, under their Prometheus names."""
    broker.access.check_on_cluster(call.session, Operation.DESCRIBE)
    return DescribeMetricsResponse(families=(yield from export(broker)))
