"""Runs a large group of the consumer protocol (KIP-848), and measures how long any other client waits for the broker
while members join and leave.

A separate process plays the members, each on a connection of its own, and sends the same requests as real clients. A
phase ends when every partition has one owner and every member knows its partitions. In each phase an idle client sends
requests meanwhile (stalls.py).
"""

import heapq
import selectors
import socket
import struct
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from ...protocol import apis
from ...protocol.errors import ErrorCode
from ...protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from ...protocol.messages.topics import CreatePartitionsRequest, CreateTopicsRequest
from ..peers import peers
from ..wire import Wire, frame
from . import stalls

MEMBERS = 1_000
PHASES = ("join", "stay", "grow", "leave", "die", "match")
"""What the members do, in this order. run() has a function for each."""

EVERY_S = 5.0  # between two heartbeats of a member: Kafka's default
SESSION = 4  # the session timeout, in heartbeat intervals
PATTERN_TOPICS = "match-"
HEARTBEAT = apis.APIS[68]
VERSION = 1
SETTLED_S = 120.0
LOOK_S = 0.1  # between two checks whether the group has settled


def measure(members: int, every_s: float = EVERY_S) -> dict[str, stalls.Stalls]:
    """Return how long an idle client waited for its answers in each phase, by the phase's name. every_s: between two
    heartbeats of a member.
    """
    times_ms = {"session.timeout": int(1e3 * SESSION * every_s), "heartbeat.interval": int(1e3 * every_s)}
    # The minimum is set, too: the broker accepts no value below it.
    names = {f"group.consumer.{least}{name}.ms": ms for name, ms in times_ms.items() for least in ("min.", "")}
    settings = [word for name, value in names.items() for word in ("-X", f"{name}={value}")]
    with peers.fencepost("os", None, *settings) as broker, _load(broker, members, every_s) as begin:
        return {phase: stalls.ask(broker, begin()) for phase in PHASES}


@contextmanager
def _load(broker: peers.Peer, members: int, every_s: float) -> Iterator[Callable[[], Callable[[], bool]]]:
    """Run the process that plays the members during the block. Yields a function that begins the next phase; this
    function returns another one, which returns whether the phase still runs.
    """
    command = [sys.executable, "-m", f"{__package__}.members", broker.host, str(broker.port)]
    command, pipe = [*command, str(members), str(every_s)], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=peers.environment()) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        stdin, stdout = process.stdin, process.stdout
        stdout.readline()  # sent when the topics are created
        waiting = selectors.DefaultSelector()
        waiting.register(stdout, selectors.EVENT_READ)

        def going_on() -> bool:
            """Return whether the phase still runs. Raises RuntimeError if the process has ended."""
            if not waiting.select(0):
                return True
            if not stdout.readline():
                raise RuntimeError("the members failed")
            return False

        def begin() -> Callable[[], bool]:
            """Let the process begin the next phase. Returns a function that returns whether the phase still runs."""
            stdin.write(b"\n")
            stdin.flush()
            return going_on

        try:
            yield begin
        finally:
            process.kill()
            waiting.close()


# ---- the process that is the members -------------------------------------------------------------------------


@dataclass
class Member:
    """One member of a group, on its own connection. topics, regex: what it subscribes to. owned: partitions by topic
    id. is_asking: a heartbeat is not answered yet.
    """

    group: str
    connection: socket.socket
    topics: list[str] | None = None
    regex: str | None = None
    member_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    epoch: int = 0
    owned: dict[bytes, list[int]] = field(default_factory=dict)
    is_asking: bool = False
    received: bytearray = field(default_factory=bytearray)
    tells: bool = True  # its next heartbeat lists the partitions that it owns

    def heartbeat(self) -> bytes:
        """Return the member's next heartbeat request, with length prefix: all fields when it joins, then only changed
        ones.
        """
        Owned = ConsumerGroupHeartbeatRequest.TopicPartitions
        owned = [Owned(topic_id=each, partitions=parts) for each, parts in self.owned.items()] if self.tells else None
        joins = self.epoch == 0
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            rebalance_timeout_ms=60_000 if joins else -1,
            subscribed_topic_names=self.topics if joins else None,
            subscribed_topic_regex=self.regex if joins else None,
            topic_partitions=owned,
        )
        self.tells = False
        return frame(request, VERSION)

    def take(self, response: ConsumerGroupHeartbeatResponse) -> bool:
        """Take the response to a heartbeat. Returns whether to send the next heartbeat at once, because the owned
        partitions changed or it must join again.
        """
        if response.error_code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self.epoch, self.owned, self.tells = 0, {}, True
            return True
        if response.error_code:
            raise RuntimeError(f"{response.error_code} {response.error_message}")
        self.epoch = response.member_epoch
        if response.assignment is None:
            return False
        self.owned = {each.topic_id: list(each.partitions) for each in response.assignment.topic_partitions}
        self.tells = True
        return True


class Members:
    """All members of all groups, and the loop that sends their heartbeats."""

    def __init__(self, host: str, port: int, every_s: float) -> None:
        self.host, self.port, self.every_s = host, port, every_s
        self.all: list[Member] = []
        self._selector = selectors.DefaultSelector()
        self._due: list[tuple[float, int, Member]] = []
        self._number = 0

    def add(self, group: str, count: int, topics: list[str] | None = None, *, regex: str | None = None) -> None:
        """Connect `count` new members of the group, whose first heartbeats are due at once. topics, regex: what they
        subscribe to, one of the two.
        """
        for _ in range(count):
            connection = socket.create_connection((self.host, self.port), 60)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            member = Member(group, connection, topics, regex)
            self.all.append(member)
            self._selector.register(connection, selectors.EVENT_READ, member)
            self._at(time.monotonic(), member)

    def remove(self, members: list[Member], *, leave: bool) -> None:
        """Close the members' connections. leave: they leave the group before; else they just stop."""
        for member in members:
            if leave:
                member.epoch = -1
                member.connection.sendall(member.heartbeat())
        for member in members:
            self._selector.unregister(member.connection)
            if leave:
                _answer(member)
            member.connection.close()
            member.epoch = -1
        gone = {id(member) for member in members}
        self.all = [member for member in self.all if id(member) not in gone]

    def settle(self, group: str, partitions: int) -> None:
        """Send heartbeats until each of the group's `partitions` has one owner, and all its members have the same
        epoch. Raises TimeoutError after SETTLED_S.
        """
        until = time.monotonic() + SETTLED_S
        while not self._is_settled(group, partitions):
            if time.monotonic() > until:
                raise TimeoutError(f"{group} has not settled in {SETTLED_S} s")
            self.turn()

    def stay(self, seconds: float) -> None:
        """Do nothing but send heartbeats for this many seconds."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.turn()

    def _is_settled(self, group: str, partitions: int) -> bool:
        """Return whether all members of the group have joined, have the same epoch and have sent what they own, and
        each partition has one owner. One member may own one partition more than another.
        """
        members = [each for each in self.all if each.group == group]
        if any(member.epoch != members[0].epoch or member.epoch == 0 or member.tells for member in members):
            return False
        loads = [sum(map(len, member.owned.values())) for member in members]
        if sum(loads) != partitions or max(loads) - min(loads) > 1:
            return False
        return (
            len({(topic, each) for one in members for topic, parts in one.owned.items() for each in parts})
            == partitions
        )

    def turn(self) -> None:
        """Send the heartbeats that are due, and read the responses that arrive, for LOOK_S."""
        ends = time.monotonic() + LOOK_S
        while (now := time.monotonic()) < ends:
            while self._due and self._due[0][0] <= now:
                _, _, member = heapq.heappop(self._due)
                if member.epoch >= 0 and not member.is_asking:
                    member.is_asking = True
                    member.connection.sendall(member.heartbeat())
            next_s = self._due[0][0] if self._due else ends
            for key, _ in self._selector.select(max(0.0, min(next_s, ends) - now)):
                self._read(key.data)

    def _read(self, member: Member) -> None:
        """Read and take a member's response, and schedule its next heartbeat."""
        response = _answer(member)
        member.is_asking = False
        at_once = member.take(response)
        self._at(time.monotonic() + (0.0 if at_once else self.every_s), member)

    def _at(self, when_s: float, member: Member) -> None:
        """Schedule the member's next heartbeat. when_s: of the monotonic clock."""
        self._number += 1
        heapq.heappush(self._due, (when_s, self._number, member))


def _answer(member: Member) -> ConsumerGroupHeartbeatResponse:
    """Read the response to a heartbeat. Blocks until all of it has arrived."""
    (size,) = struct.unpack(">i", member.connection.recv(4, socket.MSG_WAITALL))
    _, response = apis.decode_response(HEARTBEAT, VERSION, member.connection.recv(size, socket.MSG_WAITALL))
    assert isinstance(response, ConsumerGroupHeartbeatResponse)
    return response


def _make_topics(wire: Wire, topics: dict[str, int]) -> None:
    """Create these topics (name → number of partitions). Raises RuntimeError if the broker refuses one."""
    Topic = CreateTopicsRequest.Topic
    made = [Topic(name=name, num_partitions=count, replication_factor=1) for name, count in topics.items()]
    for answered in wire.call(CreateTopicsRequest(topics=made, timeout_ms=30_000), 5).topics:
        if answered.error_code:
            raise RuntimeError(f"{answered.name}: {answered.error_code} {answered.error_message}")


def run(host: str, port: int, count: int, every_s: float) -> None:
    """Create the topics, then run the next phase at each line of standard input, and print a line when it is over.
    count: of the members.
    """
    wire, members = Wire(host, port, 60), Members(host, port, every_s)
    _make_topics(wire, {"named": count} | {f"{PATTERN_TOPICS}{number}": 1 for number in range(count)})

    def join() -> None:
        """Phase: all members join and get a partition each."""
        members.add("named", count, ["named"])
        members.settle("named", count)

    def grow() -> None:
        """Phase: the topic gets twice as many partitions."""
        topic = CreatePartitionsRequest.Topic(name="named", count=2 * count)
        wire.call(CreatePartitionsRequest(topics=[topic], timeout_ms=30_000), 1)
        members.settle("named", 2 * count)

    def leave() -> None:
        """Phase: half of the members leave the group."""
        members.remove(members.all[: count // 2], leave=True)
        members.settle("named", 2 * count)

    def die() -> None:
        """Phase: half of the remaining members stop without leaving, so that their sessions time out."""
        members.remove(members.all[: len(members.all) // 2], leave=False)
        members.settle("named", 2 * count)

    def match() -> None:
        """Phase: `count` new members join another group, which subscribes by a regular expression."""
        members.add("match", count, regex=f"{PATTERN_TOPICS}.*")
        members.settle("match", count)

    def stay() -> None:
        """Phase: nothing changes; members only send heartbeats."""
        members.stay(every_s)

    print("made", flush=True)
    for phase in (join, stay, grow, leave, die, match):
        sys.stdin.readline()
        phase()
        print(phase.__name__, flush=True)


if __name__ == "__main__":
    run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
