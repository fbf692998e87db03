"""The topics that a member of a classic consumer group subscribes to, decoded from its metadata. Pure.

The protocol type "consumer" begins every version of its subscriptions with a version and a list of topics, and those
are read. Of metadata in any other form, no topics are known. Source: Kafka's ClassicGroup.computeSubscribedTopics,
ConsumerProtocol.
"""

from collections.abc import Iterable
from struct import Struct, error

CONSUMER = "consumer"
_INT16 = Struct(">h").unpack_from
_INT32 = Struct(">i").unpack_from


def topics_of(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """Return all topics in the metadata of these members; None if the metadata of any cannot be read."""
    found: set[str] = set()
    try:
        for subscription in subscriptions:
            found.update(_topics(subscription))
    except (error, ValueError):
        return None
    return frozenset(found)


def _topics(subscription: bytes) -> Iterable[str]:
    """Yield the topics of one member's metadata. Raises ValueError or struct.error if it is malformed."""
    if _INT16(subscription)[0] < 0:
        raise ValueError("the version is negative")
    position = 6
    for _ in range(_INT32(subscription, 2)[0]):
        length = _INT16(subscription, position)[0]
        end = position + 2 + length
        if length < 0 or end > len(subscription):
            raise ValueError("the name of a topic runs past the end")
        yield subscription[position + 2 : end].decode()
        position = end
