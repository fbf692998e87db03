"""The fast path for AddPartitionsToTxn and EndTxn of TV1 producers, which send the same bytes again and again.

These requests are the same in every transaction, except for the correlation id. So the meaning of such a request, and
the bytes of its success, are stored by the request's bytes. The rule: only a success is answered here. A request that
would be refused or dropped, or raise an error, changes nothing and takes the general path (handlers/transactions.py),
which comes to the same decision and can report it. The same tests run for both paths. docs/decisions/0032 says what
this saves.
"""

from ...protocol.apis import APIS, decode_request, encode_response
from ...protocol.errors import KafkaError, MalformedFrame
from ...protocol.headers import read_request_header
from ...protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    TxnTopicResult,
)
from ...protocol.primitives import Readable
from ...storage.store import BrokerHalted
from ..net.connection import SMALL_REPLY_BYTES, Connection
from ..topics.names import INTERNAL
from ..transactions.fence import ADD_PARTITIONS, END_TXN, HIGHEST_TV1_VERSION, Kind
from ..transactions.states import machine
from ..transactions.states.transaction import PartitionKey
from .services import Services

CORRELATION_ID = slice(4, 8)  # in a request as in an answer with its length
REMEMBERED = 10_000  # requests, and the most bytes of one
LONGEST_BYTES = 256

_Result = TxnTopicResult.Partition


class OrdinaryRequest:
    """A parsed request, and its reply if it succeeds. partitions: those of an AddPartitionsToTxn. commit: that of an
    EndTxn.
    """

    __slots__ = (
        "api",
        "client_id",
        "commit",
        "partitions",
        "producer_epoch",
        "producer_id",
        "reply_begins",
        "reply_ends",
        "transactional_id",
        "version",
    )

    def __init__(self, api: int, version: int, client_id: str, producer: tuple[str, int, int], answer: bytes) -> None:
        """producer: (transactional id, producer id, epoch). answer: the whole frame of a success, whose correlation id
        is replaced for each request.
        """
        self.api = api
        self.version = version
        self.client_id = client_id
        self.transactional_id, self.producer_id, self.producer_epoch = producer
        self.partitions: list[PartitionKey] = []
        self.commit = False
        self.reply_begins = answer[: CORRELATION_ID.start]
        self.reply_ends = answer[CORRELATION_ID.stop :]


class FastTransactions:
    """Serves AddPartitionsToTxn and EndTxn requests of the ordinary form, for one broker."""

    def __init__(self, broker: Services) -> None:
        self._topics = broker.topics.by_name
        self._coordinator = broker.transactions
        self._store = broker.store
        self._turns = broker.turns
        self._requests = broker.metrics.fast_requests
        self._throttling = broker.throttling
        self._measures = broker.throttling.measures
        self._known: dict[bytes, OrdinaryRequest] = {}
        self._turn = -1
        self._given = broker.transactions.inputs("")  # as of this turn's first request

    def serve(self, connection: Connection, frame: Readable) -> bool:
        """Apply the request and reply. Returns False, and changes nothing, unless it is of the ordinary form and
        succeeds.
        """
        if frame.__class__ is bytes and self._turns.left > 0:  # else the frame is large, or the turn is over
            asked = self._known.get(frame[:4] + frame[8:]) or self._read(frame)
            if asked is not None and self._is_free(connection, asked) and self._carry_out(asked, connection):
                self._requests[asked.api] += 1
                connection.client_id = asked.client_id
                self._coordinator.owners.heard(asked.transactional_id, connection)
                reply = asked.reply_begins + frame[4:8] + asked.reply_ends
                connection.newest_unit = unit = self._store.last_unit
                connection.slots.append((unit, reply))
                return True
        return False

    def _is_free(self, connection: Connection, asked: OrdinaryRequest) -> bool:
        """Return whether no quota applies to the client."""
        return not self._measures.is_active or self._throttling.is_free(connection.session, asked.client_id)

    def _carry_out(self, asked: OrdinaryRequest, connection: Connection) -> bool:
        """Apply the request to its transaction. Returns False, and changes nothing, if it would not succeed."""
        coordinator, transactional_id = self._coordinator, asked.transactional_id
        txn = coordinator.transactions.get(transactional_id)
        producer_id, epoch = asked.producer_id, asked.producer_epoch
        if txn is None or txn.producer_id != producer_id or txn.producer_epoch != epoch:
            return False
        try:
            added = {key: self._topics[key[0]].partitions[key[1]].log.log_id for key in asked.partitions}
            if not coordinator.fence_policy.passes(txn, Kind.COORDINATOR, asked.api, asked.version, connection):
                return False
            if self._turn != self._store.turn:  # in one turn, the inputs of all ids that are not ephemeral are the same
                self._turn, self._given = self._store.turn, coordinator.inputs("")
            given = coordinator.inputs(transactional_id) if coordinator.is_ephemeral(transactional_id) else self._given
            if asked.api == END_TXN:
                decision = machine.end(txn, asked.commit, producer_id, epoch, machine.TV1, given)
            else:
                decision = machine.add_partitions(txn, producer_id, epoch, added, machine.TV1, given)
            if decision.error:
                return False
            coordinator.log(transactional_id, decision, given)
        except (KafkaError, LookupError, BrokerHalted):
            return False
        return True

    def _read(self, frame: bytes) -> OrdinaryRequest | None:
        """Parse the request and remember it; None if it does not have the ordinary form."""
        if len(frame) > LONGEST_BYTES:
            return None
        try:
            header = read_request_header(frame)
            api = header.api_key
            if api not in (ADD_PARTITIONS, END_TXN) or not 0 <= header.api_version <= HIGHEST_TV1_VERSION[api]:
                return None
            request = decode_request(APIS[api], header.api_version, frame, header.position)
        except MalformedFrame:
            return None
        asked = (
            _end(request, header.api_version, header.client_id)
            if api == END_TXN
            else _adding(request, header.api_version, header.client_id)
        )
        if asked is not None:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[frame[:4] + frame[8:]] = asked
        return asked


def _end(request: EndTxnRequest, version: int, client_id: str) -> OrdinaryRequest | None:
    """Return an EndTxn as an OrdinaryRequest; None without a transactional id."""
    producer = request.transactional_id, request.producer_id, request.producer_epoch
    answer = b"".join(encode_response(APIS[END_TXN], version, 0, EndTxnResponse()))
    asked = OrdinaryRequest(END_TXN, version, client_id, producer, answer)
    asked.commit = request.committed
    return asked if asked.transactional_id else None


def _adding(request: AddPartitionsToTxnRequest, version: int, client_id: str) -> OrdinaryRequest | None:
    """Return an AddPartitionsToTxn as an OrdinaryRequest; None if it names an internal topic, a negative partition, no
    transactional id, or so many partitions that its answer is long.
    """
    topics = request.v3_and_below_topics
    results = [
        TxnTopicResult(
            name=topic.name, results_by_partition=[_Result(partition_index=index) for index in topic.partitions]
        )
        for topic in topics
    ]
    response = AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)
    answer = b"".join(encode_response(APIS[ADD_PARTITIONS], version, 0, response))
    producer_id, epoch = request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
    producer = request.v3_and_below_transactional_id, producer_id, epoch
    asked = OrdinaryRequest(ADD_PARTITIONS, version, client_id, producer, answer)
    asked.partitions = [(topic.name, index) for topic in topics for index in topic.partitions]
    ordinary = asked.transactional_id and all(index >= 0 and name not in INTERNAL for name, index in asked.partitions)
    return asked if ordinary and len(answer) <= SMALL_REPLY_BYTES else None
