"""The rows of the APIs that only fencepost has (docs/apis.md).

The requests of APIs that only show something are in tests/support/brokers/own_apis.py. Kafka cannot say which answers
are right: `make rights` writes what our broker answers into ours.txt, and whoever commits that reviews the diff.
docs/security.md is compared with it.
"""

from __future__ import annotations

from own_apis import OWN_APIS

from .grants import PREFIX
from .rows import KEY, NOBODY, Fields, G, Row, T, X
from .share_rows import ACCEPTED
from .world import World

WAITS, HIDDEN = PREFIX + "waits", "hidden"
DECISION = {"number": 5, "owner": "o", "digest": b"d", "committed": False}


def prepare_ledger(world: World) -> None:
    """Prepare transactions that wait for decisions under two ledger keys."""
    for name, key in ((WAITS, KEY), (PREFIX + "unseen", KEY), ("hidden", HIDDEN)):
        found = world.init(name)
        world.add(name, found, (T,))
        world.eventually(
            "PrepareTxn",
            0,
            transactional_id=name,
            producer_id=found.producer_id,
            producer_epoch=found.producer_epoch,
            ledger_key=key,
            number=9,
            prepared_timeout_ms=600_000,
        )


def _prepare(**more: object) -> Fields:
    return {**NOBODY, "transactional_id": X, "ledger_key": KEY, "number": 7, "prepared_timeout_ms": 1000, **more}


def _acknowledging(world: World, topic: str, **more: object) -> Fields:
    """Return the fields of a TxnShareAcknowledge for records of this topic, in the name of a group that is no share
    group.
    """
    part = {"partition_index": 0, "acknowledgement_batches": [ACCEPTED]}
    topics = [{"topic_id": world.topic_id(topic), "partitions": [part]}]
    return {**NOBODY, "transactional_id": X, "group_id": G, "member_id": "nobody", "topics": topics, **more}


def _rows_that_only_show() -> list[Row]:
    """Return the rows of the APIs that only show something of the broker."""
    return [
        Row(name, (0,), lambda world, version, fields=fields: fields, what)  # type: ignore[misc]
        for name, api in OWN_APIS.items()
        for what, fields in api.rights.items()
    ]


OWN_ROWS = [
    Row("PrepareTxn", (0,), lambda world, version: _prepare()),
    Row("PrepareTxn", (0,), lambda world, version: _prepare(ledger_key="hidden"), "under a hidden key"),
    Row("PrepareTxn", (0,), lambda world, version: _prepare(prepared_timeout_ms=-1), "for good"),
    Row(
        "EndTxns",
        (0,),
        lambda world, version: {
            **DECISION,
            "ledger_key": KEY,
            "transactions": [{**NOBODY, "transactional_id": name} for name in (X, "hidden")],
        },
    ),
    Row(
        "EndTxns",
        (0,),
        lambda world, version: {
            **DECISION,
            "ledger_key": "hidden",
            "number": 0,
            "transactions": [{**NOBODY, "transactional_id": X}],
        },
        "under a hidden key",
    ),
    Row("DescribeLedger", (0,), lambda world, version: {"keys": [KEY, "hidden", PREFIX + "gone"]}),
    Row("DescribeLedger", (0,), lambda world, version: {"keys": None}, "of every key"),
    Row("RemoveLedgerEntries", (0,), lambda world, version: {"keys": [PREFIX + "gone"]}),
    *_rows_that_only_show(),
    Row("OpenNamedProducer", (0,), lambda world, version: {"name": X, "topics": [{"name": T, "partition_count": 99}]}),
    Row("DescribeNamedProducers", (0,), lambda world, version: {"names": [PREFIX + "gone", "hidden"]}),
    Row("RemoveNamedProducers", (0,), lambda world, version: {"names": [PREFIX + "gone"]}),
    Row("TxnShareAcknowledge", (0,), lambda world, version: _acknowledging(world, T)),
    Row(
        "TxnShareAcknowledge",
        (0,),
        lambda world, version: _acknowledging(world, T, group_id="hidden"),
        "of a hidden group",
    ),
]
