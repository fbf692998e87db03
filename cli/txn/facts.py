"""Transactions as JSON objects (facts), how their state and age are shown, and which readers they block."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..output.failures import CONFLICT, Failure
from ..output.tables import duration, now_ms
from ..output.writing import Cell

if TYPE_CHECKING:
    from ...client.admin.admin import Admin
    from ...client.admin.values import Blocker, HeldOffsets, PreparedTransaction, TransactionDescription
    from ...client.values import TopicPartition

OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")
OLD_SHARE = 0.8  # share of its timeout after which a transaction is shown in red


def state(name: str | None) -> str | Cell:
    """Return a transaction's state as text, coloured for the terminal."""
    colours = {"Ongoing": "yellow", "CompleteCommit": "green", "CompleteAbort": "red"}
    return Cell(name or "-", colours.get(name or "", "magenta" if (name or "").startswith("Prepare") else None))


def facts_of(
    found: "TransactionDescription", at_ms: int, decisions: "Mapping[str, PreparedTransaction] | None" = None
) -> dict[str, Any]:
    """Return a transaction as a JSON object. age_ms: None if it is not open. decisions: what prepared transactions
    wait for, by transactional id.
    """
    prepared = (decisions or {}).get(found.transactional_id) if found.is_open else None
    return {
        "transactional_id": found.transactional_id,
        "transaction_id": found.transaction_id,
        "state": prepared.state if prepared else found.state,
        "sink": prepared.sink if prepared else None,
        "batch": prepared.number if prepared else None,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "age_ms": max(0, at_ms - found.started_ms) if found.started_ms is not None else None,
        "timeout_ms": found.timeout_ms,
        "started_ms": found.started_ms,
        "coordinator": found.coordinator,
        "partitions": [str(each) for each in found.partitions],
    }


WAITING = ("Prepared", "Held")


def wait_text(facts: Mapping[str, Any]) -> str:
    """Return which decision a transaction waits for, in words. facts: with state, and sink and batch of that
    decision.
    """
    from ...client.admin.values import decision_text

    return decision_text(facts["sink"], facts["batch"], facts["state"] == "Held")


async def refuse_held(admin: "Admin", names: Iterable[str]) -> None:
    """Raise Failure if one of these transactions is held for a database's decision: the broker would refuse to end
    it until its timeout.
    """
    prepared = await prepared_or_empty(admin)
    for name in names:
        if name in prepared and prepared[name].held:
            hint = "its database decides: fencepost txn resolve --db URL, or EndTxns with its producer id and epoch"
            raise Failure(f"{name} waits for {prepared[name].waits_for}", hint, CONFLICT)


async def open_now(admin: "Admin") -> list[dict[str, Any]]:
    """Return all open transactions, the oldest first."""
    listed = await admin.list_transactions(states=OPEN_STATES)
    described = await admin.describe_listed_transactions(listed)
    decisions = await prepared_or_empty(admin) if described else {}
    rows = [facts_of(each, now_ms(), decisions) for each in described.values() if each.is_open]
    return sorted(rows, key=lambda row: -(row["age_ms"] or 0))


async def prepared_or_empty(admin: "Admin") -> "Mapping[str, PreparedTransaction]":
    """Return the prepared transactions by transactional id; an empty mapping if this login may not see them."""
    from ...client.errors import AuthorizationError

    try:
        return await admin.prepared_transactions()
    except AuthorizationError:
        return {}


async def owners_or_empty(admin: "Admin", ids: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return, by transactional id, the client that used each id last. The dict is empty if the broker does not know or
    this login may not see it.
    """
    from ...client.errors import AuthorizationError, UnsupportedVersionError

    try:
        found = await admin.describe_transaction_owners(ids)
    except (UnsupportedVersionError, AuthorizationError):
        return {}
    return {name: owner._asdict() for name, owner in found.items()}


def owner_text(owner: Mapping[str, Any]) -> str:
    """Return which client owns an id, and whether its connection is still open."""
    who = f"client {owner['client_id']}" if owner["client_id"] else "a client without an id"
    software = f" ({owner['software']})" if owner["software"] else ""
    return f"{who}{software} at {owner['host']}, which is {'connected' if owner['connected'] else 'not connected now'}"


def age(row: dict[str, Any] | None) -> str | Cell:
    """Return the age of a transaction as text, in red if its timeout is near."""
    if row is None or row["age_ms"] is None:
        return "-"
    old = row["timeout_ms"] > 0 and row["age_ms"] > OLD_SHARE * row["timeout_ms"]
    return Cell(duration(row["age_ms"]), "red" if old else None)


async def held_or_empty(admin: "Admin", group: str) -> "list[HeldOffsets]":
    """Return the transactions that hold back committed offsets of a group; an empty list if the broker is too old to
    tell or this login may not see it.
    """
    from ...client.errors import AuthorizationError, UnsupportedVersionError

    try:
        return await admin.find_held_offsets(group)
    except (UnsupportedVersionError, AuthorizationError):
        return []


async def blockers_or_empty(admin: "Admin", partitions: "Sequence[TopicPartition]") -> "list[Blocker]":
    """Return the transactions that block readers of these partitions; an empty list from a broker before Kafka 3.0,
    which cannot list them.
    """
    from ...client.errors import UnsupportedVersionError

    try:
        return await admin.find_blockers(partitions)
    except UnsupportedVersionError:
        return []
