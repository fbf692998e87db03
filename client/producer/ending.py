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
    """driver: of a transactional producer, plain: of any other. owns_cluster: else others use the cluster, too."""

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
        """Send what is buffered; a transactional producer aborts its open transaction."""
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
        """Fail the remaining records of a producer whose event loop has ended."""
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
