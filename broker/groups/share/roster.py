"""The state of a share group, which follows from its records: the newest of each key, and a lookup table. Pure.

The rule: only apply() changes it, both live and in a replay, so a restart restores the same group. Source: Kafka's
ShareGroup, ModernGroup.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any, TypeVar

from ..assigned.topic_view import FIRST_EPOCH, MEMBER_BYTES, PARTITION_BYTES, TEXT_BYTES, TopicView
from ..targets import NOTHING, Partitions, Target, TargetEpoch, TopicId
from .records import Change, Current, GroupEpoch, Kind, Member, SharedTopic, StatePartitions

SHARE_PARTITION_BYTES = 1_000  # memory of a partition in StatePartitions and of its share partition, before any fetch
_ORDER = Kind.EPOCH, Kind.TARGET_EPOCH, Kind.STATE_PARTITIONS, Kind.MEMBER, Kind.TARGET, Kind.CURRENT
_NEW = Current(0, 0)
_NO_STATE_PARTITIONS = StatePartitions()
Kept = TypeVar("Kept")


class Roster:
    """The records of one group in memory. members, targets, currents: by member id.

    size_bytes: how much memory the records take, approximately.
    """

    def __init__(self, group_id: str, topics: TopicView) -> None:
        self.group_id = group_id
        self.size_bytes = 0
        self.subscribers: Counter[str] = Counter()  # how many members subscribe to a topic, by name
        self._topics = topics
        self._of: dict[Kind, dict[str, Any]] = {kind: {} for kind in _ORDER}
        self.members: Mapping[str, Member] = self._of[Kind.MEMBER]
        self.targets: Mapping[str, Target] = self._of[Kind.TARGET]
        self.currents: Mapping[str, Current] = self._of[Kind.CURRENT]

    # ---- records ---------------------------------------------------------------------------------------------

    def apply(self, change: Change) -> None:
        """Apply one record of the group: one read from the log, or one that is about to be written."""
        kind, name, value = change
        of_kind = self._of[kind]
        before = of_kind.get(name)
        if value is None:
            of_kind.pop(name, None)
        else:
            of_kind[name] = value
        self.size_bytes += _memory_bytes(value) - _memory_bytes(before)
        if isinstance(before, Member):
            self.subscribers.subtract(before.topics)
            for topic in before.topics:
                if not self.subscribers[topic]:
                    del self.subscribers[topic]
        if isinstance(value, Member):
            self.subscribers.update(value.topics)

    def present_change(self, kind: Kind, name: str) -> Change:
        """Return the change that sets this key to its present value. It undoes later changes of the key."""
        return Change(kind, name, self._of[kind].get(name))

    def changes(self) -> Iterator[Change]:
        """Yield a change for each record that the group has in the log now. The group may change while this runs."""
        for kind, values in self._of.items():
            for name in list(values):
                if name in values:
                    yield self.present_change(kind, name)

    # ---- questions -------------------------------------------------------------------------------------------

    @property
    def member_ids(self) -> Collection[str]:
        return self.members.keys()

    @property
    def state(self) -> str:
        """The group's state for clients: Stable with members, else Empty. A share group has no rebalance that members
        wait for.
        """
        return "Stable" if self.members else "Empty"

    @property
    def epoch(self) -> GroupEpoch:
        """The group's epoch record; the first epoch if there is none yet."""
        found: GroupEpoch | None = self._of[Kind.EPOCH].get("")
        return found or GroupEpoch(FIRST_EPOCH)

    @property
    def target_epoch(self) -> TargetEpoch:
        """The record of the target assignment's epoch; the first epoch if there is none yet."""
        found: TargetEpoch | None = self._of[Kind.TARGET_EPOCH].get("")
        return found or TargetEpoch(FIRST_EPOCH)

    @property
    def state_partitions(self) -> StatePartitions:
        """The share partitions of the group, including those of topics that nobody subscribes to any more."""
        found: StatePartitions | None = self._of[Kind.STATE_PARTITIONS].get("")
        return found or _NO_STATE_PARTITIONS

    def current(self, member_id: str) -> Current:
        """Return the member's epoch and assignment; for one without a record, those of a new member."""
        return self.currents.get(member_id, _NEW)

    def target(self, member_id: str) -> Partitions:
        """Return the partitions of the member's target assignment; none if it has no target yet."""
        found = self.targets.get(member_id)
        return NOTHING if found is None else found.partitions

    def topic_ids(self, member: Member) -> frozenset[TopicId]:
        """Return the ids of the topics that a member subscribes to and that exist."""
        ids = (self._topics.id_of(name) for name in member.topics)
        return frozenset(topic_id for topic_id in ids if topic_id is not None)

    def subscribed_names(self) -> Collection[str]:
        """Return the topics that any member subscribes to. Topics that do not exist may or may not be included,
        whichever is quicker.
        """
        existing = self._topics.names()
        if len(existing) < len(self.subscribers):
            return [name for name in existing if name in self.subscribers]
        return self.subscribers.keys()


Topics = Mapping[TopicId, SharedTopic]


def without(states: StatePartitions, gone: Collection[TopicId]) -> StatePartitions:
    """Return `states` without the share partitions of the topics in `gone`."""
    return StatePartitions(
        _without(states.initialized, gone), _without(states.initializing, gone), _without(states.deleting, gone)
    )


def _without(of: Mapping[TopicId, Kept], gone: Collection[TopicId]) -> Mapping[TopicId, Kept]:
    """Return the entries whose topics are not in `gone`."""
    return {topic_id: each for topic_id, each in of.items() if topic_id not in gone}


def with_initialized(states: StatePartitions, now: Topics, later: Topics) -> StatePartitions:
    """Return `states` with the partitions in `now` also initialized, and those in `later` noted as still to be
    initialized.
    """
    initialized = _merged(states.initialized, now)
    initializing = {}
    for topic_id, topic in _merged(states.initializing, later).items():
        done = initialized.get(topic_id)
        left = topic.partitions - done.partitions if done is not None else topic.partitions
        if left:
            initializing[topic_id] = topic._replace(partitions=left)
    deleting = {key: name for key, name in states.deleting.items() if key not in initialized}
    return StatePartitions(initialized, initializing, deleting)


def _merged(one: Topics, other: Topics) -> dict[TopicId, SharedTopic]:
    """Return the topics of both; a topic in both has the partitions of both."""
    found = dict(one)
    for topic_id, topic in other.items():
        before = found.get(topic_id)
        found[topic_id] = topic if before is None else topic._replace(partitions=before.partitions | topic.partitions)
    return found


def _memory_bytes(value: Any) -> int:
    """Return approximately how many bytes of memory a record's value takes; 0 for one that is not counted."""
    if isinstance(value, Member):
        texts = (value.client_id, value.client_host, value.rack_id or "", *value.topics)
        return MEMBER_BYTES + sum(TEXT_BYTES + 4 * len(each) for each in texts)
    if isinstance(value, Target):
        return PARTITION_BYTES * (1 + sum(map(len, value.partitions.values())))
    if isinstance(value, Current):
        return PARTITION_BYTES * (1 + sum(map(len, value.assigned.values())))
    if isinstance(value, StatePartitions):
        partitions = sum(len(topic.partitions) for of in value[:2] for topic in of.values())
        return SHARE_PARTITION_BYTES * partitions
    return 0
