"""PrepareTxn, EndTxns, DescribeLedger, RemoveLedgerEntries: end many transactions by one decision of the ledger.

The rules are in docs/apis.md. The connection fence does not apply to these requests: their fields are checked against
the ledger, and a repeated decision is a success. With an authorizer a ledger key is a resource like a transactional id.
Whoever may write to it decides about all transactions that wait under it, and whoever prepares a transaction under it
agrees to that.
"""

from collections.abc import Callable, Iterable
from functools import partial

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.ledger import (
    DescribeLedgerRequest,
    DescribeLedgerResponse,
    EndTxnsRequest,
    EndTxnsResponse,
    LedgerEntry,
    PrepareTxnRequest,
    PrepareTxnResponse,
    RemoveLedgerEntriesRequest,
    RemoveLedgerEntriesResponse,
)
from ..net.turns import Steps, answer_each
from ..requests.allowed_names import allowed_names
from ..requests.dispatch import Call, handles
from ..requests.services import Services
from ..security.acls import Operation, ResourceType
from ..transactions.deciding import Deciding, Outcome
from ..transactions.ledger import Entry, Item, Proposal, Verdict, wrong_in
from ..transactions.ledger_log import Preparation
from ..transactions.states.transaction import NEVER_MS, PartitionKey
from .share_transactions import check_logged_at_end

_Key = DescribeLedgerResponse.Key
_Removed = RemoveLedgerEntriesResponse.Key


@handles(PrepareTxnRequest)
def prepare_txn(broker: Services, call: Call, request: PrepareTxnRequest) -> PrepareTxnResponse:
    """Prepare a transaction: it then waits for the ledger's decision of this number, or its timeout. If the ledger has
    decided this number or a higher one already, the broker aborts the transaction, and answers LEDGER_CONFLICT.
    """
    for name in (request.transactional_id, request.ledger_key):
        _check_access(broker, call, Operation.WRITE, name)
    if request.prepared_timeout_ms == NEVER_MS:
        _check_access(broker, call, Operation.TWO_PHASE_COMMIT, request.transactional_id)
    item = Item(request.transactional_id, request.producer_id, request.producer_epoch)
    proposal = Proposal(request.ledger_key, request.number, "", b"", True, False, ())
    reason = wrong_in(proposal)
    if not request.transactional_id or (request.prepared_timeout_ms <= 0 and request.prepared_timeout_ms != NEVER_MS):
        reason = "a transactional id is not empty, and a timeout is positive or -1"
    if reason:
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
    asked = Preparation(item, request.ledger_key, request.number, request.prepared_timeout_ms, request.hold)
    decision = broker.ledger.prepare(asked, partial(_check_end, broker, asked))
    if not decision.error:
        return PrepareTxnResponse()
    broker.metrics.error("PrepareTxn", decision.error)
    entry = broker.ledger.entries.get(request.ledger_key)
    late = decision.error is ErrorCode.LEDGER_CONFLICT and entry is not None
    return PrepareTxnResponse(
        error_code=decision.error,
        error_message=decision.error.text,
        ledger_number=entry.number if late and entry is not None else -1,
    )


def _check_end(broker: Services, asked: Preparation) -> None:
    """Raise POLICY_VIOLATION if one unit of the journal could not end this transaction together with all others that
    wait under the ledger key.
    """
    bytes_of, coordinator = broker.share_partitions.state_log.pending.bytes_of, broker.transactions
    if more := bytes_of(asked.item.producer_id):
        waiting = [coordinator.transactions[name].producer_id for name in coordinator.prepared.on(asked.key)]
        size = sum(map(bytes_of, waiting))
        check_logged_at_end(broker, "the transactions that wait under this ledger key", size, more)


def _check_access(broker: Services, call: Call, operation: Operation, name: str) -> None:
    """Raise TRANSACTIONAL_ID_AUTHORIZATION_FAILED if the client may not do this operation on a transactional id or
    ledger key of this name.
    """
    broker.access.check(call.session, operation, ResourceType.TRANSACTIONAL_ID, name)


@handles(EndTxnsRequest, may_be_long=True)
def end_txns(broker: Services, call: Call, request: EndTxnsRequest) -> Steps[EndTxnsResponse]:
    """Commit or abort the named transactions by one decision of the ledger. If there are many, this is prepared in
    steps.

    The answer is sent when every marker is durable.
    """
    _check_access(broker, call, Operation.WRITE, request.ledger_key)
    refused = yield from _not_writable(broker, call, request)
    if refused:
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        broker.metrics.error("EndTxns", code)
        return EndTxnsResponse(error_code=code, error_message=code.text, refused=refused)
    proposal = Proposal(
        request.ledger_key,
        request.number,
        request.owner,
        request.digest,
        request.committed,
        request.takeover,
        tuple(Item(each.transactional_id, each.producer_id, each.producer_epoch) for each in request.transactions),
    )
    if reason := wrong_in(proposal):
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
    broker.ledger.ready_for(proposal)
    deciding = Deciding(broker.ledger, proposal)
    for step in deciding.steps():
        step()
        yield 1
    sees = partial(broker.access.allows, call.session, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)
    return _end_response(broker, deciding.finish(), sees)


def _not_writable(broker: Services, call: Call, request: EndTxnsRequest) -> Steps[list[EndTxnsResponse.Transaction]]:
    """Return the transactions of the request to whose ids the client may not write, each with its error."""
    names = dict.fromkeys(each.transactional_id for each in request.transactions)
    writable = set((yield from allowed_names(broker, call, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, names)))
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return [
        EndTxnsResponse.Transaction(transactional_id=name, error_code=code) for name in names if name not in writable
    ]


def _end_response(broker: Services, outcome: Outcome, sees: Callable[[str], bool]) -> EndTxnsResponse:
    """Return the EndTxns response. After a conflict it contains the entry that was decided earlier.

    sees: returns whether the client may describe a transactional id.
    """
    error, message = ErrorCode.NONE, None
    if outcome.verdict is Verdict.CONFLICT:
        error, message = ErrorCode.LEDGER_CONFLICT, ErrorCode.LEDGER_CONFLICT.text
    elif outcome.refused:
        error = ErrorCode.INVALID_TXN_STATE
        message = _refusal_text(outcome)
    if error:
        broker.metrics.error("EndTxns", error)
    return EndTxnsResponse(
        error_code=error,
        error_message=message,
        already_decided=outcome.verdict is Verdict.ALREADY_DECIDED,
        aborted=outcome.aborted,
        entry=_entry_on_wire(outcome.entry),
        refused=[
            EndTxnsResponse.Transaction(transactional_id=name, error_code=code)
            for name, code in outcome.refused
            if code is not ErrorCode.CONCURRENT_TRANSACTIONS or sees(name)  # others' ids, which were not listed
        ],
        ended=[
            EndTxnsResponse.Ended(transactional_id=name, producer_id=producer_id, producer_epoch=epoch)
            for name, producer_id, epoch in outcome.ended
        ],
        deleted=_topics_on_wire(outcome.deleted),
    )


def _topics_on_wire(partitions: Iterable[PartitionKey]) -> list[EndTxnsResponse.Topic]:
    """Return the partitions in the form of the response, grouped by topic."""
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return [EndTxnsResponse.Topic(name=topic, partitions=indexes) for topic, indexes in topics.items()]


def _refusal_text(outcome: Outcome) -> str:
    """Return the error message for a decision that was refused because of some of its transactions."""
    held = sum(1 for _, code in outcome.refused if code is ErrorCode.CONCURRENT_TRANSACTIONS)
    if held == len(outcome.refused):
        return f"{held} of the transactions that wait under this key are held, and are not listed; nothing was written"
    return f"{len(outcome.refused)} of the transactions do not wait for this decision; nothing was written"


def _entry_on_wire(entry: Entry | None) -> LedgerEntry | None:
    """Convert an entry of the ledger for a response; None, if there is no entry, stays None."""
    if entry is None:
        return None
    return LedgerEntry(
        number=entry.number,
        owner=entry.owner,
        digest=entry.digest,
        committed=entry.committed,
        decided_ms=entry.decided_ms,
    )


@handles(DescribeLedgerRequest, may_be_long=True)
def describe_ledger(broker: Services, call: Call, request: DescribeLedgerRequest) -> Steps[DescribeLedgerResponse]:
    """Answer with ledger entries, and the transactions that wait for a decision, as far as the client may describe
    them.
    """
    broker.store.confirm()  # so that a broker whose journal was taken over does not answer with old entries
    sees = partial(broker.access.allows, call.session, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)
    broker.ledger.check_known()
    keys, prefix = request.keys, request.prefix
    if keys is not None and prefix is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "ask for keys or for a prefix, not for both")
    if keys is not None:
        return DescribeLedgerResponse(keys=(yield from answer_each(keys, lambda key: _describe(broker, key, sees))))
    known = {
        key
        for key in (*broker.ledger.entries, *broker.transactions.prepared.keys())
        if prefix is None or key.startswith(prefix)
    }
    described = Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID
    keys = sorted((yield from allowed_names(broker, call, *described, known)))
    found = yield from answer_each(keys, lambda key: _describe(broker, key, sees))
    # A key without an entry is left out if the client may describe none of the transactions that wait under it.
    return DescribeLedgerResponse(keys=[key for key in found if not key.error_code])


def _describe(broker: Services, key: str, sees: Callable[[str], bool]) -> _Key:
    """Return one ledger key with its entry and the transactions that wait under it, or its error. sees: returns whether
    the client may describe a key or id.
    """
    if not sees(key):
        return _Key(key=key, error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    entry = broker.ledger.entries.get(key)
    age_ms, transactions = broker.store.age_ms(), broker.transactions.transactions
    waiting = []
    for name, number in broker.transactions.prepared.on(key).items():
        if not sees(name):
            continue
        txn = transactions[name]
        assert txn.prepared is not None
        waiting.append(
            _Key.Waiting(
                transactional_id=name,
                producer_id=txn.producer_id,
                producer_epoch=txn.producer_epoch,
                number=number,
                waits_for_ms=age_ms - txn.prepared.since_age_ms,
                timeout_ms=txn.prepared.timeout_ms,
                held=txn.prepared.hold,
            )
        )
    known = entry is not None or waiting
    code = ErrorCode.NONE if known else ErrorCode.RESOURCE_NOT_FOUND
    return _Key(key=key, error_code=code, entry=_entry_on_wire(entry), waiting=waiting)


@handles(RemoveLedgerEntriesRequest, may_be_long=True)
def remove_ledger_entries(
    broker: Services, call: Call, request: RemoveLedgerEntriesRequest
) -> Steps[RemoveLedgerEntriesResponse]:
    """Remove ledger entries, each with its own result.

    It needs Alter on the cluster, because without its entry a number could be decided a second time.
    """
    broker.access.check_on_cluster(call.session, Operation.ALTER)
    return RemoveLedgerEntriesResponse(keys=(yield from answer_each(request.keys, lambda key: _remove(broker, key))))


def _remove(broker: Services, key: str) -> _Removed:
    """Remove one ledger key. Returns its result, with the error if it was refused."""
    try:
        broker.ledger.remove(key)
    except KafkaError as error:
        broker.metrics.error("RemoveLedgerEntries", error.code)
        return _Removed(key=key, error_code=error.code, error_message=error.text)
    return _Removed(key=key)
