"""A share group without a broker: topics, time, share partitions and a log to act on, and members that behave."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from consumer_group_driver import GROUP, NO_RULES, Places, Topics
from fencepost.broker.groups.assigned.assignment import run_steps
from fencepost.broker.groups.share.heartbeats import LEAVES, Answer, Heartbeat
from fencepost.broker.groups.share.machine import Missing, Rules, ShareGroup
from fencepost.broker.groups.share.records import Change, read, record
from fencepost.broker.security.principals import Session
from fencepost.broker.topics.names import TopicIdPartition
from fencepost.protocol.errors import ErrorCode, KafkaError


class States(NamedTuple):
    """What stands for the states of some share partitions."""

    places: frozenset[TopicIdPartition]
    world: "ShareGroupDriver"

    @property
    def parts(self) -> list[object]:
        return []

    def apply(self) -> None:
        self.world.share_partitions |= self.places


class ShareGroupDriver:
    """A share group, with topics, a clock, share partitions and a log.

    refuse: the error that the log raises from now on. offline: partitions that cannot be initialised. share_partitions:
    those that exist. grown: those that were initialised as new partitions of a topic that the group knew.
    """

    def __init__(self, rules: Rules | None = None, rights: object = NO_RULES, **partitions: int) -> None:
        self.topics = Topics(**partitions)
        self.rules = rules or Rules()
        self.rights = rights
        self.now_ms = 1_000
        self.log: list[tuple[bytes, bytes | None]] = []
        self.refuse: KafkaError | None = None
        self.offline: set[TopicIdPartition] = set()
        self.share_partitions: frozenset[TopicIdPartition] = frozenset()
        self.grown: set[TopicIdPartition] = set()
        self.group = self._made()

    def _made(self) -> ShareGroup:
        return ShareGroup(GROUP, self.topics, lambda: self.rules, self.rights, self._keep)  # type: ignore[arg-type]

    def states(self, *places: TopicIdPartition) -> States:
        return States(frozenset(places), self)

    def _begin(self, missing: Sequence[Missing]) -> tuple[frozenset[TopicIdPartition], States]:
        begun = frozenset(each.place for each in missing if each.place not in self.offline)
        self.grown |= {each.place for each in missing if each.is_new} & begun
        return begun, self.states(*begun)

    def _keep(self, group: ShareGroup, changes: Iterable[Change], states: Sequence[States]) -> None:
        if self.refuse is not None:
            raise self.refuse
        self.log += [record(group.group_id, change) for change in changes]
        for each in states:
            each.apply()

    def restart(self) -> None:
        """Build the group again from the newest record of each key in the log."""
        before = list(self.group.changes())
        group = self._made()
        for key, value in dict(self.log).items():
            if value is not None:
                group.apply(read(key, value)[1])
        assert sorted(map(repr, group.changes())) == sorted(map(repr, before)), "a replay makes another group"
        assert group.size_bytes == self.group.size_bytes
        self.group = group
        group.begin(self.now_ms)

    def beat(self, member_id: str, epoch: int, topics: Sequence[str] | None = None, **fields: object) -> Answer:
        named = None if topics is None else tuple(topics)
        beat = Heartbeat(member_id, epoch, topics=named, **fields)  # type: ignore[arg-type]
        return self.group.heartbeat(beat, self.now_ms, self.now_ms, self._begin)

    def join(self, member_id: str, *topics: str, user: Session | None = None) -> "ShareMember":
        member = ShareMember(self, member_id, topics or ("t",), user)
        member.beat()
        return member

    def wait(self, milliseconds: int) -> None:
        """Move the clock forward, and let happen what becomes due."""
        self.now_ms += milliseconds
        if self.group.wake_ms <= self.now_ms:
            self.group.expire(self.now_ms)

    def work_out(self) -> None:
        """Compute an assignment that is too large for a heartbeat, or that changed rights demand."""
        if self.group.is_assignment_due(self.now_ms) or self.group.is_assignment_doubtful(self.now_ms):
            epoch, steps = self.group.begin_assignment()
            self.group.take_assignment(epoch, run_steps(steps), self.now_ms, self.now_ms)


@dataclass(eq=False)
class ShareMember:
    """A member that behaves as librdkafka does: it sends its topics when it joins and when they change."""

    driver: ShareGroupDriver
    member_id: str
    topics: tuple[str, ...]
    user: Session | None = None
    epoch: int = 0
    owned: Places = frozenset()
    errors: list[ErrorCode] = field(default_factory=list)
    named: tuple[str, ...] | None = None

    def beat(self, *, lost: bool = False) -> Answer | None:
        """Send one heartbeat. Returns the broker's answer; None if it is an error, which is then in `errors`.

        lost: the member does not get the answer.
        """
        topics = self.topics if self.epoch == 0 or self.topics != self.named else None
        try:
            answer = self.driver.beat(self.member_id, self.epoch, topics, user=self.user)
        except KafkaError as error:
            self.errors.append(error.code)
            if error.code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND):
                self.epoch, self.owned = 0, frozenset()
            return None
        if lost:
            self.named = None  # it asks again with all it has
            return answer
        self.epoch, self.named = answer.epoch, self.topics
        if answer.assigned is not None:
            self.owned = frozenset((topic, part) for topic, parts in answer.assigned.items() for part in parts)
        return answer

    def leave(self) -> None:
        self.driver.group.leave(Heartbeat(self.member_id, LEAVES))
        self.epoch, self.owned = 0, frozenset()
