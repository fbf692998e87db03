"""The cluster as one client sees it: brokers, leaders, coordinators, and how to send requests to them.

The rules: every wait has a deadline. Metadata may be stale; an error that shows this triggers a refresh. `ask` makes
one attempt; `ask_until` retries, so it is only for requests that may be executed twice. If no known broker can be
reached, the bootstrap servers are used again (KIP-899). Metadata of a missing topic is requested until the topic
appears, at least every `retry_backoff_max_ms`; the broker may create it only while a caller waits for it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.cluster import MetadataRequest, MetadataResponse
from ..addresses import Address
from ..errors import (
    BrokerUnreachableError,
    ClientError,
    ClosedError,
    FatalError,
    InvalidConfigurationError,
    RequestTimedOutError,
    UnknownTopicError,
    code_of,
    error_of,
    is_retriable,
    refusal,
)
from ..settings import ConnectionSettings
from .connection import Connection, broken, log
from .connections import Connections
from .coordinators import COORDINATORS, CoordinatorKind, Coordinators
from .environment import SYSTEM, Environment
from .loop_affinity import LoopAffinity
from .retry import Backoff, Deadline
from .throttles import Throttles
from .topology import Metadata
from .words import words_of

Target = int | str | tuple[CoordinatorKind, str] | Callable[[], Awaitable[Connection]]

BOOTSTRAP_MS = 3_000
"""How long `start` tries to reach the cluster: enough for a broker that restarts."""

_FIRST_BOOTSTRAP = -2  # bootstrap server number i has node id -2 - i until its real id is known
_STALE_COORDINATOR = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
_STALE_METADATA = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
    }
)


class Cluster:
    """The brokers of one cluster, their metadata, and the connections to them. Used on the event loop in which it was
    started.
    """

    def __init__(self, settings: ConnectionSettings, environment: Environment = SYSTEM) -> None:
        self.settings = settings
        self.environment = environment
        self.metadata = Metadata()
        self.on_metadata: list[Callable[[], None]] = []
        self.on_broken: Callable[[], None] = lambda: None
        self.backoff = Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms)
        self._connections = Connections(settings, environment, self._address_of, self._forget_coordinators)
        self.coordinators = Coordinators(self.any_node, settings.request_timeout_ms)
        self.connection_snapshots = self._connections.snapshots
        self._watched: dict[str, None] = {}
        self._watches_all = False
        self._awaited: dict[str, int] = {}  # topic → number of callers that wait for it
        self._wanted: asyncio.Event | None = None
        self._changed: asyncio.Future[None] | None = None
        self._refresher: asyncio.Task[None] | None = None
        self.refresh_error: KafkaError | None = None  # of the last refresh, if it failed
        self._broken: FatalError | None = None
        self.affinity = LoopAffinity()
        self.throttles = Throttles(settings.client_id, environment.clock)
        self._closed = False

    async def start(self) -> None:
        """Connect and fetch metadata. Tries for start_timeout_ms; without it, for BOOTSTRAP_MS or connect_timeout_ms.

        Raises BrokerUnreachableError, AuthenticationError and other errors of the broker.
        """
        self._check_open()
        if self._refresher is not None:
            self.affinity.check()
            return
        self.affinity.enter()
        usual_ms = min(BOOTSTRAP_MS, self.settings.connect_timeout_ms)
        deadline = Deadline(self.environment.clock, self.settings.start_timeout_ms or usual_ms)
        while True:
            try:
                await self.refresh()
                break
            except BrokerUnreachableError as error:
                servers = range(len(self.settings.bootstrap_servers))
                pause_ms = min(self._connections.backing_off_ms(_FIRST_BOOTSTRAP - index) for index in servers)
                if deadline.left_ms() <= pause_ms:
                    raise
                log.info("cannot reach the cluster yet: %s", error)
                await asyncio.sleep(pause_ms / 1000)
        self._check_open()
        self._start_refresher()

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the client is closed", hint="create a new one after close() or a failed start")

    def _start_refresher(self) -> None:
        """Start the task that refreshes the metadata, unless it runs already."""
        if self._refresher is None:  # else another owner of this cluster started it meanwhile
            self._wanted = asyncio.Event()
            self._refresher = asyncio.get_running_loop().create_task(self._run_refresher())

    async def close(self) -> None:
        """Close all connections and stop the background refresh, without waiting for brokers. Idempotent."""
        self._closed = True
        if self.affinity.is_elsewhere:  # close it in its own loop if that runs; else its tasks ended with the loop
            if self.affinity.loop is not None and self.affinity.loop.is_running() and not self.affinity.is_forked:
                asyncio.run_coroutine_threadsafe(self.close(), self.affinity.loop)
            return
        refresher, self._refresher = self._refresher, None
        if refresher is not None:
            refresher.cancel()
        self._notify()
        try:  # connections first: if this call is cancelled, nobody calls it again
            await self._connections.close()
        finally:
            if refresher is not None:
                await asyncio.gather(refresher, return_exceptions=True)

    def watch_topics(self, topics: Iterable[str]) -> None:
        """Keep the metadata of these topics fresh from now on."""
        new = [topic for topic in topics if topic not in self._watched]
        self._watched.update(dict.fromkeys(new))
        if new:
            self.request_refresh()

    def watch_all_topics(self, wanted: bool = True) -> None:
        """Keep the metadata of all topics fresh, including new ones, for subscriptions by a pattern. wanted: False
        stops it.
        """
        self._watches_all = wanted
        if wanted:
            self.request_refresh()

    def unwatch_topics(self, topics: Iterable[str]) -> None:
        """Stop keeping the metadata of these topics fresh."""
        for topic in topics:
            self._watched.pop(topic, None)

    def request_refresh(self) -> None:
        """Refresh the metadata soon, in the background."""
        if self._wanted is not None:
            self._wanted.set()

    async def refresh(
        self, topics: Iterable[str] | None = None, *, deadline_ms: float | None = None, all_topics: bool = False
    ) -> Metadata:
        """Request metadata once, now, and return it. topics: None for the watched ones. deadline_ms: of the monotonic
        clock.

        Raises BrokerUnreachableError and other errors of the request.
        """
        timeout_ms: float = self.settings.request_timeout_ms
        if deadline_ms is not None:
            timeout_ms = min(timeout_ms, max(0.0, deadline_ms - self.environment.clock.monotonic_ms()))
        named = self._next_topics() if topics is None else list(topics)
        if all_topics:
            named = None
        now_ms = self.environment.clock.monotonic_ms()
        request = MetadataRequest(
            topics=None if named is None else [MetadataRequest.Topic(name=name) for name in named],
            allow_auto_topic_creation=bool(self._awaited) and self.settings.allow_auto_create_topics,
        )
        response: MetadataResponse = await self.ask("any", request, timeout_ms=timeout_ms)
        if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
            self.metadata = Metadata(topics=self.metadata.topics)
        elif response.error_code:
            raise error_of(response.error_code)
        else:
            self.metadata = self.metadata.updated(response, named, now_ms)
            self._adopt()
        self.refresh_error = None
        self._notify()
        return self.metadata

    async def partitions_of(self, topic: str, *, timeout_ms: float) -> int:
        """Return the number of partitions of a topic; wait until it is known. Raises UnknownTopicError after
        timeout_ms.
        """
        known = self.metadata.partitions(topic)
        if known:
            return known
        deadline = Deadline(self.environment.clock, timeout_ms)
        self._awaited[topic] = self._awaited.get(topic, 0) + 1
        try:
            self.request_refresh()
            while not (known := self.metadata.partitions(topic)):
                await self._change(topic, deadline)
            self._watched.setdefault(topic)  # only now: a topic that never appears is not watched
            return known
        finally:
            self._awaited[topic] -= 1
            if not self._awaited[topic]:
                del self._awaited[topic]

    async def _change(self, topic: str, deadline: Deadline) -> None:
        """Wait for the next change of metadata. Raises UnknownTopicError or the error of the last refresh at the
        deadline, and errors of the topic that are not retriable at once.
        """
        if self._closed:
            raise ClosedError("the client was closed")
        self.check()
        if self._changed is None:
            self._changed = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(deadline.left_ms() / 1000):
                await asyncio.shield(self._changed)
            self.check()
        except TimeoutError:
            if self.refresh_error is not None:
                raise self.refresh_error.with_traceback(None) from None
            missing = self._missing(topic, f"{deadline.timeout_ms:g} ms")
            raise missing from missing.__cause__
        if isinstance(self.refresh_error, InvalidConfigurationError):
            raise self.refresh_error.with_traceback(None)
        code = self.metadata.error(topic)
        if code is not None and not code.retriable:
            raise error_of(code, f"topic {topic!r}: {code.text}")

    def _missing(self, topic: str, waited: str) -> UnknownTopicError:
        """Return the error for a topic that did not appear. Metadata has only a code for it, no message."""
        text = f"there is no topic {topic!r}, and it did not appear within {waited}"
        code = self.metadata.error(topic)
        if code is None or code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return UnknownTopicError(text, hint="create the topic first")
        why = error_of(code)
        hint = f"`fencepost topic create {topic}` shows more of the broker's reason"
        missing = UnknownTopicError(f"{text}; {why}", code=code, hint=hint)
        missing.__cause__ = why
        return missing

    def _notify(self) -> None:
        """Wake the tasks that wait for new metadata, and call the listeners."""
        changed, self._changed = self._changed, None
        if changed is not None and not changed.done():
            changed.set_result(None)
        for call in self.on_metadata:
            call()

    def _next_topics(self) -> list[str] | None:
        """Return the topics of the next background request; None: all topics."""
        if self._awaited:
            return list(self._awaited)
        return None if self._watches_all else list(self._watched)

    def check(self) -> None:
        """Raise FatalError if the background refresh has failed. Call it before waiting for a change of metadata."""
        if self._broken is not None:
            raise self._broken.with_traceback(None)

    async def _run_refresher(self) -> None:
        """Refresh metadata in the background. Nobody awaits this task, so `check` raises the error that ends it."""
        try:
            await self._refresh_until_cancelled()
        except Exception as error:
            self._broken = broken("the background refresh of metadata failed", error)
            changed, self._changed = self._changed, None
            if changed is not None:
                changed.set_result(None)
            self.on_broken()

    async def _refresh_until_cancelled(self) -> None:
        """Send one metadata request at a time: on demand, while something is missing, and every metadata_max_age_ms."""
        assert self._wanted is not None
        attempt = 1 if self.metadata.incomplete(self._watched) else 0  # topics may be watched before the start
        while True:
            await self._pause(attempt)
            self._wanted.clear()
            awaited_before = set(self._awaited)
            try:
                await self.refresh()
            except KafkaError as error:
                self.refresh_error = error
                log.info("metadata: %s", error)
                self._notify()
                attempt += 1
                continue
            if set(self._awaited) - awaited_before:
                self._wanted.set()
            attempt = attempt + 1 if self.metadata.incomplete([*self._awaited, *self._watched]) else 0

    async def _pause(self, attempt: int) -> None:
        """Wait until the next metadata request is due. attempt: how many in a row failed or were incomplete."""
        assert self._wanted is not None
        backoff_s = self.backoff.delay_ms(max(0, attempt - 1), self.environment.rng.random()) / 1000
        if attempt:
            await asyncio.sleep(backoff_s)
            return
        try:
            async with asyncio.timeout(self.settings.metadata_max_age_ms / 1000):
                await self._wanted.wait()
        except TimeoutError:
            return
        age_s = (self.environment.clock.monotonic_ms() - self.metadata.at_ms) / 1000
        if age_s < backoff_s and not self._awaited:  # many errors of one cause need one request
            await asyncio.sleep(backoff_s - age_s)

    def ready(self, node_id: int, purpose: str = "") -> Connection | None:
        """Return the open connection to a node; None if there is none."""
        return self._connections.ready(node_id, purpose)

    async def node(self, node_id: int, purpose: str = "") -> Connection:
        """Return the connection to a node, opened if needed. Each purpose has its own connection.

        Raises BrokerUnreachableError, AuthenticationError, ClosedError.
        """
        try:
            return await self._connections.node(node_id, purpose)
        except BrokerUnreachableError:
            self.request_refresh()  # its address may have changed
            raise

    async def any_node(self) -> Connection:
        """Return a connection to any broker: an open one, else to a known broker, else to a bootstrap server. Raises
        BrokerUnreachableError. Never one with a purpose, where a waiting join or fetch would delay the request.
        """
        self.affinity.check()
        ready = self._connections.free()
        if ready is not None:
            return ready
        nodes = list(self.metadata.brokers)
        nodes += [_FIRST_BOOTSTRAP - index for index in range(len(self.settings.bootstrap_servers))]
        spread = {node_id: self.environment.rng.random() for node_id in nodes}
        nodes.sort(key=lambda node_id: (self._connections.backing_off_ms(node_id), node_id < 0, spread[node_id]))
        last: BrokerUnreachableError | None = None
        for node_id in nodes:
            try:
                return await self._connections.node(node_id)
            except BrokerUnreachableError as error:
                last = error
        assert last is not None  # there is at least one bootstrap server
        raise last

    def _address_of(self, node_id: int) -> Address | None:
        """Return the address of a broker or bootstrap server (numbers below -1); None if it is unknown."""
        if node_id <= _FIRST_BOOTSTRAP:
            return self.settings.bootstrap_servers[_FIRST_BOOTSTRAP - node_id]
        known = self.metadata.brokers.get(node_id)
        return (known.host, known.port) if known is not None else self.coordinators.address_of(node_id)

    def _adopt(self) -> None:
        """Use the connection to a bootstrap server for the broker that has the same address."""
        node_ids = {(node.host, node.port): node.node_id for node in self.metadata.brokers.values()}
        for index, address in enumerate(self.settings.bootstrap_servers):
            if address in node_ids:
                self._connections.adopt(_FIRST_BOOTSTRAP - index, node_ids[address])

    def _forget_coordinators(self, node_id: int, purpose: str) -> None:
        """Forget the coordinators on this node, if their connection was lost, and request a refresh of the metadata."""
        if purpose == COORDINATORS:
            self.coordinators.forget_node(node_id)
        self.request_refresh()

    async def coordinator(self, kind: CoordinatorKind, key: str) -> Connection:
        """Return the connection to the coordinator of a group or transactional id. Makes one attempt.

        Raises the error of FindCoordinator, BrokerUnreachableError and the like.
        """
        node_id = await self.coordinators.find(kind, key)
        try:
            return await self.node(node_id, COORDINATORS)
        except BrokerUnreachableError:
            self.forget_coordinator(kind, key)
            raise

    def forget_coordinator(self, kind: CoordinatorKind, key: str) -> None:
        """Forget which broker this coordinator is on, so that the next use looks it up again."""
        self.coordinators.forget(kind, key)

    async def ask(
        self, target: Target, request: object, *, timeout_ms: float | None = None, cap: int | None = None
    ) -> Any:
        """Send a request once; connects first if needed. Returns the response.

        target: a node id, "any", "controller", ("group", id), ("transaction", id), or a function that returns a
        connection. Raises BrokerUnreachableError, RequestTimedOutError, UnsupportedVersionError, AuthenticationError.
        """
        self.affinity.check()
        left_ms = self.settings.request_timeout_ms if timeout_ms is None else timeout_ms
        deadline = Deadline(self.environment.clock, left_ms)
        try:
            async with asyncio.timeout(left_ms / 1000):
                connection = await self._connection(target)
        except TimeoutError:
            raise RequestTimedOutError(f"{self._name(target)} was not reached within {left_ms:g} ms") from None
        version = connection.version_of(type(request), cap)
        try:
            return await connection.send(request, version, timeout_ms=deadline.left_ms())
        except (BrokerUnreachableError, RequestTimedOutError):
            self._suspect(target)
            raise

    async def ask_until(
        self,
        target: Target,
        request: Any,
        *,
        verdict: Callable[[Any], int],
        timeout_ms: float,
        retry: Callable[[BaseException], bool] = is_retriable,
        cap: int | None = None,
        note: Callable[[KafkaError], None] = lambda error: None,
    ) -> Any:
        """Send a request until `verdict`, called with the response, returns NONE; return that response. request: one,
        or a function that creates one.

        note: called with each failure that is followed by another attempt; its text has the broker's message, if there
        was one. Raises an error that `retry` rejects; else RequestTimedOutError after timeout_ms, with the last error
        as cause.
        """
        deadline = Deadline(self.environment.clock, timeout_ms)
        attempt = 0
        while True:
            each_ms = min(deadline.left_ms(), self.settings.request_timeout_ms)
            try:
                made = request() if callable(request) else request
                response = await self.ask(target, made, timeout_ms=each_ms, cap=cap)
                code = code_of(verdict(response))
                if code is ErrorCode.NONE:
                    return response
                failure = refusal(code, words_of(response, code))
                self.stale(code, target)
            except KafkaError as error:
                failure = error
                self.stale(error.code, target)
            if not retry(failure):
                raise failure
            note(failure)
            pause_ms = self.backoff.delay_ms(attempt, self.environment.rng.random())
            attempt += 1
            if deadline.left_ms() <= pause_ms:
                text = f"{_name(target)} did not succeed within {timeout_ms:g} ms: {failure}"
                hint = failure.hint if isinstance(failure, ClientError) else ""
                raise RequestTimedOutError(text, code=failure.code, hint=hint) from failure
            await asyncio.sleep(pause_ms / 1000)

    def stale(self, code: int, target: Target = "any") -> None:
        """Look up metadata or a coordinator again, if this error code shows that they are outdated."""
        if code in _STALE_COORDINATOR:
            self._suspect(target)
        elif code in _STALE_METADATA:
            self.request_refresh()

    def _suspect(self, target: Target) -> None:
        """If the target is a coordinator, look it up again at its next use, because a request to it has failed."""
        if not isinstance(target, int | str) and not callable(target):
            self.forget_coordinator(*target)

    def _name(self, target: Target) -> str:
        """Return the broker's name for an error message; the bootstrap addresses while no broker is known."""
        if target != "any" or self.metadata.brokers:
            return _name(target)
        return "a broker at " + ", ".join(f"{host}:{port}" for host, port in self.settings.bootstrap_servers)

    async def _connection(self, target: Target) -> Connection:
        """Return an open connection to the target; connect if there is none."""
        if isinstance(target, int):
            return self.ready(target) or await self.node(target)
        if callable(target):
            return await target()
        if not isinstance(target, str):
            return await self.coordinator(*target)
        if target == "controller" and self.metadata.controller_id >= 0:
            return await self.node(self.metadata.controller_id)
        return await self.any_node()


def _name(target: Target) -> str:
    """Return the target as it is named in errors."""
    if isinstance(target, int):
        return f"broker {target}"
    if isinstance(target, tuple):
        return f"the coordinator of {target[0]} {target[1]!r}"
    return "the controller" if target == "controller" else "a broker"
