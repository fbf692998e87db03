"""A follower of a simulated data directory, and what is restored of what it has shipped."""

from fencepost.effects.clock import Clock
from fencepost.effects.simulated.clock import SimulatedClock
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.effects.simulated.objects import SimulatedObjects
from fencepost.storage.shipping.fetching import Fetched, Fetching
from fencepost.storage.shipping.following import Follower, Following
from fencepost.storage.shipping.point import Claim

DIRECTORY = "/data"
HOUR_MS = 3_600_000
MAX_WAITS = 1000


class RecordClock(Clock):
    """Tells the time in operations of a record that a TravellingDisk has seen."""

    def __init__(self, beside) -> None:
        self._beside = beside

    def now_ms(self) -> int:
        return self._beside.now

    def monotonic_ms(self) -> int:
        return self._beside.now


class Waiting:
    """Counts how often a call was made again, and gives up some time."""

    def __init__(self, most: int = MAX_WAITS) -> None:
        self.troubles: list[Exception] = []
        self._most = most

    def __call__(self, trouble: Exception) -> None:
        self.troubles.append(trouble)
        if len(self.troubles) > self._most:
            raise trouble


def claim(host: str = "here") -> Claim:
    return Claim(host, 1, DIRECTORY, "test", 0)


def follower(
    disk: SimulatedDisk,
    objects: SimulatedObjects,
    clock: Clock | None = None,
    *,
    begins: bool = True,
    wait: Waiting | None = None,
    take_over: bool = True,
    **how: int,
) -> Follower:
    """Return a follower of the data directory; it has begun unless `begins` is False."""
    how = {"keep_ms": HOUR_MS, "threads": 1} | how
    made = Follower(
        disk, DIRECTORY, objects, clock or SimulatedClock(), Following(made_by="test", **how), wait=wait or Waiting()
    )
    if begins:
        made.begin(claim(), lambda: None, take_over=take_over)
    return made


def restored(
    objects: SimulatedObjects, at_ms: int | None = None, said: list[str] | None = None, wait: Waiting | None = None
) -> tuple[SimulatedDisk, Fetched]:
    """Restore from the store of objects. Returns the disk as a power cut right afterwards leaves it, and what was
    fetched.
    """
    target = SimulatedDisk()
    say = said.append if said is not None else lambda line: None
    fetched = Fetching(objects, target, DIRECTORY, wait or Waiting(), say=say, threads=1).run(at_ms)
    return target.after_power_cut(), fetched


def add(work, *values):
    for value in values:
        work.send(work.log("a"), value)
        work.sync()


def named(objects, folder):
    return sorted(name for name in objects.content if name.startswith(f"0/{folder}/"))


def damage_the_next_round(work, one):
    """Change a byte in the round (one write of the journal) that the follower will read next, as a device may."""
    place = one._chain.goes_on
    path = f"/data/journal/{place.sequence:020d}.journal"
    add(work, b"second")
    file = work.disk.open(path)
    byte = file.read(1, place.position + 100)
    file.write([bytes([byte[0] ^ 1])], place.position + 100)
    file.close()
