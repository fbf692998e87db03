"""Which user each member of a group is, and which topics it may be assigned by that user's rights. Pure.

The rules, if ACLs are enforced: a member counts as a subscriber of a topic that it may read and describe. If no
subscriber of a topic may read it, those that may describe it count, and their fetches then tell them which right is
missing. No member learns of a topic that it may not describe. Rights can change while members stay, so after any change
of ACLs the assignment is computed again, and replaced if it differs. A member's user is known from its requests, so it
is unknown between a restart and the member's next request; until then the member keeps the topics that it has.
"""

from collections.abc import Callable, Generator, Hashable, Mapping
from typing import NamedTuple, Protocol, TypeVar

from ...security.principals import Session
from ..targets import NOTHING, Target, TopicId

TOPICS_AT_ONCE = 10  # topics whose rights are checked in one step

Shares = Generator[int, None, dict[str, frozenset[TopicId]]]
"""Steps that compute which topics each member may be assigned. Returns the topics' ids by member id."""

Member = TypeVar("Member")


class Rights(Protocol):
    """Checks access rights of users. version: changes with every change of ACLs. describes, reads: whether the user has
    that right.
    """

    @property
    def is_enforced(self) -> bool:
        """Whether the broker checks ACLs at all."""
        ...

    @property
    def version(self) -> int:
        """A number that changes with every change of ACLs."""
        ...

    def describes(self, user: Session, topic: str) -> bool:
        """Return whether the user may describe the topic."""
        ...

    def reads(self, user: Session, topic: str) -> bool:
        """Return whether the user may read the topic."""
        ...


class Names(Protocol):
    """Looks up the names of topics."""

    def name_of(self, topic_id: TopicId) -> str | None:
        """Return the topic's name; None if the topic does not exist."""
        ...


class View(NamedTuple):
    """The topics that a member subscribes to and may describe, and those of them that it may also read."""

    described: frozenset[TopicId]
    readable: frozenset[TopicId]


class MembersRights:
    """The access rights of the members of one group.

    users: by member id, the user of each member that has sent a request.
    """

    def __init__(self, rights: Rights, topics: Names) -> None:
        self.users: dict[str, Session] = {}
        self.rules = rights
        self._topics = topics
        self._users_seen = 0  # how often a member's user was found to have changed

    def note(self, member_id: str, user: Session | None) -> bool:
        """Note which user sent a member's request, and return True. If ACLs are not enforced or user is None, note
        nothing and return False.
        """
        if not self.rules.is_enforced or user is None:
            return False
        if self.users.get(member_id) != user:
            self.users[member_id] = user
            self._users_seen += 1
        return True

    def forget(self, member_id: str) -> None:
        """Forget the user of a member that has left."""
        self.users.pop(member_id, None)

    @property
    def seen(self) -> tuple[int, int]:
        """The version of the ACLs, and how often a member's user has changed. If these numbers differ from earlier
        ones, members may have other rights.
        """
        return self.rules.version, self._users_seen

    def describes(self, member_id: str, topic_id: TopicId) -> bool:
        """Return whether a member may describe a topic now. True if its user is not known yet, as after a restart, or
        the topic does not exist.
        """
        user, name = self.users.get(member_id), self._topics.name_of(topic_id)
        return user is None or name is None or self.rules.describes(user, name)

    def shares(
        self,
        members: Mapping[str, Member],
        targets: Mapping[str, Target],
        key_of: Callable[[Member], Hashable],
        ids_of: Callable[[Member], frozenset[TopicId]],
    ) -> Shares:
        """Compute, in steps, the topics that each member may be assigned. Returns their ids, by member id.

        A member may get the topics that its user may read. It may also get those that it may only describe, if no
        member at all may read them. A member whose user is not known yet may keep the topics of its target. Equal sets
        are the same object, so that they are quick to compare. key_of: returns the same key for members with the same
        subscription. ids_of: returns the topics of that subscription.
        """
        users = dict(self.users)
        views: dict[Hashable, View] = {}
        view_of: dict[str, View] = {}
        for member_id, member in members.items():
            user = users.get(member_id)
            is_known = user is not None or not self.rules.is_enforced
            key = key_of(member), user if is_known else member_id
            if key not in views:
                ids = ids_of(member)
                if not is_known:
                    has = targets[member_id].partitions if member_id in targets else NOTHING
                    ids = ids.intersection(has)
                views[key] = yield from self._view(ids, user)
            view_of[member_id] = views[key]
        described = frozenset[TopicId]().union(*(each.described for each in views.values()))
        unread = described.difference(*(each.readable for each in views.values()))
        equal: dict[frozenset[TopicId], frozenset[TopicId]] = {}
        shares = dict[View, frozenset[TopicId]]()
        for view in views.values():
            share = view.readable | (view.described & unread) if unread else view.readable
            shares[view] = equal.setdefault(share, share)
            yield 1
        return {member_id: shares[view] for member_id, view in view_of.items()}

    def _view(self, ids: frozenset[TopicId], user: Session | None) -> Generator[int, None, View]:
        """Return, in steps, which of these topics the user may describe, and which it may read. If user is None, both
        are all of these topics.
        """
        yield 1 + len(ids) // TOPICS_AT_ONCE
        if user is None:
            return View(ids, ids)
        described, readable = set[TopicId](), set[TopicId]()
        for number, topic_id in enumerate(ids):
            name = self._topics.name_of(topic_id)
            if name is not None and self.rules.describes(user, name):
                described.add(topic_id)
                if self.rules.reads(user, name):
                    readable.add(topic_id)
            if number % TOPICS_AT_ONCE == 0:
                yield TOPICS_AT_ONCE
        return View(frozenset(described), frozenset(readable))
