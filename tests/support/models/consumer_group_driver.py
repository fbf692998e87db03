"""A consumer group without a broker: topics, time and a log to act on, and members that behave as clients do."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import count

from fencepost.broker.groups.assigned.assignment import TopicShape
from fencepost.broker.groups.consumer.heartbeats import Answer, Heartbeat
from fencepost.broker.groups.consumer.machine import ConsumerGroup, Rules
from fencepost.broker.groups.consumer.records import Change, read, record
from fencepost.broker.security.principals import Session
from fencepost.protocol.errors import ErrorCode, KafkaError

REBALANCE_MS = 60_000
GROUP = "g"
Places = frozenset[tuple[bytes, int]]


def topic_id(name: str, life: int = 0) -> bytes:
    return f"{name}{life}".encode().ljust(16, b"\0")


class Topics:
    """Topics by name, each with its number of partitions. A topic that is deleted and created again has another id."""

    def __init__(self, **partitions: int) -> None:
        self.partitions = dict(partitions)
        self.lives: dict[str, int] = {}
        self.version = 1

    def set(self, name: str, partitions: int | None) -> None:
        if partitions is None:
            self.partitions.pop(name, None)
            self.lives[name] = self.lives.get(name, 0) + 1
        else:
            self.partitions[name] = partitions
        self.version += 1

    def id_of(self, name: str) -> bytes | None:
        return topic_id(name, self.lives.get(name, 0)) if name in self.partitions else None

    def sizes(self, names: Iterable[str]) -> list[tuple[bytes, int]]:
        return [(found, self.partitions[name]) for name in names if (found := self.id_of(name)) is not None]

    def shapes(self, topic_ids: Iterable[bytes]) -> dict[bytes, TopicShape]:
        by_id = {topic_id(name, self.lives.get(name, 0)): count for name, count in self.partitions.items()}
        return {each: TopicShape(by_id[each]) for each in topic_ids if each in by_id}

    def names(self) -> Collection[str]:
        return self.partitions.keys()

    def name_of(self, wanted: bytes) -> str | None:
        return next((name for name in self.partitions if self.id_of(name) == wanted), None)


class NoRules:
    """Rules of access that allow everything."""

    is_enforced = False
    version = 0

    def describes(self, user: Session, topic: str) -> bool:
        return True

    def reads(self, user: Session, topic: str) -> bool:
        return True


NO_RULES = NoRules()


class ConsumerGroupDriver:
    """A consumer group, with topics, a clock and a log. refuse: the error that the log raises from now on."""

    def __init__(self, rules: Rules | None = None, **partitions: int) -> None:
        self.topics = Topics(**partitions)
        self.rules = rules or Rules()
        self.now_ms = 1_000
        self.log: list[tuple[bytes, bytes | None]] = []
        self.refuse: KafkaError | None = None
        self.group = self._made()
        self._ids = count(1)

    def _made(self) -> ConsumerGroup:
        return ConsumerGroup(GROUP, self.topics, lambda: self.rules, self._check_regex, self._keep, NO_RULES)

    def _check_regex(self, regex: str) -> None:
        if "(" in regex:
            raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION)

    def _keep(self, group: ConsumerGroup, changes: Iterable[Change]) -> None:
        if self.refuse is not None:
            raise self.refuse
        self.log += [record(group.group_id, change) for change in changes]

    def restart(self) -> None:
        """Build the group again from the newest record of each key in the log."""
        group = self._made()
        for key, value in dict(self.log).items():
            if value is not None:
                group.apply(read(key, value)[1])
        self.group = group
        group.begin(self.now_ms)

    def beat(self, member_id: str, epoch: int, **fields: object) -> Answer:
        return self.group.heartbeat(Heartbeat(member_id, epoch, **fields), self.now_ms, self.now_ms)  # type: ignore[arg-type]

    def leave(self, beat: Heartbeat) -> None:
        self.group.leave(beat)

    def join(self, member_id: str = "", topics: Iterable[str] | None = ("t",), **fields: object) -> "Client":
        client = Client(self, member_id or f"m{next(self._ids)}", None if topics is None else tuple(topics), fields)
        client.beat()
        return client

    def wait(self, milliseconds: int) -> None:
        """Move the clock forward, and let happen what becomes due."""
        self.now_ms += milliseconds
        if self.group.wake_ms <= self.now_ms:
            self.group.expire(self.now_ms)

    def work_out(self) -> None:
        """Compute an assignment that is too large for a heartbeat."""
        if self.group.is_assignment_due(self.now_ms):
            epoch, steps = self.group.begin_assignment()
            while True:
                try:
                    next(steps)
                except StopIteration as end:
                    self.group.take_assignment(epoch, end.value, self.now_ms, self.now_ms)
                    return


@dataclass(eq=False)
class Client:
    """A correct member: it gives up revoked partitions before it reports that it does not own them any more.

    owned: the partitions that it reads now. allowed: those that it may read.
    """

    driver: ConsumerGroupDriver
    member_id: str
    topics: tuple[str, ...] | None
    fields: dict[str, object]
    epoch: int = 0
    owned: Places = frozenset()
    allowed: Places = frozenset()
    errors: list[ErrorCode] = field(default_factory=list)

    def beat(self, *, lost: bool = False, revoke: bool = True) -> Answer | None:
        """Send one heartbeat. Returns the broker's answer; None if it is an error, which is then in `errors`.

        lost: the member does not get the answer. revoke: give up revoked partitions before.
        """
        if self.epoch == 0:
            self.owned = self.allowed = frozenset()
        elif revoke:
            self.owned &= self.allowed
        fields = dict(self.fields, rebalance_timeout_ms=REBALANCE_MS, topics=self.topics, owned=_by_topic(self.owned))
        try:
            answer = self.driver.beat(self.member_id, self.epoch, **fields)
        except KafkaError as error:
            self.errors.append(error.code)
            if error.code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND):
                self.epoch, self.owned, self.allowed = 0, frozenset(), frozenset()
            return None
        if not lost:
            self.epoch = answer.epoch
            if answer.assigned is not None:
                self.allowed = frozenset((topic, part) for topic, parts in answer.assigned.items() for part in parts)
                self.owned |= self.allowed - self.owned if self.owned <= self.allowed else frozenset()
        return answer

    def leave(self, epoch: int = -1) -> None:
        instance = self.fields.get("instance_id")
        self.driver.leave(Heartbeat(self.member_id, epoch, instance_id=instance))  # type: ignore[arg-type]
        self.epoch, self.owned, self.allowed = 0, frozenset(), frozenset()


def _by_topic(places: Places) -> dict[bytes, list[int]]:
    found: dict[bytes, list[int]] = {}
    for topic, partition in sorted(places):
        found.setdefault(topic, []).append(partition)
    return found
