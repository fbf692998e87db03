"""`fencepost store take`: ends the epoch of the broker that owns a journal, from outside."""

import secrets
import sys

from ...storage.objects.format import Claim
from ...storage.objects.looking import Looked, Looking
from ...storage.objects.takeover import Takeover
from ..output.failures import NOT_FOUND, WRONG_USAGE, Failure
from ..output.writing import confirm, show, show_json
from .looking import Asked


def take_from_owner(asked: Asked, *, is_sure: bool, as_json: bool) -> None:
    """Claim a new epoch of the journal, and end all earlier ones, so that their owner is fenced. is_sure: do not ask
    at the terminal first. Raises Failure.
    """
    where = asked.objects.where
    if not asked.is_journal:
        raise Failure(f"{where} has no journal of a broker", "look for a mistake in the URL", NOT_FOUND)
    looking = Looking(asked.objects, asked.pause)
    looking.check_identity()  # else the epoch would be ended, and nobody could take over
    looked = looking.repeated(lambda looked: looked)
    if not looked.epoch:
        raise Failure(f"{where} has a journal in which nothing was ever written", "nobody owns it", NOT_FOUND)
    if looked.sealed is not None:
        by = looked.sealed.by
        how = "handed over by its owner" if by == looked.epoch else f"ended by epoch {by}"
        raise Failure(
            f"{where}: epoch {looked.epoch} was {how}, and nobody has begun since",
            "start a broker with --store, or look at why the one that waits does not begin",
        )
    owner = _owner_text(looking, looked)
    if not is_sure:
        _ask(asked, owner)
    claim = Claim(1, 0, (), secrets.token_bytes(8))
    epoch, base, end = Takeover(asked.objects, asked.pause, claim, for_others=True).end()
    if as_json:
        show_json({"store": where, "ended": base, "round": end, "by": epoch})
        return
    show(f"{where}: epoch {base} is ended at round {end}, by epoch {epoch}")
    show("a broker that waits takes over now; the one that owned it ends with exit code 71 when it writes next")


def _ask(asked: Asked, owner: str) -> None:
    """Ask at the terminal whether the owner's epoch shall be ended. Raises Failure if the answer is no, or if there
    is no terminal.
    """
    if not sys.stdin.isatty():
        raise Failure(f"{asked.objects.where} is owned by {owner}", "--yes ends that without a question", WRONG_USAGE)
    question = f"{asked.objects.where} is owned by {owner}. All of its clients are cut off. End its epoch?"
    if not confirm(question):
        raise Failure("nothing was ended", "--yes does not ask", WRONG_USAGE)


def _owner_text(looking: Looking, looked: Looked) -> str:
    """Return epoch, node and addresses of the store's owner."""
    claim = looking.claim(looked.epoch)
    if claim is None:
        return f"epoch {looked.epoch}"
    places = sorted({f"{host}:{port}" for _, host, port in claim.addresses})
    at = f" at {' '.join(places)}" if places else ""
    return f"epoch {looked.epoch}, node {claim.node}{at}"
