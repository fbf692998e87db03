"""Concurrent transactions in one process, each with its own producer: `async with pool.transaction() as tx`.

The rules: slot n always has the transactional id "{prefix}-{n}", so a pool that starts with a prefix aborts what its
predecessor left open, and fences it. The newest pool wins: a fenced pool begins no more transactions, and takes no id
back. A slot is free again however its transaction ended; a producer that cannot continue is replaced when its slot is
next used.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import fields, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ..addresses import Bootstrap
from ..admin.admin import Admin
from ..arguments import positive
from ..config_names import settings_from
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
from ..reader_parts import CLOSING_MS
from ..settings import AdminSettings, ConnectionSettings, ProducerSettings, producer_settings
from ..snapshots import PoolLife, PoolSnapshot
from ..transactions.sources import FromGroup, Sources
from ..transactions.table import State
from .producer import Producer
from .slots import Slots
from .transaction import Transaction, run_until_committed

if TYPE_CHECKING:
    from typing import Self, Unpack

    from ..metrics.counters import ClientMetrics
    from ..settings import ProducerKeywords
    from ..tracing.tracing import TracerProvider, Tracing

T = TypeVar("T")

SIZE = 8
MAX_WAIT_MS = 60_000
_FENCED = "another instance uses the prefix {prefix!r} and has fenced this one"
_FENCED_HINT = (
    "stop this instance if the other replaces it; instances that run at the same time need different prefixes"
)


class ProducerPool:
    """`async with ProducerPool("localhost:9092", prefix="api") as pool`, created once in a process.

    prefix: of the transactional ids, "api-0" and so on: unique for each running instance, and the same after a restart.
    size: how many transactions may be open at once; unused slots are never connected. max_wait_ms: how long
    `transaction()` waits while all slots are taken. Keywords: those of ProducerSettings without transactional_id.
    """

    def __init__(
        self,
        bootstrap_servers: Bootstrap,
        *,
        prefix: str,
        size: int = SIZE,
        max_wait_ms: float = MAX_WAIT_MS,
        metrics: "ClientMetrics | None" = None,
        tracing: "Tracing | TracerProvider | bool | None" = None,
        environment: Environment = SYSTEM,
        **keywords: "Unpack[ProducerKeywords]",
    ) -> None:
        self._watch(metrics, tracing)
        self._set_up(producer_settings(bootstrap_servers, **keywords), prefix, size, max_wait_ms, environment)

    @classmethod
    def from_config(
        cls,
        config: Mapping[str, Any],
        *,
        prefix: str,
        size: int = SIZE,
        max_wait_ms: float = MAX_WAIT_MS,
        metrics: "ClientMetrics | None" = None,
        tracing: "Tracing | TracerProvider | bool | None" = None,
        environment: Environment = SYSTEM,
    ) -> "Self":
        """Create a pool whose producers are configured by the setting names of Java's client or of librdkafka.

        The other arguments are those of the constructor. Raises InvalidConfigurationError.
        """
        pool = cls.__new__(cls)
        pool._watch(metrics, tracing)
        pool._set_up(settings_from(ProducerSettings, config), prefix, size, max_wait_ms, environment)
        return pool

    def _watch(self, metrics: "ClientMetrics | None", tracing: "Tracing | TracerProvider | bool | None") -> None:
        """Set the metrics and the tracing that each producer of the pool will use. tracing: True for the default
        tracer.
        """
        self._metrics = metrics
        self._tracing: Tracing | None = None
        if tracing:
            from ..tracing.tracing import tracing_of

            self._tracing = tracing_of(tracing)

    def _set_up(
        self, settings: ProducerSettings, prefix: str, size: int, max_wait_ms: float, environment: Environment
    ) -> None:
        """Check the arguments and create the pool's state, without connecting. Raises InvalidConfigurationError."""
        if settings.transactional_id is not None:
            raise InvalidConfigurationError("a pool has a prefix instead of a transactional_id", hint="set prefix")
        if not isinstance(prefix, str) or not prefix:
            raise InvalidConfigurationError(f"prefix must be a non-empty str, not {prefix!r}")
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
        self._ending: set[asyncio.Task[None]] = set()  # they close replaced producers
        self._fence: ProducerFencedError | None = None
        self._started = self._closed = False
        self._starting = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<ProducerPool {self.prefix!r} {self._slots.taken} of {self.size} taken {self._life}>"

    @property
    def _life(self) -> PoolLife:
        """Return in one word how far the pool is: not started, open, fenced or closed."""
        return "closed" if self._closed else "fenced" if self._fence else "open" if self._started else "not started"

    def state(self) -> PoolSnapshot:
        """Return a snapshot of the pool: its slots, how many calls wait for one, and the state of each producer."""
        slots, producers = self._slots, self._producers.values()
        named = {str(producer.transactional_id): producer.state() for producer in producers}
        return PoolSnapshot(self._life, self.prefix, self.size, slots.taken, slots.waiting, named)

    # ---- life --------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Fence the previous producers of these ids and abort their open transactions. Producers start when needed.

        Raises BrokerUnreachableError, AuthenticationError, AuthorizationError and the like; then call it again. After a
        success it does nothing: it would fence the pool's own producers.
        """
        async with self._starting:
            self._check_open()
            if self._started:
                self._affinity.check()
            else:
                await self._start()

    async def _start(self) -> None:
        """Fence the transactional ids of all producers of the pool, which ends transactions that an earlier pool left
        open.
        """
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
        """Wait for the open transactions, for at most timeout_ms (default: delivery_timeout_ms), then abort the rest.

        Calls that wait for a slot raise ClosedError. Idempotent. If it is cancelled, it stops waiting and aborts.
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
        """Raise ClosedError if the pool is closed, IllegalStateError if it is not started, ProducerFencedError if
        another pool has taken its transactional ids.
        """
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
        """Return a context manager for one transaction: `async with pool.transaction() as tx`. Entering it waits for a
        free slot.

        batch, label: as for Producer.transaction. Entering raises PoolBusyError after max_wait_ms, ProducerFencedError,
        and the errors of Producer.start; then nothing was begun, and the consumer yields the batch again.
        """
        return PooledTransaction(self, batch, label)

    async def run_in_transaction(self, work: Callable[[Transaction], Awaitable[T]], retries: int = 3) -> T:
        """Run `work` in a transaction and return its result after the commit. If the transaction must be aborted, run
        it again in a new one, at most `retries` times.
        """
        return await run_until_committed(self.transaction, work, retries)

    # ---- slots -------------------------------------------------------------------------------------------------

    async def _begin(self, batch: FromGroup | None, label: str | None) -> tuple[int, Transaction]:
        """Take a slot and begin a transaction on it. Returns the slot and the transaction. If that fails, gives the
        slot back and lets the consumer yield the batch again.
        """
        self._check()
        sources = Sources()
        if batch is not None:
            batch.claim(sources)
        try:
            slot = await self._take()
            try:
                self._check()  # again, since it may have waited
                transaction = (await self._producer(slot)).transaction_of(batch, label, sources)
                await transaction.__aenter__()
            except BaseException:
                self._release(slot)
                raise
        except BaseException:
            if batch is not None:
                batch.aborted()  # the consumer has to yield it again
            raise
        return slot, transaction

    async def _take(self) -> int:
        """Return a free slot; if there is none, wait for one. Raises PoolBusyError after max_wait_ms."""
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
                self._give_back(waiter.result())  # it was assigned after the wait had ended
            if isinstance(error, TimeoutError):
                raise self._busy() from None
            raise

    def _busy(self) -> PoolBusyError:
        """Return the error for a call that found no free slot within max_wait_ms."""
        return PoolBusyError(
            f"all {self.size} transactions of {self.prefix!r} were open for {self._max_wait_ms:g} ms, and "
            f"{self._slots.waiting} other calls are waiting"
        )

    def _give_back(self, slot: int) -> None:
        """Give the slot to the call that has waited longest, else mark it free."""
        while (waiter := self._slots.give_back(slot)) is not None:
            if not waiter.done():  # else it was cancelled and is about to leave
                waiter.set_result(slot)
                return
        if not self._slots.taken:
            self._idle.set()

    async def _producer(self, slot: int) -> "_SlotProducer":
        """Return the slot's started producer: the present one, or a new one if there is none or it cannot begin
        another transaction.
        """
        producer = self._producers.get(slot)
        if producer is not None:
            if await producer.can_begin():
                return producer
            self._replace(slot, producer)
            self._check()
        producer = self._producers[slot] = self._make_producer(slot)
        await producer.start()  # if this fails, it is replaced when its slot is given back
        return producer

    def _make_producer(self, slot: int) -> "_SlotProducer":
        return _SlotProducer(self._settings[slot], self._environment, self._metrics, self._tracing)

    def _release(self, slot: int) -> None:
        """Give the slot back after its transaction has ended or could not begin, and close its producer if that cannot
        begin another one.
        """
        producer = self._producers.get(slot)
        if producer is not None and not producer.goes_on and not self._closed:
            self._replace(slot, producer)
        self._give_back(slot)

    def _replace(self, slot: int, producer: "_SlotProducer") -> None:
        """Close the slot's producer in a task of its own. The next transaction on the slot creates another, unless the
        producer was fenced by another instance: then the whole pool counts as fenced.
        """
        self._fence = self._fence or producer.fenced_by_another()
        del self._producers[slot]
        self._ending.add(task := asyncio.get_running_loop().create_task(producer.close()))
        task.add_done_callback(self._ending.discard)


class PooledTransaction:
    """A context manager for one transaction: takes a slot when it is entered, and gives it back when the transaction
    has ended.
    """

    def __init__(self, pool: ProducerPool, batch: FromGroup | None, label: str | None) -> None:
        self._pool = pool
        self._arguments = batch, label
        self._entered = False
        self._begun: tuple[int, Transaction] | None = None

    async def __aenter__(self) -> Transaction:
        if self._entered:
            raise IllegalStateError("a transaction can be entered only once; call pool.transaction() for another")
        self._entered = True
        self._begun = await self._pool._begin(*self._arguments)  # pyright: ignore[reportPrivateUsage]
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
    """The producer of one slot. Users see only its transactions."""

    def __init__(
        self,
        settings: ProducerSettings,
        environment: Environment,
        metrics: "ClientMetrics | None",
        tracing: "Tracing | None",
    ) -> None:
        self._set_up(settings, environment)
        self._watch(metrics, tracing)

    @property
    def goes_on(self) -> bool:
        """Return whether another transaction can begin, perhaps after the pending abort or commit of the last one."""
        return self._driver is not None and self._driver.goes_on

    async def can_begin(self) -> bool:
        """Return `goes_on`, after finding out the outcome of a commit that got no response.

        Raises RequestTimedOutError if its outcome stays unknown.
        """
        driver = self._transacting()
        if driver.state is State.UNKNOWN_OUTCOME or driver.state is State.COMMITTING:
            await driver.resolve()
            if driver.machine.is_in(State.UNKNOWN_OUTCOME):
                raise RequestTimedOutError(
                    f"the outcome of the previous commit of {self.transactional_id!r} is unknown: nothing was begun"
                )
        return driver.goes_on

    def fenced_by_another(self) -> ProducerFencedError | None:
        """Return the fencing error if another producer has probably taken this one's transactional id. None if it was
        not fenced, or if the transaction's timeout or an operator's abort was the reason.
        """
        driver = self._driver
        error = None if driver is None else driver.machine.error
        if driver is None or not isinstance(error, ProducerFencedError):
            return None
        was_slow = driver.age_ms() >= self.settings.transaction_timeout_ms
        another = error.reason == "newer_producer" or (error.reason == "unknown" and not was_slow)
        return error if another else None

    def transaction_of(self, batch: FromGroup | None, label: str | None, sources: Sources) -> Transaction:
        """Return a new transaction of this slot's producer, not begun yet. sources: those that have claimed the batch
        already.
        """
        return Transaction(cast(Any, self), self._transacting(), batch, label, sources)
