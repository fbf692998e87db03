"""The connection fence: refuses a producer's requests that come over an older connection than its newest one. Pure.

The problem. With transactions of version 1 (TV1, before KIP-890) a producer keeps its epoch for many transactions, and
no request says which transaction it means. So a request that was held up and arrives late takes effect on whatever
transaction is open then:

    connection 1   EndTxn(commit) of transaction A ............................ arrives late
    connection 2           retry: EndTxn(commit) of A, answered; transaction B begins, data of B
                                                                                 ^ commits the half of B that is here

Kafka has this defect (KAFKA-17754), and TV2 cures it: each end of a transaction raises the epoch, so late requests have
a stale one. But of the clients for Python only our own speaks TV2 (client/transactions/).

The observation. TCP keeps the order of one connection. A request can be late only if its client has given up the
connection that it is on, and has gone on over a newer one. Connections are numbered as they are accepted.

The rule. For each (transactional id, producer id, epoch) and each kind of request, the newest connection is remembered
whose request passed the epoch check. A request of that kind on an older connection is dropped unanswered, and its
connection is closed: its client has stopped to wait for the answer. Three kinds, because clients use up to three
connections at once, one to each coordinator and one for data; each of them is in order by itself.

Why it is safe to drop. The client cannot tell a dropped request from one that was lost on the way, and must cope with
that anyhow. Why a stale epoch moves nothing: it is refused before the fence is asked, so an older producer cannot push
out the new one.

What remains open: a late request of a kind that has come over no newer connection yet, and proxies that share
connections between clients (docs/guarantees.md). The words are in docs/glossary.md.
"""

from enum import IntEnum

PRODUCE, INIT_PRODUCER_ID, ADD_PARTITIONS, ADD_OFFSETS, END_TXN, TXN_OFFSET_COMMIT = 0, 22, 24, 25, 26, 28


class Kind(IntEnum):
    """The kinds of transactional requests. A client sends all requests of one kind over one connection at a time."""

    COORDINATOR = 0  # InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn
    GROUP = 1  # TxnOffsetCommit
    DATA = 2  # transactional Produce


# The highest version of each request that TV1 clients send, by API key. AddPartitionsToTxn from 4 on is of brokers, and
# TV2 clients send neither that nor AddOffsetsToTxn; InitProducerId 5, EndTxn 5, TxnOffsetCommit 5 and Produce 12 are
# TV2's own (Kafka's TransactionManager caps the last three where transaction.version is below 2).
HIGHEST_TV1_VERSION = {
    PRODUCE: 11,
    INIT_PRODUCER_ID: 4,
    ADD_PARTITIONS: 3,
    ADD_OFFSETS: 4,
    END_TXN: 4,
    TXN_OFFSET_COMMIT: 4,
}


class Fence:
    """Refuses requests from an older connection, for one transactional id at one producer id and epoch."""

    __slots__ = ("_newest",)

    def __init__(self) -> None:
        self._newest = [-1, -1, -1]

    def passes(self, kind: Kind, connection_number: int) -> bool:
        """Return whether the request comes over the newest connection seen for its kind, or a newer one. If so, note
        it.

        The caller has checked the producer epoch. connection_number: grows with the order in which connections were
        accepted.
        """
        if connection_number < self._newest[kind]:
            return False
        self._newest[kind] = connection_number
        return True


class Fences:
    """The fence of each transactional id, for the producer id and epoch that sent the last request."""

    def __init__(self) -> None:
        self._fences: dict[str, tuple[int, int, Fence]] = {}

    def __len__(self) -> int:
        return len(self._fences)

    def of(self, transactional_id: str, producer_id: int, producer_epoch: int) -> Fence:
        """Return the fence of this producer id and epoch. If the id's last fence was for another producer id or epoch,
        it is replaced by a new one.
        """
        found = self._fences.get(transactional_id)
        if found is not None and found[0] == producer_id and found[1] == producer_epoch:
            return found[2]
        fence = Fence()
        self._fences[transactional_id] = producer_id, producer_epoch, fence
        return fence

    def forget(self, transactional_id: str) -> None:
        """Remove the fence of a transactional id that does not exist any more."""
        self._fences.pop(transactional_id, None)
