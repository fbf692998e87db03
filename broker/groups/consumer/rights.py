"""Whose the members of a group are, and which topics each may be given by its own rights. Pure.

The rules, where rules of access are enforced: a member counts as a subscriber of a topic it may read and describe. Of a
topic that no subscriber may read, those count that may describe it: their fetch tells them what is missing. Nobody is
told of a topic that it may not describe. Of a pattern the topics are looked up that any of its members may describe.
Rights change while members stay, so an assignment is made again after any change of the rules, and it counts if it is
another one. Who is behind a member is known from its requests, so not between a restart and its next one: until then
it keeps the topics that it has. Kafka resolves patterns by the rights of whoever asks, and nothing else (decision 30).
"""

from collections.abc import Generator, Mapping
from typing import NamedTuple, Protocol

from ...security.principals import Session
from .assignors import NOTHING, TopicId
from .fencing import FencedRoster
from .records import Change, Kind, Subscription, Target
from .roster import TopicView

TOPICS_AT_ONCE = 10  # of which the rights are asked between two units of work

Shares = Generator[int, None, dict[str, frozenset[TopicId]]]


class Rights(Protocol):
    """What the rules of access say. version: another one after each change."""

    @property
    def is_enforced(self) -> bool: ...
    @property
    def version(self) -> int: ...
    def describes(self, user: Session, topic: str) -> bool: ...
    def reads(self, user: Session, topic: str) -> bool: ...


class _View(NamedTuple):
    """The topics that a member subscribes to, by what it may do with them. readable: and describe."""

    described: frozenset[TopicId]
    readable: frozenset[TopicId]


class UsersRoster(FencedRoster):
    """A group that knows whose its members are. users: by member id, of those that were heard of."""

    def __init__(self, group_id: str, topics: TopicView, rights: Rights) -> None:
        super().__init__(group_id, topics)
        self.users: dict[str, Session] = {}
        self._rights = rights
        self._users_seen = 0  # how often a member turned out to be another user's
        self._assigned_for: tuple[int, int] | None = None  # what rights_seen was when the target was made, or looked at
        self._unresolved: set[str] = set()  # regular expressions of users whose rights were not asked
        self._resolved_for: dict[str, frozenset[Session | None]] = {}
        self._resolving_for: dict[str, frozenset[Session | None]] = {}
        self._resolved_rights: int | None = None
        self._resolving_rights: int | None = None

    def apply(self, change: Change) -> None:
        """Apply one record of the group, and forget the users of what it removes."""
        super().apply(change)
        if change.value is None and change.kind is Kind.SUBSCRIPTION:
            self.users.pop(change.name, None)
        elif change.value is None and change.kind is Kind.REGEX:
            self._resolved_for.pop(change.name, None)

    def _note_user(self, member_id: str, user: Session | None) -> None:
        """A request of the member came from this user."""
        if not self._rights.is_enforced or user is None:
            return
        if self.users.get(member_id) != user:
            self.users[member_id] = user
            self._users_seen += 1
        regex = self.subscriptions[member_id].regex
        if regex and user not in self._resolved_for.get(regex, ()):
            self._unresolved.add(regex)

    @property
    def _rights_seen(self) -> tuple[int, int]:
        return self._rights.version, self._users_seen

    @property
    def _rights_changed(self) -> bool:
        """Whether the members may have other rights than when the target assignment was made."""
        return self._rights.is_enforced and self._assigned_for != self._rights_seen

    def _may_be_given(self, member_id: str, topic_id: TopicId, partition: int) -> bool:
        """Whether a partition is free, and its topic one that the member may know of by now."""
        if not self.is_free(topic_id, partition):
            return False
        user = self.users.get(member_id)
        if user is None:
            return True
        name = self._topics.name_of(topic_id)
        return name is None or self._rights.describes(user, name)

    # ---- assignments -----------------------------------------------------------------------------------------

    def _shares(self, subscriptions: Mapping[str, Subscription], targets: Mapping[str, Target]) -> Shares:
        """The topics that each member may be given, in steps. Equal sets are one object: comparing them is quick."""
        users = dict(self.users)
        views: dict[object, _View] = {}
        view_of: dict[str, _View] = {}
        for member_id, subscription in subscriptions.items():
            user = users.get(member_id)
            is_known = user is not None or not self._rights.is_enforced
            key = subscription.topics, subscription.regex, user if is_known else member_id
            if key not in views:
                ids = self.topic_ids(subscription)
                if not is_known:
                    has = targets[member_id].partitions if member_id in targets else NOTHING
                    ids = ids.intersection(has)
                views[key] = yield from self._view(ids, user)
            view_of[member_id] = views[key]
        described = frozenset[TopicId]().union(*(each.described for each in views.values()))
        unread = described.difference(*(each.readable for each in views.values()))
        equal: dict[frozenset[TopicId], frozenset[TopicId]] = {}
        shares = dict[_View, frozenset[TopicId]]()
        for view in views.values():
            share = view.readable | (view.described & unread) if unread else view.readable
            shares[view] = equal.setdefault(share, share)
            yield 1
        return {member_id: shares[view] for member_id, view in view_of.items()}

    def _view(self, ids: frozenset[TopicId], user: Session | None) -> Generator[int, None, _View]:
        yield 1 + len(ids) // TOPICS_AT_ONCE
        if user is None:
            return _View(ids, ids)
        described, readable = set[TopicId](), set[TopicId]()
        for number, topic_id in enumerate(ids):
            name = self._topics.name_of(topic_id)
            if name is not None and self._rights.describes(user, name):
                described.add(topic_id)
                if self._rights.reads(user, name):
                    readable.add(topic_id)
            if number % TOPICS_AT_ONCE == 0:
                yield TOPICS_AT_ONCE
        return _View(frozenset(described), frozenset(readable))

    # ---- regular expressions ---------------------------------------------------------------------------------

    @property
    def _resolves_anew(self) -> bool:
        """Whether other topics may be seen since all regular expressions were looked up."""
        return self._rights.is_enforced and self._resolved_rights != self._rights.version

    def _begin_resolving(self) -> None:
        """Note whose rights count for what is looked up now."""
        if not self._rights.is_enforced:
            return
        self._resolving_rights = self._rights.version
        found: dict[str, set[Session | None]] = {}
        for member_id, subscription in self.subscriptions.items():
            if subscription.regex:
                found.setdefault(subscription.regex, set()).add(self.users.get(member_id))
        self._unresolved.intersection_update(found)  # nobody subscribes to the others any more
        self._resolving_for = {regex: frozenset(users) for regex, users in found.items()}

    def _end_resolving(self, regex: str) -> None:
        self._unresolved.discard(regex)
        if regex in self._resolving_for:
            self._resolved_for[regex] = self._resolving_for[regex]

    def is_seen(self, regex: str, topic: str) -> bool:
        """Whether a topic that it matches counts: any of its members may know of it, or it was found before."""
        if not self._rights.is_enforced:
            return True
        users = self._resolving_for.get(regex, frozenset())
        if any(self._rights.describes(user, topic) for user in users if user is not None):
            return True
        before = self.regexes.get(regex)
        return None in users and before is not None and topic in before.topics
