"""The state of a group member, and how each response of the coordinator changes it. Pure.

The rule: a response applies only to the member and generation that sent the request. A member that is out of its
generation has lost its partitions; its listener is called for that before it joins again. Commits use the generation
whose assignment was applied last (`applied`), even if the member is out: the broker refuses a commit with a stale
generation, but would accept one without a generation.
Source: Kafka's AbstractCoordinator; KIP-345, KIP-394, KIP-429, KIP-559, KIP-800, KIP-814.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from ...effects.counts import count_text
from ...protocol.errors import ErrorCode, MalformedFrame
from ...protocol.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
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
from ..errors import KafkaError, code_of, error_of
from ..values import ConsumerGroupMetadata, TopicPartition


class State(Enum):
    UNJOINED = auto()  # in no generation
    PREPARING = auto()  # gives up partitions before it sends JoinGroup
    JOINING = auto()  # JoinGroup is in flight
    SYNCING = auto()  # in a generation, without its assignment
    ASSIGNED = auto()  # has its assignment, but has not applied it
    STABLE = auto()
    FENCED = auto()  # another member has its instance id


class Api(Enum):
    JOIN = auto()
    SYNC = auto()
    HEARTBEAT = auto()
    COMMIT = auto()


class Turn(Enum):
    """What to do after a response."""

    GO_ON = auto()
    AGAIN = auto()  # send the request again after a pause
    WAIT = auto()  # send it again later: the broker still has another member with its instance id
    FIND = auto()  # look up the coordinator, and send the request again
    TAKE_ID = auto()  # send the request again with the member id of the response
    REJOIN = auto()
    LEAVE_GENERATION = auto()  # out of the generation, with a valid member id
    LEAVE_MEMBER = auto()  # out of the group: join as a new member
    FENCE = auto()
    REFUSE = auto()  # raise the error
    COMPLAIN = auto()  # raise the error, and stay a member


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
"""What to do after each code of each API; REFUSE for other codes."""

_HEARTBEATS = {State.PREPARING, State.ASSIGNED, State.STABLE}  # a waiting SyncGroup counts as a heartbeat


class Stamp(NamedTuple):
    """The generation and member that sent a request."""

    generation: int
    member_id: str


class GivingUp(NamedTuple):
    """The partitions that a member must give up before a join. lost: the group may have reassigned them already."""

    partitions: tuple[TopicPartition, ...]
    lost: bool


class TakingOver(NamedTuple):
    """The changes by a new assignment. fits: whether it is for the topics that are subscribed now."""

    partitions: tuple[TopicPartition, ...]
    revoked: tuple[TopicPartition, ...]
    added: tuple[TopicPartition, ...]
    fits: bool


@dataclass(frozen=True, slots=True)
class Terms:
    """The settings with which a member joins."""

    group_id: str
    group_instance_id: str | None
    session_timeout_ms: int
    rebalance_timeout_ms: int
    rack_id: str | None = None


class Membership:
    """One member, from its first JoinGroup to its last LeaveGroup. assignors: by name, in the order of preference."""

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
        self.reason = ""  # why it must join again; empty: it need not
        self.joined_topics: frozenset[str] = frozenset()
        self._last: LastAssignment | None = None
        self._assignment: Assignment | None = None

    # ---- state -----------------------------------------------------------------------------------------------

    @property
    def settled(self) -> bool:
        """Return whether a poll has nothing to do for the membership."""
        return self.state is State.STABLE and not self.reason

    @property
    def stamp(self) -> Stamp:
        return Stamp(self.generation, self.member_id)

    @property
    def in_generation(self) -> bool:
        """Return whether the member must send heartbeats."""
        return self.state in _HEARTBEATS and self.generation >= 0

    @property
    def is_member(self) -> bool:
        """Return whether the group may count it as a member."""
        return bool(self.member_id)

    @property
    def is_fenced(self) -> bool:
        return self.state is State.FENCED

    @property
    def is_out(self) -> bool:
        """Return whether other members may own the partitions that this member had."""
        return self.state is State.UNJOINED or self.generation < 0

    hurries = False
    """Whether the next heartbeat must not wait for its interval."""

    @property
    def may_commit(self) -> bool:
        """Return whether the generation whose assignment was applied last is still the current one."""
        return self.state in (State.STABLE, State.PREPARING) and self.generation == self.applied.generation

    def rejoin(self, reason: str) -> None:
        """Note that the next poll must join again. reason: sent to the broker."""
        if not self.reason:
            self.reason = reason

    def metadata_for(self, partitions: Collection[TopicPartition]) -> ConsumerGroupMetadata:
        """Return the member and generation to use for a commit of these partitions."""
        return self.applied

    def member_for_reading(self) -> ConsumerGroupMetadata | None:
        """Return None: in the classic protocol committed offsets are read without naming a member."""
        return None

    # ---- joining ---------------------------------------------------------------------------------------------

    def prepare(self, owned: Collection[TopicPartition], topics: Collection[str]) -> GivingUp:
        """Return the part of `owned` to give up before a join. topics: the subscribed ones; none: give up all."""
        lost = self.generation < 0
        if self.state is not State.FENCED:
            self.state = State.PREPARING
        if lost or not (self.cooperative and topics):
            return GivingUp(tuple(owned), lost)
        return GivingUp(tuple(place for place in owned if place.topic not in topics), False)

    def join_request(self, topics: Iterable[str], owned: Collection[TopicPartition]) -> JoinGroupRequest:
        """Return the JoinGroup request. owned: the partitions that the member keeps."""
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
        """Apply a response to JoinGroup and return what to do next."""
        turn = self._turn(Api.JOIN, response.error_code)
        if turn is Turn.TAKE_ID:
            self.member_id = response.member_id
        elif turn is Turn.GO_ON:
            return self._on_join_response(response)
        return turn

    def _on_join_response(self, response: JoinGroupResponse) -> Turn:
        """Take generation, member id and leadership from a successful JoinGroup, and continue with SyncGroup. Refuses
        a protocol that this member did not offer.
        """
        name = response.protocol_name or ""
        if response.protocol_type not in (None, PROTOCOL_TYPE) or name not in self.assignors:
            self._leave_generation(forget_member=False)
            return Turn.REFUSE
        self.state = State.SYNCING
        self.reason = ""
        self.generation = response.generation_id
        self.member_id = response.member_id
        self.assignor = self.assignors[name]
        self.leads = response.leader == response.member_id
        return Turn.GO_ON

    def sync_request(self, assignments: Mapping[str, bytes]) -> SyncGroupRequest:
        """Return the SyncGroup request. assignments: by member id; only the leader sends them."""
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

    def on_sync(self, response: SyncGroupResponse, sent: Stamp) -> Turn:
        """Apply the response to SyncGroup and return what to do next. Raises MalformedFrame if the leader's bytes are
        malformed.
        """
        if sent != self.stamp or self.state is not State.SYNCING:
            return Turn.REJOIN  # no longer in that generation
        turn = self._turn(Api.SYNC, response.error_code)
        if turn is not Turn.GO_ON:
            return turn
        assert self.assignor is not None
        if response.protocol_type not in (None, PROTOCOL_TYPE) or response.protocol_name not in (
            None,
            self.assignor.name,
        ):
            self._leave_generation(forget_member=False)
            return Turn.REFUSE
        try:
            # A leader may leave out a member without partitions; its assignment has no bytes then.
            self._assignment = decode_assignment(response.assignment) if response.assignment else Assignment(())
        except MalformedFrame:
            self._leave_generation(forget_member=False)
            raise
        self.state = State.ASSIGNED
        return Turn.GO_ON

    def take_over(self, owned: Collection[TopicPartition], fits: bool) -> TakingOver:
        """Apply the assignment and return what it changes. fits: whether all its topics are subscribed; if not, it is
        ignored and the member joins again.
        """
        assert self._assignment is not None
        assert self.assignor is not None
        assigned, self._assignment = self._assignment.partitions, None
        self.state = State.STABLE
        if not fits:
            self.applied = self._metadata()
            self.rejoin("the assignment is not for the topics that are subscribed now")
            return TakingOver(tuple(owned), (), (), fits=False)
        had = set(owned)
        revoked = tuple(place for place in owned if place not in assigned)
        added = tuple(place for place in assigned if place not in had)
        self._last = LastAssignment(assigned, self.generation)
        self.applied = self._metadata()
        if revoked:
            self.rejoin(f"gave up {count_text(len(revoked), 'partition')}: other members can take over")
        return TakingOver(assigned, revoked, added, fits=True)

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The assigned partitions of an assignment that is not applied yet; empty without one."""
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

    def on_heartbeat(self, code: int, sent: Stamp) -> Turn:
        return self._on_answer(Api.HEARTBEAT, code, sent)

    def on_heartbeat_response(self, response: HeartbeatResponse, sent: Stamp) -> Turn:
        return self.on_heartbeat(response.error_code, sent)

    def on_no_response(self, sent: Stamp, *, final: bool) -> None:
        """Do nothing: a failed heartbeat does not change the membership."""

    def refusal(self, response: HeartbeatResponse) -> KafkaError:
        """Return the error to raise for a heartbeat response with an error code."""
        return error_of(response.error_code)

    def on_commit(self, code: int, sent: Stamp) -> Turn:
        return self._on_answer(Api.COMMIT, code, sent)

    def _on_answer(self, api: Api, code: int, sent: Stamp) -> Turn:
        """Apply an error code to the membership and return what to do. sent: the stamp when the request was sent; for
        an older membership nothing changes.
        """
        if sent != self.stamp or not self.in_generation:
            return TABLE[api].get(code_of(code), Turn.REFUSE)  # for a former member: nothing changes
        return self._turn(api, code)

    def _turn(self, api: Api, code: int) -> Turn:
        """Return what follows from this error code of this API, and change the state accordingly."""
        turn = TABLE[api].get(code_of(code), Turn.REFUSE)
        if turn is Turn.REJOIN:
            self.rejoin("the group is rebalancing")
        elif turn is Turn.FIND and api is Api.SYNC:
            self.rejoin("the coordinator has moved")
        elif turn in (Turn.LEAVE_GENERATION, Turn.LEAVE_MEMBER):
            self._leave_generation(forget_member=turn is Turn.LEAVE_MEMBER)
        elif turn is Turn.FENCE:
            self._leave_generation(forget_member=True)
            self.state = State.FENCED
        elif turn is Turn.REFUSE and api in (Api.JOIN, Api.SYNC):
            self._leave_generation(forget_member=False)
        return turn

    def _leave_generation(self, *, forget_member: bool) -> None:
        """Drop generation and assignment, so that the member has to join again. forget_member: also drop the member
        id, and join as a new member.
        """
        self.state = State.UNJOINED
        self.generation = NO_GENERATION
        self.leads = False
        self._assignment = None
        if forget_member:
            self.member_id = ""

    # ---- leaving ---------------------------------------------------------------------------------------------

    def leave(self, reason: str) -> LeaveGroupRequest | None:
        """End the membership. Returns the LeaveGroup to send; None for a static member, which may come back
        (KIP-345).
        """
        request = None
        if self.member_id and self.terms.group_instance_id is None:
            member = LeaveGroupRequest.Member(member_id=self.member_id, reason=reason)
            request = LeaveGroupRequest(group_id=self.terms.group_id, member_id=self.member_id, members=[member])
        if self.state is not State.FENCED:
            self._leave_generation(forget_member=True)
        self.reason = ""
        self.joined_topics = frozenset()
        return request
