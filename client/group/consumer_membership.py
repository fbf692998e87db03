"""A member whose partitions the broker assigns (KIP-848): its state, and how a heartbeat's response changes it. Pure.

The rules: one heartbeat is in flight at a time, and its response applies only to the membership that sent it. A field
is sent when the broker may not know its value: all of them when joining, and after a heartbeat without a good response.
Partitions change only in a poll (`plan`, `take_over`); nothing is added while a heartbeat that lists the owned
partitions is in flight, because the broker believes that list. A commit has the epoch of the assignment that was
applied last, so that it is refused if a partition has another owner; epochs that change no partition apply at once.
A membership that ends while the broker may still have it is left by a request of its own before the next join, so that
its partitions do not wait for the end of its session, nor a static member's successor for its place.
Source: Kafka's ConsumerMembershipManager, ConsumerHeartbeatRequestManager; KIP-848, KIP-1082.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from ...protocol.errors import ErrorCode
from ...protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from ..assignors.consumer_protocol import NO_GENERATION
from ..errors import ClientError, KafkaError, code_of, error_of
from ..values import ConsumerGroupMetadata, TopicPartition
from .membership import Turn

JOINING_EPOCH, LEAVING_EPOCH, STATIC_LEAVING_EPOCH = 0, -1, -2
Place = tuple[bytes, int]
"""A partition as heartbeats name it: the topic's id, and the number."""


class State(Enum):
    UNJOINED = auto()  # not a member; the next poll gives up what is left, and joins
    JOINING = auto()  # its first heartbeat has no response yet
    RECONCILING = auto()  # has an assignment that no poll has applied
    ACKNOWLEDGING = auto()  # has applied it, and the broker does not know that yet
    STABLE = auto()
    FENCED = auto()  # another member has its instance id


_E = ErrorCode
TABLE: Mapping[ErrorCode, Turn] = {
    _E.NONE: Turn.GO_ON,
    _E.COORDINATOR_LOAD_IN_PROGRESS: Turn.AGAIN,
    _E.COORDINATOR_NOT_AVAILABLE: Turn.FIND,
    _E.NOT_COORDINATOR: Turn.FIND,
    _E.FENCED_MEMBER_EPOCH: Turn.LEAVE_MEMBER,
    _E.UNKNOWN_MEMBER_ID: Turn.LEAVE_MEMBER,
    _E.GROUP_ID_NOT_FOUND: Turn.LEAVE_MEMBER,
    _E.FENCED_INSTANCE_ID: Turn.FENCE,
    _E.UNRELEASED_INSTANCE_ID: Turn.WAIT,
    _E.TOPIC_AUTHORIZATION_FAILED: Turn.COMPLAIN,
}
"""What to do after each code of a heartbeat; REFUSE for other codes."""

_NOT_A_MEMBER = (_E.UNKNOWN_MEMBER_ID, _E.GROUP_ID_NOT_FOUND)

_HINTS = {
    _E.GROUP_ID_NOT_FOUND: "a group of this name has another type: stop its members, or use another group_id; "
    "a share group stays one until it is deleted",
    _E.UNSUPPORTED_VERSION: 'use group_protocol="classic", or a broker with the feature group.version',
    _E.UNSUPPORTED_ASSIGNOR: "leave out group_remote_assignor, or use one of the broker's group.consumer.assignors",
    _E.UNRELEASED_INSTANCE_ID: "stop the other consumer with this group_instance_id; one that was killed is removed "
    "after the broker's group.consumer.session.timeout.ms",
    _E.INVALID_REGULAR_EXPRESSION: "the broker evaluates patterns, as RE2; pass re.compile(...) to evaluate it here",
}


@dataclass(frozen=True, slots=True)
class ConsumerTerms:
    """The settings with which a member joins."""

    group_id: str
    group_instance_id: str | None
    rebalance_timeout_ms: int
    rack_id: str | None = None
    assignor: str | None = None


class Plan(NamedTuple):
    """What a poll has to change. partitions: all owned afterwards, with their topic ids. unknown: ids of assigned
    topics whose names are not known.
    """

    partitions: Mapping[TopicPartition, bytes]
    revoked: tuple[TopicPartition, ...]
    added: tuple[TopicPartition, ...]
    unknown: tuple[bytes, ...]


class _Reported(NamedTuple):
    """What a heartbeat reports: the subscription and the partitions."""

    topics: frozenset[str]
    expression: str | None
    owned: frozenset[Place]


class ConsumerMembership:
    """One member of a group (KIP-848).

    generation: the member's epoch, -1 while it has none. stamp: grows with each new membership, so that late responses
    are recognized. joined_topics, expression: what `subscribe` was called with.
    """

    def __init__(self, terms: ConsumerTerms, member_id: str) -> None:
        self.terms = terms
        self.member_id = member_id
        self.state = State.UNJOINED
        self.generation = NO_GENERATION
        self.applied = ConsumerGroupMetadata(terms.group_id, NO_GENERATION, "", terms.group_instance_id)
        self.stamp = 0
        self.joined_topics: frozenset[str] = frozenset()
        self.expression: str | None = None
        self._owned: dict[TopicPartition, bytes] = {}
        self._assigned: frozenset[Place] = frozenset()
        self._known: _Reported | None = None  # what the broker knows; None: send everything
        self._sending: _Reported | None = None
        self._reports = False  # the heartbeat in flight lists the owned partitions
        self._held = False  # what is added has to wait for the end of that heartbeat, or for names
        self._wants_heartbeat = False
        self._unknown = False  # the names of some assigned topics are not known
        self._offered: frozenset[Place] = frozenset()  # since the last report: owned, for all that the broker knows
        self._responses = 0  # good ones, since it joined
        self.farewell: ConsumerGroupHeartbeatRequest | None = None  # leaves the membership before this one

    # ---- state -----------------------------------------------------------------------------------------------

    @property
    def settled(self) -> bool:
        """Return whether a poll has nothing to do for the membership."""
        if self.state is State.RECONCILING:
            return self._held
        return self.state not in (State.UNJOINED, State.FENCED)

    @property
    def in_generation(self) -> bool:
        """Return whether the member must send heartbeats."""
        return self.state not in (State.UNJOINED, State.FENCED)

    is_member = in_generation

    @property
    def is_fenced(self) -> bool:
        return self.state is State.FENCED

    @property
    def is_out(self) -> bool:
        """Return whether other members may own the partitions that this member had."""
        return self.generation < 0

    @property
    def may_commit(self) -> bool:
        """Return whether this is still the member whose assignment was applied last."""
        return self.generation >= 0 and self.applied.generation >= 0 and self.applied.member_id == self.member_id

    @property
    def may_be_empty(self) -> bool:
        """Return whether an assignment without partitions may be final. The first response, to the join, may come
        before partitions are assigned.
        """
        return self._responses > 1

    @property
    def hurries(self) -> bool:
        """Return whether the next heartbeat must be sent at once."""
        if not self.in_generation or self._sending is not None:
            return False
        if self._wants_heartbeat:
            return True
        return self._known is not None and (self._known != self._now() or self.state is State.ACKNOWLEDGING)

    def metadata_for(self, partitions: Collection[TopicPartition]) -> ConsumerGroupMetadata:
        """Return member and epoch for a commit of these partitions: the newest epoch if the newest assignment has all
        of them, else that of the assignment that was applied last.
        """
        if self.may_commit and all(
            tp in self._owned and (self._owned[tp], tp.partition) in self._assigned for tp in partitions
        ):
            return self._metadata()
        return self.applied

    def member_for_reading(self) -> ConsumerGroupMetadata | None:
        """Return member and epoch for reading committed offsets; None while it has none."""
        return self._metadata() if self.generation >= 0 else None

    def _metadata(self) -> ConsumerGroupMetadata:
        return ConsumerGroupMetadata(self.terms.group_id, self.generation, self.member_id, self.terms.group_instance_id)

    # ---- what polls do ---------------------------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str], expression: str | None) -> tuple[TopicPartition, ...]:
        """Set the topics, or the pattern that the broker evaluates. Returns the owned partitions to revoke at once."""
        topics = frozenset(topics)
        if topics == self.joined_topics and expression == self.expression:
            return ()
        self.joined_topics, self.expression = topics, expression
        if self.state in (State.STABLE, State.ACKNOWLEDGING):
            self.state = State.RECONCILING
        if expression is not None or not self.in_generation:
            return ()
        return tuple(tp for tp in self._owned if tp.topic not in topics)

    def join(self, member_id: str = "") -> None:
        """Join with the next heartbeat. All partitions have been given up.

        member_id: a new id. If the broker still has the member with the old id, that one could join again in the same
        epoch, and the broker would accept a late commit of what was read before.
        """
        self._begin(State.JOINING)
        self.member_id = member_id or self.member_id
        self.generation = NO_GENERATION
        self._owned = {}

    def note_names(self) -> None:
        """Note that metadata have changed, so that the names of assigned topics may be known now."""
        if self._unknown:
            self._held = False
            if self.state in (State.STABLE, State.ACKNOWLEDGING):
                self.state = State.RECONCILING

    def plan(self, name_of: Callable[[bytes], str | None]) -> Plan:
        """Return what the next poll has to change to apply the assignment, or the part of it that need not wait for
        names or for the heartbeat in flight. name_of: returns a topic's name by its id.
        """
        names = {topic_id: tp.topic for tp, topic_id in self._owned.items()}
        wanted: dict[TopicPartition, bytes] = {}
        unknown: dict[bytes, None] = {}
        for topic_id, number in sorted(self._assigned):
            name = name_of(topic_id) or names.get(topic_id)
            if name is None:
                unknown[topic_id] = None
            elif self.expression is not None or name in self.joined_topics:
                wanted[TopicPartition(name, number)] = topic_id
        owned = self._owned
        revoked = tuple(tp for tp, topic_id in owned.items() if wanted.get(tp) != topic_id)
        added = tuple(tp for tp, topic_id in wanted.items() if owned.get(tp) != topic_id)
        self._unknown = bool(unknown)
        self._held = self._reports if added else bool(unknown)
        if self._held:
            wanted = {tp: topic_id for tp, topic_id in wanted.items() if tp not in added}
            added = ()
        return Plan(wanted, revoked, added, tuple(unknown))

    def unknown_topics(self, name_of: Callable[[bytes], str | None]) -> tuple[bytes, ...]:
        """Return the ids of assigned topics whose names are not known."""
        known = set(self._owned.values())
        ids = dict.fromkeys(topic_id for topic_id, _ in sorted(self._assigned))
        return tuple(topic_id for topic_id in ids if topic_id not in known and name_of(topic_id) is None)

    def give_up(self, partitions: Collection[TopicPartition]) -> None:
        """Note that these partitions are no longer owned, so that the next heartbeat reports it."""
        for tp in partitions:
            self._owned.pop(tp, None)
        self._acknowledge()

    def take_over(self, plan: Plan) -> None:
        """Note that the plan was carried out: its partitions are owned now."""
        self._owned = dict(plan.partitions)
        self.applied = self._metadata()
        if not self._held:
            self.state = State.STABLE
            self._acknowledge()

    def _acknowledge(self) -> None:
        """Change to ACKNOWLEDGING if the broker must be told what is owned now. The broker waits to be told also if
        partitions were assigned and withdrawn between two polls.
        """
        owned = self._places()
        if self.state is State.STABLE and (self._known is None or self._known.owned != owned or self._offered - owned):
            self.state = State.ACKNOWLEDGING

    # ---- heartbeats ------------------------------------------------------------------------------------------

    def _places(self) -> frozenset[Place]:
        return frozenset((topic_id, tp.partition) for tp, topic_id in self._owned.items())

    def _now(self) -> _Reported:
        return _Reported(self.joined_topics, self.expression, self._places())

    def heartbeat_request(self) -> ConsumerGroupHeartbeatRequest:
        """Return the next heartbeat, with what has changed since the last answered one."""
        now, known, terms = self._now(), self._known, self.terms
        everything = known is None
        reports = known is None or known.owned != now.owned or self.state is State.ACKNOWLEDGING
        expression = now.expression
        if known is not None:
            expression = None if known.expression == now.expression else now.expression or ""
        self._sending, self._reports, self._wants_heartbeat = now, reports, False
        return ConsumerGroupHeartbeatRequest(
            group_id=terms.group_id,
            member_id=self.member_id,
            member_epoch=max(JOINING_EPOCH, self.generation),
            instance_id=terms.group_instance_id,
            rack_id=terms.rack_id if everything else None,
            rebalance_timeout_ms=terms.rebalance_timeout_ms if everything else -1,
            subscribed_topic_names=sorted(now.topics) if known is None or known.topics != now.topics else None,
            subscribed_topic_regex=expression,
            server_assignor=terms.assignor if everything else None,
            topic_partitions=_list_topics(now.owned) if reports else None,
        )

    def on_heartbeat_response(self, response: ConsumerGroupHeartbeatResponse, sent: int) -> Turn:
        """Apply a heartbeat's response and return what to do next. sent: the stamp when it was sent; a response for an
        older membership changes nothing.
        """
        if sent != self.stamp or not self.in_generation:
            return Turn.GO_ON  # for a former membership: nothing changes
        sent_now, reported, self._sending, self._reports, self._held = self._sending, self._reports, None, False, False
        code = code_of(response.error_code)
        turn = TABLE.get(code, Turn.REFUSE)
        if code is _E.GROUP_ID_NOT_FOUND and self.state is State.JOINING:
            turn = Turn.REFUSE
        if turn is not Turn.GO_ON:
            self._known = None
        if turn is Turn.GO_ON:
            self._known = sent_now
            self._offered = frozenset() if reported else self._offered
            self._on_success(response)
        elif turn in (Turn.LEAVE_MEMBER, Turn.REFUSE):
            self._leave(State.UNJOINED, is_known=code not in _NOT_A_MEMBER)
        elif turn is Turn.FENCE:
            self._leave(State.FENCED)
        return turn

    def _on_success(self, response: ConsumerGroupHeartbeatResponse) -> None:
        """Take over member epoch and assignment; reconcile if the assignment differs from what is owned."""
        self.generation = response.member_epoch
        self._responses += 1
        if response.assignment is not None or self.state is State.JOINING:
            listed = response.assignment.topic_partitions if response.assignment is not None else []
            self._assigned = frozenset((topic.topic_id, number) for topic in listed for number in topic.partitions)
            self._offered |= self._assigned
            if self.state is State.JOINING or self._assigned != self._places():
                self.state = State.RECONCILING
        if self.state is State.RECONCILING:
            return
        self.state = State.STABLE
        self._acknowledge()
        self.applied = self._metadata()
        if self._responses == 2 and not self._owned:
            self.state = State.RECONCILING  # a poll has to note that there is nothing for it

    def on_no_response(self, sent: int, *, final: bool) -> None:
        """Note that a heartbeat failed, so that the next one reports everything. sent: the membership's stamp when it
        was sent; nothing changes if it is older. final: another try would fail too, so the member has to join again.
        """
        if sent != self.stamp:
            return
        self._known = self._sending = None
        self._reports = self._held = False
        if final:
            self._leave(State.UNJOINED, is_known=True)

    def refusal(self, response: ConsumerGroupHeartbeatResponse) -> KafkaError:
        """Return the error to raise for a heartbeat response with an error code, with a hint for some of the codes."""
        code = code_of(response.error_code)
        error = error_of(code, f"group {self.terms.group_id}: {response.error_message or code.text}")
        if code in _HINTS and isinstance(error, ClientError):
            error.hint = _HINTS[code]
        return error

    def on_commit(self, code: int, sent: object) -> None:
        """Note a refused commit: the next heartbeat, which shows the member's state, is sent at once."""
        if code in (_E.UNKNOWN_MEMBER_ID, _E.STALE_MEMBER_EPOCH, _E.FENCED_MEMBER_EPOCH, _E.FENCED_INSTANCE_ID):
            self._wants_heartbeat = True

    # ---- leaving ---------------------------------------------------------------------------------------------

    def leave(self, reason: str = "") -> ConsumerGroupHeartbeatRequest | None:
        """End the membership. Returns the heartbeat that tells the broker; None if the broker does not know the member.
        For a static member the broker keeps its partitions assigned until the session timeout.
        """
        request = self.farewell  # of the membership before, not answered yet: nothing was sent for the present one
        if request is None and self.in_generation:
            request = self._leaving()
        self.farewell = None
        if self.state is not State.FENCED:
            self._leave(State.UNJOINED, is_known=False)
        self.joined_topics, self.expression = frozenset(), None
        return request

    def _leaving(self) -> ConsumerGroupHeartbeatRequest:
        """Return the heartbeat that leaves the group; a static member leaves temporarily."""
        return ConsumerGroupHeartbeatRequest(
            group_id=self.terms.group_id,
            member_id=self.member_id,
            member_epoch=LEAVING_EPOCH if self.terms.group_instance_id is None else STATIC_LEAVING_EPOCH,
            instance_id=self.terms.group_instance_id,
        )

    def on_farewell(self, code: int) -> Turn:
        """Apply the response to `farewell`, the heartbeat that leaves the former membership. Returns what to do before
        the next join; GO_ON: nothing.
        """
        turn = TABLE.get(code_of(code), Turn.REFUSE)
        if turn in (Turn.FIND, Turn.AGAIN):
            return turn
        self.farewell = None
        return Turn.GO_ON

    def _leave(self, state: State, *, is_known: bool = False) -> None:
        """End the membership in this state. is_known: the broker may still have the member, so a heartbeat that leaves
        the group is to follow.
        """
        if is_known and self.generation >= 0:
            self.farewell = self._leaving()
        self._begin(state)
        self.generation = NO_GENERATION

    def _begin(self, state: State) -> None:
        """Enter a state in which nothing is assigned, reported or sent."""
        self.state = state
        self.stamp += 1
        self._assigned = self._offered = frozenset()
        self._known = self._sending = None
        self._reports = self._held = self._wants_heartbeat = self._unknown = False
        self._responses = 0


def _list_topics(places: Iterable[Place]) -> list[ConsumerGroupHeartbeatRequest.TopicPartitions]:
    """Return these partitions as the heartbeat lists them: by topic id, in order."""
    numbers: dict[bytes, list[int]] = {}
    for topic_id, number in sorted(places):
        numbers.setdefault(topic_id, []).append(number)
    return [
        ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=topic_id, partitions=found)
        for topic_id, found in numbers.items()
    ]
