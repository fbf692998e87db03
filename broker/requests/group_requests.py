"""What the requests of consumer groups (KIP-848) and of share groups have in common.

The rules are Kafka's: a heartbeat that names a topic which its client may not describe is refused, and so is the
description of a group with such a topic. Descriptions are made while the answer is encoded, within the size limit of an
AnswerRoom.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Generic, Protocol, TypeVar

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
    """Return, in steps, whether the client may describe all these topics. Also sorts `names` in place, so that the
    group, which handles the heartbeat in one step, has less to do.
    """
    sees, may_see = sight(broker, call), True
    for some in in_parts(names):
        may_see = may_see and all(map(sees, some))
        yield LOOK_UNITS
    names.sort()
    yield LOOK_UNITS
    return may_see


class Epoch(Protocol):
    """An epoch of a group, or the one for which its target assignment was made."""

    @property
    def epoch(self) -> int: ...


class DescribedGroup(Protocol):
    """A group whose description names topics. It names others only after one of its epochs has changed."""

    @property
    def epoch(self) -> Epoch: ...
    @property
    def target_epoch(self) -> Epoch: ...


Group = TypeVar("Group", bound=DescribedGroup)


class SeenGroups(Generic[Group]):
    """Checks whether a client may describe all topics that the descriptions of groups name.

    The rule: a group may name as many topics as group.metadata.max.bytes has room for, so they are looked at in steps
    before the description is written, each group once. One that has changed since is looked at again, in one step.
    """

    def __init__(
        self,
        broker: Services,
        call: Call,
        find: Callable[[str], Group],
        named: Callable[[Group], Iterator[Collection[str]]],
    ) -> None:
        """find: returns a group, or raises KafkaError. named: yields the names of the topics that a group's description
        names, as many at a time as one step looks at; a name may come more than once.
        """
        self._broker, self._call, self._find, self._named = broker, call, find, named
        self._seen: dict[str, tuple[Group, int, int, bool]] = {}

    def look(self, group_ids: Iterable[str]) -> Steps[None]:
        """Check in steps, and remember for find(), whether the client may describe all topics that each of these groups
        names. A group that the client may not describe is skipped.
        """
        access, session = self._broker.access, self._call.session
        if not access.is_enforced:
            return
        for group_id in dict.fromkeys(group_ids):
            yield 1
            if not access.allows(session, Operation.DESCRIBE, ResourceType.GROUP, group_id):
                continue
            try:
                group = self._find(group_id)
            except KafkaError:
                continue
            epochs = group.epoch.epoch, group.target_epoch.epoch
            self._seen[group_id] = group, *epochs, (yield from self._sees(group))

    def _sees(self, group: Group) -> Steps[bool]:
        """Return, in steps, whether the client may describe all topics that this group's description names."""
        sees = sight(self._broker, self._call)
        for some in self._named(group):
            if not all(map(sees, some)):
                return False
            yield 1 + len(some)
        return True

    def find(self, group_id: str) -> Group:
        """Return the group. Raises KafkaError, such as TOPIC_AUTHORIZATION_FAILED if its description names a topic that
        the client may not describe.
        """
        group = self._find(group_id)
        if self._broker.access.is_enforced:
            *seen, may_see = self._seen.get(group_id, (None, 0, 0, False))
            if seen != [group, group.epoch.epoch, group.target_epoch.epoch]:  # the group has changed since
                sees = sight(self._broker, self._call)
                may_see = all(all(map(sees, some)) for some in self._named(group))
            if not may_see:
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, HIDDEN)
        return group


def in_parts(names: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield these names, as many at a time as one step looks at."""
    for begin in range(0, len(names), TOPICS_OF_A_STEP):
        yield names[begin : begin + TOPICS_OF_A_STEP]


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
            if room.is_full:  # clients ask for these again
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
