"""The protocol of the exactly-once sink: the steps of a task, and how the driver decides a batch. Pure.

The guarantee: a read_committed reader sees each batch (a micro-batch of a stream, or one df.write) as a whole and once,
although Spark may run a task, a commit and a whole batch more than once.

**Who runs what.** Spark runs our Python code in worker processes that share no memory. So what one passes to another is
in the writer (pickled), in the tasks' messages, or in the broker:

- *Planning*, on the driver: Spark makes a writer for each attempt of a batch. The writer chooses a random `attempt` id,
  is pickled, and sent to all tasks of that attempt.
- *Tasks*, on executors: `write` gets the rows of one Spark partition and returns a message (TaskDone): the batch, and
  the task's transactions.
- *Commit or abort*, on the driver, in another process: df.write uses the pickled writer; a stream gets a new one, which
  knows the attempt only from the tasks' messages.

**Names.** `sink`: the option sinkId, or the query's id; the same after a restart. `number`: Spark's batch number.
`owner`: the query's id, which a new checkpoint changes.

**The ledger.** The broker keeps one entry for each sink, its last decision: number, owner, outcome, and a digest of the
topic and of the source offsets that Spark planned for the batch.

**Prepare.** A task sends its rows in transactions of its own, under transactional ids that are never used again
(`task_transactional_id`), and ends each by PrepareTxn(sink, number). A prepared transaction takes no more records and
waits for the decision. A task never commits.

**Decide.** When every task has succeeded, the driver sends one EndTxns(sink, number, owner, digest, transactions). In
one atomic journal unit the broker commits the listed transactions, aborts all others that are prepared for this sink
and this number or a lower one, and writes the entry. If one listed transaction is not prepared for this number, it
refuses the whole decision.

**Why exactly once.** Nothing is lost: Spark starts the next batch only after the commit, and the commit succeeds only
if the ledger has this batch. Nothing is written twice: the ledger accepts a number once, and what other attempts of it
prepare is aborted. Nothing is partly visible: one unit decides all partitions.

- *A task is retried, or runs twice (speculation)*: each attempt has its own transactions. Spark passes on one message
  for each task, so the decision lists one attempt; the other is aborted by the decision, or when it prepares later.
- *An answer is lost*: the same request again is safe. A repeated PrepareTxn succeeds; a repeated EndTxns is answered
  `already_decided`, or decides now.
- *The driver dies before the decision*: Spark repeats the batch, with the same offsets; deciding it aborts the first
  attempt. *After the decision*: PrepareTxn aborts the repeated transactions, since the number is decided. The messages
  list them all the same, the decision finds its own entry, and the batch counts as a success.
- *Too much is prepared for one decision* (40,000 partitions to mark, also of earlier attempts): the driver aborts the
  earlier attempts (`left_open.others_than`), and decides then.
- *The entry does not fit* (higher number, other owner or digest): SinkConflictError stops the query. The checkpoint was
  set back, or another query writes to the sink.

**What ends a transaction.** The decision; the driver's abort of a failed batch (left_open.py); its own timeout before
PrepareTxn, preparedTimeout after it; or an operator. A task prepares a transaction before it times out, and begins the
next one.

**Writes without sinkId** (df.write) have a ledger key of their own, which is used once: all rows or none are written,
but a repeated write writes them again.

The steps are generators: they yield a request and are sent its answer, so that tests can try every order of events.
Sources: docs/apis.md (PrepareTxn, EndTxns); Spark's MicroBatchExecution, for who calls what when.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from ...client.errors import ClientError, InvalidConfigurationError, error_of
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.ledger import (
    DescribeLedgerRequest,
    DescribeLedgerResponse,
    EndTxnsRequest,
    EndTxnsResponse,
    LedgerEntry,
)

CLAIMS = "#writes"
"""Appended to a sink's id, for the ledger key of `claim_steps`. No sink id contains a '#'."""

UNNAMED = "fencepost.write."
"""Prefix of the ledger keys of batch writes without a sinkId; the attempt follows."""

FORGOTTEN_AFTER_MS = 24 * 3_600_000
"""The entry of a write without a sinkId is removed after this time: no task of it can prepare so late."""

WAITING_SHARE = 2
"""A transaction is prepared after its timeout divided by this, even while its task waits for rows."""

NEXT_RUN = "let the query fail: its next run writes the batch again, unless it was committed"
"""The hint for a write in foreachBatch that failed: a repeated one in the same run looks like a second write."""

TOPIC_DIGEST_BYTES = 32
MAX_CLAIMS, _HALF_BYTES = 10, 12  # a digest has room for ten claims of two halves
MAX_SINK_ID_CHARS = 200


class SinkConflictError(InvalidConfigurationError):
    """The ledger entry does not fit this batch: another query writes to the sink, or the checkpoint was changed."""

    default_hint = "fencepost spark list shows the sink's last batch and the query that owns it"


class BatchRefusedError(ClientError):
    """Raised if no part of the batch was committed, because some of its transactions are not prepared, or have
    ended.
    """

    default_hint = (
        "restart the query: it writes the batch again; or repeat the df.write. If writing took longer than"
        " preparedTimeout, raise preparedTimeout"
    )


class WrongUseError(InvalidConfigurationError):
    """Raised if the sink cannot write exactly once in the way it is used."""


# ---- values --------------------------------------------------------------------------------------------------------


class SinkBatch(NamedTuple):
    """One attempt to write one batch.

    sink: the ledger key. owner: the query's id. attempt: a random id, the same for all tasks of the attempt. run: the
    id of this start of the query; "" if unknown. is_shared: a write in foreachBatch, which may have several.
    """

    sink: str
    number: int
    owner: str
    attempt: str
    run: str = ""
    is_shared: bool = False


class Written(NamedTuple):
    """A transaction of a task: prepared, or aborted by PrepareTxn because the ledger already had a decision for its
    batch.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int


class TaskDone(NamedTuple):
    """A task's message to the driver: the transactions in which it wrote its part of the batch."""

    batch: SinkBatch
    partition: int
    transactions: tuple[Written, ...]
    rows: int = 0


class Decided(NamedTuple):
    """The decision about a batch. already: an earlier attempt had committed the batch, so this attempt was aborted.
    rows: how many this attempt has written. entry: the ledger's; None if the broker did not send it.
    """

    number: int
    already: bool
    rows: int
    entry: LedgerEntry | None


class Limits(NamedTuple):
    """prefix: of transactional ids that the broker forgets when their transaction ends. timeout_ms: of a transaction
    before PrepareTxn. prepared_timeout_ms: how long it waits for its decision; -1: no limit."""

    prefix: str
    timeout_ms: int
    prepared_timeout_ms: int = 3_600_000


# ---- what a task does ----------------------------------------------------------------------------------------------


class Prepare(NamedTuple):
    """Wait until all records are acknowledged, then send PrepareTxn. The answer is None, both when the transaction is
    prepared and when it was aborted because the ledger already has this number or a higher one."""

    ledger_key: str
    number: int
    timeout_ms: int


class Begin(NamedTuple):
    """Begin a transaction with a new transactional id. The answer is its Written.

    prepare: carried out when the transaction is `prepare_after_ms` old, whatever the task does then.
    """

    transactional_id: str
    timeout_ms: int
    prepare: Prepare
    prepare_after_ms: int


class Write(NamedTuple):
    """Send these rows in the open transaction. The answer is their number, or None: nothing was sent, because the
    transaction was prepared when it became too old."""

    rows: Any


class Abort(NamedTuple):
    """Abort the open transaction. It may fail: then the transaction ends by its timeout."""


Step = Begin | Write | Prepare | Abort
TaskSteps = Generator[Step, Any, TaskDone]


def task_transactional_id(prefix: str, batch: SinkBatch, partition: int, task: int, count: int) -> str:
    """Return the transactional id of one transaction of one attempt of one task."""
    return f"{prefix}{batch.sink}.{batch.number}.{batch.attempt}.{partition}.{task}.{count}"


def written_for(name: str, prefix: str, sink: str | None) -> tuple[int, str] | None:
    """Parse a task's transactional id. Returns (batch number, attempt); None if it is not an id of this sink. sink:
    None for any.
    """
    parts = name.removeprefix(prefix).rsplit(".", 5)
    if not name.startswith(prefix) or len(parts) != 6 or not parts[1].isdecimal():
        return None
    return (int(parts[1]), parts[2]) if sink in (None, parts[0]) else None


def task_steps(
    batch: SinkBatch, partition: int, task: int, pieces: Iterable[Any], limits: Limits, now_ms: Callable[[], int]
) -> TaskSteps:
    """Yield the steps of a task: begin transactions, write all pieces of rows in them, prepare them. Returns its
    TaskDone. task: Spark's unique id of this try of the task. Without rows there is no transaction.

    A transaction older than a third of its timeout is prepared, and another begun, so that none times out. While a task
    waits for rows it cannot do that: then `Begin.prepare` does, at half of the timeout.
    """
    written: list[Written] = []
    rows = 0
    is_open = False
    old_at_ms = 0
    prepare = Prepare(batch.sink, batch.number, limits.prepared_timeout_ms)
    try:
        for piece in pieces:
            if is_open and now_ms() >= old_at_ms:
                yield prepare
                is_open = False
            count = None
            while count is None:
                if not is_open:
                    name = task_transactional_id(limits.prefix, batch, partition, task, len(written))
                    old_at_ms = now_ms() + limits.timeout_ms // 3
                    written.append((yield Begin(name, limits.timeout_ms, prepare, limits.timeout_ms // WAITING_SHARE)))
                    is_open = True
                count = yield Write(piece)
                if count is None:
                    yield prepare
                    is_open = False
            rows += count
        if is_open:
            yield prepare
    except GeneratorExit:
        raise
    except BaseException:
        if is_open:
            yield Abort()
        raise
    return TaskDone(batch, partition, tuple(written), rows)


def carry_out(steps: TaskSteps, do: Callable[[Any], Any]) -> TaskDone:
    """Run the steps of a task and return its TaskDone. do: carries out one step and returns its answer. What `do`
    raises is raised inside the steps, which may abort first.
    """
    try:
        step = next(steps)
        while True:
            try:
                answer = do(step)
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as end:
        done: TaskDone = end.value
        return done


# ---- what the driver does ------------------------------------------------------------------------------------------

DriverSteps = Generator[Any, Any, Decided]


def commit_steps(messages: Sequence[TaskDone | None], digest: bytes) -> DriverSteps:
    """Decide a batch of at least one task. Yields requests to the coordinator, is sent their responses, and returns the
    decision. digest: see options.digest_of.

    The caller repeats a request that was not answered: repeating a decision does not change it. Raises
    SinkConflictError, BatchRefusedError, and other errors of the broker.
    """
    done = complete(messages)
    batch = done[0].batch
    if batch.is_shared and batch.run:
        yield from claim_steps(batch)
    request = EndTxnsRequest(
        ledger_key=batch.sink,
        number=batch.number,
        owner=batch.owner,
        digest=digest,
        committed=True,
        transactions=[_item(each) for message in done for each in message.transactions],
    )
    response: EndTxnsResponse = yield request
    return _interpret_response(batch, digest, response, sum(message.rows for message in done))


def complete(messages: Sequence[TaskDone | None]) -> list[TaskDone]:
    """Return the tasks' messages without None. Raises BatchRefusedError unless there is one of each task, all of one
    attempt.
    """
    done = [message for message in messages if message is not None]
    if len(done) < len(messages):
        raise BatchRefusedError(f"{len(messages) - len(done)} of {len(messages)} tasks returned no message")
    if len({message.batch for message in done}) > 1:
        raise BatchRefusedError("the messages are from several attempts")
    if len({message.partition for message in done}) < len(done):
        raise BatchRefusedError("two messages are from the same task")
    return done


def claim_steps(batch: SinkBatch) -> Generator[Any, Any, None]:
    """Claim the batch for this write, in this run (start) of the query. Raises SinkConflictError if another write has
    it.

    Two writes with one sinkId in a foreachBatch would look like one write and its retry, so the second would be
    dropped. But one run of a query writes no batch twice, so a second claim in the same run comes from a second write.
    """
    key = batch.sink + CLAIMS
    run = sha256(f"{batch.number} {batch.run}".encode()).digest()[:_HALF_BYTES]
    ours = run + sha256(batch.attempt.encode()).digest()[:_HALF_BYTES]
    while True:
        described: DescribeLedgerResponse = yield DescribeLedgerRequest(keys=[key])
        _check(described.error_code, described.error_message)
        entry = described.keys[0].entry
        claims = [] if entry is None else _split_claims(bytes(entry.digest))
        if ours in claims:
            return
        if any(each.startswith(run) for each in claims):
            raise SinkConflictError(
                f"batch {batch.number} is written twice to sink {batch.sink!r} in one run of the query",
                hint=f"each write of a foreachBatch needs its own sinkId; if this is a failed write again, {NEXT_RUN}",
            )
        response: EndTxnsResponse = yield EndTxnsRequest(
            ledger_key=key,
            number=0 if entry is None else entry.number + 1,
            owner="",
            digest=b"".join([*claims[1 - MAX_CLAIMS :], ours]),
            committed=True,
        )
        if response.error_code != ErrorCode.LEDGER_CONFLICT:  # else another claim was faster
            _check(response.error_code, response.error_message)
            return


def _split_claims(digest: bytes) -> list[bytes]:
    """Split a digest into the claims in it, the newest last."""
    size = 2 * _HALF_BYTES
    return [digest[start : start + size] for start in range(0, len(digest), size)]


def refuse_late(key: str) -> EndTxnsRequest:
    """Return the request that decides a write without a sinkId as aborted. If the write is committed already, it stays
    committed, and the broker answers LEDGER_CONFLICT.

    This aborts the transactions prepared under the key, and those that a late task prepares afterwards.
    """
    return EndTxnsRequest(ledger_key=key, number=0, owner="", digest=b"", committed=False, transactions=[])


def is_too_large(error: KafkaError) -> bool:
    """Return whether the broker refused a decision because it marks too many partitions."""
    return error.code == ErrorCode.INVALID_REQUEST and "in one decision" in error.detail


def forgettable(keys: Iterable[Any], now_ms: int) -> list[str]:
    """Return the keys of writes without a sinkId that were decided more than FORGOTTEN_AFTER_MS ago and have no
    transaction waiting. keys: from DescribeLedger. now_ms: the broker's wall clock.
    """
    return [
        key.key
        for key in keys
        if key.key.startswith(UNNAMED)
        and not key.waiting
        and key.entry is not None
        and key.entry.decided_ms < now_ms - FORGOTTEN_AFTER_MS
    ]


def same_decision(entry: LedgerEntry, batch: SinkBatch, digest: bytes) -> bool:
    """Return whether the ledger's entry is the commit of this batch by this query. If one of the digests has no
    offsets, only their topics are compared.
    """
    if (entry.number, entry.owner, entry.committed) != (batch.number, batch.owner, True):
        return False
    found = bytes(entry.digest)
    if TOPIC_DIGEST_BYTES in (len(found), len(digest)):
        return found[:TOPIC_DIGEST_BYTES] == digest[:TOPIC_DIGEST_BYTES]
    return found == digest


def _interpret_response(batch: SinkBatch, digest: bytes, response: EndTxnsResponse, rows: int) -> Decided:
    """Return what the broker's answer means for the batch. rows: written by this attempt. Raises: the error that stops
    the query.
    """
    entry = response.entry
    code = response.error_code
    if code == ErrorCode.NONE:
        return Decided(batch.number, bool(response.already_decided), rows, entry)
    if code == ErrorCode.LEDGER_CONFLICT and entry is not None:
        if same_decision(entry, batch, digest):
            return Decided(batch.number, True, rows, entry)
        raise SinkConflictError(_conflict(batch, digest, entry))
    if code == ErrorCode.INVALID_TXN_STATE and response.refused:
        raise BatchRefusedError(
            f"batch {batch.number} of sink {batch.sink!r} was not committed: "
            + "; ".join(f"{each.transactional_id}: {_reason(each.error_code)}" for each in response.refused[:3])
            + (f"; and {len(response.refused) - 3} more" if len(response.refused) > 3 else ""),
            hint=f"{NEXT_RUN}. If writing took longer than preparedTimeout, raise preparedTimeout"
            if batch.is_shared
            else "",
        )
    raise error_of(code, response.error_message or f"EndTxns of sink {batch.sink!r}: {error_of(code)}")


def _conflict(batch: SinkBatch, digest: bytes, entry: LedgerEntry) -> str:
    """Return the error text for a ledger entry that does not fit this batch: it names the query, batch, topic or
    offsets that differ.
    """
    last = f"the last batch of sink {batch.sink!r} is {entry.number} of query {entry.owner!r}"
    if entry.owner != batch.owner:
        return (
            f"{last}, but this is batch {batch.number} of query {batch.owner!r}: "
            "each query needs its own sinkId; `fencepost spark reset` gives the sink to another query"
        )
    if entry.number > batch.number:
        return f"{last}, but this is batch {batch.number}: the checkpoint was set back, or the query runs twice"
    what = "was aborted by an operator" if not entry.committed else "was written to another topic"
    if entry.committed and bytes(entry.digest)[:TOPIC_DIGEST_BYTES] == digest[:TOPIC_DIGEST_BYTES]:
        what = "was read from other offsets: the query now uses another checkpoint"
    return f"{last}, and that batch {what}"


_REASONS = {
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "it has already ended: by a decision, a timeout or an operator",
    ErrorCode.PRODUCER_FENCED: "it has already ended: by a decision, a timeout or an operator",
    ErrorCode.INVALID_TXN_STATE: "it is not prepared for this batch",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "a topic it wrote to was deleted",
}


def _reason(code: int) -> str:
    """Return words for the error code with which the broker refused a transaction."""
    return next((text for known, text in _REASONS.items() if known == code), str(error_of(code)))


def _item(written: Written) -> Any:
    """Return a task's transaction as an item of an EndTxns request."""
    return EndTxnsRequest.Transaction(
        transactional_id=written.transactional_id,
        producer_id=written.producer_id,
        producer_epoch=written.producer_epoch,
    )


def _check(code: int, message: str | None) -> None:
    """Raise the broker's error if the code is not 0."""
    if code:
        raise error_of(code, message or str(error_of(code)))
