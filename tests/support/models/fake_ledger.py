"""A small model of what the broker does with transactions that wait for a decision (docs/apis.md), and the real broker
with the same few calls: for tests that run the same steps against both.

Rows are bytes; `visible` gives those that a read_committed reader sees, in order. Time is told by `advance`.
"""

import re
from dataclasses import dataclass, field
from typing import Any

from fencepost.broker.config.settings import BrokerSettings
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.ledger import (
    DescribeLedgerRequest,
    DescribeLedgerResponse,
    EndTxnsRequest,
    EndTxnsResponse,
    LedgerEntry,
    RemoveLedgerEntriesRequest,
    RemoveLedgerEntriesResponse,
)
from fencepost.protocol.messages.topics import CreateTopicsRequest
from fencepost.protocol.messages.transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from fencepost.spark.sink.protocol import Written
from ledger_client import prepare
from simulated_broker import SimulatedBroker
from txn_client import Txn, values

OK, CONFLICT = ErrorCode.NONE, ErrorCode.LEDGER_CONFLICT
GONE, NOT_SO = ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_TXN_STATE
PREFIX = "once-"


@dataclass
class Open:
    written: Written
    deadline_ms: int
    rows: list[bytes] = field(default_factory=list)
    waits: tuple[str, int] | None = None  # ledger key and number, once it is prepared


class FakeBroker:
    """The model of the broker. Transactional ids are forgotten when their transaction ends. most: how many
    transactions one decision may end.
    """

    def __init__(self, most: int = 40_000) -> None:
        self.most = most
        self.now_ms = 0
        self.open: dict[str, Open] = {}
        self.ledger: dict[str, LedgerEntry] = {}
        self.rows: list[bytes] = []
        self._ids = 0

    def begin(self, name: str, timeout_ms: int) -> Written:
        self.open.pop(name, None)
        self._ids += 1
        written = Written(name, self._ids, 0)
        self.open[name] = Open(written, self.now_ms + timeout_ms)
        return written

    def _found(self, written: Written) -> Open | None:
        found = self.open.get(written.transactional_id)
        return found if found is not None and found.written == written else None

    def write(self, written: Written, rows: list[bytes]) -> int:
        found = self._found(written)
        if found is None:
            return GONE
        if found.waits:
            return NOT_SO
        found.rows += rows
        return OK

    def prepare(self, written: Written, key: str, number: int, timeout_ms: int) -> int:
        found = self._found(written)
        if found is None:
            return GONE
        if found.waits is not None:
            return OK if found.waits == (key, number) else NOT_SO
        if key in self.ledger and self.ledger[key].number >= number:
            del self.open[written.transactional_id]
            return CONFLICT
        found.waits = (key, number)
        found.deadline_ms = self.now_ms + timeout_ms
        return OK

    def end(self, written: Written, commit: bool) -> int:
        found = self._found(written)
        if found is None:
            return GONE
        del self.open[written.transactional_id]
        if commit:
            self.rows += found.rows
        return OK

    def ask(self, request: Any) -> Any:
        if isinstance(request, EndTxnsRequest):
            return self._decide(request)
        if isinstance(request, RemoveLedgerEntriesRequest):
            for key in request.keys:
                self.ledger.pop(key, None)
            return RemoveLedgerEntriesResponse()
        if isinstance(request, ListTransactionsRequest):
            return ListTransactionsResponse(transaction_states=self._listed(request.transactional_id_pattern or ".*"))
        if isinstance(request, DescribeTransactionsRequest):
            return DescribeTransactionsResponse(
                transaction_states=[self._state_of(name) for name in request.transactional_ids]
            )
        assert isinstance(request, DescribeLedgerRequest)
        return DescribeLedgerResponse(keys=[self._described(key) for key in request.keys or list(self.ledger)])

    def _listed(self, pattern: str) -> list[Any]:
        return [
            ListTransactionsResponse.TransactionState(
                transactional_id=name, producer_id=each.written.producer_id, transaction_state="Ongoing"
            )
            for name, each in self.open.items()
            if re.fullmatch(pattern, name)
        ]

    def _state_of(self, name: str) -> Any:
        found = self.open.get(name)
        producer_id, epoch = (0, 0) if found is None else found.written[1:]
        return DescribeTransactionsResponse.TransactionState(
            error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if found is None else 0,
            transactional_id=name,
            transaction_state="" if found is None else "Ongoing",
            transaction_timeout_ms=0,
            transaction_start_time_ms=0,
            producer_id=producer_id,
            producer_epoch=epoch,
            topics=[],
        )

    def _described(self, key: str) -> Any:
        waiting = [
            DescribeLedgerResponse.Key.Waiting(
                **each.written._asdict(), number=each.waits[1], waits_for_ms=0, timeout_ms=0
            )
            for each in self.open.values()
            if each.waits is not None and each.waits[0] == key
        ]
        code = 0 if waiting or key in self.ledger else ErrorCode.RESOURCE_NOT_FOUND
        return DescribeLedgerResponse.Key(key=key, error_code=code, entry=self.ledger.get(key), waiting=waiting)

    def _decide(self, asked: EndTxnsRequest) -> EndTxnsResponse:
        entry = self.ledger.get(asked.ledger_key)
        listed = [Written(each.transactional_id, each.producer_id, each.producer_epoch) for each in asked.transactions]
        if entry is not None and asked.number <= entry.number:
            same = (entry.number, entry.owner, entry.digest, entry.committed)
            if same == (asked.number, asked.owner, asked.digest, asked.committed):
                return EndTxnsResponse(already_decided=True, entry=entry)
            return EndTxnsResponse(error_code=CONFLICT, entry=entry)
        if entry is not None and entry.owner != asked.owner and not asked.takeover:
            return EndTxnsResponse(error_code=CONFLICT, entry=entry)
        wanted = (asked.ledger_key, asked.number)
        refused = [
            EndTxnsResponse.Transaction(
                transactional_id=each.transactional_id, error_code=GONE if self._found(each) is None else NOT_SO
            )
            for each in listed
            if (found := self._found(each)) is None or found.waits != wanted
        ]
        if refused:
            return EndTxnsResponse(error_code=NOT_SO, entry=entry, refused=refused)
        if (count := len({*listed, *self._others(asked)})) > self.most:
            message = f"{count} partitions to mark in one decision, {self.most} are allowed"
            return EndTxnsResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=message)
        for each in listed:
            self.end(each, asked.committed)
        self._end_others(asked)
        entry = self.ledger[asked.ledger_key] = LedgerEntry(
            number=asked.number,
            owner=asked.owner,
            digest=asked.digest,
            committed=asked.committed,
            decided_ms=self.now_ms,
        )
        return EndTxnsResponse(entry=entry)

    def _others(self, asked: EndTxnsRequest) -> list[Written]:
        """Return the transactions that wait under the request's ledger key, for its number or one below it."""
        return [
            each.written
            for each in self.open.values()
            if each.waits is not None and each.waits[0] == asked.ledger_key and each.waits[1] <= asked.number
        ]

    def _end_others(self, asked: EndTxnsRequest) -> None:
        for other in self._others(asked):
            del self.open[other.transactional_id]

    def advance(self, ms: int) -> None:
        self.now_ms += ms
        self.open = {name: each for name, each in self.open.items() if each.deadline_ms > self.now_ms}

    def visible(self) -> list[bytes]:
        return self.rows

    def is_quiet(self) -> bool:
        """Return whether no transaction is open."""
        return not self.open


class RealBroker:
    """The real broker in a simulated world, with the calls of FakeBroker; each run has a topic of its own."""

    def __init__(self) -> None:
        settings = BrokerSettings(
            transactional_id_ephemeral_prefix=PREFIX,
            transaction_abort_timed_out_transaction_cleanup_interval_ms=1000,
        )
        self.broker = SimulatedBroker(settings)
        self.runs = 0
        self._txns: dict[Written, Txn] = {}

    def next_run(self) -> None:
        self.runs += 1
        self.topic = f"t{self.runs}"
        self._txns.clear()
        topic = CreateTopicsRequest.Topic(name=self.topic, num_partitions=1)
        self.broker.ask(CreateTopicsRequest(topics=[topic]))

    @property
    def now_ms(self) -> int:
        return int(self.broker.loop.time() * 1000)

    def begin(self, name: str, timeout_ms: int) -> Written:
        txn = Txn(self.broker, name, 2, self.broker)  # type: ignore[arg-type]
        assert txn.init(timeout_ms) == 0
        written = Written(name, txn.producer_id, txn.epoch)
        self._txns[written] = txn
        return written

    def write(self, written: Written, rows: list[bytes]) -> int:
        txn = self._txns[written]
        return next((code for row in rows if (code := txn.send(self.topic, row))), 0)

    def prepare(self, written: Written, key: str, number: int, timeout_ms: int) -> int:
        return int(prepare(self._txns[written], number, key, timeout_ms).error_code)

    def end(self, written: Written, commit: bool) -> int:
        request = self._txns[written].ending(commit)
        return int(self.broker.ask(request).error_code)

    def ask(self, request: Any) -> Any:
        return self.broker.ask(request)

    def advance(self, ms: int) -> None:
        self.broker.wait(ms / 1000)

    def visible(self) -> list[bytes]:
        return list(values(self.broker, self.topic))

    def is_quiet(self) -> bool:
        return not self.broker.broker.transactions.open and not self.broker.broker.transactions.prepared
