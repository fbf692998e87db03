"""Which other brokers are listed in Metadata: those that wait to own the same journal in an object store, and for some
time those that have owned it.

The rule: brokers that wait are listed so that a client which was only told of the owner can find the next one. Nothing
else depends on it. So no fence protects these objects, a failed call is not repeated before the next is due, and no
clocks are compared: a broker that waits puts its object again and again, and counts as gone when the owner has seen the
same object for too long.

Former owners are listed even if nobody knows whether they will come back, because of librdkafka from 2.10 on. It
remembers the coordinator of a group for which it commits offsets in transactions. While Metadata lists that broker, it
tries to connect to it, and after each failure asks for the coordinator again. If Metadata does not list it any more, it
does neither: the next send_offsets_to_transaction never returns. It forgets a coordinator that it has not used for
metadata.max.age.ms, by default 15 minutes.
"""

import logging
from collections.abc import Iterable, Sequence
from functools import partial

from ...effects.objects import Missing, Objects, ObjectsError, Refused
from ...storage.journal.format import Malformed
from ...storage.objects import format
from ...storage.objects.creating import Pause, until_clear
from ...storage.objects.epochs import call_many
from ...storage.objects.format import Claim, NewerObject, Waiting
from ..config.listener_settings import ListenerSettings
from ..net.advertised import EVERY_INTERFACE

log = logging.getLogger("fencepost.broker")

LEASES_BETWEEN = 2  # so many leases pass between two puts of a waiting broker's object, and between two looks
MISSED = 3  # puts after which it counts as gone
MAX_NODES = 16  # waiting brokers that are listed in Metadata
MAX_READ = 64  # waiting brokers whose objects are read in one look
FORMER_EPOCHS = 4  # before the present owner's epoch: their owners are listed in Metadata
FORMER_MS = 15 * 60_000  # for which they are listed


def told_addresses(listeners: Sequence[ListenerSettings]) -> tuple[tuple[str, str, int], ...]:
    """Return (listener, host, port) of each listener whose address is known before a client connects.

    A listener on every interface, or on a port that the system chooses, needs an advertised address for that.
    """
    places = [(each.name, *(each.advertised or (each.host, each.port))) for each in listeners]
    return tuple((name, host, port) for name, host, port in places if host not in EVERY_INTERFACE and port)


class Presence:
    """Tells the owner of a store that this broker exists, while it waits to become the owner. Its methods block a
    worker thread.
    """

    def __init__(
        self, objects: Objects, node: int, addresses: tuple[tuple[str, str, int], ...], salt: bytes, lease_ms: int
    ) -> None:
        """addresses: what told_addresses() returned. salt: random bytes, drawn at this start."""
        self._objects = objects
        self._next = Waiting(node, addresses, salt, 0, lease_ms * LEASES_BETWEEN)
        self._name = format.waiting_name(node)
        self._due_ms: int | None = None
        self._looked_at = 0  # the owner's epoch whose claim was read
        self._may_tell = False

    def tell(self, epoch: int, now_ms: int) -> None:
        """Put the object that names this broker into the store again, unless the last put was a short time ago. Errors
        are ignored.

        epoch: of the present owner; 0 if there is none, and then nothing is put. now_ms: monotonic time.
        """
        if not epoch or (self._due_ms is not None and now_ms < self._due_ms):
            return
        self._due_ms = now_ms + self._next.every_ms  # whether or not it succeeds: what is refused costs as much
        try:
            if epoch != self._looked_at:
                self._may_tell = self._can_be_listed(epoch)
                self._looked_at = epoch
            if self._may_tell:
                self._objects.put(self._name, format.pack_waiting(self._next))
                self._next = self._next._replace(puts=self._next.puts + 1)
        except ObjectsError:
            pass

    def _can_be_listed(self, epoch: int) -> bool:
        """Return whether the owner of this epoch can list this broker in Metadata. For that this broker needs
        addresses, and a node.id other than the owner's; what is missing is logged. If the owner's claim cannot be read,
        return True. Raises ObjectsError.
        """
        if not self._next.addresses:
            log.warning("clients are not told of this broker while it waits: set advertised.listeners")
            return False
        try:
            owner = format.read_claim(epoch, self._objects.read(format.claim_name(epoch)))
        except (Missing, Malformed, NewerObject):
            return True
        # With the same addresses, the claim is of this broker before its restart, and nothing is configured wrong.
        if owner.node == self._next.node and owner.addresses != self._next.addresses:
            log.warning("clients are not told of this broker while it waits: node.id %d is the owner's", owner.node)
        return owner.node != self._next.node

    def end(self) -> None:
        """Delete the object that names this broker, if one was put, because the broker does not wait any more."""
        if self._next.puts:
            try:
                self._objects.delete(self._name)
            except ObjectsError:
                pass  # the object will not be put again, so the owner will take this broker for gone


class OtherNodes:
    """The brokers that wait to take over from the owner of a store, and its former owners, as that owner knows them."""

    def __init__(self, objects: Objects, own_node: int) -> None:
        self._objects = objects
        self._own_node = own_node
        self._seen: dict[int, tuple[Waiting, int]] = {}  # by node id, with the time at which it was first seen so
        self._alive: list[Waiting] = []
        self._former: list[Claim] = []
        self._former_until_ms = 0

    def at(self, listener: str) -> list[tuple[int, str, int]]:
        """Return (node id, host, port) of each waiting broker and each former owner that has a listener of this
        name.
        """
        addresses = {each.node: each.addresses for each in self._alive}
        for each in self._former:
            addresses.setdefault(each.node, each.addresses)
        return [(node, host, port) for node, its in addresses.items() for name, host, port in its if name == listener]

    def alive(self) -> list[int]:
        """Return the node id of each waiting broker."""
        return sorted(each.node for each in self._alive)

    def recall(self, epoch: int, pause: Pause, now_ms: int) -> None:
        """Read who owned the last epochs before this one. Call it before the first client is served. Blocks a worker
        thread. pause: raises Refused for a refused call.
        """
        epochs = range(epoch - 1, max(0, epoch - 1 - FORMER_EPOCHS), -1)
        claims: dict[int, Claim | None] = {}

        def read(each: int) -> None:
            """Read who claimed one epoch."""
            claims[each] = self._read_claim(each, pause)

        call_many(partial(read, each) for each in epochs)
        former: dict[int, Claim] = {}
        for each in epochs:
            claim = claims[each]
            if claim is not None and claim.node != self._own_node:
                former.setdefault(claim.node, claim)
        self._former, self._former_until_ms = list(former.values()), now_ms + FORMER_MS

    def _read_claim(self, epoch: int, pause: Pause) -> Claim | None:
        """Return who claimed this epoch; None if nobody did, it may not be read, or this version cannot read it."""
        try:
            return format.read_claim(epoch, until_clear(lambda: self._objects.read(format.claim_name(epoch)), pause))
        except (Missing, Malformed, NewerObject, Refused):
            return None

    def look(self, now_ms: int) -> None:
        """Read which brokers wait, and delete the objects of those that have stopped renewing them. Also forget the
        former owners once FORMER_MS are over.

        A broker that was only disconnected from the store for some time puts its object again. If the store does not
        answer, the result of the last call stays. Blocks a worker thread.
        """
        if now_ms >= self._former_until_ms:
            self._former = []
        try:
            found = [self._read(each.name) for each in self._objects.list(format.WAITING)[:MAX_READ]]
        except ObjectsError:
            return
        others = {each.node: each for each in found if each is not None}
        before = self._seen
        self._seen = {
            node: before[node] if node in before and before[node][0] == each else (each, now_ms)
            for node, each in others.items()
        }
        alive = [each for each, since_ms in self._seen.values() if now_ms - since_ms <= MISSED * each.every_ms]
        self._alive = [each for each in alive if each.node != self._own_node][:MAX_NODES]
        self._remove(node for node, each in others.items() if each not in alive)

    def _remove(self, nodes: Iterable[int]) -> None:
        """Delete the objects of these waiting brokers. Errors are ignored."""
        for node in nodes:
            try:
                self._objects.delete(format.waiting_name(node))
            except ObjectsError:
                return  # the next look finds them again

    def _read(self, name: str) -> Waiting | None:
        """Return the content of a waiting broker's object; None if it is deleted, or this version cannot read it.
        Raises ObjectsError.
        """
        try:
            return format.read_waiting(self._objects.read(name))
        except (Missing, Malformed, NewerObject):
            return None
