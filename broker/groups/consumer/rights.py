"""Which topics members of a consumer group may be assigned, or match by regular expressions, by their users' rights.
Pure.

Which rights count is in assigned/rights.py. A regular expression matches only topics that at least one of its members
may describe; it is matched again when rights have changed. Kafka matches by the rights of one member alone, the one
whose heartbeat asks for it (decision 30).
"""

from collections.abc import Mapping

from ...security.principals import Session
from ..assigned.rights import MembersRights, Rights, Shares
from ..assigned.topic_view import TopicView
from ..targets import Target, TopicId
from .fencing import FencedRoster
from .records import Change, Kind, Subscription


class UsersRoster(FencedRoster):
    """The part of a consumer group that knows each member's user, and so its access rights."""

    def __init__(self, group_id: str, topics: TopicView, rights: Rights) -> None:
        super().__init__(group_id, topics)
        self._rights = rights
        self._members_rights = MembersRights(rights, topics)
        self._assigned_for: tuple[int, int] | None = None  # _rights_seen when the target was made or checked
        self._unresolved: set[str] = set()  # regular expressions not matched yet by all users' rights
        self._resolved_for: dict[str, frozenset[Session | None]] = {}  # by expression: whose rights it was matched by
        self._resolving_for: dict[str, frozenset[Session | None]] = {}  # the same for the matching that is under way
        self._resolved_rights: int | None = None  # the ACLs' version when all expressions were matched last
        self._resolving_rights: int | None = None  # the ACLs' version when the matching under way began

    @property
    def users(self) -> dict[str, Session]:
        """The users of the members that have sent a request, by member id."""
        return self._members_rights.users

    def apply(self, change: Change) -> None:
        """Apply one record of the group. If it removes a member or a regular expression, forget the users noted for
        that.
        """
        super().apply(change)
        if change.value is None and change.kind is Kind.SUBSCRIPTION:
            self._members_rights.forget(change.name)
        elif change.value is None and change.kind is Kind.REGEX:
            self._resolved_for.pop(change.name, None)

    def _note_user(self, member_id: str, user: Session | None) -> None:
        """Note which user sent a member's request. If the user has changed, the member's regular expression is matched
        again.
        """
        if user is None or not self._members_rights.note(member_id, user):
            return
        regex = self.subscriptions[member_id].regex
        if regex and user not in self._resolved_for.get(regex, ()):
            self._unresolved.add(regex)

    @property
    def _rights_seen(self) -> tuple[int, int]:
        """The version of the ACLs, and how often a member's user has changed. If these numbers have changed, members
        may have other rights.
        """
        return self._members_rights.seen

    @property
    def _rights_changed(self) -> bool:
        """Whether ACLs or the users of members have changed since the target assignment was made."""
        return self._rights.is_enforced and self._assigned_for != self._rights_seen

    def _may_be_given(self, member_id: str, topic_id: TopicId, partition: int) -> bool:
        """Return whether no other member has the partition, and this member may describe its topic now."""
        return self.is_free(topic_id, partition) and self._members_rights.describes(member_id, topic_id)

    def _shares(self, subscriptions: Mapping[str, Subscription], targets: Mapping[str, Target]) -> Shares:
        """Compute, in steps, the topics that each member may be assigned; see MembersRights.shares."""
        return self._members_rights.shares(
            subscriptions, targets, lambda each: (each.topics, each.regex), self.topic_ids
        )

    # ---- regular expressions ---------------------------------------------------------------------------------

    @property
    def _resolves_anew(self) -> bool:
        """Whether ACLs have changed since all regular expressions were matched with the topics."""
        return self._rights.is_enforced and self._resolved_rights != self._rights.version

    def _begin_resolving(self) -> None:
        """Note the users whose rights count for the regular expressions that are matched with the topics now."""
        if not self._rights.is_enforced:
            return
        self._resolving_rights = self._rights.version
        found: dict[str, set[Session | None]] = {}
        for member_id, subscription in self.subscriptions.items():
            if subscription.regex:
                found.setdefault(subscription.regex, set()).add(self.users.get(member_id))
        self._unresolved.intersection_update(found)  # no member subscribes to the others any more
        self._resolving_for = {regex: frozenset(users) for regex, users in found.items()}

    def _end_resolving(self, regex: str) -> None:
        """Note that a regular expression has been matched, by the rights of the users that subscribe to it."""
        self._unresolved.discard(regex)
        if regex in self._resolving_for:
            self._resolved_for[regex] = self._resolving_for[regex]

    def is_seen(self, regex: str, topic: str) -> bool:
        """Return whether a topic that matches a regular expression counts, because at least one member with this
        expression may describe the topic.

        While the user of one of these members is not known yet, topics that counted before still count.
        """
        if not self._rights.is_enforced:
            return True
        users = self._resolving_for.get(regex, frozenset())
        if any(self._rights.describes(user, topic) for user in users if user is not None):
            return True
        before = self.regexes.get(regex)
        return None in users and before is not None and topic in before.topics
