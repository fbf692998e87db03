"""Checks a client's replica assignment: only this broker, once, is valid. Source: ReplicationControlManager."""

from collections.abc import Sequence

from ...protocol.errors import ErrorCode, KafkaError


def check_replicas(broker_ids: Sequence[int], node_id: int) -> None:
    """Raise INVALID_REPLICA_ASSIGNMENT unless the assignment consists of this broker alone."""
    problem = None
    unknown = next((each for each in sorted(broker_ids) if each != node_id), None)
    if not broker_ids:
        problem = "includes an empty replica list."
    elif unknown is not None:
        problem = f"includes broker {unknown}, but no such broker is registered."
    elif len(broker_ids) > 1:
        problem = f"includes the broker {node_id} more than once."
    if problem:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment {problem}")
