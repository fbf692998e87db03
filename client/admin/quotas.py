"""Admin's calls about quotas of users, client ids and addresses. Sources: KIP-546, KIP-612."""

from collections.abc import Iterable, Mapping
from typing import Any

from ...protocol.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from ..errors import InvalidConfigurationError
from .asking import Answer, Asking, only, refuse
from .values import ANY_ENTITY, DEFAULT_ENTITY, QuotaEntity

_EXACT, _DEFAULT, _ANY = 0, 1, 2
_FIELDS = {"user": "user", "client-id": "client_id", "ip": "ip"}  # by Kafka's types


class QuotaAdmin(Asking):
    """Quotas of clients."""

    async def describe_client_quotas(
        self, entity: QuotaEntity | None = None, *, strict: bool = False
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Return the quotas of all entities that have the user, client id or ip of this entity; by default of all
        entities.

        strict: leave out entities that have another name besides, such as a client id if only a user is given.
        """
        Component = DescribeClientQuotasRequest.Component
        kinds = {DEFAULT_ENTITY: _DEFAULT, ANY_ENTITY: _ANY}
        components = [
            Component(entity_type=type_, match_type=kinds.get(name, _EXACT), match=None if name in kinds else name)
            for type_, name in _parts(entity or QuotaEntity())
        ]
        request = DescribeClientQuotasRequest(components=components, strict=strict)
        response: DescribeClientQuotasResponse = await self._ask("any", request, lambda r: [r.error_code])
        refuse([Answer("quotas", response.error_code, response.error_message)])
        found = {
            _entity(entry.entity): {each.key: each.value for each in sorted(entry.values, key=lambda each: each.key)}
            for entry in response.entries or ()
        }
        return dict(sorted(found.items(), key=lambda pair: [name or "" for name in pair[0]]))

    async def alter_client_quotas(
        self,
        entity: QuotaEntity,
        *,
        set: Mapping[str, float] | None = None,
        delete: Iterable[str] = (),
        validate_only: bool = False,
    ) -> None:
        """Set and remove quotas of one entity: producer_byte_rate, consumer_byte_rate, request_percentage,
        controller_mutation_rate; of an ip only connection_creation_rate. Raises INVALID_REQUEST and others.
        """
        if ANY_ENTITY in entity or not _parts(entity):
            raise InvalidConfigurationError("quotas are of a user, a client id, both, or an ip")
        Entry = AlterClientQuotasRequest.Entry
        ops = [Entry.Op(key=key, value=float(value), remove=False) for key, value in (set or {}).items()]
        ops += [Entry.Op(key=key, value=0.0, remove=True) for key in delete]
        named = [
            Entry.Entity(entity_type=type_, entity_name=None if name == DEFAULT_ENTITY else name)
            for type_, name in _parts(entity)
        ]
        request = AlterClientQuotasRequest(entries=[Entry(entity=named, ops=ops)], validate_only=validate_only)
        response: AlterClientQuotasResponse = await self._ask(
            "controller", request, lambda r: [each.error_code for each in r.entries]
        )
        answer = only(response.entries, str(entity))
        refuse([Answer(str(entity), answer.error_code, answer.error_message)])


def _parts(entity: QuotaEntity) -> list[tuple[str, str]]:
    """Return Kafka's entity type and the name, for each name that the entity has."""
    return [(type_, name) for type_, name in zip(_FIELDS, entity, strict=True) if name is not None]


def _entity(parts: Iterable[Any]) -> QuotaEntity:
    """Return the entity that is named in an answer. Types that are unknown here are left out."""
    names = {
        _FIELDS[part.entity_type]: DEFAULT_ENTITY if part.entity_name is None else part.entity_name
        for part in parts
        if part.entity_type in _FIELDS
    }
    return QuotaEntity(**names)
