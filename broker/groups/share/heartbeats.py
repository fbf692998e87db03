"""A heartbeat of a member of a share group, and the answer to it, as values. Pure."""

from typing import NamedTuple

from ...security.principals import Session
from ..targets import Partitions

JOINS, LEAVES = 0, -1
"""Epochs that mean something else."""


class Heartbeat(NamedTuple):
    """A ShareGroupHeartbeat. None means that a field has not changed. user: the user whose access rights apply to the
    member.
    """

    member_id: str
    epoch: int
    rack_id: str | None = None
    topics: tuple[str, ...] | None = None
    client_id: str = ""
    client_host: str = ""
    user: Session | None = None


class Answer(NamedTuple):
    """The answer to a heartbeat. assigned: the partitions that the member may read now; None if they have not
    changed.
    """

    member_id: str
    epoch: int
    assigned: Partitions | None = None
