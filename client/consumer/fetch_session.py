"""The client's part of a fetch session: a request contains only the partitions that changed. Pure.

The rule: the first request of a session contains every partition (epoch 0); later ones contain changed partitions, and
those to be forgotten. After an error or a lost response the next request is full again. A broker that returns no
session id has no session. Source: KIP-227, Kafka's FetchSessionHandler.
"""

from collections.abc import Mapping
from typing import NamedTuple

from ...protocol.primitives import ZERO_UUID
from ..values import TopicPartition

NO_SESSION = 0
FULL = 0
_LAST_EPOCH = 0x7FFF_FFFF


class Wanted(NamedTuple):
    """What a fetch request says of one partition: where to read, and how much."""

    offset: int
    leader_epoch: int
    last_fetched_epoch: int
    topic_id: bytes = ZERO_UUID
    max_bytes: int = 1 << 20


class Ask(NamedTuple):
    """The partitions of one request. wanted: new or changed ones; forgotten: removed ones, with topic ids."""

    session_id: int
    epoch: int
    wanted: dict[TopicPartition, Wanted]
    forgotten: list[tuple[TopicPartition, bytes]]


class FetchSession:
    """A session with one broker, with one request at a time."""

    __slots__ = ("_by_id", "_epoch", "_id", "_known")

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = FULL
        self._known: dict[TopicPartition, Wanted] = {}
        self._by_id = False

    def ask(self, wanted: Mapping[TopicPartition, Wanted], *, by_id: bool) -> Ask:
        """Return the next request, so that the broker returns exactly these partitions. by_id: topic ids, not names."""
        known = self._known
        recreated = any(tp in known and known[tp].topic_id != one.topic_id for tp, one in wanted.items())
        if by_id != self._by_id or recreated:
            self._epoch = FULL  # a session uses either names or ids, and cannot change the id of a topic
        self._by_id = by_id
        if self._epoch == FULL:
            self._known = dict(wanted)
            return Ask(self._id, FULL, dict(wanted), [])
        changed = {tp: one for tp, one in wanted.items() if known.get(tp) != one}
        forgotten = [(tp, one.topic_id) for tp, one in known.items() if tp not in wanted]
        self._known = dict(wanted)
        return Ask(self._id, self._epoch, changed, forgotten)

    def answered(self, session_id: int) -> None:
        """Note a response without a top-level error: the session's epoch grows by one. session_id: as in the response;
        0 if the broker made no session.
        """
        if session_id == NO_SESSION:
            self._id, self._epoch = NO_SESSION, FULL
        else:
            self._epoch = 1 if session_id != self._id or self._epoch in (FULL, _LAST_EPOCH) else self._epoch + 1
            self._id = session_id

    def failed(self, *, forgotten: bool = False) -> None:
        """Begin with a full fetch again, after an error or without a response. forgotten: the broker no longer has the
        session.
        """
        self._epoch = FULL
        if forgotten:
            self._id = NO_SESSION
