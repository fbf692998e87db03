"""`fencepost store status` and `verify` of a journal."""

from typing import Any

from ...effects.counts import count_text
from ...storage.objects.errors import UPGRADE, ObjectDamaged
from ...storage.objects.format import ADOPTING, ONLY_NEWER, Claim, Seal
from ...storage.objects.looking import JournalVerifying, Looked, Looking
from ...storage.shipping.fetching import time_text
from ...storage.shipping.point import Point
from ..output.copying import copying, size_text
from ..output.failures import FAILED, Failure
from ..output.writing import show, show_json
from .looking import Asked

SHOWN_SEALS = 3


def show_status(asked: Asked, *, as_json: bool) -> None:
    """Print who owns the journal, and how far it has come. Raises Failure if it is damaged."""
    looking = Looking(asked.objects, asked.pause)
    status = _Status(asked.objects.where)
    for read in (looking.check_identity, lambda: looking.repeated(lambda looked: status.read(looking, looked))):
        try:
            read()
        except ObjectDamaged as damage:
            status.problems.append(f"{damage.name}: {damage.reason}")
    if as_json:
        show_json(status.facts())
    else:
        for line in status.lines():
            show(line)
    if status.problems:
        raise _damaged(status.problems)


class _Status:
    """The state of the journal, as far as it could be read."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.looked = Looked()
        self.owner: Claim | None = None
        self.point: Point | None = None
        self.seals: dict[int, Seal] = {}
        self.problems: list[str] = []

    def read(self, looking: Looking, looked: Looked) -> None:
        """Read the owner's claim, newest checkpoint and seals of the journal. Raises Missing, ObjectDamaged."""
        self.looked = looked
        self.seals = looking.seals(looked)
        if looked.epoch:
            self.owner = looking.claim(looked.epoch)
        self.point = looking.point(looked)

    def facts(self) -> dict[str, Any]:
        """Return the state of the journal in the store as a JSON object."""
        looked, owner, point, last = self.looked, self.owner, self.point, self.looked.last
        sealed = looked.sealed
        return {
            "store": self.where,
            "journal": True,
            "epoch": looked.epoch,
            "since_round": looked.since_round,
            "owner": None
            if owner is None
            else {"node": owner.node, "addresses": [list(address) for address in owner.addresses]},
            "ended_by": None if sealed is None else {"epoch": sealed.by, "handed_over": sealed.handed_over},
            "newest_round": last.round if last else None,
            "last_unit": last.last_unit if last else None,
            "rounds": looked.rounds,
            "point": None
            if point is None
            else {"place": list(looked.point), "taken_ms": point.taken_ms, "last_unit": point.last_unit},
            "claims": looked.claims,
            "seals": [
                {"epoch": epoch, "round": seal.place.number, "by": seal.by, "handed_over": seal.handed_over}
                for epoch, seal in sorted(self.seals.items())
            ],
            "objects": len(looked.sizes),
            "bytes": sum(looked.sizes.values()),
            "damaged": self.problems,
        }

    def lines(self) -> list[str]:
        """Return the state of the journal in the store as lines of text for people."""
        looked, point, last = self.looked, self.point, self.looked.last
        lines = [f"owner      {self._owner_text()}"]
        if last is not None:
            lines.append(f"newest     round {last.round:,}, through unit {last.last_unit:,}")
            behind = f"{count_text(looked.rounds, 'round')} behind it"
            of = f"of {time_text(point.taken_ms)}, {size_text(point.size_bytes)}; " if point else "none yet; "
            lines.append(f"point      {of}{behind}")
        ended = sorted(self.seals.items())[-SHOWN_SEALS:]
        text = ", ".join(f"{epoch} at round {seal.place.number} by {seal.by}" for epoch, seal in ended)
        newest = f"; ended: {text}" if text else ""
        lines.append(f"epochs     {len(looked.claims)} claimed, the newest {max(looked.claims, default=0)}{newest}")
        size_bytes = sum(looked.sizes.values())
        lines.append(f"store      {count_text(len(looked.sizes), 'object')}, {size_text(size_bytes)}")
        return lines + [f"damaged    {problem}" for problem in self.problems]

    def _owner_text(self) -> str:
        """Return who owns the journal, since which round, and whether its epoch was ended."""
        looked, owner = self.looked, self.owner
        if not looked.epoch:
            has_begun = any(name.startswith(ADOPTING) for name in looked.sizes)
            return "none: nothing was ever written" + ("; a broker has begun to put its directory there" * has_begun)
        who = "" if owner is None else f", node {owner.node}"
        places = sorted({f"{host}:{port}" for _, host, port in owner.addresses}) if owner else []
        if places:
            who += f" at {' '.join(places)}"
        text = f"epoch {looked.epoch}{who}, since round {looked.since_round:,}"
        if looked.sealed is None:
            return text
        how = "handed over" if looked.sealed.handed_over else f"ended by epoch {looked.sealed.by}"
        return f"none: {text}, was {how}; nobody has begun since"


def verify(asked: Asked, *, as_json: bool) -> None:
    """Read every object that a take-over would read, and print what is missing or damaged. Raises Failure if anything
    is.
    """
    with copying(asked.interruption, "read") as report:
        verifying = JournalVerifying(Looking(asked.objects, asked.pause), asked.patience.noting(report))
        problems = verifying.run()
    if as_json:
        facts = {"journal": True, "rounds": verifying.rounds, "bytes": verifying.size_bytes, "damaged": problems}
        show_json({"store": asked.objects.where, **facts})
    else:
        for problem in problems:
            show(f"damaged: {problem}")
        rounds = count_text(verifying.rounds, "round")
        read = f"{rounds} of its journal, {size_text(verifying.size_bytes)} read"
        show(f"{asked.objects.where}: {'DAMAGED' if problems else 'sound'}: {read}")
    if problems:
        raise _damaged(problems)


def _damaged(problems: list[str]) -> Failure:
    """Return the failure for a journal in an object store with damaged objects, or some of a newer format."""
    if any(problem.endswith(ONLY_NEWER) for problem in problems):
        return Failure(f"{count_text(len(problems), 'object')} of a newer format", UPGRADE, FAILED)
    hint = (
        "nobody takes over without these: bring them back, from a copy of the bucket if need be; points and parts: the "
        "last owner, started again in its own data directory, puts them there again"
    )
    return Failure(f"{count_text(len(problems), 'object')} damaged", hint, FAILED)
