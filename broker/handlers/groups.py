"""FindCoordinator: this broker, for every group and every transactional id.

Up to version 3 one key and one answer, from 4 on only lists, with an error for each key (T18). The coordinators
themselves are not here yet; a client that goes on to them is told so by the version table.
"""

from typing import TYPE_CHECKING

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse
from ..advertised import advertised
from ..dispatch import Call, handles

if TYPE_CHECKING:
    from ..broker import Broker

GROUP, TRANSACTION = 0, 1
BATCHED_SINCE = 4
NOBODY, NOWHERE, NO_PORT = -1, "", -1


@handles(FindCoordinatorRequest, waits=False)
def find_coordinator(broker: "Broker", call: Call, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """Share groups (key type 2) and unknown types are refused."""
    known = request.key_type in (GROUP, TRANSACTION)
    host, port = advertised(broker.settings, call.listener_address)
    if call.version < BATCHED_SINCE:
        if not known:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        return FindCoordinatorResponse(error_message="NONE", node_id=broker.node_id, host=host, port=port)
    if not known:
        host, port = NOWHERE, NO_PORT
    return FindCoordinatorResponse(
        coordinators=[
            FindCoordinatorResponse.Coordinator(
                key=key,
                node_id=broker.node_id if known else NOBODY,
                host=host,
                port=port,
                error_code=ErrorCode.NONE if known else ErrorCode.INVALID_REQUEST,
                error_message="" if known else ErrorCode.INVALID_REQUEST.text,
            )
            for key in request.coordinator_keys
        ]
    )
