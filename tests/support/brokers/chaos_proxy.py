"""A TCP proxy that knows Kafka's frames: it delays, holds, cuts and delivers late, per connection and API.

What it does is what networks do and no more: bytes of one connection stay in their order, and a request that was on its
way when the client gave its connection up may still arrive, after others that the client sent later on a newer one. It
runs in a thread of its own; every method may be called from a test. Chance comes from one seed.
"""

import asyncio
import contextlib
import random
import struct
import threading
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Iterator
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

METADATA, FIND_COORDINATOR, API_VERSIONS, DESCRIBE_CLUSTER = 3, 10, 18, 60
PRODUCE, OFFSET_COMMIT, JOIN_GROUP, HEARTBEAT = 0, 8, 11, 12
INIT_PRODUCER_ID, ADD_PARTITIONS, ADD_OFFSETS, END_TXN, TXN_OFFSET_COMMIT = 22, 24, 25, 26, 28
TRANSACTIONAL = frozenset([PRODUCE, INIT_PRODUCER_ID, ADD_PARTITIONS, ADD_OFFSETS, END_TXN, TXN_OFFSET_COMMIT])

REQUEST, REPLY = "request", "reply"
LINGER_S = 5.0  # how long a broker may take to answer what reached it after the client had gone
HEAD = struct.Struct(">hhi")  # API key, version, correlation id


class Cut(Exception):
    """Raised to end the client's side of a connection."""


class Frame(NamedTuple):
    """One request, or the response to one."""

    side: str
    api: int
    version: int
    correlation_id: int
    connection: int  # its number, from 0, in the order in which clients connected
    body: bytes


class Link:
    """One connection of a client, and the proxy's connection to the broker for it."""

    def __init__(self, number: int, client: "Leg", broker: "Leg") -> None:
        self.number = number
        self.client = client
        self.broker = broker
        self.requests: list[tuple[int, int]] = []  # (API, version) as they came
        self.unanswered: deque[Frame] = deque()
        self.answered = asyncio.Event()

    def cut_client(self) -> None:
        """Close the client's connection; the requests that it had sent still go to the broker."""
        self.client.writer.transport.abort()


class Leg(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def frame(self) -> bytes:
        """Read the next frame, and return it without its length. Raises IncompleteReadError at the end."""
        (length,) = struct.unpack(">i", await self.reader.readexactly(4))
        return await self.reader.readexactly(length)

    async def send(self, body: bytes) -> None:
        self.writer.write(struct.pack(">i", len(body)) + body)
        await self.writer.drain()


class Rule:
    """What happens to the frames that match it. times: to how many of them; None: to all."""

    def __init__(self, proxy: "ChaosProxy", side: str, apis: Collection[int] | None, times: int | None) -> None:
        self.proxy = proxy
        self.side = side
        self.apis = apis
        self.times = times
        self.met = 0  # frames it was applied to

    def takes(self, frame: Frame) -> bool:
        """Return whether this frame matches; if so, one of the rule's times is used up."""
        if frame.side != self.side or not (self.apis is None or frame.api in self.apis):
            return False
        if self.times is not None and self.met >= self.times:
            return False
        if not self.chosen():
            return False
        self.met += 1
        return True

    def chosen(self) -> bool:
        return True

    async def apply(self, frame: Frame, link: Link) -> None:
        """Delay this frame by waiting, or raise Cut to drop it. Later frames of the connection wait as long."""


class Held(Rule):
    """A rule that stops one frame, and with it all later ones of its connection, until release()."""

    def __init__(self, proxy: "ChaosProxy", side: str, apis: Collection[int], cut: bool) -> None:
        """cut: close the client's connection at once, as cut_client() does."""
        super().__init__(proxy, side, apis, times=1)
        self._cut = cut
        self._caught = threading.Event()
        self._passed = threading.Event()
        self._released = asyncio.Event()
        self._settled = threading.Event()
        self.frame: Frame | None = None
        self.answer: bytes | None = None  # the broker's, to a request that was held; None: it closed the connection
        self._link: Link | None = None

    async def apply(self, frame: Frame, link: Link) -> None:
        self.frame, self._link = frame, link
        self._caught.set()
        if self._cut:
            link.cut_client()
        await self._released.wait()

    def caught(self, within_s: float = 10) -> Frame:
        """Wait until a frame is stopped, and return it."""
        assert self._caught.wait(within_s), f"nothing to hold came within {within_s} s"
        assert self.frame is not None
        return self.frame

    def cut_client(self) -> None:
        """Wait until a frame is stopped, and close the client's connection, so that it opens another."""
        self.caught()
        link = self._link
        assert link is not None
        self.proxy.call(link.cut_client)

    def release(self) -> None:
        """Send the stopped frame, and those after it."""
        self.proxy.call(self._released.set)

    def arrive(self, within_s: float = 10) -> bytes | None:
        """Send the stopped request to the broker and wait for its response. Returns that, or None if the broker closed
        the connection.
        """
        self.release()
        assert self._settled.wait(within_s), "the broker neither answered nor closed the connection"
        return self.answer

    def settle(self, answer: bytes | None) -> None:
        """Note that the broker answered, or closed the connection."""
        self.answer = answer
        self._settled.set()


class CutOff(Rule):
    """Closes the client's connection at a frame: before a request reaches the broker, or before its response reaches
    the client.
    """

    def __init__(self, proxy: "ChaosProxy", side: str, apis: Collection[int] | None, times: int | None, share: float):
        super().__init__(proxy, side, apis, times)
        self.share = share

    def chosen(self) -> bool:
        return self.share >= 1 or self.proxy.rng.random() < self.share

    async def apply(self, frame: Frame, link: Link) -> None:
        raise Cut


class Late(CutOff):
    """Closes the client's connection at a request, and sends that request to the broker some time later: over all
    connections, requests are reordered.
    """

    def __init__(self, proxy: "ChaosProxy", apis: Collection[int], times: int | None, share: float, after_s: float):
        super().__init__(proxy, REQUEST, apis, times, share)
        self.after_s = after_s

    async def apply(self, frame: Frame, link: Link) -> None:
        link.cut_client()
        await asyncio.sleep(self.proxy.rng.uniform(0, self.after_s))


class Delay(CutOff):
    """Delays each frame by a random time up to a limit."""

    def __init__(self, proxy: "ChaosProxy", side: str, apis: Collection[int] | None, share: float, up_to_s: float):
        super().__init__(proxy, side, apis, None, share)
        self.up_to_s = up_to_s

    async def apply(self, frame: Frame, link: Link) -> None:
        await asyncio.sleep(self.proxy.rng.uniform(0, self.up_to_s))


class Twice(CutOff):
    """Sends a response twice, which no network does, but a broken peer might: the client must notice, and believe
    nothing more on that connection.
    """

    async def apply(self, frame: Frame, link: Link) -> None:
        await link.client.send(self.proxy.rewritten(frame.api, frame.body))


class ChaosProxy:
    """A proxy that runs for the `with` block. Without rules it only passes frames on, and replaces the broker's
    address by its own.
    """

    def __init__(self, upstream: str, *, seed: int = 0) -> None:
        """upstream: HOST:PORT, as the broker advertises itself."""
        host, _, port = upstream.rpartition(":")
        self.upstream = (host, int(port))
        self.rng = random.Random(seed)
        self.links: list[Link] = []
        self.rules: list[Rule] = []
        self._held: list[Held] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True, name="chaos-proxy")
        self._tasks: set[asyncio.Task[None]] = set()

    # what tests say

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def hold(self, *apis: int, side: str = REQUEST, cut: bool = False) -> Held:
        """Stop the next frame of these APIs until it is released. cut: also close the client's connection."""
        held = self._add(Held(self, side, apis, cut))
        self._held.append(held)
        return held

    def cut(self, *apis: int, side: str, times: int | None = 1, share: float = 1) -> CutOff:
        """Close connections at requests of these APIs (the broker never gets them) or at responses (the broker did what
        they answer).
        """
        return self._add(CutOff(self, side, apis or None, times, share))

    def late(self, *apis: int, times: int | None = 1, share: float = 1, after_s: float = 0.2) -> Late:
        """Close connections at requests of these APIs, which still reach the broker after after_s seconds."""
        return self._add(Late(self, apis, times, share, after_s))

    def twice(self, *apis: int, share: float = 1, times: int | None = None) -> Twice:
        """Send responses of these APIs twice."""
        return self._add(Twice(self, REPLY, apis, times, share))

    def delay(self, *apis: int, side: str, up_to_s: float, share: float = 1) -> Delay:
        """From now on, delay a share of the frames of these APIs (none: of all) by up to up_to_s seconds."""
        return self._add(Delay(self, side, apis or None, share, up_to_s))

    def clear(self) -> None:
        """Remove all rules; frames that they stopped are sent."""
        self.rules = []
        for held in self._held:
            held.release()

    @contextlib.contextmanager
    def weather(self) -> Iterator[None]:
        """At the end of the block, remove all rules."""
        try:
            yield
        finally:
            self.clear()

    def call(self, work: Callable[[], T]) -> T:
        """Run a function in the proxy's event loop."""

        async def run() -> T:
            return work()

        return self._wait(run())

    # how it works

    def _add(self, rule: T) -> T:
        self.rules = [*self.rules, rule]  # type: ignore[list-item]
        return rule

    def __enter__(self) -> "ChaosProxy":
        self._thread.start()
        self._server = self._wait(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port: int = self._server.sockets[0].getsockname()[1]
        own = f"{self.upstream[0]}".encode() + struct.pack(">i", self.upstream[1])
        self._addresses = (own, b"127.0.0.1" + struct.pack(">i", self.port))
        assert self.upstream[0] == "127.0.0.1", "an address is rewritten in place: it must be as long as ours"
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.clear()
        self._wait(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _close(self) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for link in self.links:
            link.client.writer.transport.abort()
            link.broker.writer.transport.abort()
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = len(self.links)
        try:
            broker = Leg(*await asyncio.open_connection(*self.upstream))
        except OSError:
            writer.transport.abort()
            return
        link = Link(number, Leg(reader, writer), broker)
        self.links.append(link)
        for pump in (self._requests(link), self._replies(link)):
            task = asyncio.create_task(pump)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _requests(self, link: Link) -> None:
        """Pass requests from client to broker until the client's bytes end; the broker's connection stays open until
        all are answered.
        """
        with contextlib.suppress(asyncio.IncompleteReadError, OSError, Cut):
            while True:
                body = await link.client.frame()
                frame = Frame(REQUEST, *HEAD.unpack_from(body), link.number, body)
                link.requests.append((frame.api, frame.version))
                for rule in self.rules:
                    if rule.takes(frame):
                        await rule.apply(frame, link)
                link.unanswered.append(frame)
                await link.broker.send(body)
        link.cut_client()
        while link.unanswered and not link.broker.reader.at_eof():
            link.answered.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(link.answered.wait(), LINGER_S)
                continue
            break
        link.broker.writer.close()

    async def _replies(self, link: Link) -> None:
        """Pass responses from broker to client until the broker's bytes end. A client that has gone gets nothing."""
        gone = False
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                body = await link.broker.frame()
                request = self._answered(link, body)
                self._tell(request, body)
                if gone or request is None:
                    continue
                frame = Frame(REPLY, request.api, request.version, request.correlation_id, link.number, body)
                try:
                    for rule in self.rules:
                        if rule.takes(frame):
                            await rule.apply(frame, link)
                    await link.client.send(self.rewritten(request.api, body))
                except (Cut, OSError):
                    gone = True
                    link.cut_client()
        link.cut_client()
        for request in link.unanswered:
            self._tell(request, None)
        link.answered.set()

    def _answered(self, link: Link, body: bytes) -> Frame | None:
        """Return the request that a response belongs to: responses come in the order of requests, and some requests
        have none.
        """
        (correlation_id,) = struct.unpack_from(">i", body)
        while link.unanswered:
            request = link.unanswered.popleft()
            if request.correlation_id == correlation_id:
                link.answered.set()
                return request
        return None

    def _tell(self, request: Frame | None, answer: bytes | None) -> None:
        for held in self._held:
            if request is not None and held.frame is request:
                held.settle(answer)
                self._held.remove(held)
                return

    def rewritten(self, api: int, body: bytes) -> bytes:
        return body.replace(*self._addresses) if api in (METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER) else body
