"""Quotas of clients: what they are, and new ones (KIP-546)."""

from ..schema import Boolean, Float64, Int8, Int16, Int32, String, request, response, struct


@request(api=48, versions="0-1", flexible="1+")
class DescribeClientQuotasRequest:
    """List the quotas of entities that match all components. strict: and have no other components."""

    @struct
    class Component:
        """match_type: 0 this name, 1 the default, 2 any."""

        entity_type: String
        match_type: Int8
        match: String | None

    components: list[Component]
    strict: Boolean


@response(to=DescribeClientQuotasRequest)
class DescribeClientQuotasResponse:
    """The quotas of each entity; null if there is an error."""

    @struct
    class Entry:
        @struct
        class Entity:
            """entity_name: null for the default."""

            entity_type: String
            entity_name: String | None

        @struct
        class Value:
            key: String
            value: Float64

        entity: list[Entity]
        values: list[Value]

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    entries: list[Entry] | None = None


@request(api=49, versions="0-1", flexible="1+")
class AlterClientQuotasRequest:
    """Set or remove quotas of entities."""

    @struct
    class Entry:
        @struct
        class Entity:
            entity_type: String
            entity_name: String | None

        @struct
        class Op:
            key: String
            value: Float64
            remove: Boolean

        entity: list[Entity]
        ops: list[Op]

    entries: list[Entry]
    validate_only: Boolean


@response(to=AlterClientQuotasRequest)
class AlterClientQuotasResponse:
    """An error for each entity."""

    @struct
    class Entry:
        @struct
        class Entity:
            entity_type: String
            entity_name: String | None

        error_code: Int16 = 0
        error_message: String | None = None
        entity: list[Entity]

    throttle_time_ms: Int32 = 0
    entries: list[Entry]
