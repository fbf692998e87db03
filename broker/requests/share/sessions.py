"""Share sessions: the list of partitions that a member of a share group fetches, kept between its requests. Pure.

The rules: a session belongs to a group and a member id, whichever user sends it. Each request increases the session's
epoch by one, and a request with another epoch is refused. Epoch 0 opens a session, in place of an earlier one, and -1
ends it. A session belongs to the connection that opened it last, and ends with that connection only (KAFKA-19950). When
a session ends, the records that its member has acquired are released; when it is only opened anew, they are not.

Source: KIP-932, Kafka's ShareSessionCache, SharePartitionManager.newContext.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator
from typing import TYPE_CHECKING

from ....protocol.errors import ErrorCode, KafkaError
from ...topics.names import TopicIdPartition

if TYPE_CHECKING:
    from ...net.waiting_places import WaitingFetch

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
HIGHEST_EPOCH = 2**31 - 1
MAX_OF_A_SESSION = 40_000  # partitions; one request cannot name more
ENOUGH_ROOM = 3 / 4  # of the allowed sessions: once there are fewer, the next refusal is logged again
MAX_OF_ALL = 500_000  # that all sessions name together, some 100 MB


class ShareSession:
    """The partitions that one member fetches, in the order in which it named them.

    answered_bytes: how many bytes the last answer had for each partition; None before the first answer.
    """

    __slots__ = ("answered_bytes", "connection", "epoch", "group", "is_open", "member", "places", "waiting")

    def __init__(self, group: str, member: str, places: Iterable[TopicIdPartition], connection: Hashable) -> None:
        """places: (topic id, partition index) of all partitions that the member fetches. connection: the session ends
        when this connection does.
        """
        self.group = group
        self.member = member
        self.epoch = 1  # of the next request
        self.places: dict[TopicIdPartition, None] = dict.fromkeys(places)
        self.connection = connection
        self.is_open = True
        self.waiting: dict[WaitingFetch, None] = {}  # fetches of it that wait
        self.answered_bytes: int | None = None

    def drop(self, places: Iterable[TopicIdPartition]) -> None:
        """Remove partitions. Only ShareSessions calls this, because it also counts them."""
        for place in places:
            self.places.pop(place, None)


class ShareSessions:
    """All share sessions of a broker."""

    def __init__(self) -> None:
        self._sessions: dict[tuple[str, str], ShareSession] = {}
        self._of_connection: dict[Hashable, dict[ShareSession, None]] = {}
        self.partitions = 0  # that all of them name
        self.is_limit_known = False  # a refusal was logged, and there was no ENOUGH_ROOM since
        self.evictions = 0  # sessions that ended with their connection

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[ShareSession]:
        return iter(self._sessions.values())

    def get(self, group: str, member: str) -> ShareSession | None:
        """Return the session of a member; None if it has none."""
        return self._sessions.get((group, member))

    def open(
        self, group: str, member: str, places: Collection[TopicIdPartition], connection: Hashable, most: int
    ) -> ShareSession:
        """Open a session. If the member has a session already, that one ends. most: how many sessions the broker may
        have.

        Raises SHARE_SESSION_LIMIT_REACHED; the former session has ended all the same, as in Kafka.
        """
        before = self._sessions.get((group, member))
        if before is not None:
            self.end(before)
        if len(self._sessions) >= most:
            raise KafkaError(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED,
                f"there are {len(self._sessions)} share sessions, and {most} are allowed: "
                "group.share.max.share.sessions",
            )
        session = ShareSession(group, member, places, connection)
        self._check_room(len(session.places), 0)
        if len(self._sessions) < ENOUGH_ROOM * most:
            self.is_limit_known = False  # so that the next refusal is logged
        self.partitions += len(session.places)
        self._sessions[group, member] = session
        self._of_connection.setdefault(connection, {})[session] = None
        return session

    def go_on(
        self,
        group: str,
        member: str,
        epoch: int,
        places: Collection[TopicIdPartition] = (),
        forgotten: Collection[TopicIdPartition] = (),
    ) -> ShareSession:
        """Update the session for the member's next request, which may add partitions and remove others. Returns the
        session.

        Raises SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH, SHARE_SESSION_LIMIT_REACHED; then nothing was
        changed.
        """
        session = self.find(group, member)
        if session.epoch != epoch:
            raise KafkaError(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH, f"the session is at epoch {session.epoch}, not at {epoch}"
            )
        before = len(session.places)
        if places:
            self._check_room(len(set(places).union(session.places)), before)
            session.places |= dict.fromkeys(places)
        session.drop(forgotten)
        self.partitions += len(session.places) - before
        session.epoch = 1 if epoch == HIGHEST_EPOCH else epoch + 1
        return session

    def find(self, group: str, member: str) -> ShareSession:
        """Return the session of a member. Raises SHARE_SESSION_NOT_FOUND."""
        session = self._sessions.get((group, member))
        if session is None:
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND, "the member has no share session")
        return session

    def largest_group(self) -> tuple[str, int]:
        """Return the group that has the most sessions, and how many; "" and 0 if there are none."""
        found = Counter(group for group, _ in self._sessions).most_common(1)
        return found[0] if found else ("", 0)

    def leave_out(self, session: ShareSession, places: Collection[TopicIdPartition]) -> None:
        """Remove deleted partitions from the session."""
        if session.is_open:
            before = len(session.places)
            session.drop(places)
            self.partitions += len(session.places) - before

    def end(self, session: ShareSession) -> None:
        """Remove the session and answer its waiting fetches. The records that its member has acquired stay acquired."""
        if not session.is_open:
            return
        session.is_open = False
        del self._sessions[session.group, session.member]
        self.partitions -= len(session.places)
        of_connection = self._of_connection[session.connection]
        del of_connection[session]
        if not of_connection:
            del self._of_connection[session.connection]
        for fetch in list(session.waiting):
            fetch.end_wait()

    def of_connection(self, connection: Hashable) -> list[ShareSession]:
        """Return the sessions opened over this connection, which end with it."""
        return list(self._of_connection.get(connection, ()))

    def _check_room(self, size: int, before: int) -> None:
        """Raise SHARE_SESSION_LIMIT_REACHED if a session may not have `size` partitions.

        before: how many partitions it has now.
        """
        if size > MAX_OF_A_SESSION or self.partitions - before + size > MAX_OF_ALL:
            raise KafkaError(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED, f"{size} partitions are more than this session may name"
            )
