"""The commands of a scenario, by the word that a line begins with. README.md describes them for those who write one."""

from __future__ import annotations

from collections.abc import Callable

from . import acls, asking, groups, handmade, preparing, shorthand, transactions, users
from .notation import BadNotation, Command
from .runner import Run

COMMANDS: dict[str, Callable[[Run, Command], list[str] | None]] = {
    "produce": shorthand.produce,
    "fetch": shorthand.fetch,
    "list-offsets": shorthand.list_offsets,
    "init": transactions.init,
    "add": transactions.add,
    "add-offsets": transactions.add_offsets,
    "commit": transactions.commit,
    "abort": transactions.abort,
    "txn-offsets": transactions.txn_offsets,
    "commit-offsets": transactions.offset_commit,
    "offsets": transactions.offset_fetch,
    "markers": transactions.markers,
    "describe": transactions.describe,
    "group": transactions.wait_for_group_coordinator,
    "settled": transactions.settled,
    **groups.COMMANDS,
    "create-acls": acls.create,
    "describe-acls": acls.describe,
    "delete-acls": acls.delete,
    "alter-users": users.alter,
    "describe-users": users.describe,
    "answer": asking.answer,
    "client": asking.client,
    "frame": handmade.frame,
    "bytes": handmade.raw_bytes,
    "topic": preparing.topic_exists,
    "ready": preparing.ready,
    "delete": preparing.delete,
    "producer": preparing.producer,
    "pause": preparing.pause,
    "close": preparing.close,
}


def perform(run: Run, command: Command) -> list[str] | None:
    """Perform one command. Returns the lines of its answer; None if it has no answer to compare."""
    if command.verb[0].isupper():
        return asking.request(run, command)
    try:
        do = COMMANDS[command.verb]
    except KeyError:
        raise BadNotation(f"there is no command {command.verb}; there are {', '.join(COMMANDS)}") from None
    return do(run, command)
