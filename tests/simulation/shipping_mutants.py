"""Bugs of a backup that follows: what it ships, what it calls covered, whom it ends, what it removes.

A function's name is the bug that it plants; its docstring says what comes of it, or where it is known from.
"""

from contextlib import ExitStack
from typing import Any

from fencepost.storage.shipping import (
    creating,
    fetching,
    following,
    planning,
    retention,
    shipped_journal,
    shipper,
    unchanged,
)
from fencepost.storage.shipping.claims import Claims
from fencepost.storage.shipping.collecting import Collector
from fencepost.storage.shipping.following import Follower
from simulation.planting import _around, _replaced, around, breaks, killed_by, replaced

BESIDE = "tests/storage/shipping/test_beside_a_workload.py"
FOLLOWING = "tests/storage/shipping/test_following.py"
FETCHING = "tests/storage/shipping/test_fetching.py"
CRASHES = "tests/storage/shipping/test_crash_points.py"
ONE_MOMENT = "store.md: a prefix of what the broker has acknowledged, each transaction whole over all partitions"
COVERED = "store.md: was acknowledged before a look began is in the store once its objects are"
NAMED = "store.md: An object that is missing or damaged is named and never skipped"
KEPT = "store.md: What a kept point needs is never removed"
ONE_FOLLOWER = "store.md: Each begins an epoch and ends the one before, which stops at its next object"


@killed_by(BESIDE)
@breaks(ONE_MOMENT)
def a_point_does_not_look_whether_its_checkpoint_was_overtaken(stack: ExitStack) -> None:
    replaced(stack, shipper.Source.check_holds, lambda self, number: None)


@killed_by(BESIDE)
@breaks(COVERED)
def a_look_that_ended_early_covers_all_before_it(stack: ExitStack) -> None:
    def wrapper(cover: Any) -> Any:
        return lambda self, began_ms, taken_ms: cover(self, self._clock.monotonic_ms() + 5, taken_ms)

    around(stack, Follower._cover, wrapper)


@killed_by(FOLLOWING)
@breaks("store.md: the loss window is the time since the newest such look")
def a_round_that_never_reads_well_is_waited_for(stack: ExitStack) -> None:
    _replaced(stack, following, "SUSPECTED", 1 << 60)


@killed_by(FOLLOWING)
@breaks("store.md: compares what it shipped with the directory, byte by byte")
def what_was_shipped_is_believed_by_its_name(stack: ExitStack) -> None:
    replaced(stack, unchanged._unchanged, lambda disk, path, extents: extents)


@killed_by(FOLLOWING)
@breaks("store.md: The backup of another data directory under the same prefix is noticed and refused")
def a_store_of_another_directory_is_followed_into(stack: ExitStack) -> None:
    replaced(stack, unchanged._shares_topics, lambda disk, directory, newest: True)


@killed_by(FOLLOWING)
@breaks(ONE_FOLLOWER)
def a_predecessor_is_not_ended(stack: ExitStack) -> None:
    replaced(stack, Claims._end, lambda self, epoch, seal: True)


@killed_by(FOLLOWING)
@breaks("store.md: A second one is refused while the first is at work")
def a_follower_at_work_is_not_looked_for(stack: ExitStack) -> None:
    replaced(stack, Claims._is_at_work, lambda self, epoch, watch: False)


@killed_by(FOLLOWING)
@breaks("store.md: A store that ignores it is refused at the start")
def the_store_is_not_tried(stack: ExitStack) -> None:
    replaced(stack, Claims.check_store, lambda self: None)


@killed_by("tests/storage/shipping/test_creating.py")
@breaks(COVERED)
def exists_means_that_it_was_created(stack: ExitStack) -> None:
    def create(objects: Any, name: str, content: bytes, wait: Any) -> None:
        try:
            objects.create(name, content)
        except creating.Exists:
            return
        except creating.Unclear as trouble:
            wait(trouble)
            create(objects, name, content, wait)

    replaced(stack, creating.create, create)


@killed_by("tests/storage/shipping/test_creating.py")
@breaks(ONE_FOLLOWER)
def exists_means_that_somebody_else_was_first(stack: ExitStack) -> None:
    def create(objects: Any, name: str, content: bytes, wait: Any) -> None:
        try:
            objects.create(name, content)
        except creating.Exists:
            raise creating.NameTaken(name, b"") from None
        except creating.Unclear as trouble:
            wait(trouble)
            create(objects, name, content, wait)

    replaced(stack, creating.create, create)


@killed_by(FOLLOWING)
@breaks(COVERED)
def what_was_to_be_created_is_forgotten_after_an_error(stack: ExitStack) -> None:
    def wrapper(step: Any) -> Any:
        def stepped(self: Any, *, running: bool = True) -> Any:
            self._pending.clear()
            return step(self, running=running)

        return stepped

    around(stack, Follower.step, wrapper)


@killed_by(FETCHING)
@breaks(NAMED)
def rounds_that_are_missing_end_what_is_restored(stack: ExitStack) -> None:
    def wrapper(rounds_after: Any) -> Any:
        def until_lost(objects: Any, place: Any, wait: Any) -> Any:
            try:
                yield from rounds_after(objects, place, wait)
            except fetching.Lost:
                return

        return until_lost

    _around(stack, fetching, "rounds_after", wrapper)


@killed_by(FETCHING)
@breaks(NAMED)
def bytes_of_a_part_are_not_compared(stack: ExitStack) -> None:
    def read(objects: Any, extent: Any, wait: Any) -> bytes:
        return bytes(objects.read(extent.object, extent.position, extent.length).ljust(extent.length))

    _replaced(stack, fetching, "read_extent", read)


@killed_by(FETCHING)
@breaks("store.md: the restore says so and takes a newer one")
def a_point_that_went_counts_as_damaged(stack: ExitStack) -> None:
    replaced(stack, fetching.Fetching._is_gone, lambda self, place: False)


@killed_by("tests/storage/shipping/test_retention.py")
@breaks("store.md: **Each moment of the last 24 hours** (`--keep`) can be restored")
def the_point_before_the_time_kept_goes(stack: ExitStack) -> None:
    def unneeded(points: Any, now_ms: int, keep_ms: int) -> Any:
        return [place for place in sorted(points)[:-2] if points[place].taken_ms <= now_ms - keep_ms]

    replaced(stack, retention.unneeded_points, unneeded)


@killed_by(FOLLOWING)
@breaks(KEPT)
def parts_go_though_a_point_cannot_be_read(stack: ExitStack) -> None:
    def wrapper(collect: Any) -> Any:
        def collected(self: Any, now_ms: int, unnamed: Any) -> None:
            self.points = {place: known for place, known in self.points.items() if known is not None}
            collect(self, now_ms, unnamed)

        return collected

    around(stack, Collector.collect, wrapper)


@killed_by(FOLLOWING)
@breaks(KEPT)
def rounds_go_with_their_point_though_a_later_one_names_them(stack: ExitStack) -> None:
    def wrapper(unneeded: Any) -> Any:
        def all_rounds(going: Any, kept: Any) -> Any:
            rounds = {name for name in going if name.startswith(("0/rounds/", "0/pieces/"))}
            return sorted(rounds | set(unneeded(going, kept)))

        return all_rounds

    around(stack, retention.unneeded_parts, wrapper)


@killed_by(FOLLOWING)
@breaks(ONE_MOMENT)
def a_point_takes_rounds_that_end_before_its_checkpoint_for_all_of_them(stack: ExitStack) -> None:
    def wrapper(files_after: Any) -> Any:
        return lambda self, start, goes_on: files_after(self, start, goes_on._replace(round=1 << 60, unit=1 << 60))

    around(stack, shipped_journal.JournalInStore.files_after, wrapper)


@killed_by(CRASHES)
@breaks("store.md: Points that are not needed for the time kept are removed, with the objects that only they name")
def what_a_dead_follower_left_stays(stack: ExitStack) -> None:
    replaced(stack, Collector._left_behind, lambda self: set())


@killed_by("tests/storage/shipping/test_planning.py")
@breaks("store.md: A new point ships only the bytes that were added")
def a_file_that_grew_is_shipped_whole(stack: ExitStack) -> None:
    replaced(stack, planning._extents_to_keep, lambda extents, size_bytes: ())
