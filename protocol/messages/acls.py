"""Access control lists: who may do what to which resource (KIP-11, KIP-140, KIP-290)."""

from ..schema import Int8, Int16, Int32, String, field, request, response, struct


@request(api=29, versions="1-3", flexible="2+")
class DescribeAclsRequest:
    """List the ACLs that match a filter. Null, and the type 1 (any), match everything."""

    resource_type_filter: Int8
    resource_name_filter: String | None
    pattern_type_filter: Int8 = 3
    principal_filter: String | None
    host_filter: String | None
    operation: Int8
    permission_type: Int8


@response(to=DescribeAclsRequest)
class DescribeAclsResponse:
    """The ACLs, by resource."""

    @struct
    class Resource:
        @struct
        class Acl:
            principal: String
            host: String
            operation: Int8
            permission_type: Int8

        resource_type: Int8
        resource_name: String
        pattern_type: Int8 = 3
        acls: list[Acl]

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    resources: list[Resource] = field(factory=list)


@request(api=30, versions="1-3", flexible="2+")
class CreateAclsRequest:
    """Create ACLs."""

    @struct
    class Creation:
        resource_type: Int8
        resource_name: String
        resource_pattern_type: Int8 = 3
        principal: String
        host: String
        operation: Int8
        permission_type: Int8

    creations: list[Creation]


@response(to=CreateAclsRequest)
class CreateAclsResponse:
    """An error for each ACL, in the order of the request."""

    @struct
    class Result:
        error_code: Int16 = 0
        error_message: String | None = None

    throttle_time_ms: Int32 = 0
    results: list[Result]


@request(api=31, versions="1-3", flexible="2+")
class DeleteAclsRequest:
    """Delete all ACLs that match one of these filters."""

    @struct
    class Filter:
        resource_type_filter: Int8
        resource_name_filter: String | None
        pattern_type_filter: Int8 = 3
        principal_filter: String | None
        host_filter: String | None
        operation: Int8
        permission_type: Int8

    filters: list[Filter]


@response(to=DeleteAclsRequest)
class DeleteAclsResponse:
    """The ACLs that each filter deleted, in the order of the request."""

    @struct
    class FilterResult:
        @struct
        class MatchingAcl:
            error_code: Int16 = 0
            error_message: String | None = None
            resource_type: Int8
            resource_name: String
            pattern_type: Int8 = 3
            principal: String
            host: String
            operation: Int8
            permission_type: Int8

        error_code: Int16 = 0
        error_message: String | None = None
        matching_acls: list[MatchingAcl] = field(factory=list)

    throttle_time_ms: Int32 = 0
    filter_results: list[FilterResult]
