"""Members of the newer group protocol on both sides: the SDK's pure machine against the broker's pure machine.

Requests and responses can be held, lost and sent twice. What a member reads is what its last poll has applied.
"""

from __future__ import annotations

from collections.abc import Iterable

from consumer_group_driver import ConsumerGroupDriver
from fencepost.broker.groups.consumer.heartbeats import Heartbeat
from fencepost.client.group.consumer_membership import ConsumerMembership, ConsumerTerms, State
from fencepost.client.values import TopicPartition
from fencepost.protocol.errors import ErrorCode, KafkaError
from fencepost.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse

Response = ConsumerGroupHeartbeatResponse
GROUP = "g"


def answered(driver: ConsumerGroupDriver, request: ConsumerGroupHeartbeatRequest) -> Response:
    """Return the broker's response to a request that arrives now."""
    owned = None
    if request.topic_partitions is not None:
        owned = {each.topic_id: list(each.partitions) for each in request.topic_partitions}
    beat = Heartbeat(
        request.member_id,
        request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=None if request.subscribed_topic_names is None else tuple(request.subscribed_topic_names),
        regex=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=owned,
    )
    try:
        if request.member_epoch < 0:
            answer = driver.group.leave(beat)
        else:
            answer = driver.group.heartbeat(beat, driver.now_ms, driver.now_ms)
    except KafkaError as error:
        return Response(error_code=error.code, error_message=error.text)
    assignment = None
    if answer.assigned is not None:
        Topic = Response.Assignment.TopicPartitions
        listed = [Topic(topic_id=topic_id, partitions=sorted(parts)) for topic_id, parts in answer.assigned.items()]
        assignment = Response.Assignment(topic_partitions=listed)
    return Response(member_id=answer.member_id, member_epoch=answer.epoch, assignment=assignment)


class Reader:
    """The SDK's member without its asynchronous part. reads: its partitions, each with the topic's id."""

    def __init__(
        self, driver: ConsumerGroupDriver, member_id: str, topics: Iterable[str], instance_id: str | None = None
    ) -> None:
        self.driver = driver
        self.membership = ConsumerMembership(ConsumerTerms(GROUP, instance_id, 60_000), member_id)
        self._first_id, self._joins = member_id, 0
        self.topics = frozenset(topics)
        self.reads: dict[TopicPartition, bytes] = {}
        self.calls: list[tuple[str, list[str]]] = []
        self.errors: list[ErrorCode] = []
        self._sent: tuple[ConsumerGroupHeartbeatRequest, int] | None = None
        self._response: Response | None = None
        self.last_request: ConsumerGroupHeartbeatRequest | None = None

    # ---- heartbeats ------------------------------------------------------------------------------------------

    @property
    def is_in_flight(self) -> bool:
        return self._sent is not None

    def send(self) -> None:
        """Send the next heartbeat; before a join, the one that leaves the membership before it."""
        if self._sent is None and self.membership.in_generation:
            stamp = self.membership.stamp
            self._sent = self.membership.farewell or self.membership.heartbeat_request(), stamp
            self.last_request = self._sent[0]

    def arrive(self) -> None:
        """Let the broker process the request that is in flight, perhaps once more."""
        if self._sent is not None:
            self._response = answered(self.driver, self._sent[0])

    def hear(self) -> None:
        """Take the response; if there is none, the connection has ended."""
        if self._sent is None:
            return
        (request, stamp), self._sent, response, self._response = self._sent, None, self._response, None
        if request.member_epoch < 0:
            if response is not None:
                self.membership.on_farewell(response.error_code)
            return
        if response is None:
            self.membership.on_no_response(stamp, final=False)
            return
        if response.error_code:
            self.errors.append(ErrorCode(response.error_code))
        self.membership.on_heartbeat_response(response, stamp)

    def fail(self) -> None:
        """Let the member hear that its request got no response, also if the broker has answered it."""
        self._response = None
        self.hear()

    def beat(self) -> None:
        self.send()
        self.arrive()
        self.hear()

    # ---- polls -----------------------------------------------------------------------------------------------

    def poll(self) -> None:
        """Poll as ConsumerGroup does, with a listener that records its calls."""
        membership = self.membership
        unsubscribed = membership.subscribe(self.topics, None)
        if unsubscribed:
            self._give_up("revoked", unsubscribed)
        if membership.state is State.UNJOINED:
            if self.reads:
                self._give_up("lost", tuple(self.reads))
            self._joins += 1
            membership.join(f"{self._first_id}{self._joins}")
        while membership.state is State.RECONCILING and not membership.settled:
            plan = membership.plan(self._name)
            if plan.revoked:
                self._give_up("revoked", plan.revoked)
                continue
            self.reads = dict(plan.partitions)
            membership.take_over(plan)
            if membership.state is State.RECONCILING:
                break
            self.calls.append(("assigned", sorted(map(str, plan.added))))

    def _give_up(self, what: str, partitions: Iterable[TopicPartition]) -> None:
        self.calls.append((what, sorted(map(str, partitions))))
        for tp in partitions:
            del self.reads[tp]
        self.membership.give_up(tuple(partitions))

    def _name(self, topic_id: bytes) -> str | None:
        for name in self.driver.topics.names():
            if self.driver.topics.id_of(name) == topic_id:
                return name
        return None

    def run(self) -> None:
        self.poll()
        self.beat()
        self.poll()

    def leave(self) -> None:
        request = self.membership.leave()
        self.reads = {}
        self._sent = self._response = None
        if request is not None:
            answered(self.driver, request)

    # ---- commits ---------------------------------------------------------------------------------------------

    def may_commit(self, tp: TopicPartition, *, in_transaction: bool) -> bool:
        """Return whether the broker accepts an offset of a partition that is read now, with the epoch that would be
        sent.
        """
        membership, topic_id = self.membership, self.reads[tp]
        member = membership.applied if in_transaction else membership.metadata_for([tp])
        if member.generation < 0:
            return False
        version = None if in_transaction else 9
        try:
            self.driver.group.check_commit(
                member.member_id,
                member.group_instance_id,
                member.generation,
                [(topic_id, tp.partition)],
                version=version,
            )
        except KafkaError:
            return False
        return True
