"""One group id without a broker, of either kind: members of both protocols that behave, time, restarts and a log.

What GroupKinds does between the two machines is done here for one group. The log is one list; a restart reads it.
"""

from collections.abc import Iterable, Mapping
from itertools import count

from consumer_group_driver import GROUP, NO_RULES, REBALANCE_MS, Client, Places, Topics
from fencepost.broker.groups import group_records
from fencepost.broker.groups.consumer.classic_members import Caller, MixedGroup
from fencepost.broker.groups.consumer.heartbeats import Answer, Heartbeat
from fencepost.broker.groups.consumer.machine import ConsumerGroup
from fencepost.broker.groups.consumer.machine import Rules as ConsumerRules
from fencepost.broker.groups.consumer.migration import HandOver, Policy, upgraded
from fencepost.broker.groups.consumer.records import KINDS, Change, Kind, read, record
from fencepost.broker.groups.consumer_protocol import read_assignment, read_subscription
from fencepost.broker.groups.group_records import KeptGroup
from fencepost.broker.groups.machine import Group, Rules
from fencepost.broker.groups.members import Joined, Joining, Leaving, Synced, Syncing
from fencepost.client.assignors.consumer_protocol import (
    Assignment,
    Subscription,
    encode_assignment,
    encode_subscription,
)
from fencepost.client.values import TopicPartition
from fencepost.protocol.errors import ErrorCode, KafkaError

SESSION_MS = 45_000
EAGER, COOPERATIVE = "range", "cooperative-sticky"


class MigrationDriver:
    """group: the consumer group, classic: the classic one; one of them at most."""

    def __init__(self, policy: Policy = Policy.BIDIRECTIONAL, **partitions: int) -> None:
        self.topics = Topics(**partitions)
        self.policy = policy
        self.rules = ConsumerRules(assignment_interval_ms=0)
        self.now_ms = 1_000
        self.log: list[tuple[bytes, bytes | None]] = []
        self.refuse: KafkaError | None = None
        self.consumer: MixedGroup | None = None
        self.classic: Group | None = None
        self.ids = count(1)

    @property
    def group(self) -> MixedGroup:
        assert self.consumer is not None
        return self.consumer

    @property
    def member_ids(self) -> set[str]:
        found: Iterable[str] = () if self.consumer is None else self.consumer.subscriptions
        return set(found) | set(() if self.classic is None else self.classic.members)

    # ---- the log ---------------------------------------------------------------------------------------------

    def _made(self) -> MixedGroup:
        return MixedGroup(
            GROUP,
            self.topics,
            lambda: self._rules(),
            lambda regex: None,
            self._keep,
            NO_RULES,
            lambda handed: self._back(handed),
        )

    def _rules(self) -> ConsumerRules:
        return self.rules._replace(takes_classic=self.policy is not Policy.DISABLED, may_go_back=self.policy.downgrades)

    def _commit(self, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        if self.refuse is not None:
            raise self.refuse
        self.log += records

    def _keep(self, group: ConsumerGroup, changes: Iterable[Change]) -> None:
        self._commit(record(GROUP, change) for change in changes)

    def _keep_classic(self, group: Group, kept: KeptGroup) -> None:
        self._commit([(group_records.key(GROUP), group_records.value(kept))])

    def _back(self, handed: HandOver) -> str | None:
        group = Group.of(GROUP, Rules(initial_delay_ms=0), self._keep_classic, handed.members, handed.generation)
        kept = group_records.value(group.to_keep()._replace(must_rebalance=handed.rebalance))
        self._commit([*(record(GROUP, change) for change in handed.tombstones), (group_records.key(GROUP), kept)])
        self.consumer, self.classic = None, group
        group.begin(self.now_ms, rebalance=handed.rebalance)
        return group.protocol

    def restart(self) -> None:
        """Build both groups again from the newest record of each key in the log."""
        consumer, self.classic, self.consumer = self._made(), None, None
        for key, value in dict(self.log).items():
            if value is None:
                continue
            if int.from_bytes(key[:2], "big") in KINDS:
                consumer.apply(read(key, value)[1])
                self.consumer = consumer
            else:
                kept = group_records.read_value(value)
                rules = Rules(initial_delay_ms=0)
                self.classic = Group.restore(GROUP, rules, self._keep_classic, kept, self.now_ms)
        assert self.consumer is None or self.classic is None
        if self.consumer is not None:
            self.consumer.begin(self.now_ms)

    # ---- requests --------------------------------------------------------------------------------------------

    def beat(self, member_id: str, epoch: int, **fields: object) -> Answer:
        first: list[Change] = []
        group = self.consumer
        if group is None:
            if epoch != 0:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
            group = self._made()
            if self.classic is not None and self.classic.members:
                first = upgraded(self.classic, self.topics, self.policy, self.rules.max_size)
            elif self.classic is not None:
                first = [Change(Kind.CLASSIC_GROUP, "", None)]
        beat = Heartbeat(member_id, epoch, **fields)  # type: ignore[arg-type]
        answer = group.heartbeat(beat, self.now_ms, self.now_ms, first)
        self.consumer = group
        if self.classic is not None:
            self.classic.end()
            self.classic = None
        return answer

    def leave(self, beat: Heartbeat) -> None:
        if self.consumer is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        self.consumer.leave(beat)

    def join_group(self, asked: Joining, waiting: "Waiting") -> None:
        new_id = f"c{next(self.ids)}"
        if self.consumer is not None and self.consumer.subscriptions:
            try:
                waiting.hear(self.consumer.join(asked, self.now_ms, self.now_ms, new_id))
            except KafkaError as error:
                waiting.hear(Joined(error.code, ""))
            return
        if self.consumer is not None:
            try:
                self._commit(record(GROUP, change) for change in self.consumer.tombstones())
            except KafkaError as error:
                waiting.hear(Joined(error.code, ""))
                return
            self.consumer = None
        if self.classic is None:
            self.classic = Group(GROUP, Rules(initial_delay_ms=0), self._keep_classic)
        self.classic.join(asked, waiting.hear, self.now_ms, lambda: new_id)
        self.wait(0)  # there is no initial delay

    def sync_group(self, asked: Syncing, waiting: "Waiting") -> None:
        if self.consumer is None:
            if self.classic is None:
                waiting.hear(Synced(ErrorCode.UNKNOWN_MEMBER_ID))
            else:
                self.classic.sync(asked, waiting.hear, self.now_ms)
            return
        try:
            waiting.hear(self.consumer.sync(asked, self.now_ms))
        except KafkaError as error:
            waiting.hear(Synced(error.code))

    def heartbeat(self, caller: Caller) -> ErrorCode:
        if self.consumer is None:
            return ErrorCode.UNKNOWN_MEMBER_ID if self.classic is None else self.classic.heartbeat(*caller, self.now_ms)
        try:
            self.consumer.classic_heartbeat(caller, self.now_ms, self.now_ms)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    def leave_group(self, leaving: Leaving) -> ErrorCode:
        if self.consumer is not None:
            return self.consumer.classic_leave([leaving])[0]
        return ErrorCode.UNKNOWN_MEMBER_ID if self.classic is None else self.classic.leave([leaving], self.now_ms)[0]

    def may_commit(self, member_id: str, epoch: int, places: Places, *, instance_id: str | None = None) -> bool:
        """Return whether a member may commit offsets of these partitions now."""
        try:
            if self.consumer is not None:
                self.consumer.check_commit(member_id, instance_id, epoch, places, version=9)
            elif self.classic is not None:
                self.classic.check_commit(member_id, instance_id, epoch, self.now_ms, transactional=False)
        except KafkaError:
            return False
        return True

    # ---- around them -----------------------------------------------------------------------------------------

    def join(self, topics: Iterable[str] = ("t",), **fields: object) -> Client:
        """Return a new member of the consumer protocol (KIP-848)."""
        client = Client(self, f"n{next(self.ids)}", tuple(topics), fields)  # type: ignore[arg-type]
        client.beat()
        return client

    def classic_member(self, protocol: str = EAGER, **fields: object) -> "ClassicClient":
        client = ClassicClient(self, protocol, **fields)  # type: ignore[arg-type]
        client.step()
        return client

    def wait(self, milliseconds: int) -> None:
        """Move the clock forward, and let happen what becomes due."""
        self.now_ms += milliseconds
        for group in (self.consumer, self.classic):
            if group is not None and group.wake_ms <= self.now_ms:
                group.expire(self.now_ms)


class Waiting:
    """The answer that a client waits for."""

    def __init__(self) -> None:
        self.answer: Joined | Synced | None = None

    def hear(self, answer: Joined | Synced) -> None:
        assert self.answer is None
        self.answer = answer


class ClassicClient:
    """A member of the classic protocol, eager or cooperative. Each step is one request, or the answer to the last.

    owned: what it reads now, by (topic id, partition).
    """

    def __init__(
        self,
        driver: MigrationDriver,
        protocol: str,
        topics: Iterable[str] = ("t",),
        instance_id: str | None = None,
        session_ms: int = SESSION_MS,
    ) -> None:
        self.driver = driver
        self.protocol = protocol
        self.topics = tuple(topics)
        self.instance_id = instance_id
        self.session_ms = session_ms
        self.member_id = ""
        self.generation = -1
        self.owned: Places = frozenset()
        self.errors: list[ErrorCode] = []
        self.is_stable = False
        self.is_fenced = False  # another has its instance id: such a client ends
        self._waiting: Waiting | None = None

    @property
    def epoch(self) -> int:
        return self.generation

    @property
    def is_waiting(self) -> bool:
        return self._waiting is not None and self._waiting.answer is None

    def step(self) -> None:
        """Do the next thing that such a client does."""
        if self.is_fenced:
            return
        if self._waiting is not None:
            answer = self._waiting.answer
            if isinstance(answer, Joined):
                self._waiting = None
                self._joined(answer)
            elif isinstance(answer, Synced):
                self._waiting = None
                self._synced(answer)
        elif self.is_stable:
            self._failed(self.driver.heartbeat(Caller(self.member_id, self.instance_id, self.generation)))
        else:
            self._join()

    def settle(self) -> None:
        """Make steps until it has an assignment or waits for others."""
        for _ in range(20):
            if self.is_waiting:
                return
            self.step()
            if self.is_stable:
                return

    def _join(self) -> None:
        if self.protocol == EAGER:
            self.owned = frozenset()
        owned = tuple(TopicPartition(self._name(topic), partition) for topic, partition in self.owned)
        metadata = encode_subscription(Subscription(self.topics, None, tuple(each for each in owned if each.topic)))
        self._waiting = Waiting()
        asked = Joining(
            self.member_id,
            self.instance_id,
            "client",
            "/host",
            self.session_ms,
            REBALANCE_MS,
            "consumer",
            ((self.protocol, metadata),),
        )
        self.driver.join_group(asked, self._waiting)

    def _name(self, topic_id: bytes) -> str:
        return self.driver.topics.name_of(topic_id) or ""

    def _joined(self, answer: Joined) -> None:
        if answer.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self._join()
        elif answer.error:
            self._failed(answer.error)
        else:
            self.member_id, self.generation = answer.member_id, answer.generation
            self._waiting = Waiting()
            assigned = self._assigned(answer) if answer.leader == self.member_id else {}
            syncing = Syncing(self.member_id, self.generation, self.instance_id, "consumer", answer.protocol, assigned)
            self.driver.sync_group(syncing, self._waiting)

    def _assigned(self, answer: Joined) -> Mapping[str, bytes]:
        """Return the leader's assignment: members keep their partitions as far as that is even, and no other member
        gets a partition that is still owned.
        """
        subscribed = {each.member_id: read_subscription(each.metadata) for each in answer.roster}
        owners = {
            (topic, partition): member
            for member, subscription in subscribed.items()
            for topic, partitions in subscription.owned.items()
            for partition in partitions
        }
        found: dict[str, list[TopicPartition]] = {member: [] for member in subscribed}
        for topic, partitions in sorted(self.driver.topics.partitions.items()):
            takers = sorted(member for member, subscription in subscribed.items() if topic in subscription.topics)
            most = -(-partitions // len(takers)) if takers else 0
            counts = dict.fromkeys(takers, 0)
            waiting = []
            for partition in range(partitions):
                owner = owners.get((topic, partition))
                if owner in counts and counts[owner] < most:
                    counts[owner] += 1
                    found[owner].append(TopicPartition(topic, partition))
                elif owner is None:
                    waiting.append(partition)
            for partition in waiting if takers else ():
                taker = min(takers, key=lambda each: (counts[each], each))
                counts[taker] += 1
                found[taker].append(TopicPartition(topic, partition))
        return {member: encode_assignment(Assignment(tuple(given))) for member, given in found.items()}

    def _synced(self, answer: Synced) -> None:
        if answer.error:
            self._failed(answer.error)
            return
        subscription = frozenset(
            (topic_id, partition)
            for topic, partitions in read_assignment(answer.assignment).items()
            if (topic_id := self.driver.topics.id_of(topic)) is not None
            for partition in partitions
        )
        self.is_stable = not (self.owned - subscription)  # a cooperative member that gave something up joins again
        self.owned = subscription

    def _failed(self, error: ErrorCode) -> None:
        if not error:
            return
        self.errors.append(error)
        self.is_stable = False
        if error is ErrorCode.REBALANCE_IN_PROGRESS:
            return
        self.owned, self.generation = frozenset(), -1
        self.is_fenced = error is ErrorCode.FENCED_INSTANCE_ID
        if error is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""

    def leave(self) -> ErrorCode:
        self.owned, self.is_stable, self._waiting = frozenset(), False, None
        error = self.driver.leave_group(Leaving(self.member_id, self.instance_id))
        self.member_id, self.generation = "", -1
        return error
