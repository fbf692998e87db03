"""What a member of a consumer group is, and what every answer of the coordinator makes of it. Pure.

The rule: an answer counts only for the member and generation that asked. Whoever is out of its generation has lost its
partitions, and says so before it asks to join again. What was taken over last (`applied`) stays what commits speak of,
also when the member is out: a stale generation is refused, none at all would not be.
Source: Kafka's AbstractCoordinator; KIP-345, KIP-394, KIP-429, KIP-559, KIP-800, KIP-814.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from ...protocol.errors import ErrorCode, MalformedFrame
from ...protocol.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    SyncGroupRequest,
    SyncGroupResponse,
)
from ..assignors.assignment import Assignor, LastAssignment
from ..assignors.assignors import cooperates
from ..assignors.consumer_protocol import (
    NO_GENERATION,
    PROTOCOL_TYPE,
    Assignment,
    Subscription,
    decode_assignment,
    encode_subscription,
)
from ..errors import code_of
from ..values import ConsumerGroupMetadata, TopicPartition


class State(Enum):
    UNJOINED = auto()  # in no generation
    PREPARING = auto()  # gives up what it has to, before it asks to join
    JOINING = auto()  # JoinGroup is under way
    SYNCING = auto()  # in a generation, without its assignment
    ASSIGNED = auto()  # has its assignment, and has not taken it over
    STABLE = auto()
    FENCED = auto()  # another member has its instance id


class Api(Enum):
    JOIN = auto()
    SYNC = auto()
    HEARTBEAT = auto()
    COMMIT = auto()


class Turn(Enum):
    """What comes after an answer."""

    GO_ON = auto()
    AGAIN = auto()  # the same, a little later
    FIND = auto()  # the same, of the coordinator there is now
    TAKE_ID = auto()  # the same, with the member id of the answer
    REJOIN = auto()
    LEAVE_GENERATION = auto()  # out, but the member id still stands
    LEAVE_MEMBER = auto()  # out, and to begin as a new member
    FENCE = auto()
    REFUSE = auto()  # nothing to be done about it here


_E = ErrorCode
_EVERYWHERE = {
    _E.NONE: Turn.GO_ON,
    _E.COORDINATOR_LOAD_IN_PROGRESS: Turn.AGAIN,
    _E.COORDINATOR_NOT_AVAILABLE: Turn.FIND,
    _E.NOT_COORDINATOR: Turn.FIND,
    _E.ILLEGAL_GENERATION: Turn.LEAVE_GENERATION,
    _E.UNKNOWN_MEMBER_ID: Turn.LEAVE_MEMBER,
    _E.FENCED_INSTANCE_ID: Turn.FENCE,
    _E.REBALANCE_IN_PROGRESS: Turn.REJOIN,
}
TABLE: Mapping[Api, Mapping[ErrorCode, Turn]] = {
    Api.JOIN: {**_EVERYWHERE, _E.REBALANCE_IN_PROGRESS: Turn.AGAIN, _E.MEMBER_ID_REQUIRED: Turn.TAKE_ID},
    Api.SYNC: {**_EVERYWHERE, _E.COORDINATOR_LOAD_IN_PROGRESS: Turn.REJOIN},
    Api.HEARTBEAT: _EVERYWHERE,
    Api.COMMIT: {**_EVERYWHERE, _E.UNKNOWN_TOPIC_OR_PARTITION: Turn.AGAIN, _E.REQUEST_TIMED_OUT: Turn.FIND},
}
"""What each code means for each API; one that is not named is refused."""

_HEARTBEATS = {State.PREPARING, State.ASSIGNED, State.STABLE}  # a sync that waits stands for one


class Stamp(NamedTuple):
    """Who asked."""

    generation: int
    member_id: str


class GivingUp(NamedTuple):
    """What a member may not keep while it joins. lost: it is not the member's any more anyway."""

    partitions: tuple[TopicPartition, ...]
    lost: bool


class TakingOver(NamedTuple):
    """The difference that an assignment makes. fits: whether it is for the topics that are wanted now."""

    partitions: tuple[TopicPartition, ...]
    revoked: tuple[TopicPartition, ...]
    added: tuple[TopicPartition, ...]
    fits: bool


@dataclass(frozen=True, slots=True)
class Terms:
    """On which terms a member joins."""

    group_id: str
    group_instance_id: str | None
    session_timeout_ms: int
    rebalance_timeout_ms: int
    rack_id: str | None = None


class Membership:
    """One member, from its first JoinGroup to its last LeaveGroup. assignors: the one it likes best first."""

    def __init__(self, terms: Terms, assignors: Sequence[Assignor]) -> None:
        self.terms = terms
        self.assignors = {assignor.name: assignor for assignor in assignors}
        self.cooperative = cooperates(assignors)
        self.state = State.UNJOINED
        self.member_id = ""
        self.generation = NO_GENERATION
        self.applied = ConsumerGroupMetadata(terms.group_id, NO_GENERATION, "", terms.group_instance_id)
        self.assignor: Assignor | None = None
        self.leads = False
        self.reason = ""  # why it is to join again; empty: it is not
        self.joined_topics: frozenset[str] = frozenset()
        self._last: LastAssignment | None = None
        self._assignment: Assignment | None = None

    # ---- where it stands -------------------------------------------------------------------------------------

    @property
    def settled(self) -> bool:
        """Whether there is nothing to be done in a poll."""
        return self.state is State.STABLE and not self.reason

    @property
    def stamp(self) -> Stamp:
        return Stamp(self.generation, self.member_id)

    @property
    def in_generation(self) -> bool:
        """Whether it is a member that heartbeats."""
        return self.state in _HEARTBEATS and self.generation >= 0

    @property
    def may_commit(self) -> bool:
        """Whether the generation taken over last is still this member's."""
        return self.state in (State.STABLE, State.PREPARING) and self.generation == self.applied.generation

    def rejoin(self, reason: str) -> None:
        """Join again at the next poll."""
        if not self.reason:
            self.reason = reason

    # ---- joining ---------------------------------------------------------------------------------------------

    def prepare(self, owned: Collection[TopicPartition], topics: Collection[str]) -> GivingUp:
        """Before a join: what of `owned` has to go first. topics: those wanted now; none to leave."""
        lost = self.generation < 0
        if self.state is not State.FENCED:
            self.state = State.PREPARING
        if lost or not (self.cooperative and topics):
            return GivingUp(tuple(owned), lost)
        return GivingUp(tuple(place for place in owned if place.topic not in topics), False)

    def join_request(self, topics: Iterable[str], owned: Collection[TopicPartition]) -> JoinGroupRequest:
        """owned: what it still has."""
        self.state = State.JOINING
        self.joined_topics = frozenset(topics)
        wanted = tuple(sorted(self.joined_topics))
        protocols: list[JoinGroupRequest.Protocol] = []
        for name, assignor in self.assignors.items():
            subscription = Subscription(
                wanted, assignor.user_data(self._last), tuple(owned), self.generation, self.terms.rack_id
            )
            protocols.append(JoinGroupRequest.Protocol(name=name, metadata=encode_subscription(subscription)))
        return JoinGroupRequest(
            group_id=self.terms.group_id,
            session_timeout_ms=self.terms.session_timeout_ms,
            rebalance_timeout_ms=self.terms.rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self.terms.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=protocols,
            reason=self.reason or None,
        )

    def on_join(self, response: JoinGroupResponse) -> Turn:
        turn = self._turn(Api.JOIN, response.error_code)
        if turn is Turn.TAKE_ID:
            self.member_id = response.member_id
        elif turn is Turn.GO_ON:
            return self._joined(response)
        return turn

    def _joined(self, response: JoinGroupResponse) -> Turn:
        name = response.protocol_name or ""
        if response.protocol_type not in (None, PROTOCOL_TYPE) or name not in self.assignors:
            self._out(forget_member=False)
            return Turn.REFUSE
        self.state = State.SYNCING
        self.reason = ""
        self.generation = response.generation_id
        self.member_id = response.member_id
        self.assignor = self.assignors[name]
        self.leads = response.leader == response.member_id
        return Turn.GO_ON

    def sync_request(self, assignments: Mapping[str, bytes]) -> SyncGroupRequest:
        """assignments: by member id, from the leader; of others, none."""
        assert self.assignor is not None
        return SyncGroupRequest(
            group_id=self.terms.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.terms.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self.assignor.name,
            assignments=[
                SyncGroupRequest.Assignment(member_id=member, assignment=content)
                for member, content in assignments.items()
            ],
        )

    def on_sync(self, response: SyncGroupResponse, asked: Stamp) -> Turn:
        """Raises MalformedFrame if the leader's bytes cannot be read."""
        if asked != self.stamp or self.state is not State.SYNCING:
            return Turn.REJOIN  # out of it meanwhile
        turn = self._turn(Api.SYNC, response.error_code)
        if turn is not Turn.GO_ON:
            return turn
        assert self.assignor is not None
        if response.protocol_type not in (None, PROTOCOL_TYPE) or response.protocol_name not in (
            None,
            self.assignor.name,
        ):
            self._out(forget_member=False)
            return Turn.REFUSE
        try:
            # A leader may leave out a member for which there is nothing; the broker fills in no bytes then.
            self._assignment = decode_assignment(response.assignment) if response.assignment else Assignment(())
        except MalformedFrame:
            self._out(forget_member=False)
            raise
        self.state = State.ASSIGNED
        return Turn.GO_ON

    def take_over(self, owned: Collection[TopicPartition], fits: bool) -> TakingOver:
        """The assignment becomes the member's. fits: whether all of it is wanted; if not, it is left and asked anew."""
        assert self._assignment is not None
        assert self.assignor is not None
        given, self._assignment = self._assignment.partitions, None
        self.state = State.STABLE
        if not fits:
            self.applied = self._metadata()
            self.rejoin("the assignment is not for the topics that are wanted now")
            return TakingOver(tuple(owned), (), (), fits=False)
        had = set(owned)
        revoked = tuple(place for place in owned if place not in given)
        added = tuple(place for place in given if place not in had)
        self._last = LastAssignment(given, self.generation)
        self.applied = self._metadata()
        if revoked:
            self.rejoin(f"gave up {len(revoked)} partitions for others to take")
        return TakingOver(given, revoked, added, fits=True)

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """What is to be taken over."""
        return () if self._assignment is None else self._assignment.partitions

    def _metadata(self) -> ConsumerGroupMetadata:
        return ConsumerGroupMetadata(self.terms.group_id, self.generation, self.member_id, self.terms.group_instance_id)

    # ---- being a member --------------------------------------------------------------------------------------

    def heartbeat_request(self) -> HeartbeatRequest:
        return HeartbeatRequest(
            group_id=self.terms.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.terms.group_instance_id,
        )

    def on_heartbeat(self, code: int, asked: Stamp) -> Turn:
        return self._on_answer(Api.HEARTBEAT, code, asked)

    def on_commit(self, code: int, asked: Stamp) -> Turn:
        return self._on_answer(Api.COMMIT, code, asked)

    def _on_answer(self, api: Api, code: int, asked: Stamp) -> Turn:
        if asked != self.stamp or not self.in_generation:
            return TABLE[api].get(code_of(code), Turn.REFUSE)  # of a member that is no more: nothing changes
        return self._turn(api, code)

    def _turn(self, api: Api, code: int) -> Turn:
        turn = TABLE[api].get(code_of(code), Turn.REFUSE)
        if turn is Turn.REJOIN:
            self.rejoin("the group is rebalancing")
        elif turn is Turn.FIND and api is Api.SYNC:
            self.rejoin("the coordinator is another one")
        elif turn in (Turn.LEAVE_GENERATION, Turn.LEAVE_MEMBER):
            self._out(forget_member=turn is Turn.LEAVE_MEMBER)
        elif turn is Turn.FENCE:
            self._out(forget_member=True)
            self.state = State.FENCED
        elif turn is Turn.REFUSE and api in (Api.JOIN, Api.SYNC):
            self._out(forget_member=False)
        return turn

    def _out(self, *, forget_member: bool) -> None:
        self.state = State.UNJOINED
        self.generation = NO_GENERATION
        self.leads = False
        self._assignment = None
        if forget_member:
            self.member_id = ""

    # ---- leaving ---------------------------------------------------------------------------------------------

    def leave(self, reason: str) -> LeaveGroupRequest | None:
        """Be out. Returns what to tell the coordinator; None for a static member, which may come back (KIP-345)."""
        request = None
        if self.member_id and self.terms.group_instance_id is None:
            member = LeaveGroupRequest.Member(member_id=self.member_id, reason=reason)
            request = LeaveGroupRequest(group_id=self.terms.group_id, member_id=self.member_id, members=[member])
        if self.state is not State.FENCED:
            self._out(forget_member=True)
        self.reason = ""
        self.joined_topics = frozenset()
        return request
