"""Several transactions at once in one process, each on a producer of its own: `async with pool.transaction() as tx`.

The rules: slot n always has the transactional id "{prefix}-{n}", so who starts with a prefix ends what a predecessor
left open, and fences it. The newest wins: a pool that was fenced begins nothing any more, and takes no id back. A slot
comes back however its transaction ended; a producer that cannot go on is replaced when its slot is wanted again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import fields, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ..admin.admin import Admin
from ..arguments import positive
from ..config_names import settings_from
from ..consumer.polls import CLOSING_MS
from ..errors import (
    ClosedError,
    IllegalStateError,
    InvalidConfigurationError,
    PoolBusyError,
    ProducerFencedError,
    RequestTimedOutError,
)
from ..net.environment import SYSTEM, Environment
from ..net.loop_affinity import LoopAffinity
from ..net.retry import Deadline
from ..settings import AdminSettings, Bootstrap, ConnectionSettings, ProducerSettings, producer_settings
from ..snapshots import PoolLife, PoolSnapshot
from ..transactions.sources import FromGroup, Sources
from ..transactions.table import State
from .producer import Producer
from .slots import Slots
from .transaction import Transaction, run_until_committed

if TYPE_CHECKING:
    from typing import Self, Unpack

    from ..settings import ProducerKeywords

T = TypeVar("T")

SIZE = 8
MAX_WAIT_MS = 60_000
_FENCED = "another instance runs with the prefix {prefix!r}, and has fenced this one"
_FENCED_HINT = (
    "stop this instance if that one is its successor; each instance that runs at the same time needs its own prefix"
)


class ProducerPool:
    """`async with ProducerPool("localhost:9092", prefix="api") as pool`, made once in a process.

    prefix: of the transactional ids, "api-0" and so on: one for each running instance, and the same after its restart.
    size: how many transactions may be open at once; what is not needed is never connected. max_wait_ms: how long
    `transaction()` waits while all are. Keywords: those of ProducerSettings, but transactional_id.
    """

    def __init__(
        self,
        bootstrap_servers: Bootstrap,
        *,
        prefix: str,
        size: int = SIZE,
        max_wait_ms: float = MAX_WAIT_MS,
        environment: Environment = SYSTEM,
        **keywords: "Unpack[ProducerKeywords]",
    ) -> None:
        self._set_up(producer_settings(bootstrap_servers, **keywords), prefix, size, max_wait_ms, environment)

    @classmethod
    def from_config(
        cls,
        config: Mapping[str, Any],
        *,
        prefix: str,
        size: int = SIZE,
        max_wait_ms: float = MAX_WAIT_MS,
        environment: Environment = SYSTEM,
    ) -> "Self":
        """The producers' settings by the names of Java or librdkafka. Raises InvalidConfigurationError."""
        pool = cls.__new__(cls)
        pool._set_up(settings_from(ProducerSettings, config), prefix, size, max_wait_ms, environment)
        return pool

    def _set_up(
        self, settings: ProducerSettings, prefix: str, size: int, max_wait_ms: float, environment: Environment
    ) -> None:
        if settings.transactional_id is not None:
            raise InvalidConfigurationError("a pool takes a prefix instead of transactional_id", hint="set prefix")
        if not isinstance(prefix, str) or not prefix:
            raise InvalidConfigurationError(f"prefix must be a str, not {prefix!r}")
        self.prefix = prefix
        self.size = positive(size, "size")
        self._max_wait_ms = max_wait_ms
        self._settings = [replace(settings, transactional_id=f"{prefix}-{slot}") for slot in range(size)]
        self._environment = environment
        self._affinity = LoopAffinity()
        self._slots: Slots[asyncio.Future[int]] = Slots(size)
        self._idle = asyncio.Event()
        self._idle.set()
        self._producers: dict[int, _SlotProducer] = {}
        self._ending: set[asyncio.Task[None]] = set()  # producers that are replaced
        self._fence: ProducerFencedError | None = None
        self._started = self._closed = False
        self._starting = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<ProducerPool {self.prefix!r} {self._slots.taken} of {self.size} taken {self._life}>"

    @property
    def _life(self) -> PoolLife:
        return "closed" if self._closed else "fenced" if self._fence else "open" if self._started else "not started"

    def state(self) -> PoolSnapshot:
        """In which state it is now."""
        slots, producers = self._slots, self._producers.values()
        named = {str(producer.transactional_id): producer.state() for producer in producers}
        return PoolSnapshot(self._life, self.prefix, self.size, slots.taken, slots.waiting, named)

    # ---- life --------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Fence whoever had these ids, and abort what was left open under any of them. Producers come when needed.

        Raises BrokerUnreachableError, AuthenticationError, AuthorizationError and the like; it may be called again.
        Once it has succeeded that does nothing: it would fence our own.
        """
        async with self._starting:
            self._check_open()
            if self._started:
                self._affinity.check()
            else:
                await self._start()

    async def _start(self) -> None:
        self._affinity.enter()
        ids = [str(settings.transactional_id) for settings in self._settings]
        first = self._settings[0]
        same = {field.name: getattr(first, field.name) for field in fields(ConnectionSettings)}
        async with Admin.of(AdminSettings(**same), self._environment) as admin:
            await admin.fence_producers(ids)
        self._started = True

    async def __aenter__(self) -> "Self":
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self, *, timeout_ms: float | None = None) -> None:
        """Begin nothing any more, wait for what is open, at most so long (delivery_timeout_ms if not given), and abort
        what is open then. Whoever waits for a slot gets a ClosedError. Idempotent. Cancelled, it waits no longer.
        """
        self._closed = True
        for waiter in self._slots.dismiss():
            if not waiter.done():
                waiter.set_exception(ClosedError("the pool was closed"))
        if timeout_ms is None:
            timeout_ms = self._settings[0].delivery_timeout_ms
        deadline = Deadline(self._environment.clock, timeout_ms)
        try:
            if not self._affinity.is_elsewhere:
                async with asyncio.timeout(timeout_ms / 1000):
                    await self._idle.wait()
        except TimeoutError:
            pass
        finally:
            left_ms = max(deadline.left_ms(), CLOSING_MS)
            closing = [producer.close(timeout_ms=left_ms) for producer in self._producers.values()]
            await asyncio.gather(*closing, *self._ending, return_exceptions=True)

    stop = close

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the pool is closed")

    def _check(self) -> None:
        self._check_open()
        if not self._started:
            raise IllegalStateError("the pool is not started", hint="async with ProducerPool(…) as pool")
        self._affinity.check()
        if self._fence is not None:
            raise ProducerFencedError(
                _FENCED.format(prefix=self.prefix),
                hint=_FENCED_HINT,
                reason=self._fence.reason,
                current_epoch=self._fence.current_epoch,
            )

    # ---- transactions ------------------------------------------------------------------------------------------

    def transaction(self, batch: FromGroup | None = None, label: str | None = None) -> "PooledTransaction":
        """`async with pool.transaction() as tx`: as Producer.transaction, once a slot is free.

        Entering it raises PoolBusyError after max_wait_ms, ProducerFencedError, and what starting a producer raises;
        nothing was begun then, and the batch comes again.
        """
        return PooledTransaction(self, batch, label)

    async def run_in_transaction(self, work: Callable[[Transaction], Awaitable[T]], retries: int = 3) -> T:
        """Run `work` in a transaction of its own, and again if that had to be aborted, at most `retries` times more."""
        return await run_until_committed(self.transaction, work, retries)

    # ---- slots -------------------------------------------------------------------------------------------------

    async def _begin(self, batch: FromGroup | None, label: str | None) -> tuple[int, Transaction]:
        """The slot, and the transaction that was begun on it."""
        self._check()
        sources = Sources()
        if batch is not None:
            batch.claim(sources)
        try:
            slot = await self._take()
            try:
                self._check()  # it may have waited
                transaction = (await self._producer(slot)).transaction_of(batch, label, sources)
                await transaction.__aenter__()
            except BaseException:
                self._release(slot)
                raise
        except BaseException:
            if batch is not None:
                batch.aborted()  # nothing was done with it: it has to come again
            raise
        return slot, transaction

    async def _take(self) -> int:
        slot = self._slots.take()
        if slot is not None:
            self._idle.clear()
            return slot
        waiter: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._slots.wait(waiter)
        try:
            async with asyncio.timeout(self._max_wait_ms / 1000):
                return await waiter
        except BaseException as error:
            self._slots.leave(waiter)
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self._give_back(waiter.result())  # it came in the moment in which nobody waited any more
            if isinstance(error, TimeoutError):
                raise self._busy() from None
            raise

    def _busy(self) -> PoolBusyError:
        return PoolBusyError(
            f"all {self.size} transactions of {self.prefix!r} were open for {self._max_wait_ms:g} ms, and "
            f"{self._slots.waiting} others are waiting"
        )

    def _give_back(self, slot: int) -> None:
        while (waiter := self._slots.give_back(slot)) is not None:
            if not waiter.done():  # else it was cancelled, and has not left yet
                waiter.set_result(slot)
                return
        if not self._slots.taken:
            self._idle.set()

    async def _producer(self, slot: int) -> "_SlotProducer":
        """The one that goes on, or another one."""
        producer = self._producers.get(slot)
        if producer is not None:
            if await producer.can_begin():
                return producer
            self._replace(slot, producer)
            self._check()
        producer = self._producers[slot] = _SlotProducer(self._settings[slot], self._environment)
        await producer.start()  # one that does not is replaced when its slot is given back
        return producer

    def _release(self, slot: int) -> None:
        """Its transaction is over, or was never begun."""
        producer = self._producers.get(slot)
        if producer is not None and not producer.goes_on and not self._closed:
            self._replace(slot, producer)
        self._give_back(slot)

    def _replace(self, slot: int, producer: "_SlotProducer") -> None:
        """It is let go of; the next transaction on the slot makes another, unless the id is somebody else's now."""
        self._fence = self._fence or producer.fenced_by_another()
        del self._producers[slot]
        self._ending.add(task := asyncio.get_running_loop().create_task(producer.close()))
        task.add_done_callback(self._ending.discard)


class PooledTransaction:
    """`async with` it, once: a slot is taken, and given back when the transaction has ended."""

    def __init__(self, pool: ProducerPool, batch: FromGroup | None, label: str | None) -> None:
        self._pool = pool
        self._wanted = batch, label
        self._entered = False
        self._begun: tuple[int, Transaction] | None = None

    async def __aenter__(self) -> Transaction:
        if self._entered:
            raise IllegalStateError("a transaction can be entered only once; call pool.transaction() for another")
        self._entered = True
        self._begun = await self._pool._begin(*self._wanted)  # pyright: ignore[reportPrivateUsage]
        return self._begun[1]

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if self._begun is None:
            return
        (slot, transaction), self._begun = self._begun, None
        try:
            await transaction.__aexit__(kind, error, at)
        finally:
            self._pool._release(slot)  # pyright: ignore[reportPrivateUsage]


class _SlotProducer(Producer):
    """The producer of one slot, whose transactions alone users see."""

    def __init__(self, settings: ProducerSettings, environment: Environment) -> None:
        self._set_up(settings, environment)

    @property
    def goes_on(self) -> bool:
        """Whether another transaction may be begun, perhaps after what the last one left to be done."""
        return self._driver is not None and self._driver.goes_on

    async def can_begin(self) -> bool:
        """As goes_on, once it is known what became of a commit that was not answered.

        Raises RequestTimedOutError where nobody says.
        """
        driver = self._transacting()
        if driver.state is State.UNKNOWN_OUTCOME or driver.state is State.COMMITTING:
            await driver.resolve()
            if driver.machine.is_in(State.UNKNOWN_OUTCOME):
                raise RequestTimedOutError(
                    f"{self.transactional_id!r} does not know the outcome of its previous commit: nothing was begun"
                )
        return driver.goes_on

    def fenced_by_another(self) -> ProducerFencedError | None:
        """Why its id is not to be taken back: not where it was too slow, or an operator aborted its transaction."""
        driver = self._driver
        error = None if driver is None else driver.machine.error
        if driver is None or not isinstance(error, ProducerFencedError):
            return None
        was_slow = driver.age_ms() >= self.settings.transaction_timeout_ms
        another = error.reason == "newer_producer" or (error.reason == "unknown" and not was_slow)
        return error if another else None

    def transaction_of(self, batch: FromGroup | None, label: str | None, sources: Sources) -> Transaction:
        """sources: with the batch claimed."""
        return Transaction(cast(Any, self), self._transacting(), batch, label, sources)
