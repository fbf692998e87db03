"""Selects those of many names for which a client has a right. It runs in steps, since a broker may have very many
topics.
"""

from collections.abc import Iterable

from ..net.turns import Steps
from ..security.acls import Operation, ResourceType
from .dispatch import Call
from .services import Services

UNITS = 2  # cost of one name: it is looked up literally, and by each length of a prefix


def allowed_names(
    broker: Services, call: Call, operation: Operation, resource_type: ResourceType, names: Iterable[str]
) -> Steps[list[str]]:
    """Return those names, in their order, for which the user has the right `operation`. Without an authorizer, return
    all names.
    """
    access, session = broker.access, call.session
    if not access.is_enforced:
        return list(names)
    found = []
    for name in names:
        if access.allows(session, operation, resource_type, name):
            found.append(name)
        yield UNITS
    return found
