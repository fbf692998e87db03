"""The changes that the console makes: it aborts and fences transactions. Each attempt is logged, whether it succeeds or
is refused.

The rule: a transaction is ended through its coordinator, by InitProducerId for its id; a marker is written to a
partition only if the search for hanging transactions confirms that no coordinator will. A person confirms what they
saw: if another transaction is open by then, nothing is done: InitProducerId has the producer id and epoch that were
seen, so a broker refuses it for a later pair. (Producers of the old protocol keep the pair: if one begins its next
transaction in the moment after the check, that transaction is aborted.) For a transaction that waits for the decision
of a Spark sink, the sink and the batch must be confirmed too: aborting it may lose a batch that a query believes to be
written.
"""

import logging
from typing import Any

from ...client.admin.admin import Admin
from ...client.admin.values import TransactionDescription
from ...client.errors import AuthorizationError, ErrorCode, KafkaError
from ..asked import Asked
from ..http.parameters import LONGEST_NAME
from ..http.problems import BAD_PARAMETER, CONFIRM_PREPARED, CONFLICT, DENIED, NOT_FOUND, Problem
from ..http.schemas import NUMBER, fields
from ..model.view import prepared_row
from ..routes import CHANGE, Route
from .places import cluster_id, partition_of

log = logging.getLogger(__name__)

_OTHER_PAIR = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)


async def abort(asked: Asked) -> dict[str, Any]:
    """Handle POST …/transactions/{transactional_id}:abort. Raises Problem unless the body confirms the name and
    exactly this transaction is still open: the same producer id and epoch, and start time if given.
    """
    await cluster_id(asked)
    name, body, admin = asked.names["transactional_id"], asked.body, await asked.admin()
    _check_confirmed(body, name)
    found = await _described(admin, name)
    if not found.is_open:
        hint = "fencing it refuses its producer even without an open transaction"
        raise Problem(CONFLICT, f"{name} has no open transaction, it is {found.state}", hint)
    if found.state.startswith("Prepare"):
        raise Problem(CONFLICT, f"{name} is decided: {found.state}", "its coordinator is ending it")
    if (found.producer_id, found.producer_epoch) != (body["producer_id"], body["producer_epoch"]):
        raise Problem(CONFLICT, f"another transaction of {name} is open by now", "look again")
    # Before Kafka 4.0's protocol (KIP-890), all transactions of a producer have the same epoch.
    if body.get("started_ms", found.started_ms) != found.started_ms:
        raise Problem(CONFLICT, f"a later transaction of {name} is open by now", "look again")
    return await _end(asked, admin, found, "aborted")


async def fence(asked: Asked) -> dict[str, Any]:
    """Handle POST …/transactions/{transactional_id}:fence: abort an open transaction and refuse its producer from now
    on. Raises Problem if there is no such id.
    """
    await cluster_id(asked)
    name, admin = asked.names["transactional_id"], await asked.admin()
    _check_confirmed(asked.body, name)
    found = await _described(admin, name)  # InitProducerId would make an id that does not exist
    return await _end(asked, admin, found, "fenced")


async def _described(admin: Admin, name: str) -> TransactionDescription:
    """Return the description of a transactional id. Raises Problem if there is none."""
    found = (await admin.describe_transactions(name)).get(name)
    if found is None:
        raise Problem(NOT_FOUND, f"there is no transactional id {name[:200]}")
    return found


async def _end(asked: Asked, admin: Admin, found: TransactionDescription, done: str) -> dict[str, Any]:
    """End the id's transaction by taking its next producer epoch. Returns the answer. done: "aborted" or "fenced",
    for log and answer. Raises Problem for a prepared transaction if it is held, or if the body's confirm_prepared does
    not name its sink and batch.
    """
    name = found.transactional_id
    waiting = (await admin.prepared_transactions()).get(name)
    if waiting is not None and waiting.held:
        hint = "only the decision for which it waits ends it; that is made elsewhere, for example in a database"
        raise Problem(CONFLICT, f"{name} waits for {waiting.waits_for}", hint)
    if waiting is not None:
        seen = {"sink": waiting.sink, "batch": waiting.number}
        if asked.body.get("confirm_prepared") != seen:
            raise Problem(
                CONFIRM_PREPARED,
                f"{name} waits for {waiting.waits_for}",
                "confirm both: its query must write the batch again",
                {"prepared": prepared_row(waiting)},
            )
    _log(asked, f"{done}: transactional id {name!r}, asked for")
    try:
        fenced = await admin.fence_described(found)
    except AuthorizationError as error:
        raise _denied(error, f"Write on transactional id {name[:200]}") from None
    except KafkaError as error:
        if error.code not in _OTHER_PAIR:
            raise
        hint = "look again; fencepost has left that one alone, Apache Kafka has aborted what it had open"
        raise Problem(CONFLICT, f"{name} has another producer id or epoch by now", hint) from None
    _log(asked, f"{done}: transactional id {name!r}, epochs before {fenced.epoch} are refused")
    return {
        "kind": "KafkaTransactionChange",
        "done": done,
        "transactional_id": name,
        "producer_id": fenced.producer_id,
        "next_epoch": fenced.epoch,
        "message": f"{done} {name}: its producer's epochs before {fenced.epoch} are refused",
    }


async def abort_hanging(asked: Asked) -> dict[str, Any]:
    """Handle POST …/partitions/{partition_id}:abort-hanging: write an abort marker. Raises Problem unless the given
    transaction really hangs: no coordinator knows it.
    """
    at, body, admin = await partition_of(asked), asked.body, await asked.admin()
    _check_confirmed(body, str(at))
    wanted = (body["start_offset"], body["producer_id"], body["producer_epoch"])
    async with asked.parts.searching:
        found = await admin.find_hanging_transactions([at], open_for_ms=asked.parts.hangs_after_ms)
    hangs = {(each.start_offset, each.producer.producer_id, each.producer.producer_epoch) for each in found}
    if wanted not in hangs:
        hint = "a transaction that its coordinator knows is aborted by its transactional id"
        raise Problem(CONFLICT, f"no transaction hangs in {at} from offset {wanted[0]} on", hint)
    _log(asked, f"aborted by a marker: the transaction in {str(at)!r} from offset {wanted[0]}, asked for")
    try:
        await admin.abort_transaction(at, body["start_offset"])
    except AuthorizationError as error:
        raise _denied(error, "Alter or ClusterAction on the cluster") from None
    _log(asked, f"aborted by a marker: the transaction in {str(at)!r} from offset {wanted[0]}")
    return {
        "kind": "KafkaTransactionChange",
        "done": "aborted",
        "transactional_id": None,
        "producer_id": body["producer_id"],
        "next_epoch": None,
        "message": f"aborted the transaction in {at} from offset {body['start_offset']} on",
    }


def _denied(error: AuthorizationError, right: str) -> Problem:
    """Return the problem for a change that the broker refused to this login. right: the ACL operation that it needs."""
    text = f"nothing has changed: the broker does not let this console's login do it ({error.code.name})"
    return Problem(DENIED, text, f"it needs {right}, and no rule that denies it: fencepost acl list shows the rules")


def _check_confirmed(body: dict[str, Any], name: str) -> None:
    """Raise Problem unless the body repeats the name of what changes."""
    if body["confirm"] != name:
        raise Problem(BAD_PARAMETER, f"confirm must be {name[:200]!r}, the name of what changes")


def _log(asked: Asked, what: str) -> None:
    """Log a change with the address that asked for it. what: the change, as text."""
    log.warning("%s, by a browser or script at %s", what, asked.request.remote)


_NAME = {"type": "string", "maxLength": LONGEST_NAME}
_ID = {"type": "integer", "minimum": 0, "maximum": (1 << 53) - 1}
_PREPARED = fields({"sink": _NAME, "batch": NUMBER})
_ABORT = fields(
    {"confirm": _NAME, "producer_id": _ID, "producer_epoch": _ID, "started_ms": _ID, "confirm_prepared": _PREPARED},
    optional=("started_ms", "confirm_prepared"),
)
_FENCE = fields({"confirm": _NAME, "confirm_prepared": _PREPARED}, optional=("confirm_prepared",))
_HANGING = fields({"confirm": _NAME, "start_offset": _ID, "producer_id": _ID, "producer_epoch": _ID})
_T = "/v3/clusters/{cluster_id}/transactions/{transactional_id}"
_P = "/v3/clusters/{cluster_id}/topics/{topic_name}/partitions/{partition_id}"
ROUTES = (
    Route("POST", _T + ":abort", abort, "Abort its open transaction", "Change", CHANGE, body=_ABORT),
    Route("POST", _T + ":fence", fence, "Refuse its producer from now on", "Change", CHANGE, body=_FENCE),
    Route("POST", _P + ":abort-hanging", abort_hanging, "End a hanging transaction", "Change", CHANGE, body=_HANGING),
)
