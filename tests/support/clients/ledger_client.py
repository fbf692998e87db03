"""PrepareTxn and EndTxns in few words, over a simulated broker's own connection."""

from typing import Any

from fencepost.protocol.messages.ledger import (
    DescribeLedgerRequest,
    EndTxnsRequest,
    PrepareTxnRequest,
    RemoveLedgerEntriesRequest,
)
from fencepost.protocol.messages.topics import CreateTopicsRequest
from simulated_broker import SimulatedBroker
from txn_client import Txn

HOUR_MS = 3_600_000
CONFLICT = 10_000  # the error code of a prepare or a decision that comes too late


def prepare(txn: Txn, number: int = 1, key: str = "sink", timeout_ms: int = HOUR_MS, *, hold: bool = False) -> Any:
    """Send PrepareTxn and return its response. number: of the decision that the transaction waits for."""
    return txn.client.ask(
        PrepareTxnRequest(
            transactional_id=txn.name,
            producer_id=txn.producer_id,
            producer_epoch=txn.epoch,
            ledger_key=key,
            number=number,
            prepared_timeout_ms=timeout_ms,
            hold=hold,
        )
    )


def deciding(*transactions: Txn, number: int = 1, key: str = "sink", **more: Any) -> EndTxnsRequest:
    """Return the request that decides to commit these transactions; more: owner, digest, committed, takeover."""
    asked = {"owner": "driver", "digest": b"d", "committed": True} | more
    items = [
        EndTxnsRequest.Transaction(transactional_id=txn.name, producer_id=txn.producer_id, producer_epoch=txn.epoch)
        for txn in transactions
    ]
    return EndTxnsRequest(ledger_key=key, number=number, transactions=items, **asked)


def decide(broker: SimulatedBroker, *transactions: Txn, **more: Any) -> Any:
    """Send a decision and return its response."""
    return broker.ask(deciding(*transactions, **more))


def last_number(broker: SimulatedBroker, key: str = "sink") -> int:
    """Return the number of the last decision under this key; -1 if there is none."""
    (found,) = broker.ask(DescribeLedgerRequest(keys=[key])).keys
    return -1 if found.entry is None else int(found.entry.number)


def waiting(broker: SimulatedBroker, key: str = "sink") -> list[tuple[str, int]]:
    """Return the transactions that wait under this key, and the number that each waits for."""
    (found,) = broker.ask(DescribeLedgerRequest(keys=[key])).keys
    return [(each.transactional_id, each.number) for each in found.waiting]


def remove(broker: SimulatedBroker, *keys: str) -> list[int]:
    """Remove ledger entries and return the error codes."""
    return [each.error_code for each in broker.ask(RemoveLedgerEntriesRequest(keys=list(keys))).keys]


# ---- on a broker with two topics -----------------------------------------------------------------------------


def topics(broker: SimulatedBroker) -> SimulatedBroker:
    """Create topics a and b, with three partitions each."""
    asked = [CreateTopicsRequest.Topic(name=name, num_partitions=3) for name in ("a", "b")]
    broker.ask(CreateTopicsRequest(topics=asked))
    broker.broker.ledger.topic.ensure()  # so that it adds no unit to those that are counted
    return broker


def written(
    broker: SimulatedBroker,
    name: str,
    *,
    topic: str = "a",
    partition: int = 0,
    version: int = 1,
    value: bytes | None = None,
) -> Txn:
    """Return a transaction with one record: its value is `value`, or else the name."""
    txn = Txn(broker, name, version)
    assert txn.init() == 0
    txn.write(topic, value or name.encode(), partition)
    return txn


def prepared(
    broker: SimulatedBroker, name: str, number: int = 1, key: str = "sink", timeout_ms: int = HOUR_MS, **more: Any
) -> Txn:
    """Return a transaction that waits for the decision; more: as `written`."""
    txn = written(broker, name, **more)
    assert prepare(txn, number, key, timeout_ms).error_code == 0
    return txn


def held(
    broker: SimulatedBroker, name: str = "t", number: int = 1, key: str = "sink", timeout_ms: int = HOUR_MS, **more: Any
) -> Txn:
    """Return a transaction that waits for the decision and that only its decision can end; more: as `written`."""
    txn = written(broker, name, **more)
    assert prepare(txn, number, key, timeout_ms, hold=True).error_code == 0
    return txn
