"""The real SDK as a client of the simulation: idempotent producers, and transactions of both protocols.

The SDK runs unchanged on the simulated network and clock. What it is asked and what it says goes into the history in
the words of the scripted clients: a record is a Send, known by its delivery, a commit an End. The sequences are the
SDK's own business; a Send carries its place in its client's order instead, far below zero, where only order is judged.
Each client is a process of its own, which is killed now and then in the middle of anything.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from fencepost.client.net.environment import Environment
from fencepost.client.transactions.requests import maybe_done
from fencepost.effects.simulated.rng import SeededRng
from fencepost.effects.simulated.transport import SimulatedTransport
from simulation.faults import END_TXN
from simulation.history import Begin, End, Init, Op, Place, Producer, Send
from simulation.plain_clients import RETRIED
from simulation.processes import Process, ProcessNet
from simulation.world import ADDRESS, RACK, TXN_TIMEOUT_MS, World

import fencepost as fp

PATIENT = {"request_timeout_ms": 1_500, "retry_backoff_ms": 60, "retry_backoff_max_ms": 600}
COMMITS = 0.8
LAST_WORD_S = 20.0  # virtual: a close that takes longer hangs
FIRST_IN_ORDER = -(1 << 40)
MAX_MESSAGE_BYTES = 65_536  # of the topics; the SDK itself would send more
TOO_LARGE = (
    0.03  # share of transactions whose last write the broker refuses for good, about when the commit is asked for
)
CANCELLED = 0.1  # share of sends
GIVES_UP = 0.2  # share of what was cancelled in time, outside of transactions: nobody sends it again
SMALL_BUFFER = 8_000  # bytes: sends wait for room


class Mistake(Exception):
    """What an application raises inside a transaction to have it aborted."""


def _leave_unclosed(client: Any) -> None:
    """Mark a client as closed, without closing it, so that it does not complain when it is collected."""
    (client._polls if isinstance(client, fp.Consumer | fp.ShareConsumer) else client)._closed = True
    if isinstance(client, fp.ProducerPool):
        for producer in client._producers.values():
            _leave_unclosed(producer)


class SdkClient(ABC):
    """One process with clients of the SDK, whose records are noted in the history."""

    vanishing = 0.3

    def __init__(self, world: World, name: str, places: Sequence[Place]) -> None:
        self.world = world
        self.history = world.history
        self.name = name
        self.places = places
        self.rng = world.rng(name)
        self.clients: list[Any] = []
        self._impatience = world.rng(f"{name} cancels")
        self.chance_in_groups = world.rng(f"{name} in groups")
        self._process = Process(world.loop, name)
        self._host = world.net.host(ADDRESS[0])
        self._environment = Environment(world.clock, SeededRng(f"{world.seed} {name} sdk"), self.net())
        self._numbers = 0

    def net(self) -> ProcessNet:
        """Return the network over which its clients are connected."""
        return ProcessNet(self._host, self._process, self.on_send)

    def on_send(self, transport: SimulatedTransport, keys: list[int]) -> None:
        """Called before requests leave. keys: the keys of their APIs."""
        self.world.on_send(transport, keys)

    async def run(self) -> None:
        """Run the process to its end. One that vanishes is killed after a while, and closes nothing."""
        life = self._process.start(self._live())
        vanishes = self.rng.random() < self.vanishing
        _, left = await asyncio.wait([life], timeout=self.rng.uniform(1.0, 15.0) if vanishes else None)
        if left:
            self.kill()
        else:
            life.result()

    def kill(self) -> None:
        self._process.kill()
        self._host.kill()
        self.world.killed.append(self._process)
        for client in self.clients:
            _leave_unclosed(client)

    async def _live(self) -> None:
        try:
            await self.live()
        except fp.FencedInstanceIdError:
            await asyncio.sleep(1.0)  # another process has its place
        except fp.KafkaError:
            pass  # out; a successor goes on
        finally:
            for client in reversed(self.clients):
                await self._close(client)

    @abstractmethod
    async def live(self) -> None:
        """Use clients of the SDK. When this ends, they are closed."""

    async def started(self, make: Any, *arguments: Any, **keywords: Any) -> Any:
        """Start a client of the SDK, until that succeeds, and return it. Consumers are near the follower, if there is
        one.
        """
        if make is fp.Consumer and self.world.schedule.has_follower:
            keywords["client_rack"] = RACK
        while True:
            client = make(
                self.world.bootstrap,
                *arguments,
                client_id=self.name,
                environment=self._environment,
                **PATIENT,
                **keywords,
            )
            self.prepare(client)
            try:
                await client.start()
            except fp.KafkaError:
                _leave_unclosed(client)
                await asyncio.sleep(0.1)
                continue
            self.clients.append(client)
            return client

    def prepare(self, client: Any) -> None:
        """Called before a client is started."""
        return  # most clients need nothing

    async def _close(self, client: Any) -> None:
        try:
            async with asyncio.timeout(LAST_WORD_S):
                await client.close()
        except TimeoutError:
            self.world.failures.append(f"{self.name}: close() hangs")
        except fp.KafkaError:
            pass

    # ---- records ---------------------------------------------------------------------------------------------

    def value(self, source: tuple[Place, int] | None = None) -> str:
        self._numbers += 1
        made_of = "" if source is None else f"<{source[0][0]}-{source[0][1]}@{source[1]}"
        return f"{self.name}:{self._numbers}{made_of}" + "." * self.rng.choice((0,) * 12 + (3_000,))

    async def send(
        self,
        sender: Any,
        identity: Producer,
        place: Place,
        txn: str | None = None,
        source: tuple[Place, int] | None = None,
        bytes_more: int = 0,
    ) -> tuple[Op, Any]:
        """Send a record. Returns its operation, and its delivery (None: the SDK did not take it). Raises KafkaError if
        it is refused within a transaction.
        """
        value = self.value(source) + "." * bytes_more
        sources = () if source is None else (source,)
        what = Send(place, identity, FIRST_IN_ORDER + self._numbers, (value,), txn, sources)
        op = self.history.invoke(self.name, what)
        try:
            delivery = await self._taken(sender, place, value, gives_up=txn is None)
        except fp.KafkaError as error:
            op.fail(int(error.code))
            if txn is not None:
                raise  # its transaction is not to be committed without it
            return op, None
        if delivery is None:
            op.fail()
        return op, delivery

    async def _taken(self, sender: Any, place: Place, value: str, *, gives_up: bool) -> Any:
        """Send a record, sometimes cancelling the call, and return its delivery. A call that is cancelled in time has
        taken no record: it is sent again, or given up (None).
        """
        while self._impatience.random() < CANCELLED:
            sending = asyncio.ensure_future(sender.send(place[0], value.encode(), partition=place[1]))
            turns = self._impatience.choice((1, 1, 1, 2, 3, 0))
            for _ in range(turns):
                await asyncio.sleep(0)
            if not turns:
                await asyncio.wait([sending], timeout=0.05)
            sending.cancel()
            await asyncio.wait([sending])
            if not sending.cancelled():
                return sending.result()
            if gives_up and self._impatience.random() < GIVES_UP:
                return None
        return await sender.send(place[0], value.encode(), partition=place[1])

    async def settle(self, sent: Sequence[tuple[Op, Any]]) -> bool:
        """Wait for the deliveries, and end each operation accordingly. Returns whether all were acknowledged."""
        for op, delivery in sent:
            if delivery is None:
                continue
            try:
                offset = (await delivery).offset
            except fp.KafkaError as error:
                if getattr(error, "maybe_written", True):
                    op.info(int(error.code))  # whether an attempt was carried out is not said
                else:
                    op.fail(int(error.code))
                continue
            op.ok(offset) if offset >= 0 else op.info()  # acknowledged as a duplicate, and nobody knows of what
        return all(op.outcome == "ok" for op, _ in sent)


class SdkProducer(SdkClient):
    """Idempotent, without transactions."""

    def __init__(self, world: World, name: str, number: int, places: Sequence[Place]) -> None:
        super().__init__(world, f"{name}#{number}", places)
        # Its ids and epochs are its own business; the log shows whether they are right.
        self.nobody: Producer = (-1 - number, -1)

    async def live(self) -> None:
        producer = await self.started(
            fp.Producer,
            linger_ms=self.rng.choice((0, 5)),
            max_batch_size=self.rng.choice((200, 131_072)),
            compression_type=self.rng.choice((None, "gzip")),
            delivery_timeout_ms=self.rng.choice((3_000, 15_000)),
            buffer_memory=self._impatience.choice((1 << 25, SMALL_BUFFER)),
        )
        while not self.world.over:
            sent = [
                await self.send(producer, self.nobody, self.rng.choice(self.places))
                for _ in range(self.rng.choice((1, 3, 12)))
            ]
            if not await self.settle(sent) and self.rng.random() < 0.2:
                return
            await asyncio.sleep(self.rng.choice((0, 0.02, 0.2)))


class Watched:
    """One transactional producer: what it asks InitProducerId is written down; the old protocol is as an old broker's.

    said_yes: the broker, to the last EndTxn: what nobody was asked is no End.
    """

    def __init__(self, history: Any, name: str, tv: int, driver: Any) -> None:
        self.said_yes = False
        self._given: set[Producer] = set()
        self._machine = driver.machine
        requests, machine = driver._requests, driver.machine
        init, end, coordinator = requests.init, requests.end, requests._coordinator

        async def watched(within_ms: float) -> Any:
            former = machine.former_identity()
            current = None if former.producer_id < 0 else (former.producer_id, former.epoch)
            op = history.invoke(name, Init(driver.transactional_id, current))
            op.late = True  # unless it is answered
            try:
                code, identity = await init(within_ms)
            except fp.KafkaError as error:
                op.late = maybe_done(error)
                op.info() if op.late else op.fail(int(error.code))
                raise
            op.late = False
            if code == 0:
                self._given.add(op.ok((identity.producer_id, identity.epoch)))
            else:
                op.info() if code in RETRIED else op.fail(code)
            return code, identity

        async def ended(commit: bool) -> Any:
            code, identity = await end(commit)
            self.said_yes = code == 0
            return code, identity

        async def old_coordinator() -> Any:
            connection = await coordinator()
            requests.seen_version = 1
            return connection

        requests.init, requests.end = watched, ended
        if tv < 2:
            requests._coordinator = old_coordinator

    @property
    def identity(self) -> Producer:
        return (self._machine.identity.producer_id, self._machine.identity.epoch)

    def goes_on_with(self, producer: Producer) -> Producer:
        """Return the result of an End by this producer: its new identity, if the answer to EndTxn gave it one; else the
        one that it had.
        """
        identity = self.identity  # unless an InitProducerId gave it, the answer to EndTxn did
        return producer if identity in self._given else identity


class LosesEnds(SdkClient):
    """A process with transactions: now and then none of its EndTxns arrives, for about as long as it waits for one."""

    lost = 0.03  # share of its EndTxns

    def __init__(self, world: World, name: str, places: Sequence[Place]) -> None:
        super().__init__(world, name, places)
        self._accidents = world.rng(f"{name} loses EndTxns")
        self._lost_until = 0.0
        self._patience_s = self._accidents.choice((1.0, 10.0))

    def on_send(self, transport: SimulatedTransport, keys: list[int]) -> None:
        super().on_send(transport, keys)
        if END_TXN not in keys or self.world.over:
            return
        now = self.world.loop.time()
        if self._accidents.random() < self.lost:
            self._lost_until = now + self._accidents.uniform(0.8, 1.3) * self._patience_s
        if now < self._lost_until:
            for connection in self._host.connections:
                if connection.client is transport:
                    connection.cut()


class SdkIncarnation(LosesEnds):
    """One process with a transactional id, until it is fenced, unsure, or killed in the middle of something."""

    def __init__(self, world: World, transactional_id: str, number: int, tv: int, places: Sequence[Place]) -> None:
        super().__init__(world, f"{transactional_id}#{number}", places)
        self.transactional_id = transactional_id
        self.tv = tv
        self._txns = 0
        self._watched: Watched

    async def live(self) -> None:
        self.producer = await self.started(
            fp.Producer,
            transactional_id=self.transactional_id,
            transaction_timeout_ms=TXN_TIMEOUT_MS,
            delivery_timeout_ms=self.rng.choice((2_000, 8_000)),
            max_block_ms=int(self._patience_s * 1000),
        )
        await self.work()

    def prepare(self, client: Any) -> None:
        if client.__class__ is fp.Producer:
            self._watched = Watched(self.history, self.name, self.tv, client._driver)

    @property
    def identity(self) -> Producer:
        return (self.producer.producer_id, self.producer.producer_epoch)

    async def work(self) -> None:
        while not self.world.over:
            await self.transaction(self.next_txn())
            await asyncio.sleep(self.rng.choice((0.02, 0.1, 0.5)))

    # ---- one transaction -------------------------------------------------------------------------------------

    def next_txn(self) -> str:
        self._txns += 1
        return f"{self.name}/{self._txns}"

    async def transaction(self, txn: str, batch: Any = None) -> None:
        """Run one transaction. Raises what ends this producer."""
        sent: list[tuple[Op, Any]] = []
        ends: list[Op] = []
        commit = self.rng.random() < COMMITS
        try:
            async with self.open(batch) as tx:
                self._watched.said_yes = False  # forget a yes to an abort that the transaction before had left undone
                identity = self.identity
                self.history.invoke(self.name, Begin(txn, self.transactional_id, identity, TXN_TIMEOUT_MS)).ok()
                await self.fill(tx, identity, txn, sent, batch)
                if self.rng.random() < 0.1:
                    await asyncio.sleep(self.rng.choice((0.5, 2.0, 8.0)))
                ends = self.ending(txn, identity, commit, batch)
                if not commit:
                    raise Mistake
        except fp.CommitOutcomeUnknownError as error:
            await self._resolve(error, ends)
        except (Mistake, fp.AbortableTransactionError, fp.RecordNotHeldError) as error:
            self._aborted(ends, error)
        except fp.KafkaError as error:
            for op in ends:
                op.fail(int(error.code)) if commit else op.info()
            raise
        else:
            self._committed(ends)
        finally:
            await self.settle(sent)

    def open(self, batch: Any) -> Any:
        return self.producer.transaction(batch)

    def ending(self, txn: str, identity: Producer, commit: bool, batch: Any) -> list[Op]:
        return [self.history.invoke(self.name, End(txn, self.transactional_id, identity, commit))]

    def _committed(self, ends: Sequence[Op]) -> None:
        for op in ends:
            op.ok(self._watched.goes_on_with(op.what.producer) if isinstance(op.what, End) else None)

    def _aborted(self, ends: Sequence[Op], error: Exception) -> None:
        is_over = not getattr(error, "__notes__", ())  # else the abort was not answered; the next begin repeats it
        for op in ends:
            if isinstance(error, fp.KafkaError):
                op.fail(int(error.code))
            elif is_over and self._watched.said_yes:
                op.ok(self._watched.goes_on_with(op.what.producer))

    async def _resolve(self, error: Any, ends: Sequence[Op]) -> None:
        """After a commit of unknown outcome, begin anew (init_transactions), or ask for the outcome: that is compared
        with the log later. Raises the error if the outcome stays unknown.
        """
        if self.rng.random() < 0.6:
            for op in ends:
                op.info()
            await self.producer.init_transactions()
            return
        outcome = await error.resolve()
        if outcome == "committed":
            self._committed(ends)
        elif outcome == "aborted":
            for op in ends:
                op.fail(int(error.code))
        else:
            for op in ends:
                op.info()
            raise error

    async def fill(self, tx: Any, identity: Producer, txn: str, sent: list[tuple[Op, Any]], batch: Any) -> None:
        for _ in range(self.rng.choice((1, 2, 8))):
            sent.append(await self.send(tx, identity, self.rng.choice(self.places), txn))
            if self.rng.random() < 0.1:
                await asyncio.sleep(0.05)
        if self.rng.random() < TOO_LARGE:
            sent.append(await self.send(tx, identity, self.rng.choice(self.places), txn, bytes_more=MAX_MESSAGE_BYTES))
