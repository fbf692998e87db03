"""How a share session ends: it is forgotten, and what its member has acquired is available again, in steps."""

from typing import TYPE_CHECKING

from ...net.turns import Steps
from .sessions import ShareSession

if TYPE_CHECKING:
    from ...net.connection import Connection
    from ..services import Services


def end_sessions_of(broker: "Services", connection: "Connection") -> None:
    """End the share sessions that were opened over this connection, which has ended. Their acquired records become
    available again.
    """
    for session in broker.share_sessions.of_connection(connection):
        broker.share_sessions.evictions += 1
        _begin_end(broker, session)


def end_session(broker: "Services", session: ShareSession) -> Steps[None]:
    """End a share session in steps. The records that its member has acquired become available again."""
    _begin_end(broker, session)
    yield from broker.share_partitions.finish_release(session.group, session.member)


def _begin_end(broker: "Services", session: ShareSession) -> None:
    """Remove the session, and begin to release the records that its member has acquired."""
    broker.share_sessions.end(session)
    broker.share_partitions.begin_release(session.group, session.member, session.places)
