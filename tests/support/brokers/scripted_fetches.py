"""A cluster whose brokers answer fetches as a test tells them to, on virtual time. Partition 0 of topic t."""

import asyncio
from types import SimpleNamespace

from fencepost.client.consumer.fetcher import Fetcher
from fencepost.client.errors import BrokerUnreachableError
from fencepost.client.group.subscription import Subscription
from fencepost.client.net.environment import Environment
from fencepost.client.net.retry import Backoff
from fencepost.client.net.topology import Metadata, Node, Partition, Topic
from fencepost.client.settings import consumer_settings
from fencepost.client.values import TopicPartition
from fencepost.effects.simulated.net import SimulatedNet
from fencepost.effects.simulated.rng import SeededRng
from fencepost.protocol.messages.fetch import FetchResponse
from fencepost.protocol.primitives import ZERO_UUID
from fencepost.protocol.records import Record, build

T0 = TopicPartition("t", 0)


class Asked:
    """One Fetch request to one broker."""

    def __init__(self, node_id, request, future):
        self.node_id, self.request, self.future = node_id, request, future

    @property
    def offset(self):
        (topic,) = self.request.topics
        return topic.partitions[0].fetch_offset

    def answer(self, offset=None, value=b"v", *, code=0, replica=-1, ends_at=None):
        """Answer with one record at this offset, or without records. ends_at: the end offset of the epoch that the
        request named, for a diverging epoch.
        """
        record = [] if offset is None else [memoryview(build([Record(offset, 5, None, value)], base_offset=offset))]
        Part = FetchResponse.Topic.Partition
        part = Part(
            partition_index=0, error_code=code, high_watermark=99, records=record, preferred_read_replica=replica
        )
        if ends_at is not None:
            part.diverging_epoch = Part.EpochEndOffset(epoch=0, end_offset=ends_at)
        topic = FetchResponse.Topic(topic="t", topic_id=ZERO_UUID, partitions=[part])
        self.future.set_result(FetchResponse(responses=[topic], session_id=0))

    def fail(self):
        self.future.set_exception(BrokerUnreachableError("cut"))


class ScriptedFetches:
    """The cluster, and everything else that a Fetcher needs, which reads from offset 0 on."""

    def __init__(self, loop, *, brokers=(1, 2), leader=1, **settings):
        self.loop = loop
        self.asked = []
        self.refreshes = 0
        self.on_metadata = []
        self.brokers = brokers
        self.environment = Environment(loop.clock(), SeededRng(1), SimulatedNet())
        self.backoff = Backoff(100, 1_000)
        self.metadata = self._metadata(leader, 0)
        self.subscription = Subscription()
        self.subscription.assign([T0])
        self.state = self.subscription.assigned[T0]
        self.state.move(0)
        self.fetcher = Fetcher(self, consumer_settings("a", **settings), self.subscription, lambda: None)
        self.inside(self.fetcher.pump)

    def _metadata(self, leader, epoch):
        nodes = {node_id: Node(node_id, "host", node_id) for node_id in self.brokers}
        return Metadata(nodes, {"t": Topic("t", ZERO_UUID, {0: Partition(leader, epoch)})})

    # What a Fetcher calls

    def ready(self, node_id, executor):
        def send(request, version, *, timeout_ms):
            future = self.loop.create_future()
            self.asked.append(Asked(node_id, request, future))
            return future

        return SimpleNamespace(version_of=lambda kind, cap=12: cap, send=send)

    def request_refresh(self):
        self.refreshes += 1

    def stale(self, code):
        pass

    # What a test calls

    def lead(self, leader, epoch):
        self.metadata = self._metadata(leader, epoch)
        for call in self.on_metadata:
            self.inside(call)

    def inside(self, call):
        async def run():
            call()

        self.loop.run_until_complete(run())

    def wait(self, seconds=0.0):
        """Let this many seconds of virtual time pass."""
        self.loop.run_until_complete(asyncio.sleep(seconds))
        self.loop.run_until_complete(asyncio.sleep(0))

    def next(self):
        """Return the oldest request that the test has not taken yet."""
        self.wait()
        assert self.asked, "nothing was asked for"
        return self.asked.pop(0)

    def values(self):
        """Take and return the values that were fetched and not read yet."""
        found = []
        while self.state.fetched:
            fetched = self.state.fetched.popleft()
            self.state.fetched_bytes -= fetched.size
            while run := fetched.run(99):
                found += [record.value for record in run]
            self.state.position = fetched.position
        return found
