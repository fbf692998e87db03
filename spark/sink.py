"""How a sink writes exactly once: what a task does, and what the driver does with the messages and the answers.

The rules: a task only ever prepares; the broker's one decision over all transactions of a batch is what commits it. The
decision names every transaction that any task of the attempt wrote, one that the broker refused too: so a batch that
was decided before is a success, and anything else that is not as it should be stops the query. Nothing here waits,
asks or reads a clock: the steps are generators, which give a step and are sent its answer.
Sources: docs/apis.md (PrepareTxn, EndTxns); Spark's MicroBatchExecution, for who calls what when.
"""

import re
from collections.abc import Callable, Generator, Iterable, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from ..client.errors import ClientError, InvalidConfigurationError, error_of
from ..protocol.errors import ErrorCode
from ..protocol.messages.ledger import (
    DescribeLedgerRequest,
    DescribeLedgerResponse,
    EndTxnsRequest,
    EndTxnsResponse,
    LedgerEntry,
)
from ..protocol.messages.transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)

CLAIMS = "#writes"
"""Appended to a sink's id: the ledger key that says which write of a run has a batch. No sink id has a '#'."""

UNNAMED = "fencepost.write."
"""The ledger keys of batch writes without a sinkId begin so; the rest is the attempt."""

FORGOTTEN_AFTER_MS = 24 * 3_600_000
"""When the entry of a write without a sinkId is removed: no task of it can come as late as that."""

WAITING_SHARE = 2
"""A transaction is prepared after its timeout divided by this, also while its task waits for rows."""

TOPIC_DIGEST_BYTES = 32
MOST_CLAIMS, _HALF_BYTES = 10, 12  # as many as a digest has room for
MOST_SINK_ID_CHARS = 200


class SinkConflictError(InvalidConfigurationError):
    """The sink stands elsewhere than this query believes: somebody else writes to it, or the checkpoint is not its."""

    default_hint = "fencepost spark list shows the sink's last batch; docs/spark.md explains each case"


class BatchRefusedError(ClientError):
    """The batch was not committed, nothing of it: transactions that it is made of are not there (any more)."""

    default_hint = "restart the query, it writes the batch again; repeat a df.write"


class WrongUseError(InvalidConfigurationError):
    """The sink cannot write exactly once in this way."""


# ---- values --------------------------------------------------------------------------------------------------------


class SinkBatch(NamedTuple):
    """One attempt to write one batch.

    sink: the ledger key. owner: the query. attempt: made anew for each attempt, and shared by all its tasks. run: one
    start of the query; "" if Spark does not say. is_shared: the user's own code runs the write (foreachBatch), so there
    may be two.
    """

    sink: str
    number: int
    owner: str
    attempt: str
    run: str = ""
    is_shared: bool = False


class Written(NamedTuple):
    """A transaction that waits for the decision, or that the broker refused to let wait."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class TaskDone(NamedTuple):
    """What a task tells the driver."""

    batch: SinkBatch
    partition: int
    transactions: tuple[Written, ...]
    rows: int = 0


class Decided(NamedTuple):
    """already: by an earlier attempt; what this one wrote is aborted."""

    number: int
    already: bool
    rows: int
    entry: LedgerEntry | None


class Limits(NamedTuple):
    """prefix: of ids that the broker forgets with their transaction. timeout_ms: the longest it allows.
    prepared_timeout_ms: how long a transaction waits for its decision; -1 for ever."""

    prefix: str
    timeout_ms: int
    prepared_timeout_ms: int = 3_600_000


# ---- what a task does ----------------------------------------------------------------------------------------------


class Prepare(NamedTuple):
    """Wait until all is acknowledged, then PrepareTxn. Answered (with nothing) when the transaction waits, and when the
    ledger stands at or above the number already, so that it was aborted."""

    ledger_key: str
    number: int
    timeout_ms: int


class Begin(NamedTuple):
    """Open a transaction under a new id. Answered with its Written.

    prepare: to be carried out once the transaction is `prepare_after_ms` old, whatever the task does then.
    """

    transactional_id: str
    timeout_ms: int
    prepare: Prepare
    prepare_after_ms: int


class Write(NamedTuple):
    """Send these rows in the open transaction. Answered with how many they are, or with None: nothing was sent, since
    the transaction has been prepared because of its age."""

    rows: Any


class Abort(NamedTuple):
    """End the open transaction. Nobody waits for it but the readers, so it may fail."""


Step = Begin | Write | Prepare | Abort
TaskSteps = Generator[Step, Any, TaskDone]


def task_name(prefix: str, batch: SinkBatch, partition: int, task: int, count: int) -> str:
    """The transactional id: of one attempt of one task, and never used again."""
    return f"{prefix}{batch.sink}.{batch.number}.{batch.attempt}.{partition}.{task}.{count}"


def written_for(name: str, prefix: str, sink: str | None) -> tuple[int, str] | None:
    """The batch's number and the attempt that a task's transactional id says. None: it is no task's of this sink.

    sink: None, whichever.
    """
    parts = name.removeprefix(prefix).rsplit(".", 5)
    if not name.startswith(prefix) or len(parts) != 6 or not parts[1].isdecimal():
        return None
    return (int(parts[1]), parts[2]) if sink in (None, parts[0]) else None


def task_steps(
    batch: SinkBatch, partition: int, task: int, pieces: Iterable[Any], limits: Limits, now_ms: Callable[[], int]
) -> TaskSteps:
    """Write all pieces and prepare. task: unique among all attempts of all tasks. Without rows nothing is opened.

    A transaction older than a third of its timeout is prepared as it is, and the next begun, so that none times out. A
    task may wait for its rows for longer than that: at half of the timeout Begin has it prepared without this task.
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
                    name = task_name(limits.prefix, batch, partition, task, len(written))
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
    """The steps of a task to their end. do: carries one out, and gives its answer. Raises what it raises."""
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
    """Decide a batch of one task at least. Gives requests to the coordinator, is sent responses.

    Whoever asks repeats a request that was not answered: the same again is the same decision.
    Raises SinkConflictError, BatchRefusedError, and what else the broker says.
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
    return _decided(batch, digest, response, sum(message.rows for message in done))


def complete(messages: Sequence[TaskDone | None]) -> list[TaskDone]:
    """The messages of one attempt, one of each task. Raises BatchRefusedError if that is not what they are."""
    done = [message for message in messages if message is not None]
    if len(done) < len(messages):
        raise BatchRefusedError(f"{len(messages) - len(done)} of {len(messages)} tasks returned no message")
    if len({message.batch for message in done}) > 1:
        raise BatchRefusedError("the messages are from several attempts")
    if len({message.partition for message in done}) < len(done):
        raise BatchRefusedError("two messages are from the same task")
    return done


def claim_steps(batch: SinkBatch) -> Generator[Any, Any, None]:
    """Note which write of this run of the query has the batch. Raises SinkConflictError if that is another one.

    Two writes with one sinkId in a foreachBatch look like one that is repeated, and the second would be taken for
    decided. But in one start of a query no batch is written twice, which is what is noted here.
    """
    key = batch.sink + CLAIMS
    run = sha256(f"{batch.number} {batch.run}".encode()).digest()[:_HALF_BYTES]
    ours = run + sha256(batch.attempt.encode()).digest()[:_HALF_BYTES]
    while True:
        described: DescribeLedgerResponse = yield DescribeLedgerRequest(keys=[key])
        _check(described.error_code, described.error_message)
        entry = described.keys[0].entry
        claims = [] if entry is None else _cut(bytes(entry.digest))
        if ours in claims:
            return
        if any(each.startswith(run) for each in claims):
            raise SinkConflictError(
                f"batch {batch.number} is written twice to sink {batch.sink!r} in one run of the query",
                hint="each write of a foreachBatch needs its own sinkId",
            )
        response: EndTxnsResponse = yield EndTxnsRequest(
            ledger_key=key,
            number=0 if entry is None else entry.number + 1,
            owner="",
            digest=b"".join([*claims[1 - MOST_CLAIMS :], ours]),
            committed=True,
        )
        if response.error_code != ErrorCode.LEDGER_CONFLICT:  # else another one was quicker
            _check(response.error_code, response.error_message)
            return


def _cut(digest: bytes) -> list[bytes]:
    """The claims that a digest holds, the newest last."""
    size = 2 * _HALF_BYTES
    return [digest[start : start + size] for start in range(0, len(digest), size)]


def refuse_late(key: str) -> EndTxnsRequest:
    """Decide that a write without a sinkId is aborted; if it was committed, that stands (LEDGER_CONFLICT).

    Prepared transactions under the key are aborted by it, and a PrepareTxn that comes later is refused.
    """
    return EndTxnsRequest(ledger_key=key, number=0, owner="", digest=b"", committed=False, transactions=[])


def failed_with(messages: Sequence[TaskDone | None], number: int, mark: str = "") -> Callable[[int, str], bool]:
    """For open_steps: what a micro-batch that Spark aborts may have left. mark: how attempts of its query begin.

    Spark does not say which attempt failed, but messages do. Without any it is every attempt of the query up to that
    batch: if another driver is about to decide one of these, its decision is refused as a whole, and the batch written
    again.
    """
    attempts = {message.batch.attempt for message in messages if message is not None}
    if attempts:
        return lambda _, attempt: attempt in attempts
    return lambda of, attempt: of <= number and attempt.startswith(mark)


def open_steps(
    prefix: str, sink: str | None, is_over: Callable[[int, str], bool]
) -> Generator[Any, Any, list[Written]]:
    """Which transactions of a sink's tasks are open, prepared or not, and for nothing.

    Their names say what they are for: the broker knows no batch of one that is not prepared. sink: None, of any sink.
    is_over: whether a transaction of this number and attempt can be in no decision any more. Nothing depends on this
    but how soon readers go on.
    """
    pattern = re.escape(prefix if sink is None else f"{prefix}{sink}.") + ".*"
    listed: ListTransactionsResponse = yield ListTransactionsRequest(
        state_filters=["Ongoing"], transactional_id_pattern=pattern
    )
    _check(listed.error_code, None)
    names = [
        each.transactional_id
        for each in listed.transaction_states
        if (found := written_for(each.transactional_id, prefix, sink)) is not None and is_over(*found)
    ]
    if not names:
        return []
    described: DescribeTransactionsResponse = yield DescribeTransactionsRequest(transactional_ids=names)
    return [
        Written(each.transactional_id, each.producer_id, each.producer_epoch)
        for each in described.transaction_states
        if not each.error_code and each.transaction_state == "Ongoing"
    ]


def forgettable(keys: Iterable[Any], now_ms: int) -> list[str]:
    """Of DescribeLedger's keys those of old batch writes without a sinkId. now_ms: by the broker's wall clock."""
    return [
        key.key
        for key in keys
        if key.key.startswith(UNNAMED)
        and not key.waiting
        and key.entry is not None
        and key.entry.decided_ms < now_ms - FORGOTTEN_AFTER_MS
    ]


def same_decision(entry: LedgerEntry, batch: SinkBatch, digest: bytes) -> bool:
    """Whether the entry is this decision. Where one of the two digests has no offsets, the topic alone tells."""
    if (entry.number, entry.owner, entry.committed) != (batch.number, batch.owner, True):
        return False
    found = bytes(entry.digest)
    if TOPIC_DIGEST_BYTES in (len(found), len(digest)):
        return found[:TOPIC_DIGEST_BYTES] == digest[:TOPIC_DIGEST_BYTES]
    return found == digest


def _decided(batch: SinkBatch, digest: bytes, response: EndTxnsResponse, rows: int) -> Decided:
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
            + (f"; and {len(response.refused) - 3} more" if len(response.refused) > 3 else "")
        )
    raise error_of(code, response.error_message or f"EndTxns of sink {batch.sink!r}: {error_of(code)}")


def _conflict(batch: SinkBatch, digest: bytes, entry: LedgerEntry) -> str:
    """In words."""
    last = f"the last batch of sink {batch.sink!r} is {entry.number} of query {entry.owner!r}"
    if entry.owner != batch.owner:
        return (
            f"{last}, but this is batch {batch.number} of query {batch.owner!r}: "
            "each query needs its own sinkId; `fencepost spark reset` gives the sink to another query"
        )
    if entry.number > batch.number:
        return f"{last}, but this is batch {batch.number}: the checkpoint was set back, or the query runs twice"
    what = "was aborted by an operator" if not entry.committed else "went to another topic"
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
    return next((text for known, text in _REASONS.items() if known == code), str(error_of(code)))


def _item(written: Written) -> Any:
    return EndTxnsRequest.Transaction(
        transactional_id=written.transactional_id,
        producer_id=written.producer_id,
        producer_epoch=written.producer_epoch,
    )


def _check(code: int, message: str | None) -> None:
    if code:
        raise error_of(code, message or str(error_of(code)))
