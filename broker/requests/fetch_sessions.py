"""Fetch sessions (KIP-227): a consumer names its partitions once, then sends and gets only what has changed. Pure.

The rule: the number of sessions is limited. A client that loses its session learns so by an error, and begins again
with a full fetch; nothing depends on a session being kept. An epoch counts the requests of a session, so that a
repeated or reordered one is refused, and both sides agree. A session belongs to the principal that opened it.

Source: Kafka's FetchSession.scala; a session uses either topic names or topic ids, never both.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from sortedcontainers import SortedSet

from ...protocol.errors import ErrorCode
from ...protocol.messages.fetch import FetchRequest
from ..security.principals import ANONYMOUS, Principal

if TYPE_CHECKING:
    from ..topics.partition import Partition

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
HIGHEST_EPOCH = 2**31 - 1
MAX_OF_A_SESSION = 40_000  # partitions; a full fetch cannot name more
MAX_OF_ALL = 500_000  # that all sessions remember together, some 200 MB

Key = tuple[str | bytes, int]
"""A partition within a session: the topic's id, or its name in sessions that use names, and the index."""


class Wanted:
    """One partition that a client fetches, and the last answer about it."""

    __slots__ = (
        "fetch_offset",
        "high_watermark",
        "index",
        "last_fetched_epoch",
        "leader_epoch",
        "log_start_offset",
        "max_bytes",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        topic: str | None,
        topic_id: bytes,
        index: int,
        fetch_offset: int,
        max_bytes: int,
        leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.leader_epoch = leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.high_watermark = -1  # as the client last heard it; -1 makes the next answer name the partition
        self.log_start_offset = -1

    def ask_anew(self, newer: "Wanted") -> None:
        """Take over the offset, limit and epochs of a newer request for this partition."""
        self.fetch_offset = newer.fetch_offset
        self.max_bytes = newer.max_bytes
        self.leader_epoch = newer.leader_epoch
        self.last_fetched_epoch = newer.last_fetched_epoch


def add_wanted(
    found: dict[Key, Wanted], topic: FetchRequest.Topic, parts: Sequence[FetchRequest.Topic.Partition]
) -> None:
    """Add the partitions of a topic in the request to `found`. If a partition is named twice, the last one counts, as
    in Kafka.
    """
    name, topic_id = topic.topic, topic.topic_id
    by: str | bytes = name or topic_id
    for part in parts:
        found[by, part.partition] = Wanted(
            name,
            topic_id,
            part.partition,
            part.fetch_offset,
            max(0, part.partition_max_bytes),
            part.current_leader_epoch,
            part.last_fetched_epoch,
        )


class LastAnswer(NamedTuple):
    """What a session remembers of its last answer about one partition. diverging: whether the answer said that the
    client's log diverges from the broker's.
    """

    has_records: bool
    error_code: int
    high_watermark: int
    log_start_offset: int
    diverging: bool = False


class Session:
    """One client's fetch session: its list of partitions, which later requests change."""

    __slots__ = ("cached_size", "created_ms", "epoch", "id", "owner", "partitions", "used_ms", "uses_topic_ids")

    def __init__(
        self,
        session_id: int,
        partitions: dict[Key, Wanted],
        *,
        uses_topic_ids: bool,
        now_ms: int,
        owner: Principal = ANONYMOUS,
    ) -> None:
        self.id = session_id
        self.owner = owner
        self.partitions = partitions
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = now_ms
        self.used_ms = now_ms
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.cached_size = -1  # partitions when last touched; -1: not in the cache

    def update(self, wanted: dict[Key, Wanted], forgotten: Iterable[Key]) -> None:
        """Add or change the wanted partitions, and remove the forgotten ones."""
        for key, newer in wanted.items():
            known = self.partitions.get(key)
            if known is None:
                self.partitions[key] = newer
            else:
                known.ask_anew(newer)
        for key in forgotten:
            self.partitions.pop(key, None)


def next_epoch(epoch: int) -> int:
    """Return the session epoch after this one. The highest is followed by 1, because 0 and -1 mean a full fetch. A
    negative one is followed by FINAL_EPOCH.
    """
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == HIGHEST_EPOCH else epoch + 1


def must_tell(wanted: Wanted, answer: LastAnswer) -> bool:
    """Return whether an incremental answer must include this partition, because something has changed.

    Updates in `wanted` what the session remembers of the partition.
    """
    changed = answer.has_records or answer.diverging
    if wanted.high_watermark != answer.high_watermark:
        wanted.high_watermark = answer.high_watermark
        changed = True
    if wanted.log_start_offset != answer.log_start_offset:
        wanted.log_start_offset = answer.log_start_offset
        changed = True
    if answer.error_code:
        wanted.high_watermark = -1  # so that the partition is named again when the error is gone
        changed = True
    return changed


def has_no_news(wanted: Wanted, partition: "Partition") -> bool:
    """Return whether nothing about the partition has changed since the last answer and it has no records for the
    client, so that it need not be read.

    This is so for most partitions of an idle session, so the check is made quick.
    """
    log, epoch = partition.log, partition.leader_epoch
    return (
        wanted.fetch_offset == wanted.high_watermark == log.high_watermark
        and wanted.log_start_offset == log.released_start
        and log.offline is None
        and (wanted.leader_epoch < 0 or wanted.leader_epoch == epoch)
        and (wanted.last_fetched_epoch < 0 or wanted.last_fetched_epoch == epoch)
    )


class SessionCache:
    """All fetch sessions, at most `slots`. A new session may evict one that was not used for long, or an older one that
    is not larger.
    """

    def __init__(self, slots: int, eviction_ms: int, new_id: Callable[[], int]) -> None:
        """new_id: returns random positive ids below 2**31; an id in use is drawn again."""
        self._slots = slots
        self._eviction_ms = eviction_ms
        self._new_id = new_id
        self._sessions: dict[int, Session] = {}
        self._by_use = SortedSet()  # (used_ms, id)
        self._by_size = SortedSet()  # (partitions, id), of those that are old enough to be evicted by a larger one
        self.partitions = 0
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[Session]:
        return iter(self._sessions.values())

    def get(self, session_id: int) -> Session | None:
        """Return the session with that id; None if it is not in the cache."""
        return self._sessions.get(session_id)

    def create(
        self, partitions: dict[Key, Wanted], *, uses_topic_ids: bool, now_ms: int, owner: Principal = ANONYMOUS
    ) -> int:
        """Open a session, and evict others if there is no room. Returns its id; NO_SESSION if none may be evicted."""
        size = len(partitions)
        if len(self._sessions) >= self._slots and not self._evict_for(size, now_ms):
            return NO_SESSION
        while self.partitions + size > MAX_OF_ALL:
            if not self._evict_for(size, now_ms):
                return NO_SESSION
        session_id = self._new_id()
        while session_id in self._sessions or session_id == NO_SESSION:
            session_id = self._new_id()
        session = Session(session_id, partitions, uses_topic_ids=uses_topic_ids, now_ms=now_ms, owner=owner)
        self._sessions[session_id] = session
        self.touch(session, now_ms)
        return session_id

    def remove(self, session_id: int) -> None:
        """Close the session if it exists."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._unlist(session)

    def touch(self, session: Session, now_ms: int) -> None:
        """Note the session's use at now_ms and its present number of partitions, for the order of eviction."""
        self._unlist(session)
        session.used_ms = now_ms
        session.cached_size = len(session.partitions)
        self.partitions += session.cached_size
        self._by_use.add((now_ms, session.id))
        if now_ms - session.created_ms > self._eviction_ms:
            self._by_size.add((session.cached_size, session.id))

    def has_outgrown(self, session: Session) -> bool:
        """Return whether the session has more partitions than one session, or the cache, may have."""
        size = len(session.partitions)
        return size > MAX_OF_A_SESSION or self.partitions - session.cached_size + size > MAX_OF_ALL

    def _unlist(self, session: Session) -> None:
        """Remove the session from the eviction order and from the count of partitions."""
        if session.cached_size >= 0:
            self._by_use.discard((session.used_ms, session.id))
            self._by_size.discard((session.cached_size, session.id))
            self.partitions -= session.cached_size
            session.cached_size = -1

    def _evict_for(self, size: int, now_ms: int) -> bool:
        """Evict one session for a new one of `size` partitions: one that was not used for eviction_ms, or else an older
        one that is not larger.

        Returns whether one was evicted.
        """
        if not self._by_use:
            return False
        used_ms, oldest = self._by_use[0]
        if now_ms - used_ms > self._eviction_ms:
            victim = oldest
        elif self._by_size and (size, 0) >= self._by_size[0]:
            victim = self._by_size[0][1]
        else:
            return False
        self.remove(victim)
        self.evictions += 1
        return True


class Fetching:
    """One fetch request with its session, which tells which partitions to read, and which of them to include in the
    answer.

    error: if set, the request is refused with it and nothing is read. wanted: the partitions, in the order in which to
    read them.
    """

    __slots__ = ("_cache", "_epoch", "_owner", "_session", "error", "session_id", "uses_topic_ids", "wanted")

    def __init__(
        self,
        wanted: dict[Key, Wanted],
        *,
        error: ErrorCode | None = None,
        session: Session | None = None,
        cache: SessionCache | None = None,
        uses_topic_ids: bool = False,
        owner: Principal = ANONYMOUS,
    ) -> None:
        """wanted: the partitions to read, used if there is no session. cache: where to open a session for `owner` when
        the request is answered; None to open none.
        """
        self.wanted = session.partitions if session else wanted
        self.error = error
        self.session_id = session.id if session else NO_SESSION
        self.uses_topic_ids = uses_topic_ids
        self._session = session
        self._epoch = session.epoch if session else 0
        self._cache = cache
        self._owner = owner

    @property
    def is_incremental(self) -> bool:
        """Whether the answer contains only what has changed since the last one."""
        return self._session is not None

    @property
    def remembers(self) -> bool:
        """Whether finish() needs the answers, because a session exists or is to be opened."""
        return self._session is not None or self._cache is not None

    def partitions(self) -> list[tuple[Key, Wanted]]:
        """Return the partitions to read now.

        It is a copy, because a later request of the session may change the list while this one waits.
        """
        return list(self.wanted.items())

    def finish(self, answers: Collection[tuple[Key, LastAnswer]], now_ms: int) -> set[Key] | None:
        """Update or open the session according to the answers. Sets session_id; or `error`, if another request has used
        the session since.

        answers: of the partitions that may have changed; of all partitions if a session is to be opened. Returns the
        keys of the partitions to include in the response; None for all.
        """
        if self._session is None:
            if self._cache is not None:
                self._open(answers, now_ms)
            return None
        if self._session.epoch != self._epoch:
            self.error = ErrorCode.INVALID_FETCH_SESSION_EPOCH
            return set()
        return self._changed_partitions(self._session.partitions, answers)

    def put_off(self) -> ErrorCode | None:
        """Finish without answers, because the client is throttled. The session is not changed, and none is opened.

        Returns the error to answer with; None if there is none.
        """
        if self._session is not None and self._session.epoch != self._epoch:
            self.error = ErrorCode.INVALID_FETCH_SESSION_EPOCH
        return self.error

    def _open(self, answers: Collection[tuple[Key, LastAnswer]], now_ms: int) -> None:
        """Open a session that remembers these answers. session_id stays NO_SESSION if the cache has no room."""
        assert self._cache is not None
        for key, state in answers:
            wanted = self.wanted[key]
            wanted.high_watermark = state.high_watermark
            wanted.log_start_offset = state.log_start_offset
        self.session_id = self._cache.create(
            self.wanted, uses_topic_ids=self.uses_topic_ids, now_ms=now_ms, owner=self._owner
        )

    @staticmethod
    def _changed_partitions(partitions: dict[Key, Wanted], answers: Collection[tuple[Key, LastAnswer]]) -> set[Key]:
        """Return the keys of the partitions whose answers must be sent. A partition that has records moves to the end
        of the session's order, so that all get their turn.
        """
        named = set()
        for key, state in answers:
            wanted = partitions.get(key)
            if wanted is not None and must_tell(wanted, state):
                named.add(key)
                if state.has_records:  # who got records goes to the end, so that nobody starves
                    partitions[key] = partitions.pop(key)
        return named


class FetchSessions:
    """The fetch sessions of one broker: finds, opens, updates and closes the session that a fetch request names."""

    def __init__(self, slots: int, eviction_ms: int, new_id: Callable[[], int]) -> None:
        """slots: how many sessions there may be. eviction_ms: after what time without use any other session may evict
        one. new_id: returns random positive ids below 2**31.
        """
        self.cache = SessionCache(slots, eviction_ms, new_id)

    def begin(
        self,
        session_id: int,
        epoch: int,
        wanted: dict[Key, Wanted],
        forgotten: Iterable[Key],
        *,
        uses_topic_ids: bool,
        now_ms: int,
        owner: Principal = ANONYMOUS,
    ) -> Fetching:
        """Begin a fetch request. A full one (epoch 0 or -1) closes the session that it names; an incremental one
        updates it.

        Returns the request with its session, or with the error to answer. owner: the principal that sent the request; a
        session of another principal counts as unknown.
        """
        session = self.cache.get(session_id)
        if session is not None and session.owner != owner:
            session = None
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session is not None:
                self.cache.remove(session_id)
            cache = self.cache if epoch == INITIAL_EPOCH else None
            return Fetching(wanted, cache=cache, uses_topic_ids=uses_topic_ids, owner=owner)
        error = self._refusal(session, epoch, uses_topic_ids)
        if session is None or error is not None:
            return Fetching({}, error=error)
        session.update(wanted, forgotten)
        if self.cache.has_outgrown(session):
            self.cache.remove(session_id)
            return Fetching({}, error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if not session.partitions:
            self.cache.remove(session_id)
            return Fetching(wanted, uses_topic_ids=uses_topic_ids)
        self.cache.touch(session, now_ms)
        session.epoch = next_epoch(session.epoch)
        return Fetching({}, session=session, uses_topic_ids=uses_topic_ids)

    @staticmethod
    def _refusal(session: Session | None, epoch: int, uses_topic_ids: bool) -> ErrorCode | None:
        """Return the error of an incremental request that does not fit its session; None if it fits."""
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.uses_topic_ids != uses_topic_ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        return None
