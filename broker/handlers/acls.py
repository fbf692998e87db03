"""CreateAcls, DescribeAcls and DeleteAcls: read and change the ACLs (KIP-140).

The rules: without an authorizer every request gets an error. Reading ACLs needs Describe on the cluster, changing them
Alter. Each ACL in a request is accepted or refused separately. The accepted ones are written as one unit of the
journal, or as several if they are many; then some take effect a little earlier than others. A filter is applied to the
ACLs that exist when the request arrives. Asked of Apache Kafka 4.3.1.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from ...effects.counts import count_text
from ...protocol.encoding import Lazy
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.acls import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from ..net.turns import Steps
from ..requests.dispatch import Call, handles
from ..requests.services import Services
from ..security.acl_records import Change, acl_added, acl_removed
from ..security.acls import (
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    check_binding,
    check_filter,
    member_of,
)

MAX_CHANGES = 10_000  # of one request, as in Kafka
CHANGES_AT_ONCE = 200  # of one unit
CHANGE_UNITS = 4
LOOKED_AT_ONCE = 50
MAX_LOOKED_AT = 1_000_000  # rules, by all filters of a request: each filter that names nobody looks at all rules
LONGEST_TEXT = 1_000  # characters of a resource's name, a principal or a host

_Created = CreateAclsResponse.Result
_Deleted = DeleteAclsResponse.FilterResult
_Matching = _Deleted.MatchingAcl
_Resource = DescribeAclsResponse.Resource

log = logging.getLogger("fencepost.broker")

T = TypeVar("T")


def _check_access(broker: Services, call: Call, operation: Operation) -> None:
    """Raise SECURITY_DISABLED if there is no authorizer, and CLUSTER_AUTHORIZATION_FAILED if the client may not do this
    operation on the cluster.
    """
    if not broker.access.is_enforced:
        raise KafkaError(ErrorCode.SECURITY_DISABLED)
    broker.access.check_on_cluster(call.session, operation)


# ---- CreateAcls ----------------------------------------------------------------------------------------------


@handles(CreateAclsRequest, may_be_long=True)
def create_acls(broker: Services, call: Call, request: CreateAclsRequest) -> Steps[CreateAclsResponse]:
    """Create ACLs. One that already exists counts as created."""
    _check_access(broker, call, Operation.ALTER)
    if len(request.creations) > MAX_CHANGES:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"the request changes more than {MAX_CHANGES} ACLs")
    results: list[_Created] = []
    for creations in _parts(request.creations, CHANGES_AT_ONCE):
        results += _create(broker, call, creations)
        yield CHANGE_UNITS * len(creations)
    return CreateAclsResponse(results=results)


def _create(broker: Services, call: Call, creations: Sequence[CreateAclsRequest.Creation]) -> list[_Created]:
    """Add those ACLs that are valid and within the limit, in one unit. Returns a result for each."""
    rules = broker.security_log.state.authorizer
    new: dict[AclBinding, None] = {}
    results = []
    for creation in creations:
        try:
            binding = _new_binding(creation)
            if binding not in rules and binding not in new:
                if len(rules) + len(new) >= broker.settings.max_acls:
                    raise KafkaError(ErrorCode.POLICY_VIOLATION, f"there are {len(rules)} rules already (max.acls)")
                new[binding] = None
            results.append(_Created(error_message=""))
        except KafkaError as error:
            results.append(_not_created(broker, error))
    try:
        _commit(broker, call, acl_added, list(new))
    except KafkaError as error:
        return [_not_created(broker, error) if result.error_code == 0 else result for result in results]
    return results


def _not_created(broker: Services, error: KafkaError) -> _Created:
    """Return the answer for an ACL that was not created, and count its error."""
    broker.metrics.error("CreateAcls", error.code)
    return _Created(error_code=error.code, error_message=error.text)


def _new_binding(creation: CreateAclsRequest.Creation) -> AclBinding:
    """Convert an ACL of the request. Raises INVALID_REQUEST."""
    binding = AclBinding(
        member_of(ResourceType, creation.resource_type),
        member_of(PatternType, creation.resource_pattern_type),
        creation.resource_name,
        creation.principal,
        creation.host,
        member_of(Operation, creation.operation),
        member_of(Permission, creation.permission_type),
    )
    check_binding(binding)
    if max(map(len, (binding.resource_name, binding.principal, binding.host))) > LONGEST_TEXT:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"a name, principal or host has more than {LONGEST_TEXT} characters"
        )
    return binding


def _commit(
    broker: Services, call: Call, change: Callable[[AclBinding], Change], bindings: Sequence[AclBinding]
) -> None:
    """Write a change for each of these ACLs in one unit, and log how many. change: acl_added or acl_removed. Raises
    KafkaError.
    """
    if not bindings:
        return
    broker.security_log.commit([change(binding) for binding in bindings])
    what = "made" if change is acl_added else "removed"
    rules = count_text(len(bindings), "rule of access", "rules of access")
    log.info("%s %s by %s from %s", rules, what, call.session.principal, call.session.host)


# ---- DescribeAcls --------------------------------------------------------------------------------------------


@handles(DescribeAclsRequest, may_be_long=True)
def describe_acls(broker: Services, call: Call, request: DescribeAclsRequest) -> Steps[DescribeAclsResponse]:
    """List the ACLs that match a filter, by resource. Unknown codes match nothing."""
    _check_access(broker, call, Operation.DESCRIBE)
    by_pattern: dict[tuple[ResourceType, PatternType, str], list[AclBinding]] = {}
    wanted = _filter_of(request)
    for binding in (yield from _find(wanted, _candidates(broker, wanted))):
        by_pattern.setdefault(binding[:3], []).append(binding)
    resources = (
        _Resource(
            resource_type=kind, pattern_type=pattern, resource_name=name, acls=Lazy(len(bindings), map(_acl, bindings))
        )
        for (kind, pattern, name), bindings in by_pattern.items()
    )
    return DescribeAclsResponse(error_message="", resources=Lazy(len(by_pattern), resources))


def _acl(binding: AclBinding) -> _Resource.Acl:
    """Convert an ACL for the answer of DescribeAcls."""
    return _Resource.Acl(
        principal=binding.principal,
        host=binding.host,
        operation=binding.operation,
        permission_type=binding.permission,
    )


def _filter_of(asked: DescribeAclsRequest | DeleteAclsRequest.Filter) -> AclFilter:
    """Convert the filter of a request. An unknown code matches nothing."""
    return AclFilter(
        member_of(ResourceType, asked.resource_type_filter),
        member_of(PatternType, asked.pattern_type_filter),
        asked.resource_name_filter,
        asked.principal_filter,
        asked.host_filter,
        member_of(Operation, asked.operation),
        member_of(Permission, asked.permission_type),
    )


def _candidates(broker: Services, wanted: AclFilter) -> list[AclBinding]:
    """Return the ACLs that the filter could match, according to an index. The filter must still be applied to each."""
    return list(broker.security_log.state.authorizer.near(wanted))


def _find(wanted: AclFilter, candidates: Sequence[AclBinding]) -> Steps[list[AclBinding]]:
    """Return, in steps, those of the candidates that the filter matches."""
    found: list[AclBinding] = []
    for bindings in _parts(candidates, LOOKED_AT_ONCE):
        found += filter(wanted.matches, bindings)
        yield len(bindings)
    return found


# ---- DeleteAcls ----------------------------------------------------------------------------------------------


@handles(DeleteAclsRequest, may_be_long=True)
def delete_acls(broker: Services, call: Call, request: DeleteAclsRequest) -> Steps[DeleteAclsResponse]:
    """Delete all ACLs that match one of the filters. Each filter's answer lists those it matched."""
    _check_access(broker, call, Operation.ALTER)
    results: list[_Deleted] = []
    gone: dict[AclBinding, None] = {}
    named = 0
    filters = yield from _filters_of(broker, request)
    for wanted in filters:
        if isinstance(wanted, KafkaError):
            broker.metrics.error("DeleteAcls", wanted.code)
            results.append(_Deleted(error_code=wanted.code, error_message=wanted.text))
            continue
        found = yield from _find(wanted, _candidates(broker, wanted))
        named += len(found)
        if named > MAX_CHANGES:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"the request changes more than {MAX_CHANGES} ACLs")
        gone.update(dict.fromkeys(found))
        results.append(_Deleted(matching_acls=Lazy(len(found), map(_matching, found))))
        yield 1
    rules = broker.security_log.state.authorizer
    for bindings in _parts(list(gone), CHANGES_AT_ONCE):
        _commit(broker, call, acl_removed, [binding for binding in bindings if binding in rules])
        yield CHANGE_UNITS * len(bindings)
    return DeleteAclsResponse(filter_results=results)


def _filters_of(broker: Services, request: DeleteAclsRequest) -> Steps[list[AclFilter | KafkaError]]:
    """Return each filter of the request, or the error in its place. Raises KafkaError if several filters together would
    look at more than MAX_LOOKED_AT rules; a single one may.
    """
    filters: list[AclFilter | KafkaError] = []
    looked_at = 0
    for asked in request.filters:
        try:
            wanted = _filter_of(asked)
            check_filter(wanted)
        except KafkaError as error:
            filters.append(error)
            yield 1
            continue
        filters.append(wanted)
        count = len(_candidates(broker, wanted))
        if looked_at and looked_at + count > MAX_LOOKED_AT:
            text = f"filters that look at more than {MAX_LOOKED_AT} rules of access in one request"
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
        looked_at += count
        yield 1 + count // LOOKED_AT_ONCE
    return filters


def _matching(binding: AclBinding) -> _Matching:
    """Convert an ACL for the answer of DeleteAcls."""
    return _Matching(
        resource_type=binding.resource_type,
        pattern_type=binding.pattern_type,
        resource_name=binding.resource_name,
        principal=binding.principal,
        host=binding.host,
        operation=binding.operation,
        permission_type=binding.permission,
    )


def _parts(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield consecutive slices of `size` items."""
    return (items[begin : begin + size] for begin in range(0, len(items), size))
