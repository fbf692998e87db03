"""A store (store_driver.py) whose journal is in a store of objects: as an owner opens it, and as others see it."""

from typing import Any

from fencepost.effects.disk import Disk
from fencepost.effects.objects import Objects, ObjectsError
from fencepost.effects.simulated.clock import SimulatedClock
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.storage.objects.format import Claim
from fencepost.storage.objects.journal import ObjectJournal
from fencepost.storage.objects.points import Collecting, PointTaken
from fencepost.storage.objects.source import JournalOfObjects
from fencepost.storage.objects.takeover import Taken, Takeover
from store_driver import DIRECTORY, SMALL, Driven, batch_of, values_of

MAX_ATTEMPTS = 200


class GivenUp(Exception):
    """Raised by pause() after many attempts."""


def pause(error: ObjectsError, attempts: int) -> None:
    """Let a call be made again at once: at each call the store's faults are drawn anew. Raises GivenUp."""
    if attempts > MAX_ATTEMPTS:
        raise GivenUp from error


def take(objects: Objects, node: int = 1, least: int = 1) -> Taken:
    """Take over the journal in this store of objects, as the node with this id."""
    salt = node.to_bytes(8, "big")
    return Takeover(objects, pause, Claim(least, node, (), salt)).run()


class Owning(Driven):
    """The owner of a journal, with its disk. `acked`: what it has acknowledged, by topic."""

    def __init__(
        self, objects: Any, disk: Disk | None = None, node: int = 1, identity: bytes = b"the only store.."
    ) -> None:
        self.objects = objects
        disk, clock = disk or SimulatedDisk(history=False), SimulatedClock()
        source = JournalOfObjects(
            objects,
            Claim(1, node, (), node.to_bytes(8, "big")),
            pause,
            disk=disk,
            clock=clock,
            directory=DIRECTORY,
            settings=SMALL,
            identity=identity,
            made_by="test",
        )
        super().__init__(disk, clock, source=source)
        self.source = source
        self.epoch = source.taken.claim.epoch
        self.points = source.points
        self.collecting = Collecting(objects, pause, self.epoch)
        if source.adopted is not None:
            self.collecting.add(source.adopted)

    def values(self, topic: str = "t") -> list[bytes]:
        """Return the values that a consumer reads."""
        return [value for _, value in values_of(self.log(topic))]

    def point(self, *, is_named: bool = True) -> None:
        """Take a point (a checkpoint with its files in the store of objects), name it in the journal, and delete the
        objects that are not needed after it.
        """
        self.flush()
        self.checkpoint()
        taken = self.points.take()
        assert taken is not None
        if is_named:
            self.name(taken)

    def name(self, taken: PointTaken) -> None:
        """Name a point in the journal, and delete the objects that are not needed after it."""
        journal = self.store.journal
        assert isinstance(journal, ObjectJournal)
        first = journal.name_point(tuple(taken.place), taken.start)
        self.round(sync=True)
        assert first is not None
        assert first < journal.released_rounds
        self.collecting.add(taken)
        self.collecting.collect(journal.released_rounds)

    def send(self, topic: str, *values: bytes) -> None:
        """Append one batch, and make it durable. Raises: Fenced, GivenUp."""
        self.append(self.log(topic), values)
        self.round()

    def send_joint(self, **values: bytes) -> None:
        """Append one batch to each of some topics, as one unit, and make it durable."""
        store = self.store
        store.commit([store.append_part(self.log(topic).log_id, batch_of([value])) for topic, value in values.items()])
        self.round()
