"""The requests for transactions that are decided elsewhere: PrepareTxn, EndTxns, DescribeLedger. One attempt each.

The rule: a repeated request is safe. A repeated PrepareTxn succeeds, a repeated EndTxns is told that it was decided.
Source: docs/apis.md.
"""

import asyncio
from collections.abc import Collection
from typing import NamedTuple

from ...protocol.errors import ErrorCode
from ...protocol.messages.ledger import (
    NEVER_MS,
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
from ..errors import KafkaError, UnsupportedVersionError, error_of
from ..net.cluster import Cluster
from ..net.coordinators import CoordinatorKind
from ..net.versions import OWN_FEATURE
from ..values import NO_IDENTITY, ProducerIdentity
from .deciding import NONE_YET, OWNER, PREFIX, Standing, Waiting, digest_of

_HOLDS_SINCE = 4  # of fencepost.version


class Ended(NamedTuple):
    """The answer to EndTxns. identity: the producer id and epoch that the producer uses next, NO_IDENTITY without one.
    number, committed: of the ledger's entry. error: None for a success.
    """

    identity: ProducerIdentity
    number: int
    committed: bool
    error: KafkaError | None


class Decisions:
    """Sends each request once, to the transaction coordinator of the id."""

    def __init__(self, cluster: Cluster, request_timeout_ms: float) -> None:
        self._cluster = cluster
        self._timeout_ms = request_timeout_ms

    async def check_holding(self, transactional_id: str) -> None:
        """Raise UnsupportedVersionError if the broker cannot hold a transaction until its decision."""
        if not await self.can_hold(transactional_id):
            connection = await self._cluster.coordinator("transaction", transactional_id)
            raise UnsupportedVersionError(
                f"{connection.name} cannot hold a prepared transaction until a database has decided about it",
                hint="only fencepost can: this is another broker, such as Apache Kafka, or an older fencepost",
            )

    async def can_hold(self, transactional_id: str) -> bool:
        """Return whether the broker can hold a transaction until its decision."""
        connection = await self._cluster.coordinator("transaction", transactional_id)
        return connection.features.get(OWN_FEATURE, 0) >= _HOLDS_SINCE

    async def prepare(
        self, asked: Waiting, sent: "asyncio.Future[PrepareTxnResponse] | None" = None
    ) -> tuple[int, KafkaError]:
        """Send PrepareTxn: hold the transaction until its decision, for as long as it takes. Returns the error code of
        the answer (0: it is prepared) and a KafkaError that describes this code.

        sent: the answer to a PrepareTxn that was sent before; then none is sent now.
        """
        target = _coordinator_of(asked.transactional_id)
        answer: PrepareTxnResponse = await (
            sent or self._cluster.ask(target, _prepare_request(asked), timeout_ms=self._timeout_ms)
        )
        self._cluster.stale(answer.error_code, target)
        text = answer.error_message or str(error_of(answer.error_code))
        return answer.error_code, error_of(answer.error_code, f"PrepareTxn: {text}")

    def prepare_behind(self, asked: Waiting, node_ids: Collection[int]) -> "asyncio.Future[PrepareTxnResponse] | None":
        """Send PrepareTxn right behind the records that these brokers have not acknowledged, so that one sync makes
        them and the prepared state durable. Returns its answer.

        Returns None, and sends nothing, if one of the brokers is not the transaction's coordinator, because then
        PrepareTxn might overtake records.
        """
        node_id = self._cluster.coordinators.known(*_coordinator_of(asked.transactional_id))
        if node_id is None or set(node_ids) - {node_id}:
            return None
        connection = self._cluster.ready(node_id)
        if connection is None or not connection.knows(PrepareTxnRequest):
            return None
        version = connection.version_of(PrepareTxnRequest)
        sent = connection.send(_prepare_request(asked), version, timeout_ms=self._timeout_ms)
        sent.add_done_callback(_look_at)
        return sent

    async def end(self, waiting: Waiting, committed: bool) -> Ended:
        """Send EndTxns: tell the broker that the database has committed (or aborted) this transaction. Returns the
        answer: an error in it is not raised.
        """
        request = EndTxnsRequest(
            ledger_key=waiting.key,
            number=waiting.number,
            owner=OWNER,
            digest=digest_of(waiting.identity),
            committed=committed,
            transactions=[
                EndTxnsRequest.Transaction(
                    transactional_id=waiting.transactional_id,
                    producer_id=waiting.identity.producer_id,
                    producer_epoch=waiting.identity.epoch,
                )
            ],
        )
        target = _coordinator_of(waiting.transactional_id)
        answer: EndTxnsResponse = await self._cluster.ask(target, request, timeout_ms=self._timeout_ms)
        self._cluster.stale(answer.error_code, target)
        code = next((one.error_code for one in answer.refused), answer.error_code)
        error = None
        if answer.error_code:
            error = error_of(code, f"EndTxns: {answer.error_message or error_of(code)}")
        found = [ProducerIdentity(one.producer_id, one.producer_epoch) for one in answer.ended]
        number, decided = (NONE_YET, False) if answer.entry is None else (answer.entry.number, answer.entry.committed)
        return Ended(found[0] if found else NO_IDENTITY, number, decided, error)

    async def remove(self, key: str, transactional_id: str) -> None:
        """Remove the ledger's entry of this key. One that does not exist is no error."""
        target = _coordinator_of(transactional_id)
        request = RemoveLedgerEntriesRequest(keys=[key])
        answer: RemoveLedgerEntriesResponse = await self._cluster.ask(target, request, timeout_ms=self._timeout_ms)
        for each in answer.keys:
            self._cluster.stale(each.error_code, target)
            if each.error_code not in (ErrorCode.NONE, ErrorCode.RESOURCE_NOT_FOUND):
                raise error_of(each.error_code, each.error_message or f"ledger key {key!r}")

    async def look(self, key: str, transactional_id: str) -> Standing:
        """Return what was decided last under this key, and which transaction of this id waits under it. Raises the
        broker's error for the key.
        """
        request = DescribeLedgerRequest(keys=[key])
        found = (await self._describe(request, transactional_id)).keys[0]
        if found.error_code not in (ErrorCode.NONE, ErrorCode.RESOURCE_NOT_FOUND):
            raise error_of(found.error_code, f"ledger key {key!r}: {error_of(found.error_code)}")
        waiting = next((one for one in _waiting_in(found) if one.transactional_id == transactional_id), None)
        if found.entry is None:
            return Standing(NONE_YET, False, waiting)
        return Standing(found.entry.number, found.entry.committed, waiting)

    async def find_held(self, transactional_id: str, prefix: str = PREFIX) -> list[Waiting]:
        """Return the held transactions of this id, or of all ids if it is empty, whose ledger keys begin with
        `prefix`.
        """
        found = [one for _, one in await self._find(transactional_id, prefix)]
        return [one for one in found if transactional_id in ("", one.transactional_id)]

    async def find_standings(self, prefix: str) -> list[tuple[Standing, Waiting]]:
        """Return each held transaction whose ledger key begins with `prefix`, with what was decided last under its
        key.
        """
        found = await self._find("", prefix)
        return [
            (Standing(NONE_YET, False, one) if entry is None else Standing(entry.number, entry.committed, one), one)
            for entry, one in found
        ]

    async def _find(self, transactional_id: str, prefix: str) -> list[tuple[LedgerEntry | None, Waiting]]:
        """Return each held transaction whose ledger key begins with `prefix`, with the ledger's entry of that key
        (None if nothing was decided). Asks the coordinator of this id only.
        """
        answer = await self._describe(DescribeLedgerRequest(prefix=prefix), transactional_id)
        return [(key.entry, one) for key in answer.keys for one in _waiting_in(key)]

    async def _describe(self, request: DescribeLedgerRequest, transactional_id: str) -> DescribeLedgerResponse:
        """Send DescribeLedger to the coordinator of the transactional id. Raises the KafkaError of the response as a
        whole.
        """
        target = _coordinator_of(transactional_id)
        answer: DescribeLedgerResponse = await self._cluster.ask(target, request, timeout_ms=self._timeout_ms)
        if answer.error_code:
            self._cluster.stale(answer.error_code, target)
            raise error_of(answer.error_code, f"DescribeLedger: {answer.error_message or error_of(answer.error_code)}")
        return answer


def _prepare_request(asked: Waiting) -> PrepareTxnRequest:
    return PrepareTxnRequest(
        transactional_id=asked.transactional_id,
        producer_id=asked.identity.producer_id,
        producer_epoch=asked.identity.epoch,
        ledger_key=asked.key,
        number=asked.number,
        prepared_timeout_ms=NEVER_MS,
        hold=True,
    )


def _look_at(answered: "asyncio.Future[PrepareTxnResponse]") -> None:
    """Look at the error of an answer, which nobody else does if the transaction has failed meanwhile."""
    if not answered.cancelled():
        answered.exception()


def _coordinator_of(transactional_id: str) -> tuple[CoordinatorKind, str]:
    return "transaction", transactional_id


def _waiting_in(key: DescribeLedgerResponse.Key) -> list[Waiting]:
    """Return the prepared transactions of this ledger key that only a decision can end."""
    return [
        Waiting(
            key.key,
            one.transactional_id,
            ProducerIdentity(one.producer_id, one.producer_epoch),
            one.number,
            one.waits_for_ms,
        )
        for one in key.waiting
        if one.held
    ]
