"""The names that spans have: those of OpenTelemetry's messaging conventions, and our own for what these do not name.

The rule: a name stands here once, since the conventions are in development and still change. Pure.
Source: OpenTelemetry semantic conventions 1.44, messaging spans and Kafka.
"""

SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"

SYSTEM = "messaging.system"
KAFKA = "kafka"
OPERATION_NAME = "messaging.operation.name"
OPERATION_TYPE = "messaging.operation.type"
CLIENT_ID = "messaging.client.id"
DESTINATION = "messaging.destination.name"
PARTITION = "messaging.destination.partition.id"
GROUP = "messaging.consumer.group.name"
MESSAGE_COUNT = "messaging.batch.message_count"
OFFSET = "messaging.kafka.offset"
TOMBSTONE = "messaging.kafka.message.tombstone"
SERVER_ADDRESS = "server.address"
SERVER_PORT = "server.port"
ERROR_TYPE = "error.type"

ATTEMPTS = "fencepost.batch.attempts"
MAYBE_WRITTEN = "fencepost.maybe_written"
TRANSACTIONAL_ID = "fencepost.transactional_id"
LABEL = "fencepost.transaction.label"
OUTCOME = "fencepost.transaction.outcome"
PARTITIONS = "fencepost.transaction.partitions"
PRODUCER_ID = "fencepost.producer.id"
PRODUCER_EPOCH = "fencepost.producer.epoch"


def operation(name: str, kind: str, client_id: str) -> dict[str, str]:
    """Return the attributes of every span of an operation. kind: its type by the convention; "": none."""
    found = {SYSTEM: KAFKA, OPERATION_NAME: name, CLIENT_ID: client_id}
    return {**found, OPERATION_TYPE: kind} if kind else found
