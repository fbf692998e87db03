"""FindCoordinator: which broker coordinates a group or a transactional id.

The requests of group members belong here too, once there are groups.
"""

from ..schema import Int8, Int16, Int32, String, field, request, response, struct


@request(api=10, versions="0-6", flexible="3+")
class FindCoordinatorRequest:
    """One key up to version 3, from 4 on a list of keys and nothing but the list (KIP-699)."""

    key: String = field("0-3", default="")
    key_type: Int8 = field("1+", default=0)  # 0 group, 1 transactional id, 2 share group
    coordinator_keys: list[String] = field("4+", factory=list)


@response(to=FindCoordinatorRequest)
class FindCoordinatorResponse:
    """The coordinator; from version 4 on one for each key, with an error of its own."""

    @struct
    class Coordinator:
        key: String
        node_id: Int32
        host: String
        port: Int32
        error_code: Int16 = 0
        error_message: String | None = None

    throttle_time_ms: Int32 = field("1+", default=0)
    error_code: Int16 = field("0-3", default=0)
    error_message: String | None = field("1-3", default=None)
    node_id: Int32 = field("0-3", default=-1)
    host: String = field("0-3", default="")
    port: Int32 = field("0-3", default=-1)
    coordinators: list[Coordinator] = field("4+", factory=list)
