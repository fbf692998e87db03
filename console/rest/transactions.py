"""Transactions, which Confluent's API lacks, in its style: which are open, which block readers, which hang."""

from collections.abc import Iterable
from typing import Any

from ...client.admin.transactions import MAX_TRANSACTION_TIMEOUT_MS
from ...client.admin.values import TransactionListing
from ...client.errors import AuthorizationError, UnsupportedVersionError
from ..asked import Asked
from ..http.parameters import CONTAINS, PAGING, Parameter
from ..http.problems import NOT_FOUND, Problem
from ..model.view import View, blocker_row, blocks_by_producer, listed_row, partition_name, transaction_row
from ..routes import Route
from .listing import item, matching, page, path_of, whole
from .places import cluster_id, link_of, view_of


async def transactions(asked: Asked) -> dict[str, Any]:
    """Handle GET …/transactions: a page of transactional ids, by name or by age, open or not."""
    view, query = await view_of(asked), asked.query
    found = matching(_listed(view, query), query["contains"], lambda each: each.transactional_id)
    blocks = blocks_by_producer(view)
    by_age = query["sort"] == "age"
    return page(
        "KafkaTransactionList",
        link_of(asked),
        query,
        found,
        lambda each: (_started(view, each), each.transactional_id) if by_age else (each.transactional_id,),
        lambda each: _row(view, each, blocks),
    )


def _listed(view: View, query: dict[str, Any] | Any) -> Iterable[TransactionListing]:
    """Yield the transactions that the query's filters select."""
    for name, each in view.listed.items():
        if query["open"] is not None and (name in view.open) != query["open"]:
            continue
        if query["state"] is not None and each.state.casefold() != query["state"].casefold():
            continue
        if query["older_than_ms"] is not None and view.at_ms - _started(view, each) <= query["older_than_ms"]:
            continue
        yield each


def _started(view: View, listed: TransactionListing) -> int:
    """Return the start time in ms of the id's open transaction; for an id without one, a time after all others."""
    found = view.open.get(listed.transactional_id)
    return found.started_ms if found is not None and found.started_ms is not None else 1 << 62


def _row(view: View, listed: TransactionListing, blocks: dict[int, dict[str, int]]) -> dict[str, Any]:
    """Return a transactional id's row with metadata. blocks: from blocks_by_producer()."""
    found = view.open.get(listed.transactional_id)
    row = listed_row(listed) if found is None else transaction_row(found, view, blocks)
    return item(row["kind"], [view.cluster_id, "transactions", listed.transactional_id], row)


async def transaction(asked: Asked) -> dict[str, Any]:
    """Handle GET …/transactions/{transactional_id}: the present state of the transaction at its coordinator, and
    which client owns it. Raises Problem if there is no such id.
    """
    view, name, admin = await view_of(asked), asked.names["transactional_id"], await asked.admin()
    found = (await admin.describe_transactions(name)).get(name)
    if found is None:
        raise Problem(NOT_FOUND, f"there is no transactional id {name[:200]}", "it may have expired")
    row = transaction_row(found, view, blocks_by_producer(view))
    return item(row["kind"], [view.cluster_id, "transactions", name], {**row, "owner": await _owner(asked, name)})


async def _owner(asked: Asked, name: str) -> dict[str, Any] | None:
    """Return which client owns the transactional id; None if that client has gone, or the broker does not tell."""
    try:
        found = (await (await asked.admin()).describe_transaction_owners(name)).get(name)
    except (UnsupportedVersionError, AuthorizationError):
        return None
    return None if found is None else found._asdict()


async def blockers(asked: Asked) -> dict[str, Any]:
    """Handle GET …/blockers: a page of partitions whose readers wait for an open transaction."""
    view = await view_of(asked)
    return page(
        "KafkaBlockedPartitionList",
        link_of(asked),
        asked.query,
        view.blockers,
        lambda each: (each.since_ms or 0, *each.open.topic_partition),
        lambda each: blocker_row(each, view),
    )


async def hanging(asked: Asked) -> dict[str, Any]:
    """Handle GET …/transactions:hanging: transactions that are open in a partition and unknown to every coordinator.

    One search at a time, because it asks for the producers of every partition.
    """
    name, admin = await cluster_id(asked), await asked.admin()
    async with asked.parts.searching:
        found = await admin.find_hanging_transactions(open_for_ms=asked.query["older_than_ms"])
    rows = [
        {
            "kind": "KafkaHangingTransaction",
            **partition_name(each.topic_partition),
            "start_offset": each.start_offset,
            "producer_id": each.producer.producer_id,
            "producer_epoch": each.producer.producer_epoch,
            "last_timestamp_ms": each.producer.last_timestamp_ms,
        }
        for each in found
    ]
    return whole("KafkaHangingTransactionList", path_of(name, "transactions:hanging"), rows)


_OLDER = Parameter("older_than_ms", "number", "Only transactions open for longer.")
_HANGING = _OLDER._replace(default=MAX_TRANSACTION_TIMEOUT_MS, doc="How long ago their last record was written.")
_FILTERS = (
    CONTAINS,
    Parameter("state", "text", "Only ids in this state: Ongoing, PrepareCommit, CompleteAbort, …"),
    Parameter("open", "flag", "Only ids with an open transaction, or only those without."),
    _OLDER,
    Parameter("sort", "choice", "By id, or the longest open first.", "age", choices=("age", "id")),
)
_T = "/v3/clusters/{cluster_id}/transactions"
_B = "/v3/clusters/{cluster_id}/blockers"
ROUTES = (
    Route("GET", _T, transactions, "Transactional ids", "TransactionList", query=(*_FILTERS, *PAGING)),
    Route("GET", _T + ":hanging", hanging, "Open ones that no coordinator will end", "HangingList", query=(_HANGING,)),
    Route("GET", _T + "/{transactional_id}", transaction, "One id, as its coordinator knows it", "Transaction"),
    Route("GET", _B, blockers, "Partitions held back, and which transaction does it", "BlockedList", query=PAGING),
)
