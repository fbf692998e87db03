"""The records that a request to change quotas leads to, and the entities that a request to describe quotas matches.
Pure.

The rules are Kafka's: an entity whose change is refused stays as it is, and the other entities of the request are
changed. If an entity is named twice, the first change is made, and the answer is an error. Beyond Kafka's rules, a
quota must be a number, names have a limited length, and the number of entities with quotas is limited. Asked of Apache
Kafka 4.3.1; KIP-546. Source: Kafka's ClientQuotaControlManager, ClientQuotasImage.
"""

from collections.abc import Iterator

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.quotas import AlterClientQuotasRequest, DescribeClientQuotasRequest
from .entities import CLIENT_ID, IP, LONGEST_NAME, RULES, USER, Entity, Quotas, entity_of, is_of_address, plain_address
from .quota_records import Change, quota_removed, quota_set

MAX_ENTITIES = 10_000
EXACT, DEFAULT, ANY = 0, 1, 2  # how a filter matches
_NEARLY_WHOLE = 1e-6

Asked = AlterClientQuotasRequest.Entry


def changes_of(asked: Asked, quotas: Quotas, new_entities: int) -> list[Change]:
    """Return the records that change one entity's quotas, as asked. Raises KafkaError if that is not allowed.

    new_entities: how many entities earlier in the same request get their first quota; they count towards the limit.
    """
    entity = _check_entity(asked)
    wanted: dict[str, float | None] = {}
    for op in asked.ops:
        if op.key in wanted:
            raise _invalid(f"the quota {op.key} is named twice")
        wanted[op.key] = None if op.remove else op.value
    now = quotas.of(entity)
    changes: list[Change] = []
    for key, value in wanted.items():
        if value is not None:
            _check_quota(entity, key, value)
            if now.get(key) != value:
                changes.append(quota_set(entity, key, value))
        elif key in now:
            changes.append(quota_removed(entity, key))
    if changes and not now and len(quotas) + new_entities >= MAX_ENTITIES:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"there are quotas of {len(quotas)} users and clients already")
    return changes


def named_entity(asked: Asked) -> Entity:
    """Return the entity that the request names, valid or not."""
    return entity_of({part.entity_type: part.entity_name for part in asked.entity})


def _check_entity(asked: Asked) -> Entity:
    """Return the entity that the request names. Raises INVALID_REQUEST if there is no such kind of entity."""
    if not asked.entity:
        raise _invalid("quotas are of a user, a client id, both, or an address")
    names: dict[str, str | None] = {}
    for part in asked.entity:
        if part.entity_type not in (USER, CLIENT_ID, IP):
            raise _invalid(f"there are no quotas of a {part.entity_type!r}")
        if part.entity_name == "":
            raise _invalid(f"the name of a {part.entity_type} is not empty")
        if part.entity_name is not None and len(part.entity_name) > LONGEST_NAME:
            raise _invalid(f"the name of a {part.entity_type} has at most {LONGEST_NAME} characters")
        names[part.entity_type] = part.entity_name
    if IP in names:
        if len(names) > 1:
            raise _invalid("quotas of an address are not of a user or client id too")
        text = names[IP]
        if text is not None:
            names[IP] = plain_address(text)
            if names[IP] is None:
                raise _invalid(f"{text!r} is no address, and names are not looked up")
    return entity_of(names)


def _check_quota(entity: Entity, key: str, value: float) -> None:
    """Raise INVALID_REQUEST if the entity cannot have this kind of quota, or the value is not valid for it."""
    rule = RULES.get(key)
    if rule is None or rule.of_address != is_of_address(entity):
        raise _invalid(f"{key} is no quota of a {' and '.join(type_ for type_, _ in entity)}")
    if not value > 0:
        raise _invalid(f"{key} is a number above 0")
    if value > rule.most:
        raise _invalid(f"{key} is too large")
    if rule.whole and value % 1 > _NEARLY_WHOLE:
        raise _invalid(f"{key} is a whole number")


class Filter:
    """The filter of a DescribeClientQuotas request. The constructor raises KafkaError if it is invalid."""

    def __init__(self, request: DescribeClientQuotasRequest) -> None:
        self._names: dict[str, str | None] = {}
        self._any: set[str] = set()
        self._strict = request.strict
        for component in request.components:
            self._add(component)
        types = self._names.keys() | self._any
        if IP in types and len(types) > 1:
            raise _invalid("an address goes with no user or client id in a filter")

    def _add(self, asked: DescribeClientQuotasRequest.Component) -> None:
        """Add one component of the request to the filter. Raises KafkaError if it is invalid."""
        type_ = asked.entity_type
        if not type_ or type_ in self._names or type_ in self._any:
            raise _invalid(f"the type {type_!r} may not be named {'twice ' if type_ else ''}in a filter")
        if type_ not in (USER, CLIENT_ID, IP):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"there are no quotas of a {type_!r}")
        if asked.match_type not in (EXACT, DEFAULT, ANY):
            raise _invalid(f"there is no way to match of the code {asked.match_type}")
        if (asked.match is None) == (asked.match_type == EXACT):
            raise _invalid(f"what the {type_} is compared with is for exact matches, and they need it")
        if asked.match_type == ANY:
            self._any.add(type_)
        else:
            match = asked.match
            if type_ == IP and match is not None:
                match = plain_address(match) or match
            self._names[type_] = match

    def matches(self, entity: Entity) -> bool:
        """Return whether the entity matches all components. If the filter is strict, the entity must have no other
        types.
        """
        names = dict(entity)
        if self._strict and len(names) != len(self._names) + len(self._any):
            return False
        if not names.keys() >= self._any:
            return False
        return all(type_ in names and names[type_] == name for type_, name in self._names.items())


def matching(quotas: Quotas, wanted: Filter) -> Iterator[Entity | None]:
    """Yield, for each entity that has quotas, the entity if the filter matches it, else None. The caller can let other
    requests run after each.
    """
    for entity in list(quotas):
        yield entity if wanted.matches(entity) else None


def _invalid(text: str) -> KafkaError:
    """Return an INVALID_REQUEST error with this text."""
    return KafkaError(ErrorCode.INVALID_REQUEST, text)
