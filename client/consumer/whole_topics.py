"""The assignment of a consumer without a group: all partitions of its topics, including new ones.

The rule: partitions are added within polls, as with a group, and none is removed while its topic is subscribed. A
partition that appears later is read from its beginning, unless auto_offset_reset is "none": else records written before
it was noticed would be lost.
"""

from collections.abc import Callable

from ..group.subscription import EARLIEST, Need, Subscription
from ..net.cluster import Cluster
from ..settings import ConsumerSettings
from ..values import TopicPartition


class WholeTopics:
    """Assigns all partitions of the subscribed topics to a consumer without a group. on_news: called when `poll`
    should be called.
    """

    def __init__(
        self, cluster: Cluster, settings: ConsumerSettings, subscription: Subscription, on_news: Callable[[], None]
    ) -> None:
        self._cluster = cluster
        self._subscription = subscription
        self._on_news = on_news
        self._late_from_start = settings.auto_offset_reset == "latest"
        self._seen_topics: set[str] = set()  # topics whose partitions were added once: later ones are new
        self._matched = False  # whether all topics were compared with the pattern once
        self._before = cluster.metadata  # when the subscription changed
        self._since_ms = 0.0
        self.needs_poll = False
        cluster.on_metadata.append(self._ask_for_poll)

    def subscribed(self) -> None:
        """Start again for a changed subscription: watch its topics, and wait for new metadata."""
        self._seen_topics &= self._subscription.topics
        self._matched = False
        self._before = self._cluster.metadata
        self._since_ms = self._cluster.environment.clock.monotonic_ms()
        self._cluster.watch_all_topics(self._subscription.pattern is not None)
        self._cluster.watch_topics(self._subscription.topics)
        self.needs_poll = self._subscription.is_subscribed

    def poll(self) -> None:
        """Update the assignment, once the metadata says of every topic which partitions it has or that it does not
        exist.
        """
        self.needs_poll = False
        subscription, metadata = self._subscription, self._cluster.metadata
        if not subscription.is_subscribed:
            return
        if subscription.pattern is not None:
            if metadata is self._before or metadata.at_ms < self._since_ms:
                return  # this metadata may have only some topics
            names = (each.name for each in metadata.topics.values() if not each.error and not each.is_internal)
            subscription.match(names)
        if not subscription.topics <= metadata.topics.keys() | self._seen_topics:
            return
        before = subscription.assigned
        wanted = self._find_wanted()
        late = [tp for tp in wanted if tp not in before and (self._matched or tp.topic in self._seen_topics)]
        self._seen_topics |= subscription.topics
        self._matched = subscription.pattern is not None
        if wanted != before.keys() or not subscription.has_assignment:
            subscription.assign_from_group(sorted(wanted))
        if self._late_from_start:
            for tp in late:
                subscription.state(tp).look_up(Need.OFFSET, EARLIEST)

    def _find_wanted(self) -> set[TopicPartition]:
        """Return all partitions of the topics. If a topic is missing in metadata now, its assigned ones stay."""
        topics = self._subscription.topics
        found = {tp for tp in self._subscription.assigned if tp.topic in topics}
        for topic in topics:
            found.update(TopicPartition(topic, index) for index in range(self._cluster.metadata.partitions(topic) or 0))
        return found

    def _ask_for_poll(self) -> None:
        """Request a poll after a change of metadata, unless one is requested already."""
        if self._subscription.is_subscribed and not self.needs_poll:
            self.needs_poll = True
            self._on_news()
