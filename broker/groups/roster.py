"""The members of a classic group, ids given to newcomers, static members, the leader, and the protocols. Pure.

The rules: each protocol has a count of the members that know it, so protocols that all know are found without going
through all members. The leader is a member; a group without members has none. Source: Kafka's ClassicGroup.
"""

from collections import Counter

from ...protocol.errors import ErrorCode
from .members import NO_MEMBER, Joined, Joining, Member, RosterEntry, Synced


class Roster:
    """The members of one group, in the order in which they joined."""

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        self.static: dict[str, str] = {}  # member ids by instance id
        self.pending: dict[str, int] = {}  # ids given to newcomers, and until when they may come back (monotonic ms)
        self.leader: str | None = None
        self.protocol: str | None = None  # the protocol of this generation
        self.protocol_type: str | None = None
        self.size_bytes = 0  # the memory that the members take
        self._knowing: Counter[str] = Counter()  # how many members know a protocol, by name
        self._pending_sync: set[str] = set()  # members that have not sent SyncGroup in this generation

    # ---- members ---------------------------------------------------------------------------------------------

    def _put(self, member: Member) -> None:
        """Add a member. The first one becomes the leader."""
        self.members[member.member_id] = member
        self._count(member)
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        if len(self.members) == 1:
            self.leader = member.member_id

    def _change(self, member: Member, asked: Joining) -> None:
        """Replace the member's protocols and timeouts by those of its new JoinGroup."""
        self._count(member, -1)
        member.change(asked.protocols, asked.session_timeout_ms, asked.rebalance_timeout_ms)
        self._count(member)

    def _swap(self, old: Member, new: Member) -> None:
        """Replace the member `old` by `new`, which has the same instance id and takes over its assignment."""
        assert new.instance_id is not None
        self.members = {each.member_id: each for each in (new if m is old else m for m in self.members.values())}
        self.static[new.instance_id] = new.member_id
        self._count(old, -1)
        self._count(new)
        if self.leader == old.member_id:
            self.leader = new.member_id
        if old.member_id in self._pending_sync:
            self._pending_sync.remove(old.member_id)
            self._pending_sync.add(new.member_id)

    def _remove(self, member_id: str) -> bool:
        """Remove a member, or an id that was given to a newcomer; answer its waiting requests with UNKNOWN_MEMBER_ID.

        Returns whether it was a member. If it was the leader, another member becomes the leader.
        """
        self.pending.pop(member_id, None)
        self._pending_sync.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return False
        self._count(member, -1)
        if member.instance_id is not None:
            del self.static[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        member.tell_joined(Joined(ErrorCode.UNKNOWN_MEMBER_ID, NO_MEMBER))
        member.tell_synced(Synced(ErrorCode.UNKNOWN_MEMBER_ID))
        return True

    def _count(self, member: Member, by: int = 1) -> None:
        """Add the member's memory and protocols to the group's counts; by: 1, or -1 to subtract them."""
        self.size_bytes += by * member.size_bytes
        for name in {name for name, _ in member.protocols}:
            self._knowing[name] += by
            if not self._knowing[name]:
                del self._knowing[name]

    def _not_a_member(self, member_id: str, instance_id: str | None) -> ErrorCode | None:
        """Return the error if this is not a member, or is a static one that was replaced (KIP-345); None if it is a
        member.
        """
        if instance_id is not None:
            owner = self.static.get(instance_id)
            if owner is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if owner != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return None if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    # ---- what they agree on ----------------------------------------------------------------------------------

    def _knows(self, asked: Joining) -> bool:
        """Return whether the joining member has the group's protocol type, and a protocol that all members have."""
        if not self.members:
            return bool(asked.protocol_type and asked.protocols)
        if asked.protocol_type != self.protocol_type:
            return False
        return any(self._knowing[name] == len(self.members) for name, _ in asked.protocols)

    def vote(self) -> str:
        """Return the protocol that most members prefer, among those that all members have. On a tie, it is the one that
        was first voted for.
        """
        candidates = {name for name, count in self._knowing.items() if count == len(self.members)}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def _choose_leader(self) -> bool:
        """If the present leader has not joined, make the first member that has joined the leader. Returns whether there
        is a leader that has joined; False if no member has joined.
        """
        leader = self.members.get(self.leader or NO_MEMBER)
        if leader is None or leader.join is None:
            joined = next((member for member in self.members.values() if member.join is not None), None)
            if joined is None:
                return False
            self.leader = joined.member_id
        return True

    def _all_joined(self) -> bool:
        """Return whether all members have joined, and every newcomer that was given an id has come back with it."""
        return not self.pending and all(member.join is not None for member in self.members.values())

    def _joined_below(self, count: int) -> bool:
        """Return whether fewer than `count` members have joined the next generation."""
        if len(self.members) < count:
            return True
        return sum(member.join is not None for member in self.members.values()) < count

    def _rebalance_timeout_ms(self) -> int:
        """Return the longest rebalance timeout of all members; 0 without members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def entries(self) -> tuple[RosterEntry, ...]:
        """Return all members, as the answer to the leader's JoinGroup lists them."""
        return tuple(
            RosterEntry(each.member_id, each.instance_id, each.metadata(self.protocol))
            for each in self.members.values()
        )
