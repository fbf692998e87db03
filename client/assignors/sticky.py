"""The sticky assignors: as balanced as possible, and of all such assignments one that moves few partitions. Pure.

The rule: results and bytes are those of Kafka's StickyAssignor and CooperativeStickyAssignor (KIP-54, -341, -429).
`sticky_equal` is used if all members want the same topics, `sticky_unequal` otherwise. A partition that the cooperative
assignor takes from a member is assigned to nobody in this generation; in the next, its old owner has released it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from struct import Struct

from ...protocol.errors import MalformedFrame
from ..values import TopicPartition
from .assignment import Assigned, LastAssignment, Members, Partitions, subscribed
from .consumer_protocol import NO_GENERATION, Reader, Subscription, encode_partitions
from .java_order import hash_order, text_hash
from .sticky_equal import assign_equal
from .sticky_unequal import assign_unequal

_INT32 = Struct(">i")


@dataclass(frozen=True, slots=True)
class Claim:
    """The partitions that a member claims to have. generation: in which it got them, None if it sent none."""

    partitions: tuple[TopicPartition, ...]
    generation: int | None

    @property
    def since(self) -> int:
        return NO_GENERATION if self.generation is None else self.generation


@dataclass(slots=True)
class Claims:
    """What every member has after conflicts are resolved. disputed: claimed by two members in one generation."""

    owned: dict[str, list[TopicPartition]] = field(default_factory=dict)
    disputed: set[TopicPartition] = field(default_factory=set)
    before: dict[TopicPartition, tuple[str, int]] = field(default_factory=dict)  # who had it in an older generation


class StickyAssignor:
    """Keeps assignments as far as possible. Members give up all partitions before they join, and list them in their
    user data.
    """

    name = "sticky"
    cooperative = False

    def user_data(self, last: LastAssignment | None) -> bytes | None:
        return None if last is None else encode_partitions(last.partitions) + _INT32.pack(last.generation)

    def assign(self, partitions: Partitions, members: Members) -> Assigned:
        return _assign(partitions, members, claim_in_user_data)[0]


class CooperativeStickyAssignor:
    """Keeps assignments as far as possible. Members keep what they have while they join."""

    name = "cooperative-sticky"
    cooperative = True

    def user_data(self, last: LastAssignment | None) -> bytes | None:
        return _INT32.pack(NO_GENERATION if last is None else last.generation)

    def assign(self, partitions: Partitions, members: Members) -> Assigned:
        """Assign like StickyAssignor, but leave out each partition that another member still owns: it has to revoke
        the partition first, and the next rebalance assigns it.
        """
        assigned, moving = _assign(partitions, members, owned_now)
        if moving is None:
            moving = _changing_hands(members, assigned)
        for place, member in moving.items():
            assigned[member].remove(place)
        return assigned


# ---- What members have ----------------------------------------------------------------------------------------


def claim_in_user_data(subscription: Subscription) -> Claim:
    """Return what a member of the sticky assignor claims: partitions, from version 1 with generation (KIP-341). If the
    user data is malformed, it claims nothing.
    """
    if not subscription.user_data:
        return Claim((), None)
    reader = Reader(subscription.user_data)
    try:
        partitions = reader.partitions()
    except MalformedFrame:
        return Claim((), NO_GENERATION)
    try:
        return Claim(partitions, reader.int32())
    except MalformedFrame:
        return Claim(partitions, None)


def owned_now(subscription: Subscription) -> Claim:
    """Return what a member of the cooperative assignor claims: the owned partitions of its subscription.

    Before version 2 of the subscription its generation is in the user data.
    """
    generation = subscription.generation
    if generation is None and subscription.user_data is not None:
        try:
            generation = Reader(subscription.user_data).int32()
        except MalformedFrame:
            generation = NO_GENERATION
    return Claim(subscription.owned, generation)


# ---- Assigning -----------------------------------------------------------------------------------------------


def _assign(
    partitions: Partitions, members: Members, claim_of: Callable[[Subscription], Claim]
) -> tuple[Assigned, dict[TopicPartition, str] | None]:
    """Return the assignment, and its partitions that another member still owns, each with its new member. The second is
    None if it was not computed.
    """
    there = {topic: partitions[topic] for topic in subscribed(partitions, members)}
    ordered = {member: members[member] for member in hash_order(members, text_hash)}
    claims = settle(there, ordered, {member: claim_of(subscription) for member, subscription in ordered.items()})
    if len({frozenset(subscription.topics) for subscription in ordered.values()}) <= 1:
        return assign_equal(there, claims.owned, claims.disputed)
    topics = {member: subscription.topics for member, subscription in ordered.items()}
    return assign_unequal(there, topics, claims.owned, claims.before), None


def settle(partitions: Partitions, members: Members, claims: dict[str, Claim]) -> Claims:
    """Return what each member keeps: a partition that several claim belongs to the claim of the newest generation.

    If two claims are of that generation, no member keeps it.
    """
    found = Claims()
    holder: dict[TopicPartition, str] = {}
    for member, claim in claims.items():
        kept = found.owned[member] = []
        for place in claim.partitions:
            if place.partition >= partitions.get(place.topic, 0):
                continue
            other = holder.get(place)
            if other is None:
                kept.append(place)
                holder[place] = member
                continue
            other_since = members[other].generation  # of the subscription, as Kafka does, not of the claim
            other_since = NO_GENERATION if other_since is None else other_since
            if claim.since < other_since:
                continue
            if claim.since == other_since:
                found.disputed.add(place)
            else:
                kept.append(place)
            if place in found.owned[other]:
                found.owned[other].remove(place)
            holder[place] = member
    newest = max((claim.since for claim in claims.values()), default=NO_GENERATION)
    for member, claim in claims.items():
        if claim.since < newest:
            _remember(found.before, member, claim)
    return found


def _remember(before: dict[TopicPartition, tuple[str, int]], member: str, claim: Claim) -> None:
    """Note in `before` which member had each claimed partition, and in which generation, if that is newer than what is
    noted.
    """
    for place in claim.partitions:
        if place not in before or claim.since > before[place][1]:
            before[place] = member, claim.since


def _changing_hands(members: Members, assigned: Assigned) -> dict[TopicPartition, str]:
    """Return the partitions that are assigned to one member and still owned by another, each with its new member."""
    added: dict[TopicPartition, str] = {}
    revoked: set[TopicPartition] = set()
    for member, places in assigned.items():
        owned = set(members[member].owned)
        added.update((place, member) for place in places if place not in owned)
        revoked |= owned.difference(places)
    return {place: member for place, member in added.items() if place in revoked}
