"""What the requests of consumer groups (KIP-848) and of share groups have in common.

The rules are Kafka's: a heartbeat that names a topic which its client may not describe is refused, and so is the
description of a group with such a topic. Descriptions are made while the answer is encoded, within the size limit of an
AnswerRoom.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TypeVar

from ...protocol.encoding import Lazy
from ...protocol.errors import ErrorCode, KafkaError
from ..groups.targets import TopicId
from ..net.turns import LOOK_UNITS, AnswerRoom, Steps
from ..security.acls import Operation, ResourceType
from .dispatch import Call
from .services import Services

MANY_TOPICS = 1_000  # named in one heartbeat: more are looked at in steps
TOPICS_OF_A_STEP = 100
MEMBER_BYTES = 300  # of a member in a description
PARTITION_BYTES = 8
HIDDEN = "The group has described topic(s) that the client is not authorized to describe."
Described = TypeVar("Described")
Named = TypeVar("Named")


def check_text(text: str | None, name: str) -> None:
    """Raise INVALID_REQUEST if the text is empty or blank; null is allowed.

    name: of the field, for the error message.
    """
    if text is not None and not text.strip():
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} can't be empty.")


# ---- rights on topics ----------------------------------------------------------------------------------------


def sight(broker: Services, call: Call) -> Callable[[str], bool]:
    """Return a function that takes a topic's name and returns whether the client may describe that topic."""
    return partial(broker.access.allows, call.session, Operation.DESCRIBE, ResourceType.TOPIC)


def sees_all(broker: Services, call: Call, names: list[str]) -> Steps[bool]:
    """Return, in steps, whether the client may describe all these topics. It also sorts `names` in place, which a later
    step then need not do.
    """
    sees, may_see = sight(broker, call), True
    for begin in range(0, len(names), TOPICS_OF_A_STEP):
        may_see = may_see and all(map(sees, names[begin : begin + TOPICS_OF_A_STEP]))
        yield LOOK_UNITS
    names.sort()  # what the group decides is one step, and then need not
    yield LOOK_UNITS
    return may_see


def check_sight(broker: Services, call: Call, names: Iterable[str]) -> None:
    """Raise TOPIC_AUTHORIZATION_FAILED if the client may not describe one of the topics that are part of a group's
    description.
    """
    if not all(map(sight(broker, call), names)):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, HIDDEN)


# ---- descriptions --------------------------------------------------------------------------------------------


def describe_each(
    broker: Services,
    call: Call,
    group_ids: list[str],
    describe: Callable[[str, AnswerRoom], Described],
    refused: Callable[..., Described],
) -> Lazy[Described]:
    """Return describe(group_id, room) for each group, computed when the answer is encoded.

    If that raises KafkaError, the entry is refused(group_id=…, error_code=…, error_message=…) instead. room: counts how
    many bytes the answer may still have.
    """
    room, api = AnswerRoom(len(broker.server.connections)), call.handler.api.name

    def describe_or_refuse(group_id: str) -> Described:
        """Return the group's description. If the client may not describe it, or the answer has no room left, return its
        refusal.
        """
        try:
            broker.access.check(call.session, Operation.DESCRIBE, ResourceType.GROUP, group_id)
            if room.left_bytes <= 0:  # clients ask for these again
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "Ask for fewer groups at once.")
            return describe(group_id, room)
        except KafkaError as error:
            broker.metrics.error(api, error.code)
            return refused(group_id=group_id, error_code=error.code, error_message=error.text)

    return Lazy(len(group_ids), map(describe_or_refuse, group_ids))


def named_partitions(
    broker: Services, assigned: Mapping[TopicId, Iterable[int]], made: Callable[..., Named]
) -> list[Named]:
    """Return made(topic_id, topic_name, partitions) for each topic, with its partitions sorted. Deleted topics are left
    out, as in Kafka.
    """
    by_id = broker.topics.by_id
    return [
        made(topic_id=topic_id, topic_name=by_id[topic_id].name, partitions=sorted(of_topic))
        for topic_id, of_topic in assigned.items()
        if topic_id in by_id
    ]


def names_of(broker: Services, topic_ids: Iterable[TopicId]) -> set[str]:
    """Return the names of those topics that exist."""
    by_id = broker.topics.by_id
    return {by_id[topic_id].name for topic_id in topic_ids if topic_id in by_id}
