"""Every disk that a power cut may leave behind: the crash-point enumerator.

    for description, image in crash_images(disk):
        recover(image); check(image.notes)

`disk` is a SimulatedDisk on which a workload ran. For each moment (after each operation) there are images with all that
was done by then, with only what was synced, and with the unsynced operations in part: any one or two missing, two that
overlap exchanged, each write torn, sectors of the last writes in any selection, files longer than their bytes, names or
bytes of a file lost altogether. A workload says what must hold by `disk.note(...)`: what is sent, before it is written,
and what is acknowledged, after it is; `image.notes` are those taken before the cut. Moments between two notes are not
cut: later notes promise more, so the last moment before the next operation is the strictest.

An image is a disk with a history of its own. Recover on it, and `crash_images(image)` are the crashes in that recovery.
To use an image twice, take `image.at(0)` each time. For a process that is killed and restarted before the cut:
`again = disk.after_process_crash()`, recover on `again`, then `crash_images(again, first=len(disk.operations))`.

Source: ALICE (Pillai et al., OSDI 2014), and what ext4 and xfs were seen to do.
"""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple, TypeVar

from fencepost.effects.simulated.cuts import Cut
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.effects.simulated.operations import Link, Note, Operation, Rename, Truncate, Unlink, Write
from fencepost.effects.simulated.torn import GarbageTail, NulTail, OnlyLength, Prefix, Sectors, Tear, sectors
from fencepost.effects.simulated.volume import Volume

TORN_AT = (0, 1, 511, 512, 513, 4095, 4096, 4097, -1)  # callers add header sizes, less one
ALL_MASKS_UP_TO = 6  # sectors; of larger writes a selection of subsets
SECTOR_WRITES = 3  # the last so many unsynced writes lose sectors together
RANDOM_MASKS = 12
DRAWS = 3  # for each image wanted


class Variant(NamedTuple):
    """What of the unsynced operations was found."""

    kept: tuple[int, ...] | None = None
    dropped: tuple[int, ...] = ()
    torn: tuple[tuple[int, Tear], ...] = ()
    order: tuple[int, ...] = ()


WHOLE = Variant()
ONLY_SYNCED = Variant(kept=())


@dataclass(frozen=True)
class Moment:
    """A cut after `n` operations, with what was not synced then."""

    n: int
    unsynced: Sequence[Operation]
    torn_at: Sequence[int]
    seed: int

    @property
    def writes(self) -> list[Write]:
        return [one for one in self.unsynced if isinstance(one, Write)]


def crash_images(
    disk: SimulatedDisk,
    *,
    first: int = 0,
    limit: int | None = None,
    seed: int = 0,
    torn_at: Sequence[int] = TORN_AT,
) -> Iterator[tuple[str, SimulatedDisk]]:
    """Yield (description, disk) for each different disk that a cut after operation `first` or later may leave.

    With a `limit`, at most that many. Half of them are from moments spread evenly: each moment with all unsynced
    operations, and with none. The rest is drawn by `seed` from all moments and variants. The same disk, arguments and
    seed give the same images in the same order.
    """
    moments = [n for n in range(first, len(disk.operations) + 1) if not _is_note(disk.operations, n)]
    if limit is None:
        wanted = dict.fromkeys(moments, 0)
    else:
        wanted = _spread(moments, limit, random.Random(f"spread {seed}"))
    seen: set[tuple[int, int]] = set()
    spare = 0  # what moments with too few different disks leave to the next
    for n, cut in disk.cuts(first):
        if n not in wanted:
            continue
        moment = Moment(n, cut.unsynced(), torn_at, seed)
        notes = disk.notes_at(n)
        spare += wanted[n]
        for variant in _variants(moment, -1 if limit is None else spare):
            volume = _found(cut, variant)
            key = (volume.fingerprint(), len(notes))
            if key not in seen and (spare or limit is None):
                seen.add(key)
                spare -= 1
                yield _describe(disk, moment, variant), disk.found(volume, notes)


def _is_note(operations: Sequence[Operation], n: int) -> bool:
    return n < len(operations) and isinstance(operations[n], Note)


def _spread(moments: Sequence[int], limit: int, rng: random.Random) -> dict[int, int]:
    """Return moment → how many images of it are wanted. The first is always the whole one, the second only the
    synced.
    """
    even = min(len(moments), max(1, limit // 4))
    chosen = [moments[place * (len(moments) - 1) // max(1, even - 1)] for place in range(even)]
    wanted = dict.fromkeys(chosen, 2)
    for _ in range(limit - 2 * len(wanted)):
        n = rng.choice(moments)
        wanted[n] = wanted.get(n, 0) + 1
    return wanted if limit > 1 else {moments[-1]: limit}


def _variants(moment: Moment, wanted: int) -> Iterator[Variant]:
    """Yield variants of a moment. wanted: -1 for all; else the whole one, only what was synced, and then drawn ones.

    More are yielded than wanted, as some will give the same disk.
    """
    if wanted < 0:
        yield WHOLE
        yield ONLY_SYNCED
        for family in FAMILIES:
            yield from family(moment)
        return
    yield from (WHOLE, ONLY_SYNCED)[:wanted]
    rng = random.Random(f"variants {moment.seed} {moment.n}")
    families = [family for family in map(_once, FAMILIES) if family(moment)]
    for _ in range(DRAWS * (wanted - 2) if families else 0):
        yield rng.choice(rng.choice(families)(moment))


Family = Callable[[Moment], Sequence[Variant]]
T = TypeVar("T")


def _once(family: Family) -> Family:
    """Return a function that calls `family` at its first call, and returns that result at each further call."""
    made: list[Sequence[Variant]] = []

    def remembered(moment: Moment) -> Sequence[Variant]:
        if not made:
            made.append(family(moment))
        return made[0]

    return remembered


def one_missing(moment: Moment) -> Sequence[Variant]:
    return [Variant(dropped=(one.index,)) for one in moment.unsynced]


class TwoMissing(Sequence[Variant]):
    """The variants in which two operations are missing; each is made when it is asked for.

    Of 1,000 unsynced operations there are half a million pairs.
    """

    def __init__(self, moment: Moment) -> None:
        self._indexes = [one.index for one in moment.unsynced]

    def __len__(self) -> int:
        return math.comb(len(self._indexes), 2)

    def __getitem__(self, place: int) -> Variant:
        if not 0 <= place < len(self):
            raise IndexError(place)
        later = (1 + math.isqrt(1 + 8 * place)) // 2
        return Variant(dropped=(self._indexes[place - math.comb(later, 2)], self._indexes[later]))


def two_exchanged(moment: Moment) -> Sequence[Variant]:
    """Return the variants in which two operations reached the disk in the other order.

    Only pairs that touch the same bytes or the same name: the order of others shows only if one of them is missing.
    """
    groups: dict[int, list[Operation]] = {}
    for one in moment.unsynced:
        groups.setdefault(one.inode if isinstance(one, Write | Truncate) else -1, []).append(one)
    pairs = [pair for group in groups.values() for pair in combinations(group, 2) if _touch(*pair)]
    return [Variant(order=(two.index, one.index)) for one, two in pairs]


def torn(moment: Moment) -> Sequence[Variant]:
    return [Variant(torn=((write.index, tear),)) for write in moment.writes for tear in _tears(write, moment)]


def torn_and_one_missing(moment: Moment) -> Sequence[Variant]:
    """Return the variants in which the last write is torn, and one other operation is missing, or all others are."""
    if not moment.writes:
        return []
    last = moment.writes[-1]
    others = [one.index for one in moment.unsynced if one is not last]
    missing = [(index,) for index in others] + [tuple(others)]
    return [Variant(dropped=drop, torn=((last.index, tear),)) for tear in _tears(last, moment) for drop in missing]


def sectors_missing(moment: Moment) -> Sequence[Variant]:
    """Return variants in which some sectors of the last SECTOR_WRITES writes are missing: of one write, or of all."""
    last = moment.writes[-SECTOR_WRITES:]
    rng = random.Random(f"sectors {moment.seed} {moment.n}")
    alone = [
        Variant(torn=((write.index, Sectors(mask, extended)),))
        for write in last
        for mask in _masks(len(sectors(write)), rng)
        for extended in (False, True)
    ]
    together = [
        Variant(torn=tuple((write.index, Sectors(rng.getrandbits(len(sectors(write))))) for write in last))
        for _ in range(RANDOM_MASKS if len(last) > 1 else 0)
    ]
    return alone + together


def longer_than_its_bytes(moment: Moment) -> Sequence[Variant]:
    """Return the variants in which a file has none of its unsynced bytes, but the length that its last write gave it.

    Or that length rounded up to the next 4,096.
    """
    last = {write.inode: write for write in moment.writes}
    return [
        Variant(
            dropped=tuple(one.index for one in moment.writes if one.inode == write.inode and one is not write),
            torn=((write.index, OnlyLength(multiple)),),
        )
        for write in last.values()
        for multiple in (1, 4096)
    ]


def names_or_bytes_missing(moment: Moment) -> Sequence[Variant]:
    """Return the variants in which all bytes are there, and the newest changes of names are missing; and those in which
    all names are there, and the bytes of all files, of all but one, or of one are missing.
    """
    names = [one.index for one in moment.unsynced if isinstance(one, Link | Rename | Unlink)]
    files: dict[int, list[int]] = {}
    for one in moment.unsynced:
        if isinstance(one, Write | Truncate):
            files.setdefault(one.inode, []).append(one.index)
    bytes_ = [index for indexes in files.values() for index in indexes]
    variants = [Variant(dropped=tuple(names[kept:])) for kept in range(len(names))]
    variants += [Variant(kept=(*names, *indexes)) for indexes in ([], *files.values())]
    return variants + [
        Variant(kept=(*names, *(index for index in bytes_ if index not in indexes))) for indexes in files.values()
    ]


FAMILIES: tuple[Family, ...] = (
    one_missing,
    TwoMissing,
    two_exchanged,
    torn,
    torn_and_one_missing,
    sectors_missing,
    longer_than_its_bytes,
    names_or_bytes_missing,
)


def _touch(one: Operation, two: Operation) -> bool:
    """Return whether it matters which of two operations on one file, or on names, comes first."""
    match one, two:
        case Write(), Write():
            end_one, end_two = one.position + len(one.data), two.position + len(two.data)
            return one.position < end_two and two.position < end_one
        case ((Link() | Rename() | Unlink()), (Link() | Rename() | Unlink())):
            # What concerns one inode is one entry of the file system's own journal: it is not torn apart.
            return one.inode != two.inode and bool(_places(one) & _places(two))
    return True


def _places(operation: Link | Rename | Unlink) -> set[tuple[int, str]]:
    places = {(operation.directory, operation.name)}
    if isinstance(operation, Rename):
        places.add((operation.new_directory, operation.new_name))
    return places


def _tears(write: Write, moment: Moment) -> list[Tear]:
    size = len(write.data)
    lengths = sorted({at if at >= 0 else size + at for at in moment.torn_at} & set(range(size)))
    prefixes = [Prefix(length) for length in lengths if length]
    return [*prefixes, *map(NulTail, lengths), *(GarbageTail(length, moment.seed) for length in lengths)]


def _masks(count: int, rng: random.Random) -> Sequence[int]:
    everything = (1 << count) - 1
    if count <= ALL_MASKS_UP_TO:
        return range(1, everything)
    single = [1 << number for number in range(min(count, 64))]
    half = (1 << count // 2) - 1
    chosen = [*single, *(everything ^ one for one in single), half, everything ^ half]
    return chosen + [rng.getrandbits(count) for _ in range(RANDOM_MASKS)]


def _found(cut: Cut, variant: Variant) -> Volume:
    return cut.found(kept=variant.kept, dropped=variant.dropped, torn=dict(variant.torn), order=variant.order)


def _describe(disk: SimulatedDisk, moment: Moment, variant: Variant) -> str:
    operations = disk.operations
    after = str(operations[moment.n - 1]) if moment.n else "nothing"
    parts = [f"cut after {moment.n}/{len(operations)} ({after})"]
    if variant.kept is not None:
        parts.append("with " + (_names(disk, variant.kept) or "only what was synced"))
    if variant.dropped:
        parts.append("without " + _names(disk, variant.dropped))
    parts += [f"{operations[index]} torn to {tear}" for index, tear in variant.torn]
    if variant.order:
        parts.append("in the order " + _names(disk, variant.order))
    return "; ".join(parts)


def _names(disk: SimulatedDisk, indexes: Sequence[int]) -> str:
    return ", ".join(str(disk.operations[index]) for index in indexes)
