"""Says in the log, once, that a topic which is to be read does not exist: waiting for it is silent otherwise."""

import logging

from ...protocol.errors import ErrorCode
from ..group.subscription import Subscription
from ..net.cluster import Cluster

log = logging.getLogger("fencepost.client")


class MissingTopics:
    """Of a subscription, at each new metadata. A topic that was there in between is warned of again."""

    def __init__(self, cluster: Cluster, subscription: Subscription) -> None:
        self._cluster = cluster
        self._subscription = subscription
        self._warned: set[str] = set()
        cluster.on_metadata.append(self._look)

    def _look(self) -> None:
        error = self._cluster.metadata.error
        missing = {name for name in self._subscription.topics if error(name) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        for name in sorted(missing - self._warned):
            log.warning("topic %r does not exist: it is read as soon as somebody makes it", name)
        self._warned = missing
