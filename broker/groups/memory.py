"""How much memory all classic groups take together, and which of them are empty and could be deleted. Pure.

The rule: whatever a client can make long is counted: names, the members' metadata for their protocols, the group's
record, and the assignments a second time, because members hold them besides the record. Everything else is a fixed
amount for each group, member and protocol. If room is needed, groups without members are deleted first. A group with
committed offsets is not deleted then, but no longer counted, until its offsets are gone. Runs of share partitions are
counted elsewhere (share/memory.py).
"""

from collections import OrderedDict
from typing import TYPE_CHECKING

from .members import Joining, held_bytes, text_bytes

if TYPE_CHECKING:
    from .machine import Group

GROUP_BYTES = 2_000
PENDING_BYTES = 700  # of a member that was given an id, of 300 bytes at most, and has not joined with it


class GroupMemory:
    """Counts the memory of groups. The coordinator calls it whenever a group changes."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self.empty: OrderedDict[str, None] = OrderedDict()  # counted groups without members, the longest empty first
        self._counted: dict[str, int] = {}

    def count(self, group: "Group", record_bytes: int) -> None:
        """Count a group's memory anew, because the group has changed. record_bytes: the size of its record in
        the log.
        """
        members_bytes = group.size_bytes
        held = GROUP_BYTES + text_bytes(group.group_id) + text_bytes(group.protocol_type)
        held += members_bytes + PENDING_BYTES * len(group.pending)
        # The record is kept; what it has more than the members' metadata is assignments, which members hold as well.
        held += record_bytes + max(0, record_bytes - members_bytes)
        self.size_bytes += held - self._counted.get(group.group_id, 0)
        self._counted[group.group_id] = held
        if group.members or group.pending:
            self.empty.pop(group.group_id, None)
        else:
            self.empty[group.group_id] = None

    def discount(self, group_id: str) -> None:
        """Stop counting the group's memory, because the group was deleted, or because it has committed offsets and so
        cannot be deleted to make room. count() counts it again.
        """
        self.size_bytes -= self._counted.pop(group_id, 0)
        self.empty.pop(group_id, None)

    @staticmethod
    def growth(group: "Group | None", group_id: str, asked: Joining) -> int:
        """Return an upper limit of the memory in bytes that this join adds. group: None if the group does not exist
        yet.
        """
        held = held_bytes(asked.client_id, asked.instance_id, asked.protocols)
        if group is None:
            return held + GROUP_BYTES + text_bytes(group_id) + text_bytes(asked.protocol_type)
        known = group.static.get(asked.instance_id or "", asked.member_id)
        member = group.members.get(known)
        return held - (0 if member is None else member.size_bytes)
