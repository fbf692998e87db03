"""A scripted life of a broker, and what must be found after a power cut at each of its moments, and after another.

What is found after a cut is what was known after the last answer, or with the one request that was under way as well.
"""

from collections.abc import Callable, Sequence
from typing import Any

from crash_points import crash_images
from fencepost.effects.simulated.disk import SimulatedDisk

ENOUGH = 10  # images; with fewer the check would say little


def run_steps(disk: SimulatedDisk, steps: Sequence[Callable[[], Any]], known: Callable[[], Any]) -> list[Any]:
    """Run the steps. Returns what is known before the first and after each; how many were answered is noted on the
    disk.
    """
    disk.note(0)
    states = [known()]
    for number, step in enumerate(steps, 1):
        step()
        states.append(known())
        disk.note(number)
    return states


def check_cuts(disk: SimulatedDisk, check: Callable[[SimulatedDisk], None], limit: int | None, first: int = 0) -> None:
    """Check every image that a power cut may leave from this operation on, `limit` of them at most, and one more cut in
    the recovery of each. check: recovers what is on a disk, and raises if it is wrong.
    """
    seen = 0
    for description, image in crash_images(disk, first=first, limit=limit, seed=1):
        try:
            recovered = image.at(0)
            check(recovered)
            for again, twice in crash_images(recovered, limit=1, seed=seen):
                description = f"{description}, then {again}"
                check(twice)
        except BaseException as error:
            error.add_note(description)
            raise
        seen += 1
    assert seen > ENOUGH
