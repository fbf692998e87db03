"""Reading and changing the settings of topics and brokers.

A resource is named by a type (2 topic, 4 broker, 8 broker logger) and a name.
"""

from ..schema import Boolean, Int8, Int16, Int32, String, field, request, response, struct


@request(api=32, versions="1-4", flexible="4+")
class DescribeConfigsRequest:
    """Ask for the settings of each resource, all of them or those named."""

    @struct
    class Resource:
        resource_type: Int8
        resource_name: String
        configuration_keys: list[String] | None = None  # null: all

    resources: list[Resource]
    include_synonyms: Boolean = False
    include_documentation: Boolean = field("3+", default=False)


@response(to=DescribeConfigsRequest)
class DescribeConfigsResponse:
    """Each setting with its value, where the value comes from, and the values that would count without it."""

    @struct
    class Result:
        @struct
        class Config:
            @struct
            class Synonym:
                name: String
                value: String | None
                source: Int8

            name: String
            value: String | None
            read_only: Boolean
            config_source: Int8 = -1  # 1 topic, 2 broker, 3 all brokers, 4 file or flag, 5 default
            is_sensitive: Boolean
            synonyms: list[Synonym] = field(factory=list)
            config_type: Int8 = field("3+", default=0)  # 1 boolean, 2 string, 3 int, 4 short, 5 long, 6 double, 7 list
            documentation: String | None = field("3+", default=None)

        error_code: Int16 = 0
        error_message: String | None = None
        resource_type: Int8
        resource_name: String
        configs: list[Config] = field(factory=list)

    throttle_time_ms: Int32 = 0
    results: list[Result]


@request(api=33, versions="0-2", flexible="2+")
class AlterConfigsRequest:
    """Set all settings of each resource; those that are not named go back to their defaults."""

    @struct
    class Resource:
        @struct
        class Config:
            name: String
            value: String | None

        resource_type: Int8
        resource_name: String
        configs: list[Config]

    resources: list[Resource]
    validate_only: Boolean = False


@response(to=AlterConfigsRequest)
class AlterConfigsResponse:
    """An answer for each resource."""

    @struct
    class Resource:
        error_code: Int16 = 0
        error_message: String | None = None
        resource_type: Int8
        resource_name: String

    throttle_time_ms: Int32 = 0
    responses: list[Resource]


@request(api=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsRequest:
    """Change some settings of each resource; the others stay."""

    @struct
    class Resource:
        @struct
        class Config:
            name: String
            config_operation: Int8  # 0 set, 1 delete, 2 append, 3 subtract
            value: String | None

        resource_type: Int8
        resource_name: String
        configs: list[Config]

    resources: list[Resource]
    validate_only: Boolean = False


@response(to=IncrementalAlterConfigsRequest)
class IncrementalAlterConfigsResponse:
    """An answer for each resource."""

    @struct
    class Resource:
        error_code: Int16 = 0
        error_message: String | None = None
        resource_type: Int8
        resource_name: String

    throttle_time_ms: Int32 = 0
    responses: list[Resource]


@request(api=74, versions="0-1", flexible="0+")
class ListConfigResourcesRequest:
    """Ask which resources have settings; version 0 asks for resources of the type client metrics only (KIP-1142)."""

    resource_types: list[Int8] = field("1+", factory=list)  # empty: all


@response(to=ListConfigResourcesRequest)
class ListConfigResourcesResponse:
    """Names and types of the resources."""

    @struct
    class Resource:
        resource_name: String
        resource_type: Int8 = field("1+", default=16)

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    config_resources: list[Resource] = field(factory=list)
