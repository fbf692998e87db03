"""A follower, for the SDK's clients in some seeds: two addresses that stand for two brokers and relay to the only one.

Metadata names both. The leader sends consumers that tell their rack to the follower, and the follower answers them as
one that replicates: late, with less after a restart, with errors, or not at all. A client that asks it what only a
leader or a coordinator may answer is wrong here, since neither ever moves. Everything else passes as it came.
Source: KIP-392, Kafka's KafkaApis and ReplicaManager.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from fencepost.broker.net.refusals import refusal
from fencepost.protocol.apis import APIS, decode_request, decode_response, encode_request, encode_response
from fencepost.protocol.errors import ErrorCode, KafkaError
from fencepost.protocol.framing import Framer
from fencepost.protocol.headers import RequestHeader, read_request_header
from fencepost.protocol.messages import groups, offsets, produce, transactions
from fencepost.protocol.messages.cluster import MetadataRequest, MetadataResponse
from fencepost.protocol.messages.fetch import FetchRequest, FetchResponse
from fencepost.protocol.messages.groups import FindCoordinatorRequest
from fencepost.protocol.schema import schema_of
from simulation.processes import Process, ProcessNet
from simulation.replicas import (
    FOLLOWER,
    Copy,
    Key,
    Session,
    Wanted,
    hear,
    name_follower,
    part_of,
    parts_of,
    refuse,
    show,
)
from simulation.world import ADDRESS, LEADER_PORT, RACK, World

LEADER = 1
PORTS = {LEADER: LEADER_PORT, FOLLOWER: LEADER_PORT + 1}
CATCHES_UP, FAILS, CUTS = 0.6, 0.01, 0.01  # of the follower's answers
BY_ID_FROM = 13
ERRORS = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)


def _keys(*requests: type) -> set[int]:
    return {schema_of(request).api or 0 for request in requests}


(METADATA,), (FETCH,), (FIND,) = _keys(MetadataRequest), _keys(FetchRequest), _keys(FindCoordinatorRequest)
(INIT,) = _keys(transactions.InitProducerIdRequest)
LEADERS = _keys(produce.ProduceRequest, offsets.ListOffsetsRequest)
COORDINATORS = {INIT} | _keys(
    groups.JoinGroupRequest,
    groups.SyncGroupRequest,
    groups.HeartbeatRequest,
    groups.LeaveGroupRequest,
    offsets.OffsetCommitRequest,
    offsets.OffsetFetchRequest,
    transactions.AddPartitionsToTxnRequest,
    transactions.AddOffsetsToTxnRequest,
    transactions.EndTxnRequest,
    transactions.TxnOffsetCommitRequest,
)
Rewriting = Callable[[Any], float]  # of a decoded response, in place; seconds for which it is kept back


class Followers:
    """Two addresses for one broker: a leader and a follower. When the world is over, the follower works well, or is of
    no use any more, so that consumers leave it.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.rng = world.rng("followers")
        self.copies: dict[Key, Copy] = {}
        self.relays: list[Relay] = []
        self.is_known = True  # the follower, to the metadata
        self.is_up = True
        self._lags = False
        self._is_healed = self._has_failed = False
        self._process = Process(world.loop, "relays")
        self.net = ProcessNet(world.net.host(ADDRESS[0]), self._process)

    async def run(self) -> None:
        for node_id, port in PORTS.items():
            await self.net.listen(lambda node_id=node_id: Relay(self, node_id), ADDRESS[0], port)
        kinds = (self.lag, self.lag, self.restart, self.restart, self.lose, self.leave_metadata, self.vanish)
        while not self.world.over:
            await asyncio.sleep(self.rng.uniform(0.3, 3.0))
            kind = self.rng.choice(kinds)
            self.world.met[f"follower: {kind.__name__}"] += 1
            await kind()
        await self.rng.choice((self.heal, self.heal, self.fail_for_good, self.be_out_of_reach))()

    def start(self, work: Any) -> None:
        self._process.start(work)

    # ---- what goes wrong -------------------------------------------------------------------------------------

    async def lag(self) -> None:
        self._lags = True
        await asyncio.sleep(self.rng.uniform(0.2, 3.0))
        self._lags = False

    async def lose(self) -> None:
        """Take records from some of the follower's copies, below the positions of consumers, and let it lag."""
        for copy in self.copies.values():
            if self.rng.random() < 0.5:
                copy.lose(self.rng)
        await self.lag()

    async def restart(self) -> None:
        """Cut the follower's connections, as a restart too short to be noticed otherwise; sometimes it loses
        records.
        """
        self._cut()
        if self.rng.random() < 0.5:
            await self.lose()

    async def leave_metadata(self) -> None:
        """Take the follower out of the metadata for a while, and let it lose records. Clients with older metadata still
        ask it.
        """
        self.is_known = False
        await self.lose()
        self.is_known = True

    async def vanish(self) -> None:
        self.is_up = self.is_known = False
        self._cut()
        await asyncio.sleep(self.rng.uniform(0.5, 3.0))
        self.is_up = self.is_known = True

    # ---- how it ends -----------------------------------------------------------------------------------------

    async def heal(self) -> None:
        self._is_healed = True

    async def fail_for_good(self) -> None:
        """Let the follower answer every fetch with KAFKA_STORAGE_ERROR from now on. The leader still names it for what
        it had.
        """
        self._has_failed = self._lags = True

    async def be_out_of_reach(self) -> None:
        """Refuse clients' connections to the follower from now on; to the leader it is in sync."""
        self._is_healed, self.is_up = True, False
        self._cut()

    def _cut(self) -> None:
        for relay in list(self.relays):
            if relay.node_id == FOLLOWER:
                relay.cut()

    # ---- answers ---------------------------------------------------------------------------------------------

    def replicate(self, response: FetchResponse) -> None:
        """Note how far the leader's answer goes, and let some of the follower's copies fetch that."""
        hear(self.copies, response)
        for copy in self.copies.values():
            if self._is_healed:
                copy.catch_up(), copy.catch_up()
            elif not self._lags and self.rng.random() < CATCHES_UP:
                copy.catch_up()

    def metadata(self, response: MetadataResponse) -> float:
        """Rewrite Metadata: both brokers have all partitions; without the follower as long as it is not known."""
        known = (LEADER, FOLLOWER) if self.is_known else (LEADER,)
        Broker = MetadataResponse.Broker
        response.brokers = [Broker(node_id=one, host=ADDRESS[0], port=PORTS[one], rack=f"r{one}") for one in known]
        for topic in response.topics:
            for part in topic.partitions:
                if part.leader_id == LEADER:
                    part.replica_nodes = [LEADER, FOLLOWER]
                    part.isr_nodes = list(known)
                    part.offline_replicas = [] if self.is_known else [FOLLOWER]
        return 0.0

    def found(self, response: Any) -> float:
        """Rewrite FindCoordinator: the leader coordinates everything."""
        for one in (response, *response.coordinators):
            if one.node_id == LEADER:
                one.port = PORTS[LEADER]
        return 0.0

    def from_leader(self, request: FetchRequest, wanted: Wanted) -> Rewriting:
        """Send a consumer of the follower's rack on to it, without waiting, for partitions of which the follower has
        the offset. Returns how to rewrite the leader's response.
        """
        named: dict[Key, Copy] = {}
        if request.rack_id == RACK and self.is_known:
            named = {
                key: copy
                for key, part in wanted.items()
                if (copy := self.copies.get(key)) is not None and copy.has(part.fetch_offset)
            }
        if named:
            request.max_wait_ms = 0
            self.world.met["follower: named"] += 1

        def rewrite(response: FetchResponse) -> float:
            self.replicate(response)
            if not response.error_code:
                name_follower(response, named)
            return 0.0

        return rewrite

    def from_follower(self, request: FetchRequest, wanted: Wanted, version: int) -> Rewriting:
        """Return a function that changes the leader's response into the follower's, which shows what its copies have.
        If that is nothing, the response is kept back for as long as the fetch may wait.
        """

        def rewrite(response: FetchResponse) -> float:
            self.replicate(response)
            if response.error_code:
                return 0.0
            had, parts = _has_news(response), parts_of(response)
            for key, part in wanted.items():
                copy = self.copies.get(key)
                if copy is not None and (key in parts or part.fetch_offset > copy.end):
                    showed = show(part_of(response, key), copy, part, committed=request.isolation_level == 1)
                    self.world.met[f"follower: {showed}"] += 1
            if self._has_failed:
                for key in wanted:
                    refuse(part_of(response, key), ErrorCode.KAFKA_STORAGE_ERROR)
            elif wanted and not self.world.over and self.rng.random() < FAILS:
                self._fail(response, self.rng.choice(list(wanted)), version)
            return request.max_wait_ms / 1000 if had and not _has_news(response) else 0.0

        return rewrite

    def _fail(self, response: FetchResponse, key: Key, version: int) -> None:
        self.world.met["follower: failed"] += 1
        code = self.rng.choice(ERRORS)
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and version >= BY_ID_FROM:
            code = ErrorCode.UNKNOWN_TOPIC_ID
        refuse(part_of(response, key), code)


def _has_news(response: FetchResponse) -> bool:
    """Return whether the response has anything that ends the wait of a fetch."""
    return any(part.records or part.error_code or part.diverging_epoch for part in parts_of(response).values())


class Relay(asyncio.Protocol):
    """A client's connection to one of the two addresses, and the connection to the broker on which its requests are
    passed on. Answers are sent in the order of requests.
    """

    def __init__(self, followers: Followers, node_id: int) -> None:
        self.node_id = node_id
        self._followers = followers
        self._framer = Framer()
        self._session = Session()
        self._client: Any = None
        self._broker: Any = None
        self._early: list[bytes] = []  # requests that came before there was a connection to the broker
        self._has_left = False
        self._answers: deque[_Answer] = deque()  # in the order of requests
        self._passed_on: deque[_Answer] = deque()

    def connection_made(self, transport: Any) -> None:
        self._client = transport
        if self.node_id == FOLLOWER and not self._followers.is_up:
            transport.abort()
            return
        self._followers.relays.append(self)
        self._followers.start(self._reach())

    def connection_lost(self, error: Exception | None) -> None:
        """Close the connection to the broker; it still carries out what the client has sent."""
        self._has_left = True
        if self in self._followers.relays:
            self._followers.relays.remove(self)
        if self._broker is not None:
            self._broker.close()

    def cut(self) -> None:
        self._client.abort()

    async def _reach(self) -> None:
        try:
            self._broker, _ = await self._followers.net.connect(lambda: _Upstream(self), *ADDRESS)
        except OSError:
            self._client.abort()
            return
        for frame in self._early:
            self._broker.write(frame)
        if self._has_left:
            self._broker.close()

    def lost(self) -> None:
        """Close the client's connection, since the one to the broker is gone."""
        self._client.close()

    # ---- requests --------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        for frame in self._framer.feed(data):
            answer = _Answer(read_request_header(frame))
            self._answers.append(answer)
            passed_on = self._asked(answer, bytes(frame))
            if passed_on is None:
                self._flush()
                continue
            self._passed_on.append(answer)
            if self._broker is None:
                self._early.append(passed_on)
            else:
                self._broker.write(passed_on)

    def _asked(self, answer: "_Answer", frame: bytes) -> bytes | None:
        """Return the request that goes to the broker; None if it is answered here."""
        header, followers = answer.header, self._followers
        whole = len(frame).to_bytes(4, "big") + frame
        if header.api_key == METADATA:
            answer.rewrite = followers.metadata
        elif header.api_key == FIND:
            answer.rewrite = followers.found
        elif header.api_key == FETCH:
            return self._fetch(answer, frame)
        elif self.node_id == FOLLOWER and header.api_key in LEADERS | COORDINATORS:
            request = decode_request(APIS[header.api_key], header.api_version, frame, header.position)
            if header.api_key != INIT or request.transactional_id is not None:
                self._refuse(answer, request)
                return None
        return whole

    def _refuse(self, answer: "_Answer", request: Any) -> None:
        header, api = answer.header, APIS[answer.header.api_key]
        leads = header.api_key in LEADERS
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER if leads else ErrorCode.NOT_COORDINATOR
        self._followers.world.failures.append(f"{header.client_id} asked a follower for {api.name}")
        response = refusal(api.response, header.api_version, request, KafkaError(code))
        answer.frame = b"".join(encode_response(api, header.api_version, header.correlation_id, response))

    def _fetch(self, answer: "_Answer", frame: bytes) -> bytes:
        header, followers, api = answer.header, self._followers, APIS[FETCH]
        request = decode_request(api, header.api_version, frame, header.position)
        wanted = self._session.asked(request)
        if self.node_id == LEADER:
            answer.rewrite = followers.from_leader(request, wanted)
        else:
            answer.rewrite = followers.from_follower(request, wanted, header.api_version)
            if not followers.world.over and followers.rng.random() < CUTS:
                self.cut()
        return b"".join(encode_request(api, header.api_version, header.correlation_id, header.client_id, request))

    # ---- answers ---------------------------------------------------------------------------------------------

    def answered(self, frame: bytes) -> None:
        answer = self._passed_on.popleft()
        header = answer.header
        if answer.rewrite is None:
            answer.frame = len(frame).to_bytes(4, "big") + frame
        else:
            api = APIS[header.api_key]
            correlation_id, response = decode_response(api, header.api_version, frame)
            kept_s = answer.rewrite(response)
            answer.frame = b"".join(encode_response(api, header.api_version, correlation_id, response))
            if kept_s:
                answer.is_kept = True
                asyncio.get_running_loop().call_later(kept_s, self._let_go, answer)
        self._flush()

    def _let_go(self, answer: "_Answer") -> None:
        answer.is_kept = False
        self._flush()

    def _flush(self) -> None:
        while self._answers and self._answers[0].frame and not self._answers[0].is_kept:
            self._client.write(self._answers.popleft().frame)


class _Answer:
    """The answer to one request: empty until it has come; it may be kept back."""

    def __init__(self, header: RequestHeader) -> None:
        self.header = header
        self.rewrite: Rewriting | None = None
        self.frame = b""
        self.is_kept = False


class _Upstream(asyncio.Protocol):
    """A relay's connection to the broker."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._framer = Framer()

    def data_received(self, data: bytes) -> None:
        for frame in self._framer.feed(data):
            self._relay.answered(bytes(frame))

    def connection_lost(self, error: Exception | None) -> None:
        self._relay.lost()
