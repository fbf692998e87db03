"""A member of a classic group, its requests, and the answers to them. Pure.

Subscriptions and assignments are bytes that members exchange; a broker only passes them on.
"""

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from ...protocol.errors import ErrorCode
from ..security.principals import Session
from .group_records import KeptMember

MEMBER_BYTES = 1_000  # without its names; this and the next as measured on CPython 3.11, rounded up
PROTOCOL_BYTES = 200

Protocols = tuple[tuple[str, bytes], ...]
"""(name, the member's metadata for it), the preferred one first."""

NO_GENERATION = -1
NO_MEMBER = ""


class Joining(NamedTuple):
    """A JoinGroup. Timeouts in milliseconds."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    must_know_id: bool = True  # from version 4 on a newcomer gets its id and comes again (KIP-394)
    may_skip_assignment: bool = True  # from version 9 on (KIP-814)
    user: Session | None = None


class RosterEntry(NamedTuple):
    """A member, as the answer to the leader's JoinGroup lists it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class Joined(NamedTuple):
    """The answer to a JoinGroup."""

    error: ErrorCode
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = NO_MEMBER
    roster: tuple[RosterEntry, ...] = ()
    skip_assignment: bool = False


class Syncing(NamedTuple):
    """A SyncGroup. assignments: by member id; only the leader sends them."""

    member_id: str
    generation: int
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: Mapping[str, bytes] = {}


class Synced(NamedTuple):
    """The answer to a SyncGroup."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


class Leaving(NamedTuple):
    """One member named in a LeaveGroup. If member_id is empty, the member is found by its instance id."""

    member_id: str
    instance_id: str | None = None


JoinReply = Callable[[Joined], None]
SyncReply = Callable[[Synced], None]


class Member:
    """One member. join, sync: the function that answers its waiting JoinGroup or SyncGroup; None if none waits.

    deadline_ms: when its session times out (monotonic); None if it does not, because the member waits for others.
    """

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "deadline_ms",
        "instance_id",
        "is_new",
        "join",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "size_bytes",
        "sync",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        *,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.assignment = assignment
        self.is_new = False  # whether it waits for the first generation that it is part of
        self.join: JoinReply | None = None
        self.sync: SyncReply | None = None
        self.deadline_ms: int | None = None
        self.change(protocols, session_timeout_ms, rebalance_timeout_ms)

    @classmethod
    def of(cls, asked: Joining, member_id: str) -> "Member":
        """Make a member from its JoinGroup request."""
        return cls(
            member_id,
            asked.instance_id,
            asked.client_id,
            asked.client_host,
            session_timeout_ms=asked.session_timeout_ms,
            rebalance_timeout_ms=asked.rebalance_timeout_ms,
            protocols=asked.protocols,
        )

    @classmethod
    def restore(cls, kept: KeptMember, protocol: str | None) -> "Member":
        """Make the member that a record describes. The record has its metadata only for this protocol."""
        return cls(
            kept.member_id,
            kept.instance_id,
            kept.client_id,
            kept.client_host,
            session_timeout_ms=kept.session_timeout_ms,
            rebalance_timeout_ms=kept.rebalance_timeout_ms,
            protocols=((protocol, kept.subscription),) if protocol is not None else (),
            assignment=kept.assignment,
        )

    def to_record(self, protocol: str | None, assignment: bytes | None) -> KeptMember:
        """Return the member's entry for the group's record, with its metadata for this protocol. assignment: None for
        its present one.
        """
        return KeptMember(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.metadata(protocol),
            self.assignment if assignment is None else assignment,
        )

    def change(self, protocols: Protocols, session_timeout_ms: int, rebalance_timeout_ms: int) -> None:
        """Replace the protocols and timeouts of the member by those of its new JoinGroup."""
        self.protocols = protocols
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.size_bytes = held_bytes(self.client_id, self.instance_id, protocols)

    def vote(self, candidates: Collection[str]) -> str:
        """Return the one of these protocols that the member prefers. The member must have at least one of them."""
        return next(name for name, _ in self.protocols if name in candidates)

    def metadata(self, protocol: str | None) -> bytes:
        """Return the member's metadata for this protocol; empty if it does not have the protocol."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def tell_joined(self, answer: Joined) -> None:
        """Send this answer to the member's waiting JoinGroup, if there is one."""
        reply, self.join = self.join, None
        if reply is not None:
            reply(answer)

    def tell_synced(self, answer: Synced) -> None:
        """Send this answer to the member's waiting SyncGroup, if there is one."""
        reply, self.sync = self.sync, None
        if reply is not None:
            reply(answer)


def protocols_bytes(protocols: Protocols) -> int:
    """Return the size in bytes of the names and metadata of a member's protocols."""
    return sum(len(name) + len(metadata) for name, metadata in protocols)


def held_bytes(client_id: str, instance_id: str | None, protocols: Protocols) -> int:
    """Return the approximate memory in bytes that a member takes, without its assignment."""
    of_protocols = sum(PROTOCOL_BYTES + text_bytes(name) + len(metadata) for name, metadata in protocols)
    return MEMBER_BYTES + text_bytes(client_id) + text_bytes(instance_id) + of_protocols


def text_bytes(text: str | None) -> int:
    """Return an upper limit of the memory in bytes that a text takes; 0 for None."""
    if text is None:
        return 0
    return len(text) if text.isascii() else 4 * len(text)
