"""AlterClientQuotas and DescribeClientQuotas: set and read the quotas of clients (KIP-546).

The rules: reading quotas needs DescribeConfigs on the cluster, changing them AlterConfigs. Each entity in a request is
accepted or refused separately (quotas/quota_changes.py). The accepted changes are written as one unit of the journal,
or as several if they are many, and take effect with their unit. Asked of Apache Kafka 4.3.1.
"""

import logging

from ...effects.counts import count_text
from ...protocol.encoding import Lazy
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from ..net.turns import Steps
from ..quotas.entities import Entity
from ..quotas.quota_changes import Filter, changes_of, matching, named_entity
from ..quotas.quota_records import Change
from ..requests.dispatch import Call, handles
from ..requests.services import Services
from ..security.acls import Operation

CHANGES_AT_ONCE = 200  # of one unit
CHANGE_UNITS = 4

_Altered = AlterClientQuotasResponse.Entry
_Described = DescribeClientQuotasResponse.Entry

log = logging.getLogger("fencepost.broker")


# ---- AlterClientQuotas ---------------------------------------------------------------------------------------


@handles(AlterClientQuotasRequest, may_be_long=True)
def alter_client_quotas(
    broker: Services, call: Call, request: AlterClientQuotasRequest
) -> Steps[AlterClientQuotasResponse]:
    """Set and remove quotas, or only check whether that would be allowed."""
    broker.access.check_on_cluster(call.session, Operation.ALTER_CONFIGS)
    answers: dict[Entity, _Altered] = {}
    open_changes = _OpenChanges(broker, call)
    for asked in request.entries:
        entity = named_entity(asked)
        try:
            if entity in answers:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the entity is named twice")
            changes = changes_of(asked, broker.security_log.state.quotas, open_changes.new_entities)
            if not request.validate_only:
                open_changes.add(entity, changes)
            answers[entity] = _alter_result(asked)
        except KafkaError as error:
            broker.metrics.error("AlterClientQuotas", error.code)
            answers[entity] = _alter_result(asked, error)
        yield CHANGE_UNITS * (1 + len(asked.ops))
        if open_changes.are_many:
            open_changes.commit(answers)
    open_changes.commit(answers)
    return AlterClientQuotasResponse(entries=list(answers.values()))


class _OpenChanges:
    """The changes of one AlterClientQuotas request that are not written yet."""

    def __init__(self, broker: Services, call: Call) -> None:
        self._broker = broker
        self._call = call
        self._changes: dict[Entity, list[Change]] = {}
        self._count = 0
        self.new_entities = 0

    @property
    def are_many(self) -> bool:
        """Whether so many changes are collected that they should be written now, before one unit becomes too large."""
        return self._count >= CHANGES_AT_ONCE

    def add(self, entity: Entity, changes: list[Change]) -> None:
        """Collect the changes of one entity. They are written together with others."""
        if changes:
            self._changes[entity] = changes
            self._count += len(changes)
            self.new_entities += not self._broker.security_log.state.quotas.of(entity)

    def commit(self, answers: dict[Entity, _Altered]) -> None:
        """Write all collected changes as one unit. If there is no room, the answers of their entities become errors."""
        changes, self._changes = self._changes, {}
        count, self._count, self.new_entities = self._count, 0, 0
        if not changes:
            return
        try:
            self._broker.security_log.commit([change for of_one in changes.values() for change in of_one])
        except KafkaError as error:
            self._broker.metrics.error("AlterClientQuotas", error.code)
            for entity in changes:
                answers[entity].error_code, answers[entity].error_message = error.code, error.text
            return
        session = self._call.session
        log.info("%s changed by %s from %s", count_text(count, "quota"), session.principal, session.host)


def _alter_result(asked: AlterClientQuotasRequest.Entry, error: KafkaError | None = None) -> _Altered:
    """Return the answer for one entity, with its error if there is one."""
    entity = [
        _Altered.Entity(entity_type=part.entity_type, entity_name=part.entity_name)
        for part in {part.entity_type: part for part in asked.entity}.values()
    ]
    if error is None:
        return _Altered(entity=entity)
    return _Altered(entity=entity, error_code=error.code, error_message=error.text)


# ---- DescribeClientQuotas ------------------------------------------------------------------------------------


@handles(DescribeClientQuotasRequest, may_be_long=True)
def describe_client_quotas(
    broker: Services, call: Call, request: DescribeClientQuotasRequest
) -> Steps[DescribeClientQuotasResponse]:
    """List the quotas of entities that match a filter."""
    broker.access.check_on_cluster(call.session, Operation.DESCRIBE_CONFIGS)
    quotas = broker.security_log.state.quotas
    found: list[Entity] = []
    for entity in matching(quotas, Filter(request)):
        if entity is not None:
            found.append(entity)
        yield 1
    described = (_describe(entity, dict(quotas.of(entity))) for entity in found)
    return DescribeClientQuotasResponse(error_message="", entries=Lazy(len(found), described))


def _describe(entity: Entity, values: dict[str, float]) -> _Described:
    """Return one entity with its quotas, sorted by key, in the form of the response."""
    return _Described(
        entity=[_Described.Entity(entity_type=type_, entity_name=name) for type_, name in entity],
        values=[_Described.Value(key=key, value=value) for key, value in sorted(values.items())],
    )
