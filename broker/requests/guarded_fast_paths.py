"""The fast paths of a broker with an authorizer: they check the same rights as the handlers. Chosen when the broker
starts.

The rule: a request takes a fast path only if the client has every right that the handler would check. For Produce the
decision is stored with the route, and holds until the rules of access or the user of the connection change.
"""

from ...protocol.primitives import Readable
from ..net.connection import Connection
from ..security.acls import Operation, ResourceType
from .fast_produce import FastProduce, Route
from .fast_transactions import FastTransactions, OrdinaryRequest
from .services import Services


class GuardedFastProduce(FastProduce):
    """The fast path of Produce, for clients with the right to write to the topic."""

    def __init__(self, broker: Services) -> None:
        super().__init__(broker)
        self._access = broker.access

    def serve(self, connection: Connection, frame: Readable) -> bool:
        """Serve the request as FastProduce does, and return the same. If ACLs or the session have changed, first forget
        the route, so that the rights are checked again.
        """
        route = connection.route
        if route is not None and route.allowed_to != (connection.session, self._access.version):
            connection.route = None
        return super().serve(connection, frame)

    def _route_of(self, connection: Connection, frame: Readable) -> Route:
        """Parse the request. Raises LookupError if it is not of the ordinary form, or if the client may not write to
        the topic or with the transactional id.
        """
        route = super()._route_of(connection, frame)
        route.allowed_to = connection.session, self._access.version
        if not self._is_allowed(connection, route):
            connection.route = None
            raise LookupError
        return route

    def _is_allowed(self, connection: Connection, route: Route) -> bool:
        """Return whether the client may write to the route's topic and, if there is one, as its transactional id."""
        may, session = self._access.allows, connection.session
        return may(session, Operation.WRITE, ResourceType.TOPIC, route.name) and (
            route.transactional_id is None
            or may(session, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, route.transactional_id)
        )


class GuardedFastTransactions(FastTransactions):
    """The fast path of transactions, for clients with the rights to the transactional id and topics."""

    def __init__(self, broker: Services) -> None:
        super().__init__(broker)
        self._access = broker.access

    def _carry_out(self, asked: OrdinaryRequest, connection: Connection) -> bool:
        """Apply the request if the client has the rights it needs. Returns False, and changes nothing, if it lacks one,
        or the request would not succeed.
        """
        may, session = self._access.allows, connection.session
        return (
            may(session, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, asked.transactional_id)
            and all(may(session, Operation.WRITE, ResourceType.TOPIC, name) for name, _ in asked.partitions)
            and super()._carry_out(asked, connection)
        )


def make_fast_produce(broker: Services) -> FastProduce:
    """Return the fast path of Produce for this broker, with or without an authorizer."""
    return GuardedFastProduce(broker) if broker.access.is_enforced else FastProduce(broker)


def make_fast_transactions(broker: Services) -> FastTransactions:
    """Return the fast path of transactions for this broker, with or without an authorizer."""
    return GuardedFastTransactions(broker) if broker.access.is_enforced else FastTransactions(broker)
