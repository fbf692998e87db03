"""Topics for the time of a benchmark: creates, checks and deletes them."""

import contextlib
import time
import uuid
from collections.abc import Iterator

from ..protocol.errors import ErrorCode
from ..protocol.messages.cluster import MetadataRequest
from ..protocol.messages.offsets import ListOffsetsRequest
from ..protocol.messages.topics import CreateTopicsRequest, DeleteTopicsRequest
from .wire import Wire


class NotAnAddress(ValueError):
    """The address given for a broker does not have the form HOST:PORT."""


class NoTopic(LookupError):
    """The topic that was named does not exist."""


def error_name(error_code: int) -> str:
    """Return Kafka's name of an error code; the number if it is unknown."""
    return next((code.name for code in ErrorCode if code == error_code), str(error_code))


def address(bootstrap: str) -> tuple[str, int]:
    """Parse HOST:PORT or [V6]:PORT to (host, port). Raises: NotAnAddress."""
    host, separator, port = bootstrap.rpartition(":")
    if not separator or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise NotAnAddress(f"{bootstrap!r} is not HOST:PORT")
    return host.strip("[]"), int(port)


@contextlib.contextmanager
def topic(host: str, port: int, name: str | None, partitions: int) -> Iterator[str]:
    """Yield the given topic, or a new one with a unique name that is deleted at the block's end. Raises: NoTopic."""
    if name is not None:
        check_exists(host, port, name)
        yield name
        return
    name = f"fencepost-bench-{uuid.uuid4().hex[:8]}"
    create(host, port, name, partitions)
    try:
        yield name
    finally:
        with contextlib.suppress(OSError):  # the broker has ended, which is reported already
            delete(host, port, name)


def check_exists(host: str, port: int, name: str) -> None:
    """Raise NoTopic if the topic does not exist, and OSError if no broker answers."""
    wire = Wire(host, port)
    asked = MetadataRequest(topics=[MetadataRequest.Topic(name=name)], allow_auto_topic_creation=False)
    described = wire.call(asked, 4).topics[0]
    wire.close()
    if described.error_code:
        raise NoTopic(f"there is no topic {name} at {host}:{port}: {error_name(described.error_code)}")


def names(host: str, port: int) -> set[str]:
    """Return the names of all topics of the broker. Raises: OSError if no broker answers."""
    wire = Wire(host, port)
    try:
        return {str(found.name) for found in wire.call(MetadataRequest(topics=None), 4).topics}
    finally:
        wire.close()


def create(host: str, port: int, name: str, partitions: int) -> None:
    """Create a topic and wait until the broker answers for all its partitions. A broker without CreateTopics (the
    mock) creates it when metadata is requested.
    """
    wire = Wire(host, port)
    item = CreateTopicsRequest.Topic(name=name, num_partitions=partitions, replication_factor=1)
    try:
        answer = wire.call(CreateTopicsRequest(topics=[item], timeout_ms=30_000), 5)
    except ConnectionError:
        wire.close()
        wire = Wire(host, port)  # the mock does not know CreateTopics: a Metadata request creates the topic
    else:
        made = answer.topics[0]
        if made.error_code:
            raise RuntimeError(f"{name} could not be made: error {made.error_code} {made.error_message or ''}")
    try:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            if _leads(wire, name):
                return
            time.sleep(0.05)
    finally:
        wire.close()
    raise TimeoutError(f"topic {name} did not appear in 30 s")


def _leads(wire: Wire, name: str) -> bool:
    """Return whether the broker answers for every partition: Kafka's metadata names a broker as leader shortly before
    that broker leads the partition.
    """
    described = wire.call(MetadataRequest(topics=[MetadataRequest.Topic(name=name)]), 4).topics[0]
    if described.error_code or not described.partitions:
        return False
    partition = ListOffsetsRequest.Topic.Partition
    wanted = [partition(partition_index=part.partition_index, timestamp=-1) for part in described.partitions]
    asked = ListOffsetsRequest(topics=[ListOffsetsRequest.Topic(name=name, partitions=wanted)])
    answered = wire.call(asked, 1).topics[0].partitions
    return len(answered) == len(wanted) and not any(part.error_code for part in answered)


def delete(host: str, port: int, name: str) -> None:
    """Delete a topic. Brokers that cannot delete topics keep it."""
    wire = Wire(host, port)
    try:
        with contextlib.suppress(ConnectionError):
            wire.call(DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000), 4)
    finally:
        wire.close()
