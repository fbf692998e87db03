"""Logs a warning, once, if a subscribed topic does not exist: the consumer waits for it without an error."""

import logging
from collections.abc import Collection
from typing import Protocol

from ...protocol.errors import ErrorCode
from ..net.cluster import Cluster

log = logging.getLogger("fencepost.client")


class Subscribed(Protocol):
    """What a consumer subscribes to, by name."""

    @property
    def topics(self) -> Collection[str]: ...


class MissingTopics:
    """Warns of subscribed topics that do not exist, at each change of metadata; again if a topic existed in between."""

    def __init__(self, cluster: Cluster, subscription: Subscribed) -> None:
        self._cluster = cluster
        self._subscription = subscription
        self._warned: set[str] = set()
        cluster.on_metadata.append(self._check)

    def _check(self) -> None:
        """Log a warning for each subscribed topic that does not exist, once for as long as it is missing."""
        error = self._cluster.metadata.error
        missing = {name for name in self._subscription.topics if error(name) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        for name in sorted(missing - self._warned):
            log.warning("topic %r does not exist: it will be read when it is created", name)
        self._warned = missing
