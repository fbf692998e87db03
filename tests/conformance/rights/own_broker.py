"""A fencepost broker for the matrix of rights. It takes a client's id for the name of its user: nobody logs in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from acl_client import by_client_id
from fencepost.broker.config.security_settings import STANDARD_AUTHORIZER
from oracle.wire import Connection
from served_broker import ServedBroker

from .grants import SUPER, rules, user_of
from .world import World


@contextmanager
def own_broker() -> Iterator[World]:
    """Start a broker with the users' ACLs and with the topics, groups and transactional ids that the rows need."""
    with ServedBroker(
        authorizer_class_name=STANDARD_AUTHORIZER,
        super_users=f"User:{user_of(SUPER)}",
        transaction_two_phase_commit_enable=True,
        transaction_v1_policy="allow",  # users take turns with one transactional id
    ) as broker:
        broker.inside(lambda inside: inside.intercept(by_client_id))
        found = World(lambda what: Connection("127.0.0.1", broker.port))
        found.prepare(rules())
        yield found
        found.close()
