"""Reading and changing the settings of topics and brokers.

A resource is named by a type (2 topic, 4 broker, 8 broker logger) and a name.
"""

from ..schema import Boolean, Int8, Int16, Int32, String, field, request, response, struct


@request(api=32, versions="1-4", flexible="4+")
class DescribeConfigsRequest:
    """The settings of each resource, all of them or those named."""

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
    """Each setting with its value, where the value comes from, and what it would fall back to."""

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
    """All settings of each resource; what is not named goes back to its default."""

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
    """Changes to some settings of each resource; the others stay."""

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
    """Which resources have settings? In version 0: of client metrics (KIP-1142)."""

    resource_types: list[Int8] = field("1+", factory=list)  # empty: all


@response(to=ListConfigResourcesRequest)
class ListConfigResourcesResponse:
    """Their names and types."""

    @struct
    class Resource:
        resource_name: String
        resource_type: Int8 = field("1+", default=16)

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    config_resources: list[Resource] = field(factory=list)
