"""The state of a consumer group, which follows from its records: the newest of each key, and lookup tables. Pure.

The rule: the state is changed by apply() only, live and in a replay alike, so a restart finds the same group. Lookup
tables say which member has a partition or an instance id, and how many members subscribe to a topic or expression.
Source: Kafka's ConsumerGroup, ModernGroup.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from ..assigned.topic_view import FIRST_EPOCH, MEMBER_BYTES, PARTITION_BYTES, TEXT_BYTES, TopicView, metadata_hash
from ..targets import NOTHING, Partitions, Target, TargetEpoch, TopicId
from .records import Change, Current, GroupEpoch, Kind, MemberState, Resolved, Subscription
from .states import GroupState


class Roster:
    """The records of one group in memory. size_bytes: how much memory they take, approximately."""

    def __init__(self, group_id: str, topics: TopicView) -> None:
        self.group_id = group_id
        self.epoch = GroupEpoch(FIRST_EPOCH)
        self.target_epoch = TargetEpoch(FIRST_EPOCH)
        self.subscriptions: dict[str, Subscription] = {}  # by member id, as currents and targets
        self.currents: dict[str, Current] = {}
        self.targets: dict[str, Target] = {}
        self.regexes: dict[str, Resolved] = {}
        self.static: dict[str, str] = {}  # member ids by instance id
        self.subscribers: Counter[str] = Counter()  # how many members subscribe to a topic, by name
        self.regex_subscribers: Counter[str] = Counter()
        self.matched: Counter[str] = Counter()  # topics, by name: how many regular expressions in use match them
        self.classic_members = 0
        self.classic_protocols: Counter[str] = Counter()  # by name, how many classic members know it
        self.size_bytes = 0
        self._topics = topics
        self._last_ids: tuple[Any, frozenset[TopicId]] = (None, frozenset())  # of topic_ids(): key and result
        self._kept: set[Kind] = set()  # the kinds of records of the group itself that are in the log
        self._holders: dict[TopicId, dict[int, str]] = {}  # who may read a partition, or has not given it up
        self._of: Mapping[Kind, dict[str, Any]] = {
            Kind.SUBSCRIPTION: self.subscriptions,
            Kind.CURRENT: self.currents,
            Kind.TARGET: self.targets,
            Kind.REGEX: self.regexes,
        }

    # ---- records ---------------------------------------------------------------------------------------------

    def apply(self, change: Change) -> None:
        """Apply one record of the group, read from the log or just written."""
        kind, name, value = change
        if kind is Kind.CLASSIC_GROUP:
            return
        if kind in self._of:
            before = self._of[kind].get(name)
            self._unindex(kind, name, before)
            if value is None:
                self._of[kind].pop(name, None)
            else:
                self._of[kind][name] = value
            self._index(kind, name, value)
            self.size_bytes += _memory_bytes(value) - _memory_bytes(before)
            return
        (self._kept.discard if value is None else self._kept.add)(kind)
        if kind is Kind.EPOCH:
            self.epoch = value if isinstance(value, GroupEpoch) else GroupEpoch(FIRST_EPOCH)
        elif kind is Kind.TARGET_EPOCH:
            self.target_epoch = value if isinstance(value, TargetEpoch) else TargetEpoch(FIRST_EPOCH)

    def present_change(self, kind: Kind, name: str) -> Change:
        """Return the change that sets this key to its present value. It undoes later changes of the key."""
        value: Any = None
        if kind in self._of:
            value = self._of[kind].get(name)
        elif kind in self._kept:
            value = self.epoch if kind is Kind.EPOCH else self.target_epoch
        return Change(kind, name, value)

    def changes(self) -> Iterator[Change]:
        """Yield a change for each record that the group has in the log now. The group may change while this runs."""
        for kind in (Kind.EPOCH, Kind.TARGET_EPOCH):
            if kind in self._kept:
                yield self.present_change(kind, "")
        for kind, values in self._of.items():
            for name in list(values):
                if name in values:
                    yield self.present_change(kind, name)

    def _index(self, kind: Kind, name: str, value: Any) -> None:
        """Enter a record's new value into the lookup tables. name: the member's id or the regular expression."""
        if isinstance(value, Subscription):
            self.subscribers.update(value.topics)
            if value.regex:
                self.regex_subscribers[value.regex] += 1
                if self.regex_subscribers[value.regex] == 1 and value.regex in self.regexes:
                    self.matched.update(self.regexes[value.regex].topics)
            if value.instance_id is not None:
                self.static[value.instance_id] = name
            if value.classic is not None:
                self.classic_members += 1
                self.classic_protocols.update({protocol for protocol, _ in value.classic.protocols})
        elif isinstance(value, Resolved):
            if name in self.regex_subscribers:
                self.matched.update(value.topics)
        elif isinstance(value, Current):
            for held in (value.assigned, value.revoking):
                for topic_id, epochs in held.items():
                    self._holders.setdefault(topic_id, {}).update(dict.fromkeys(epochs, name))

    def _unindex(self, kind: Kind, name: str, value: Any) -> None:
        """Remove a record's replaced value from the lookup tables. name: the member's id or the regular expression."""
        if isinstance(value, Subscription):
            _subtract(self.subscribers, value.topics)
            if value.regex:
                _subtract(self.regex_subscribers, (value.regex,))
                if value.regex not in self.regex_subscribers and value.regex in self.regexes:
                    _subtract(self.matched, self.regexes[value.regex].topics)
            if self.static.get(value.instance_id or "") == name:
                del self.static[value.instance_id or ""]
            if value.classic is not None:
                self.classic_members -= 1
                _subtract(self.classic_protocols, {protocol for protocol, _ in value.classic.protocols})
        elif isinstance(value, Resolved):
            if name in self.regex_subscribers:
                _subtract(self.matched, value.topics)
        elif isinstance(value, Current):
            for held in (value.assigned, value.revoking):
                for topic_id, epochs in held.items():
                    holders = self._holders.get(topic_id, {})
                    for partition in epochs:
                        if holders.get(partition) == name:
                            del holders[partition]
                    if not holders:
                        self._holders.pop(topic_id, None)

    # ---- questions -------------------------------------------------------------------------------------------

    @property
    def member_ids(self) -> Collection[str]:
        return self.subscriptions.keys()

    @property
    def state(self) -> GroupState:
        """The group's state, by its members and epochs; see GroupState."""
        if not self.subscriptions:
            return GroupState.EMPTY
        if self.epoch.epoch > self.target_epoch.epoch:
            return GroupState.ASSIGNING
        if all(self.has_its_target(member_id) for member_id in self.subscriptions):
            return GroupState.STABLE
        return GroupState.RECONCILING

    def current(self, member_id: str) -> Current:
        """Return the member's current assignment; with epoch 0 and no partitions if it has none yet."""
        return self.currents.get(member_id) or Current(0, -1)

    def target(self, member_id: str) -> Partitions:
        """Return the partitions of the member's target assignment; none if it has no target yet."""
        found = self.targets.get(member_id)
        return NOTHING if found is None else found.partitions

    def has_its_target(self, member_id: str) -> bool:
        """Return whether a member has reached its target assignment: it is STABLE and has the target's epoch."""
        current = self.current(member_id)
        return current.state is MemberState.STABLE and current.epoch == self.target_epoch.epoch

    def is_free(self, topic_id: TopicId, partition: int) -> bool:
        """Return whether no member has the partition, not even one that still has to give it up."""
        return partition not in self._holders.get(topic_id, ())

    def subscribed_names(self) -> Collection[str]:
        """Return the names of the topics that any member subscribes to, by name or by a regular expression.

        Names of topics that do not exist may or may not be included, whichever is quicker.
        """
        existing = self._topics.names()
        if len(existing) < len(self.subscribers) + len(self.matched):
            return [name for name in existing if self.subscribes_to(name)]
        return self.subscribers.keys() | self.matched.keys()

    def subscribes_to(self, topic: str) -> bool:
        return topic in self.subscribers or topic in self.matched

    def topic_ids(self, subscription: Subscription) -> frozenset[TopicId]:
        """Return the ids of the topics that this subscription names or matches and that exist."""
        resolved = self.regexes.get(subscription.regex) if subscription.regex else None
        now = subscription.topics, resolved, self._topics.version
        if self._last_ids[0] != now:
            names = {*subscription.topics, *(resolved.topics if resolved else ())}
            ids = (self._topics.id_of(name) for name in names)
            self._last_ids = now, frozenset(topic_id for topic_id in ids if topic_id is not None)
        return self._last_ids[1]

    def metadata_hash(self) -> int:
        """Return a hash of the subscribed topics and their partition counts, which changes when one of them changes."""
        return metadata_hash(self._topics, self.subscribed_names())


def _subtract(counter: Counter[str], names: Iterable[str]) -> None:
    """Count each of the names once less, and remove those whose count becomes 0."""
    for name in names:
        counter[name] -= 1
        if not counter[name]:
            del counter[name]


def _memory_bytes(value: Any) -> int:
    """Return approximately how many bytes of memory a record's value takes; 0 for one that is not counted."""
    if isinstance(value, Subscription):
        texts = (value.client_id, value.regex or "", value.rack_id or "", value.instance_id or "", *value.topics)
        classic = sum(TEXT_BYTES + len(metadata) for _, metadata in value.classic.protocols) if value.classic else 0
        return MEMBER_BYTES + classic + sum(TEXT_BYTES + 4 * len(text) for text in texts)
    if isinstance(value, Target):
        return PARTITION_BYTES * (1 + sum(map(len, value.partitions.values())))
    if isinstance(value, Current):
        held = sum(len(epochs) for held in (value.assigned, value.revoking) for epochs in held.values())
        return PARTITION_BYTES * (1 + held)
    if isinstance(value, Resolved):
        return MEMBER_BYTES + TEXT_BYTES * len(value.topics)
    return 0
