"""Which entities have quotas, what a quota limits, and which quota applies to a client. Pure.

The rules are Kafka's: an entity is a user, a client id, both, or an address. In place of a name it may have the
default, which applies to all names that have no quota of their own. For each kind of quota the most specific entity
applies, a user before a client id. All clients with the same user, client id or pair share its quota. Unlike in Kafka,
a client without a client id has the default of client ids, because it could otherwise avoid the quota. Sources: KIP-13,
KIP-55, KIP-257, KIP-546, KIP-612; Kafka's QuotaConfig and ClientQuotaManager.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple

USER, CLIENT_ID, IP = "user", "client-id", "ip"
LONGEST_NAME = 1_000  # characters of a user or client id that has a quota of its own

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"

Entity = tuple[tuple[str, str | None], ...]
"""Types and names, in the order of the types; None in the place of a name is the default."""

Owner = tuple[str, str]
"""User and client id that share one measurement; empty where that is one for all of them."""


class Rule(NamedTuple):
    """What values one kind of quota may have. of_address: whether it is for IP addresses. whole: whether its value must
    be a whole number.

    most: the largest value. Every value is above 0.
    """

    of_address: bool
    whole: bool
    most: float


RULES = {
    PRODUCER_BYTE_RATE: Rule(of_address=False, whole=True, most=2.0**63),
    CONSUMER_BYTE_RATE: Rule(of_address=False, whole=True, most=2.0**63),
    REQUEST_PERCENTAGE: Rule(of_address=False, whole=False, most=float("inf")),
    CONTROLLER_MUTATION_RATE: Rule(of_address=False, whole=False, most=float("inf")),
    CONNECTION_CREATION_RATE: Rule(of_address=True, whole=True, most=2.0**31 - 1),
}


class Limit(NamedTuple):
    """A quota that applies to a client. value: units per second, or for request_percentage percent of time.

    owner: the (user, client id) whose clients share the quota; an empty text stands for all users, or all client ids.
    """

    owner: Owner
    value: float


def entity_of(names: Mapping[str, str | None]) -> Entity:
    """Return the entity with these names: pairs (type, name), sorted by type. The name None stands for the default of
    the type.
    """
    return tuple(sorted(names.items()))


def is_of_address(entity: Entity) -> bool:
    """Return whether the entity is an IP address, or the default of all addresses."""
    return entity[0][0] == IP


def plain_address(text: str) -> str | None:
    """Return an IP address in the one form that is compared: an IPv4 address that is written as IPv6 becomes IPv4. None
    if the text is not an address.
    """
    try:
        address = ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)


def _candidates(user: str, client_id: str) -> Iterator[tuple[Entity, Owner]]:
    """Yield (entity, owner of its quota) for each entity that a client belongs to, the most specific first. See Limit
    for the owner.
    """
    both, of_user, of_client = (user, client_id), (user, ""), ("", client_id)
    yield ((CLIENT_ID, client_id), (USER, user)), both
    yield ((CLIENT_ID, None), (USER, user)), both
    yield ((USER, user),), of_user
    yield ((CLIENT_ID, client_id), (USER, None)), both
    yield ((CLIENT_ID, None), (USER, None)), both
    yield ((USER, None),), of_user
    yield ((CLIENT_ID, client_id),), of_client
    yield ((CLIENT_ID, None),), of_client


class Quotas:
    """All quotas of the broker. on_change: called after each change."""

    def __init__(self) -> None:
        self.on_change: Callable[[], None] = lambda: None
        self._by_entity: dict[Entity, dict[str, float]] = {}
        self._with: Counter[str] = Counter()

    def __len__(self) -> int:
        """Return how many entities have a quota."""
        return len(self._by_entity)

    def __iter__(self) -> Iterator[Entity]:
        return iter(self._by_entity)

    def of(self, entity: Entity) -> Mapping[str, float]:
        """Return the quotas of exactly this entity, by kind; empty if it has none."""
        return self._by_entity.get(entity, {})

    def has_any(self, key: str) -> bool:
        """Return whether any entity has a quota of this kind."""
        return self._with[key] > 0

    def put(self, entity: Entity, key: str, value: float | None) -> None:
        """Set a quota of this kind, or remove it if value is None. Called only to apply a record of the log."""
        quotas = self._by_entity.setdefault(entity, {})
        if quotas.pop(key, None) is not None:
            self._with[key] -= 1
        if value is not None:
            quotas[key] = value
            self._with[key] += 1
        if not quotas:
            del self._by_entity[entity]
        self.on_change()

    def limit(self, key: str, user: str, client_id: str) -> Limit | None:
        """Return the quota of this kind that applies to a client, of the most specific entity; None if none does."""
        if not self._with[key]:
            return None
        for entity, owner in _candidates(user, client_id):
            value = self._by_entity.get(entity, {}).get(key)
            if value is not None:
                return Limit(owner, value)
        return None

    def address_limit(self, address: str) -> float | None:
        """Return how many new connections a second this address may open; None if there is no limit."""
        if not self._with[CONNECTION_CREATION_RATE]:
            return None
        for entity in (((IP, address),), ((IP, None),)):
            value = self._by_entity.get(entity, {}).get(CONNECTION_CREATION_RATE)
            if value is not None:
                return value
        return None
