"""The end of a producer: the records it has taken are sent, and those that cannot be are counted and logged.

The rule: nothing here refers to the producer, so that one which nobody holds any more is collected.
"""

from ..errors import ClosedError
from ..net.cluster import Cluster
from ..net.connection import log
from ..transactions.driver import TransactionDriver
from ..transactions.table import UNDER_WAY
from ..unclosed import Parts
from .send_permission import PlainPermission
from .sender import Sender


class ProducerParts(Parts):
    """What a producer needs to be closed, without the producer itself.

    driver: of a transactional producer, else None. plain: the permission of a producer without transactions, else None.
    owns_cluster: whether the cluster is closed with the producer; if not, others use it too.
    """

    def __init__(
        self,
        sender: Sender,
        cluster: Cluster,
        driver: TransactionDriver | None,
        plain: PlainPermission | None,
        *,
        owns_cluster: bool,
    ) -> None:
        super().__init__(cluster.affinity)
        self._sender = sender
        self._cluster = cluster
        self._driver = driver
        self._plain = plain
        self._owns_cluster = owns_cluster

    async def finish(self, timeout_ms: float) -> None:
        """Wait until all buffered records are sent; a transactional producer aborts its open transaction, within
        timeout_ms.
        """
        if self._driver is not None:
            await self._driver.close(timeout_ms)
        elif self._is_open:
            await self._sender.flush()

    async def release(self) -> None:
        """Fail the remaining records and close the connections that belong to the producer."""
        self._sender.close(ClosedError("the producer was closed before its records were acknowledged"))
        if self._plain is not None:
            self._plain.close()
        if self._owns_cluster:
            await self._cluster.close()

    def abandon(self) -> None:
        """Fail the remaining records of a producer that was never closed and whose event loop has ended. Logs an error
        if a transaction was open.
        """
        error = ClosedError("the producer was never closed, and its event loop has ended")
        if self._affinity.is_elsewhere:
            self._sender.lose(error)
        else:
            self._sender.close(error)
        if self._driver is not None and self._driver.state in UNDER_WAY:
            log.error(
                "transaction %r was open when its program ended: unless its commit was sent, the broker aborts it "
                "after transaction_timeout_ms, and nobody sees its records",
                self._driver.transactional_id,
            )
