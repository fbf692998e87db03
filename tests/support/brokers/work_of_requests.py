"""Measures how much work requests make for the broker, and how much of it happens in one turn of its loop.

Work is counted in lines of Python run, which are the same on every machine and at any load. Loops inside of C have no
lines, so the CPU time of each turn is measured too, and converted to the number of lines that take this time in the
same run, traced in the same way. It is the thread's own time, without the garbage collector. Bounds for it must be
generous, because it differs from run to run.
"""

import asyncio
import gc
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple

from acl_client import creating, guarded
from fencepost.protocol.apis import APIS, encode_request
from fencepost.protocol.compile import decoder, decoder_in_steps, encoder, encoder_in_steps
from fencepost.protocol.messages.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from fencepost.protocol.messages.groups import JoinGroupRequest, SyncGroupRequest
from fencepost.protocol.messages.scram_users import AlterUserScramCredentialsRequest
from fencepost.protocol.schema import schema_of
from offset_requests import commit
from produce_requests import answers, create, idempotent, produce
from simulated_broker import SimulatedBroker
from simulated_client import SimulatedClient
from txn_client import Txn, begun

PARTITIONS = 200  # of the topic "wide"
PRODUCERS = 100  # that its first partition remembers
MEMBERS = 200  # static ones, of the group "static"
RULES = 300  # of access
USERS = 100
GROUPS = 200  # with an offset each; the group "g" has one for each partition


def static_member(number: int) -> JoinGroupRequest:
    """Return the first request of member `number` of the group "static"."""
    return JoinGroupRequest(
        group_id="static",
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        member_id="",
        group_instance_id=f"i{number}",
        protocol_type="consumer",
        protocols=[JoinGroupRequest.Protocol(name="p", metadata=b"")],
    )


def scram_users(count: int) -> AlterUserScramCredentialsRequest:
    """Return a request that adds this many users."""
    made = AlterUserScramCredentialsRequest
    put = [
        made.Upsertion(name=f"u{number}", mechanism=1, iterations=4096, salt=b"salt", salted_password=b"p" * 32)
        for number in range(count)
    ]
    return made(deletions=[], upsertions=put)


class World:
    """A broker that has a little of everything: topics, groups, transactions, users."""

    def __init__(self) -> None:
        self.broker = SimulatedBroker(guarded())
        broker = self.broker
        for number in range(RULES):
            broker.ask(creating(f"allow User:u{number} READ TOPIC ^ {'x' * (number % 40)}{number}"))
        broker.ask(scram_users(USERS))
        broker.ask(create("wide", PARTITIONS))
        for name in ("a", "b"):
            broker.ask(create(name))
        self.broker.broker.topics.skip_producer_ids(PRODUCERS)  # an authorizer wants them given out
        for producer_id in range(PRODUCERS):
            assert answers(broker.ask(produce("wide", idempotent(0, producer_id=producer_id))))[0][0] == 0
        assert not any(commit(broker, "g", "wide", dict.fromkeys(range(PARTITIONS), 1)))
        for number in range(GROUPS):
            assert not any(commit(broker, f"g{number}", "wide", {0: 1}))
        self._begin_static()
        self.txn: Txn = begun(broker, name="x", timeout_ms=600_000)
        assert not any(self.txn.add("wide", *range(PARTITIONS)))

    def _begin_static(self) -> None:
        """Create a group of static members, with their assignments."""
        client = SimulatedClient(self.broker)
        for number in range(MEMBERS):
            client.send(static_member(number))
        leader = client.receive()
        client.send(
            SyncGroupRequest(
                group_id="static",
                generation_id=leader.generation_id,
                member_id=leader.member_id,
                group_instance_id="i0",
                protocol_type="consumer",
                protocol_name="p",
                assignments=[],
            )
        )
        for _ in range(1, MEMBERS):
            client.receive()
        assert client.receive().error_code == 0
        client.close()

    def work(self, frames: list[bytes]) -> "Work":
        """Send requests at once, and return the work that they made."""
        return work_of(self.broker, frames)


def work_of(broker: SimulatedBroker, frames: list[bytes]) -> "Work":
    """Send requests at once to this broker, and return the work that they made."""
    client = SimulatedClient(broker)
    counter = _Counter(broker.loop)
    with counter:
        client.send_raw(b"".join(frames))
        replies = [client.receive_frame() for _ in frames]
    client.close()
    return Work(
        max(counter.turns),
        int(max(counter.cpu_ns) / counter.line_ns),
        sum(counter.turns),
        sum(map(len, replies)),
        len(broker.broker.turns),
    )


class Work(NamedTuple):
    """most_lines: the most lines of Python in one turn of the loop. most_cpu_lines: the most CPU time of one turn, as
    a number of lines. lines: in all turns.
    """

    most_lines: int
    most_cpu_lines: int
    lines: int
    reply_bytes: int
    left: int


REFERENCE_LINES = 20_000


class _Counter:
    """Counts lines, and CPU time, by turns of the loop. line_ns: what a line takes while it is counted."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.turns = [0]
        self.cpu_ns = [0]
        self.line_ns = 0.0
        self._began_ns = 0
        self._loop: Any = loop
        self._run_once = self._loop._run_once

    def __enter__(self) -> None:
        def run_once() -> None:
            self._end_turn()
            self._run_once()

        self._loop._run_once = run_once
        gc.disable()
        sys.settrace(self._trace)
        self._began_ns = time.thread_time_ns()
        _count_to(REFERENCE_LINES // 2)
        self.line_ns = (time.thread_time_ns() - self._began_ns) / REFERENCE_LINES
        self.turns = [0]
        self._began_ns = time.thread_time_ns()

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        gc.enable()
        self._end_turn()
        del self._loop._run_once

    def _end_turn(self) -> None:
        now_ns = time.thread_time_ns()
        self.cpu_ns.append(now_ns - self._began_ns)
        self._began_ns = now_ns
        self.turns.append(0)

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self.turns[-1] += 1
        return self._trace


def _count_to(count: int) -> int:
    """Count to a number. This is work of a known size: two traced lines for each step."""
    number = 0
    while number < count:
        number += 1
    return number


def frame_of(request: Any, version: int | None = None) -> bytes:
    """Return the frame of a request, by default in the newest version that has topic names.

    Its codecs are made here, so that they do not count as work of the first request of a kind.
    """
    api = APIS[schema_of(type(request)).api or 0]
    version = api.max if version is None else version
    for make in (encoder, encoder_in_steps):
        make(api.response, version)
    for make in (decoder, decoder_in_steps):
        make(api.request, version)
    return b"".join(encode_request(api, version, 1, "me", request))


def consumer_heartbeats(count: int, topics: list[str]) -> Callable[[World], list[Any]]:
    """Return a function that makes the first heartbeats of `count` members of one group of KIP-848.

    All subscribe to these topics and to topic wide.
    """
    made = ConsumerGroupHeartbeatRequest
    given = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["wide", *topics], "topic_partitions": []}
    return lambda world: [made(group_id="c", member_id=f"m{n}", member_epoch=0, **given) for n in range(count)]


def consumer_descriptions(count: int, topics: int) -> Callable[[World], list[Any]]:
    """Return a function that fills a group of KIP-848 with 30 members that name this many topics each, and returns a
    request that describes it `count` times, and another group once.
    """

    def ask(world: World) -> list[Any]:
        for number in range(30):
            (joins,) = consumer_heartbeats(1, [f"n{number}-{each}" for each in range(topics)])(world)
            joins.member_id = f"m{number}"
            assert world.broker.ask(joins).error_code == 0
        return [ConsumerGroupDescribeRequest(group_ids=["c"] * count + ["g"])]

    return ask
