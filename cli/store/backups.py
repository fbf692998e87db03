"""`fencepost store status` and `verify` of a backup."""

import time
from typing import Any

from ...effects.counts import count_text
from ...storage.shipping.fetching import time_text
from ...storage.shipping.verifying import Verifying, read_status
from ..output.copying import copying, size_text
from ..output.failures import FAILED, NOT_FOUND, Failure
from ..output.writing import show, show_json
from .looking import Asked


def show_status(asked: Asked, *, as_json: bool) -> None:
    """Print the points of the backup (its checkpoints in the store), and who ships into it. Raises Failure if there
    is no backup or it is damaged.
    """
    objects = asked.objects
    found = read_status(objects, asked.patience)
    if not found.points and not found.problems:
        raise Failure(f"{objects.where} has neither a backup nor a journal", "look for a mistake in the URL", NOT_FOUND)
    claim = found.claim
    age_s = max(0.0, time.time() - found.newest_ms / 1000)
    facts: dict[str, Any] = {
        "store": objects.where,
        "points": len(found.points),
        "oldest_ms": found.points[0][1].taken_ms if found.points else None,
        "newest_ms": found.newest_ms if found.points else None,
        "last_unit": found.last_unit,
        "rounds": found.rounds,
        "objects": found.objects,
        "bytes": found.size_bytes,
        "unnamed_bytes": found.unnamed_bytes,
        "epoch": found.epoch,
        "follower": None
        if claim is None
        else {"host": claim.host, "process": claim.process, "since_ms": claim.claimed_ms},
        "damaged": found.problems,
    }
    if as_json:
        show_json(facts)
    else:
        if found.points:
            newest = found.points[-1][1]
            show(f"restorable from {time_text(found.points[0][1].taken_ms)}")
            show(f"newest     {time_text(found.newest_ms)}, {age_s:.0f} s ago by this machine's clock")
            behind = f"{count_text(found.rounds, 'object')} of rounds behind the newest"
            show(f"points     {len(found.points)}; {behind}; through unit {found.last_unit:,}")
            show(f"data       {count_text(len(newest.files), 'file')}, {size_text(newest.size_bytes)}")
        unnamed = f", {size_text(found.unnamed_bytes)} of them named by no point" if found.unnamed_bytes else ""
        show(f"store      {count_text(found.objects, 'object')}, {size_text(found.size_bytes)}{unnamed}")
        if claim is not None:
            who = f"process {claim.process} on {claim.host}, of {claim.directory}"
            show(f"follower   epoch {found.epoch}: {who}, since {time_text(claim.claimed_ms)}")
        for problem in found.problems:
            show(f"damaged    {problem}")
    if found.problems:
        raise Failure(f"{count_text(len(found.problems), 'object')} damaged", "fencepost store verify URL", FAILED)


def verify(asked: Asked, *, as_json: bool) -> None:
    """Read every object that a restore would need, and print what is missing or damaged. Raises Failure if anything
    is.
    """
    objects = asked.objects
    with copying(asked.interruption, "read") as report:
        verifying = Verifying(objects, asked.patience, asked.patience.noting(report))
        problems = verifying.run()
    if not verifying.points:
        raise Failure(f"{objects.where} has neither a backup nor a journal", "look for a mistake in the URL", NOT_FOUND)
    if as_json:
        facts = {"points": verifying.points, "bytes": verifying.size_bytes, "damaged": problems}
        show_json({"store": objects.where, **facts})
    else:
        for problem in problems:
            show(f"damaged: {problem}")
        verdict = "DAMAGED" if problems else "sound"
        points = count_text(verifying.points, "point")
        show(f"{objects.where}: {verdict}: {points}, {size_text(verifying.size_bytes)} read")
    if problems:
        raise Failure(
            f"{count_text(len(problems), 'object')} damaged",
            "restore --at TIME of another point; a follower that is started anew ships what changed",
            FAILED,
        )
