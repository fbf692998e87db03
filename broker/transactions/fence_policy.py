"""Which requests may act for a transactional id: applies transaction.v1.policy, and the connection fence, to clients of
TV1.

The rule: only requests of TV1 are checked. A request that came late, over an older connection, is counted, logged, and
raised as OlderConnection, which closes that connection without an answer.
"""

import logging

from ...effects.clock import Clock
from ...protocol.apis import APIS
from ...protocol.errors import ErrorCode, KafkaError
from ..config.live_settings import LiveSettings
from ..config.transaction_settings import V1_POLICIES
from ..metrics import Metrics
from ..net.connection import Connection
from ..net.owner import OlderConnection
from .fence import HIGHEST_TV1_VERSION, Fences, Kind
from .states.transaction import Transaction

log = logging.getLogger("fencepost.broker")

FENCING, ALLOW, REFUSE = V1_POLICIES
SILENT_MS = 1000  # after a line about a connection that was closed by the fence


class FencePolicy:
    """The fences of one broker's transactional ids, and its policy for them."""

    def __init__(self, settings: LiveSettings, clock: Clock, metrics: Metrics) -> None:
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._fences = Fences()
        self._silent_until_ms = 0

    def __len__(self) -> int:
        return len(self._fences)

    def check_policy(self, api: int, version: int) -> None:
        """Raise KafkaError UNSUPPORTED_VERSION if the request is of TV1 and transaction.v1.policy refuses that."""
        if version <= HIGHEST_TV1_VERSION[api] and self._settings.now.transaction_v1_policy == REFUSE:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, "only transactions of version 2 are served (transaction.v1.policy)"
            )

    def admit(self, txn: Transaction, kind: Kind, api: int, version: int, connection: Connection) -> None:
        """Check the connection of a request that has the current producer id and epoch.

        Raises OlderConnection if the request is of TV1, transaction.v1.policy is fence-connections, and a newer
        connection of the producer was served already.
        """
        if version > HIGHEST_TV1_VERSION[api] or self._settings.now.transaction_v1_policy != FENCING:
            return
        fence = self._fences.of(txn.transactional_id, txn.producer_id, txn.producer_epoch)
        if not fence.passes(kind, connection.number):
            self._metrics.fenced_connections += 1
            self._log_late_request(txn, api, connection)
            raise OlderConnection(f"the {kind.name} request for {txn.transactional_id!r} came over an older connection")

    def passes(self, txn: Transaction, kind: Kind, api: int, version: int, connection: Connection) -> bool:
        """Return whether check_policy() and admit() would accept the request. If True, its connection is noted as by
        admit(). If False, the caller calls them, so that they log and raise.
        """
        if version > HIGHEST_TV1_VERSION[api]:
            return True
        policy = self._settings.now.transaction_v1_policy
        if policy != FENCING:
            return policy == ALLOW
        fence = self._fences.of(txn.transactional_id, txn.producer_id, txn.producer_epoch)
        return fence.passes(kind, connection.number)

    def forget(self, transactional_id: str) -> None:
        """Remove the fence of a transactional id that does not exist any more."""
        self._fences.forget(transactional_id)

    def _log_late_request(self, txn: Transaction, api: int, connection: Connection) -> None:
        """Log that a connection is closed because its request came late. Writes at most one line in SILENT_MS."""
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._silent_until_ms:
            self._silent_until_ms = now_ms + SILENT_MS
            log.warning(
                "closing a connection of %s: %s of %.200r came late, its client goes on over a newer one (%d so far)",
                connection.client_host, APIS[api].name, txn.transactional_id, self._metrics.fenced_connections,
            )  # fmt: skip
