"""A cluster whose brokers answer as a test tells them, to test what a Sender does with each answer.

It runs on virtual time. Requests wait in `sent` until the test answers them, fails them, or leaves them alone.
"""

import asyncio
from types import SimpleNamespace

from fencepost.client.errors import BrokerUnreachableError
from fencepost.client.net.environment import Environment
from fencepost.client.net.retry import Backoff
from fencepost.client.net.throttles import Throttles
from fencepost.client.net.topology import Metadata, Partition
from fencepost.client.net.topology import Topic as KnownTopic
from fencepost.client.producer.batching import Accumulator, Topic
from fencepost.client.producer.delivery import Delivery
from fencepost.client.producer.sender import Sender
from fencepost.client.settings import producer_settings
from fencepost.client.values import ProducerIdentity
from fencepost.effects.simulated.net import SimulatedNet
from fencepost.effects.simulated.rng import SeededRng
from fencepost.protocol.batches import check_produced
from fencepost.protocol.messages.produce import ProduceResponse
from fencepost.protocol.records import records


class Sent:
    """One Produce request. partitions: (topic, partition) → (batch header, bytes)."""

    def __init__(self, node_id, request, version, future):
        self.node_id, self.request, self.version, self.future = node_id, request, version, future
        self.bytes = {
            (topic.name, one.index): bytes(one.records) for topic in request.topic_data for one in topic.partition_data
        }

    def batch(self, partition=0):
        return check_produced(memoryview(self.bytes["t", partition]))

    def values(self, partition=0):
        return [one.value for one in records(self.batch(partition))]

    def answer(self, code=0, offset=0, throttle_ms=0, **codes):
        """Answer the request with this error code for every partition; p0=…, p1=…: for one of them."""
        topics = []
        for topic in self.request.topic_data:
            answered = [
                ProduceResponse.Topic.Partition(
                    index=one.index, error_code=int(codes.get(f"p{one.index}", code)), base_offset=offset
                )
                for one in topic.partition_data
            ]
            topics.append(ProduceResponse.Topic(name=topic.name, topic_id=topic.topic_id, partition_responses=answered))
        self.future.set_result(ProduceResponse(responses=topics, throttle_time_ms=throttle_ms))

    def fail(self, *, sent=True):
        self.future.set_exception(BrokerUnreachableError("cut", sent=sent))


class ScriptedPermission:
    def __init__(self):
        self.transactional_id = None
        self.producer = None
        self.given = ProducerIdentity(7, 0)
        self.open = True
        self.failures = []
        self.renewed = 0
        self.cap = None
        self.attempts = []

    def identity(self):
        return self.given

    def renew(self):
        self.renewed += 1
        self.given = None

    def may_send(self, topic_partition):
        return self.open

    def produce_cap(self):
        return self.cap

    def sent(self, topic_partition):
        self.attempts.append(topic_partition)

    def refusal(self):
        return None

    def failed(self, topic_partition, error):
        self.failures.append((topic_partition, error))


class ScriptedCluster:
    """The cluster, and everything else that a Sender needs. leaders: the leader of each partition of topic t; None for
    one without.
    """

    def __init__(self, loop, *, leaders=(1,), version=12, topic_id=bytes(16), **settings):
        self.loop = loop
        self.sent, self.refreshes, self.stale_codes = [], 0, []
        self.on_metadata = []
        self.refresh_error = None
        self.version = version
        self.up = True
        self.lead(leaders, topic_id)
        self.settings = producer_settings("localhost:9092", **settings)
        self.backoff = Backoff(self.settings.retry_backoff_ms, self.settings.retry_backoff_max_ms)
        environment = Environment(loop.clock(), SeededRng(1), SimulatedNet())
        self.throttles = Throttles("fencepost", environment.clock)
        self.accumulator = Accumulator(
            now_ms=environment.clock.monotonic_ms,
            max_batch_bytes=self.settings.max_batch_size,
            max_record_bytes=self.settings.max_request_size,
            memory_bytes=self.settings.buffer_memory,
            delivery_timeout_ms=self.settings.delivery_timeout_ms,
            linger_ms=self.settings.linger_ms,
        )
        self.topic = self.accumulator.topics["t"] = Topic("t", len(leaders), [], 0)
        self.sender = Sender(self, self.settings, self.accumulator, environment)
        self.permission = self.sender.permission = ScriptedPermission()
        self.permission.transactional_id = self.settings.transactional_id
        if self.permission.transactional_id is None:
            self.sender.renew = self.permission.renew

    # What a Sender calls

    def ready(self, node_id):
        return SimpleNamespace(version_of=self._version_of, send=self._send_to(node_id)) if self.up else None

    async def node(self, node_id):
        if not self.up:
            raise BrokerUnreachableError("down")

    def request_refresh(self):
        self.refreshes += 1

    def stale(self, code):
        self.stale_codes.append(code)

    def _version_of(self, request_class, cap=None):
        return self.version if cap is None else min(cap, self.version)

    def _send_to(self, node_id):
        def send(request, version, *, timeout_ms, expects_reply=True):
            future = self.loop.create_future()
            self.sent.append(Sent(node_id, request, version, future))
            if not expects_reply:
                future.set_result(None)
            return future

        return send

    # What a test calls

    def lead(self, leaders, topic_id=bytes(16)):
        partitions = {n: Partition(-1 if node is None else node, 0) for n, node in enumerate(leaders)}
        self.metadata = Metadata(topics={"t": KnownTopic("t", topic_id, partitions)})
        for call in self.on_metadata:
            self.inside(call)

    def inside(self, call, *arguments):
        """Call a function in the event loop and return its result."""

        async def run():
            return call(*arguments)

        return self.loop.run_until_complete(run())

    def append(self, partition, value=b"v", key=None):
        """Give a record to the accumulator, and return its (batch, index). To be called in the loop."""
        return self.accumulator.append(self.topic, partition, key, value, None, 5)

    def deliver(self, partition):
        """Append a record and return its Delivery, which awaits the acknowledgement. To be called in the loop."""
        return Delivery(*self.append(partition))

    def put(self, value=b"v", *, partition=0, key=None):
        placed = self.inside(self.append, partition, value, key)
        assert placed is not None
        self.turn()
        return Delivery(*placed)

    def introduce(self):
        """Write one record, so that the broker knows the producer."""
        self.put(b"first")
        self.next().answer()
        self.turn()

    def turn(self):
        """Run the loop until nothing is left to do without time passing."""
        for _ in range(4):
            self.loop.run_until_complete(asyncio.sleep(0))

    def wait(self, seconds):
        self.loop.run_until_complete(asyncio.sleep(seconds))

    def next(self):
        """Return the oldest request that the test has not taken yet."""
        self.turn()
        assert self.sent, "nothing was sent"
        return self.sent.pop(0)

    def result(self, delivery):
        async def run():
            return await delivery

        return self.loop.run_until_complete(asyncio.wait_for(run(), 1))
