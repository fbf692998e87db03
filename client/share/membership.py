"""A member of a share group: its state, and how a heartbeat's response changes it. Pure.

The rules: the broker assigns partitions, and one heartbeat takes the member to its assignment; nothing is revoked, as
membership decides what is read next and never what became of records. Locks end with the session of ShareFetch. One
heartbeat is in flight at a time, and its response applies only to the membership that sent it. The topics are sent when
the broker may not know them: when joining, and after a heartbeat without a good response.
Source: Kafka's ShareMembershipManager, ShareHeartbeatRequestManager; KIP-932.
"""

from collections.abc import Iterable, Mapping
from enum import Enum, auto
from typing import NamedTuple

from ...protocol.errors import ErrorCode
from ...protocol.messages.share_groups import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from ..errors import ClientError, KafkaError, code_of, error_of
from ..group.membership import Turn

JOINING_EPOCH, LEAVING_EPOCH = 0, -1


class Place(NamedTuple):
    """A partition as share groups name it: the topic's id, and the number."""

    topic_id: bytes
    partition: int


class State(Enum):
    """Whether the consumer is a member of its group."""

    UNJOINED = auto()  # not a member; the next poll joins
    JOINING = auto()  # its first heartbeat has no response yet
    STABLE = auto()


_E = ErrorCode
TABLE: Mapping[ErrorCode, Turn] = {
    _E.NONE: Turn.GO_ON,
    _E.COORDINATOR_LOAD_IN_PROGRESS: Turn.AGAIN,
    _E.COORDINATOR_NOT_AVAILABLE: Turn.FIND,
    _E.NOT_COORDINATOR: Turn.FIND,
    _E.FENCED_MEMBER_EPOCH: Turn.LEAVE_MEMBER,
    _E.UNKNOWN_MEMBER_ID: Turn.LEAVE_MEMBER,
    _E.GROUP_ID_NOT_FOUND: Turn.LEAVE_MEMBER,
    _E.TOPIC_AUTHORIZATION_FAILED: Turn.COMPLAIN,
}
"""What to do after each code of a heartbeat; REFUSE for other codes. LEAVE_MEMBER: join again, at once."""

_HINTS = {
    _E.GROUP_ID_NOT_FOUND: "a group of this name has another type, with members or offsets: use another group_id, or "
    "stop its members and delete it, which forgets its offsets",
    _E.GROUP_MAX_SIZE_REACHED: "use fewer consumers, or raise the broker's group.share.max.size",
    _E.UNSUPPORTED_VERSION: "use a broker with the feature share.version, such as fencepost or Apache Kafka 4.2",
}


class ShareMembership:
    """One member of a share group.

    generation: its member epoch, -1 while it has none. assigned: the partitions it may read. stamp: grows with each new
    membership, so that a late response to an older one is recognized. The member keeps its id for its whole life, as
    the session of ShareFetch does.
    """

    def __init__(self, group_id: str, member_id: str, rack_id: str | None = None) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self._rack_id = rack_id
        self.state = State.UNJOINED
        self.generation = -1
        self.stamp = 0
        self.topics: frozenset[str] = frozenset()
        self.assigned: frozenset[Place] = frozenset()
        self.has_news = False  # since the last look at `assigned`
        self._known: frozenset[str] | None = None  # the topics of which the broker knows; None: send everything
        self._sending: frozenset[str] | None = None

    @property
    def in_generation(self) -> bool:
        """Return whether this consumer is a member or joins, and so must send heartbeats."""
        return self.state is not State.UNJOINED

    is_member = in_generation

    @property
    def settled(self) -> bool:
        """Return whether this consumer is a member, and its assignment has not changed since the last poll."""
        return self.in_generation and not self.has_news

    @property
    def hurries(self) -> bool:
        """Return whether the next heartbeat is to be sent at once: to join, or because the subscription has changed."""
        if not self.in_generation or self._sending is not None:
            return False
        return self.generation < 0 or (self._known is not None and self._known != self.topics)

    def subscribe(self, topics: Iterable[str]) -> None:
        self.topics = frozenset(topics)

    def join(self) -> None:
        """Become a joining member: the next heartbeat joins the group."""
        self._begin(State.JOINING)

    def heartbeat_request(self) -> ShareGroupHeartbeatRequest:
        """Return the next heartbeat. It names the topics only if the broker does not know them yet."""
        known, self._sending = self._known, self.topics
        return ShareGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=max(JOINING_EPOCH, self.generation),
            rack_id=self._rack_id if known is None else None,
            subscribed_topic_names=None if known == self.topics else sorted(self.topics),
        )

    def on_heartbeat_response(self, response: ShareGroupHeartbeatResponse, sent: int) -> Turn:
        """Apply a ShareGroupHeartbeat response; return what the client does next. sent: the membership's stamp when
        the request was sent.
        """
        if sent != self.stamp or not self.in_generation:
            return Turn.GO_ON  # for a former membership: nothing changes
        sent_topics, self._sending = self._sending, None
        code = code_of(response.error_code)
        turn = TABLE.get(code, Turn.REFUSE)
        if code is _E.GROUP_ID_NOT_FOUND and self.state is State.JOINING:
            turn = Turn.REFUSE
        self._known = sent_topics if turn is Turn.GO_ON else None
        if turn is Turn.GO_ON:
            self._on_success(response)
        elif turn is Turn.LEAVE_MEMBER:
            self._begin(State.JOINING)
        elif turn is Turn.REFUSE:
            self._begin(State.UNJOINED)
        return turn

    def _on_success(self, response: ShareGroupHeartbeatResponse) -> None:
        """Take over the member epoch and, if the response has one, the assignment."""
        self.generation, self.state = response.member_epoch, State.STABLE
        if response.assignment is not None:
            listed, self.has_news = response.assignment.topic_partitions, True
            self.assigned = frozenset(Place(topic.topic_id, one) for topic in listed for one in topic.partitions)

    def on_no_response(self, sent: int, *, final: bool) -> None:
        """Note that a heartbeat failed without a response. sent: the stamp when it was sent. final: another would
        fail, too, so the membership ends.
        """
        if sent != self.stamp:
            return
        self._known = self._sending = None
        if final:
            self._begin(State.UNJOINED)

    def refusal(self, response: ShareGroupHeartbeatResponse) -> KafkaError:
        """Return the error to raise for a heartbeat response with an error code, with a hint for some of the codes."""
        code = code_of(response.error_code)
        error = error_of(code, f"share group {self.group_id}: {response.error_message or code.text}")
        if code in _HINTS and isinstance(error, ClientError):
            error.hint = _HINTS[code]
        return error

    def leave(self, reason: str = "") -> ShareGroupHeartbeatRequest | None:
        """End the membership. Returns the heartbeat that tells the broker; None if it is not a member. reason: not
        sent.
        """
        request = None
        if self.in_generation:
            request = ShareGroupHeartbeatRequest(
                group_id=self.group_id, member_id=self.member_id, member_epoch=LEAVING_EPOCH
            )
        self._begin(State.UNJOINED)
        return request

    def _begin(self, state: State) -> None:
        """Start a new membership, or end it with UNJOINED: without an epoch, and with a new stamp."""
        self.state, self.generation = state, -1
        self.stamp += 1
        if state is State.UNJOINED:  # while it joins again, what it reads stays, since it may well get that back
            self.assigned = frozenset()
        self._known = self._sending = None
