"""Derives events about transactions (begun, committed, fenced, …) from successive statuses of a transactional id. Pure.

The rule: it compares an id's last status with its new one, from whichever source: the log of transactions has every
step, lists of transactions only the states at the moments when they were read. If an id is open when it is first seen,
a transaction has begun.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ...client.admin.values import TransactionDescription, TransactionListing
from ...client.values import TopicPartition
from .transaction_records import Status
from .view import partition_name

RECENT = 50
REMEMBERED = 50_000  # ids
SHOWN_PARTITIONS = 20
_ENDS = {
    "PrepareCommit": "txn.prepare_commit",
    "PrepareAbort": "txn.prepare_abort",
    "PrepareEpochFence": "txn.fence",
    "CompleteCommit": "txn.commit",
    "CompleteAbort": "txn.abort",
    "Dead": "txn.expire",
}


class Story:
    """The last known status of each transactional id, and the latest events about them, the newest first."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Status] = OrderedDict()
        self.recent: deque[dict[str, Any]] = deque(maxlen=RECENT)

    def begin(self, listed: Mapping[str, TransactionListing], described: Mapping[str, TransactionDescription]) -> None:
        """Store the current status of all ids, without any event. Called once, before follow() and compare()."""
        for name, each in listed.items():
            self._remember(name, status_of(each, described.get(name)))

    def follow(self, name: str, status: Status | None, at_ms: int) -> list[dict[str, Any]]:
        """Take the new status of a transactional id and return the events that it means. status: None if the id has
        expired.
        """
        before = self._known.get(name)
        if status is None:
            self._known.pop(name, None)
            found = [] if before is None else [_event("txn.expire", name, before, at_ms)]
        else:
            found = [_event(kind, name, status, at_ms) for kind in _kinds(before, status)]
            for each in found:
                if before is not None and each["type"] == "txn.partition_added":
                    each["added"] = _shown(status.partitions - before.partitions)
            self._remember(name, status)
        self.recent.extendleft(found)
        return found

    def compare(
        self,
        listed: Mapping[str, TransactionListing],
        described: Mapping[str, TransactionDescription],
        at_ms: int,
    ) -> list[dict[str, Any]]:
        """Take a new list of all transactional ids, and return the events that explain its differences to what was
        known. described: the descriptions of open transactions.
        """
        found: list[dict[str, Any]] = []
        for name, each in listed.items():
            status = status_of(each, described.get(name))
            if self._known.get(name) != status:
                found += self.follow(name, status, at_ms)
        for name in [name for name in self._known if name not in listed]:
            found += self.follow(name, None, at_ms)
        return found

    def _remember(self, name: str, status: Status) -> None:
        """Store the status of an id; beyond REMEMBERED ids, forget the id whose status has not changed for longest."""
        self._known[name] = status
        self._known.move_to_end(name)
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)


def status_of(listed: TransactionListing, described: TransactionDescription | None) -> Status:
    """Return the status of a listed transactional id. described: its description, if its transaction is open."""
    if described is None:
        return Status(listed.state, listed.producer_id, None, frozenset())
    partitions = frozenset(described.partitions)
    return Status(described.state, described.producer_id, described.producer_epoch, partitions)


def _kinds(before: Status | None, now: Status) -> Iterator[str]:
    """Yield the kinds of events that explain the step between two statuses of an id. before: None for a new id."""
    if before is not None and _is_fenced(before, now):
        yield "txn.fence"
    if now.state == "Ongoing":
        if before is None or before.state != "Ongoing" or _differ(before, now):
            yield "txn.begin"
        elif now.partitions - before.partitions:
            yield "txn.partition_added"
    elif now.state in _ENDS and (before is None or before.state != now.state or _differ(before, now)):
        yield _ENDS[now.state]


def _differ(before: Status, now: Status) -> bool:
    """Return whether the id has another producer now, or a different epoch. An unknown epoch (None) is not compared."""
    epochs = (before.producer_epoch, now.producer_epoch)
    return before.producer_id != now.producer_id or (None not in epochs and epochs[0] != epochs[1])


def _is_fenced(before: Status, now: Status) -> bool:
    """Return whether a new producer took over the id: it is Empty then, with another epoch than before."""
    return now.state == "Empty" and _differ(before, now)


def _event(kind: str, name: str, status: Status, at_ms: int) -> dict[str, Any]:
    """Return one event about a transactional id as JSON. kind: for example "txn.begin"."""
    return {
        "type": kind,
        "transactional_id": name,
        "producer_id": status.producer_id,
        "producer_epoch": status.producer_epoch,
        "state": status.state,
        "partitions": _shown(status.partitions),
        "at_ms": at_ms,
    }


def _shown(partitions: Iterable[TopicPartition]) -> list[dict[str, Any]]:
    """Return the first SHOWN_PARTITIONS partitions as JSON."""
    return [partition_name(each) for each in sorted(partitions)[:SHOWN_PARTITIONS]]
