"""Measures the rates of clients that have a quota, and how long they have to wait. One object for each broker. Pure.

The rules: clients without a quota are not measured. A measurement is dropped when it no longer differs from a new one.
If there are more than MAX_MEASURED, the longest unused one is dropped. So many different client ids cost limited
memory, and at worst the broker forgets what a client did before. An amount above the quota is recorded too, so that
over time the waits bring a client down to its quota. Source: Kafka's ClientQuotaManager, ClientRequestQuotaManager,
ControllerMutationQuotaManager.
"""

from collections.abc import Callable
from typing import TypeVar

from .entities import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    LONGEST_NAME,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    Limit,
    Owner,
    Quotas,
)
from .rates import TokenBucket, WindowedRate, Windows

MAX_MEASURED = 10_000  # of each kind
MAX_KNOWN = 10_000  # clients whose limits are remembered
DROPPED_AT_ONCE = 2
OF_CLIENTS = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)


T = TypeVar("T")


class ClientLimits:
    """The quotas that apply to one client, by kind; None: no limit."""

    __slots__ = ("fetch", "mutations", "produce", "request")

    def __init__(self, quotas: Quotas, user: str, client_id: str) -> None:
        self.produce = quotas.limit(PRODUCER_BYTE_RATE, user, client_id)
        self.fetch = quotas.limit(CONSUMER_BYTE_RATE, user, client_id)
        self.request = quotas.limit(REQUEST_PERCENTAGE, user, client_id)
        self.mutations = quotas.limit(CONTROLLER_MUTATION_RATE, user, client_id)

    @property
    def is_any(self) -> bool:
        """Whether any quota applies to the client."""
        return any(limit is not None for limit in (self.produce, self.fetch, self.request, self.mutations))


class Rates:
    """The rates of one kind of quota, by owner (see entities.Limit). It only has owners that were measured lately."""

    def __init__(self, windows: Callable[[], Windows], *, cut: bool = False) -> None:
        """cut: whether a wait is never longer than one window, as in Kafka for all quotas except those of bytes."""
        self._windows = windows
        self._cut = cut
        self._by_owner: dict[Owner, WindowedRate] = {}  # the least recently used first
        self._owed: dict[Owner, tuple[float, int]] = {}  # the limit, and the end of the wait; the oldest first

    def __len__(self) -> int:
        return len(self._by_owner)

    def record(self, limit: Limit, amount: float, now_ms: int) -> int:
        """Add an amount to the owner's rate. Returns how many ms the owner must wait; 0 if it is within its quota."""
        shape, rate = self._windows(), self._rate_of(limit.owner, now_ms)
        rate.record(amount, now_ms, shape)
        wait_ms = rate.throttle_ms(limit.value, now_ms, shape)
        return min(wait_ms, shape.size_ms) if self._cut else wait_ms

    def is_over(self, limit: Limit, now_ms: int) -> bool:
        """Return whether the owner's rate is above its quota now."""
        rate = self._by_owner.get(limit.owner)
        return rate is not None and rate.throttle_ms(limit.value, now_ms, self._windows()) > 0

    def take_back(self, limit: Limit, amount: float, now_ms: int) -> None:
        """Undo a record() of the same moment, because its work was not done."""
        self._rate_of(limit.owner, now_ms).record(-amount, now_ms, self._windows())

    def owe(self, limit: Limit, wait_ms: int, now_ms: int) -> None:
        """Make the owner wait on all its connections for wait_ms, even if its rate is low again before that."""
        self._owed.pop(limit.owner, None)
        _drop(self._owed, lambda oldest: oldest[1] <= now_ms)
        self._owed[limit.owner] = limit.value, now_ms + wait_ms

    def owed_ms(self, limit: Limit, now_ms: int) -> int:
        """Return how many ms of a wait set by owe() are left for the owner. A change of the quota ends the wait."""
        value, until_ms = self._owed.get(limit.owner, (limit.value, now_ms))
        return max(until_ms - now_ms, 0) if value == limit.value else 0

    def most_at_once(self, limit: Limit) -> float:
        """Return the largest amount that causes no wait if nothing was recorded lately."""
        shape = self._windows()
        return limit.value * (shape.number - 1) * shape.size_ms / 1000

    def _rate_of(self, owner: Owner, now_ms: int) -> WindowedRate:
        """Return the owner's rate, a new one if none is known, and note that it was used last."""
        by_owner, shape = self._by_owner, self._windows()
        rate = by_owner.pop(owner, None)
        if rate is None:
            _drop(by_owner, lambda oldest: oldest.is_fresh(now_ms, shape))
            rate = WindowedRate()
        by_owner[owner] = rate
        return rate


class Buckets:
    """Token buckets of one kind of quota, by owner: for requests that may come in bursts, or are refused before any
    work.
    """

    def __init__(self, windows: Callable[[], Windows]) -> None:
        self._windows = windows
        self._by_owner: dict[Owner, tuple[TokenBucket, float]] = {}  # with its limit; the least recently used first

    def __len__(self) -> int:
        return len(self._by_owner)

    def record(self, limit: Limit, amount: float, now_ms: int, *, strict: bool) -> tuple[bool, int]:
        """Take an amount from the owner's bucket. Returns (whether it is admitted, how many ms the owner must wait).

        strict: if the owner must wait, refuse the amount and take nothing; otherwise it is always admitted.
        """
        bucket, shape = self._bucket_of(limit, now_ms), self._windows()
        if strict and (wait_ms := bucket.throttle_ms(limit.value, now_ms, shape)):
            return False, wait_ms
        bucket.record(amount, limit.value, now_ms)
        return True, 0 if strict else bucket.throttle_ms(limit.value, now_ms, shape)

    def _bucket_of(self, limit: Limit, now_ms: int) -> TokenBucket:
        """Return the owner's bucket, a full one if none is known, and note that it was used last."""
        by_owner = self._by_owner
        bucket, _ = by_owner.pop(limit.owner, (None, 0.0))
        if bucket is None:
            _drop(by_owner, lambda oldest: oldest[0].is_fresh(oldest[1], now_ms))
            bucket = TokenBucket()
        by_owner[limit.owner] = bucket, limit.value
        return bucket


def _drop(by_owner: dict[Owner, T], is_fresh: Callable[[T], bool]) -> None:
    """Make room for one more entry: drop the longest unused entries as long as they are as good as new (is_fresh), or
    there are too many.

    At most DROPPED_AT_ONCE are dropped in one call.
    """
    for _ in range(DROPPED_AT_ONCE):
        oldest = next(iter(by_owner), None)
        if oldest is None or not (is_fresh(by_owner[oldest]) or len(by_owner) >= MAX_MEASURED):
            return
        del by_owner[oldest]


class Measures:
    """The rates of all kinds of quota.

    is_active: whether any client has a quota. times_requests: whether any client has a quota of request time.
    """

    def __init__(
        self, quotas: Quotas, windows: Callable[[], Windows], controller_windows: Callable[[], Windows]
    ) -> None:
        self.produce = Rates(windows)
        self.fetch = Rates(windows)
        self.request = Rates(windows, cut=True)
        self.mutations = Buckets(controller_windows)
        self.is_active = self.times_requests = False
        self._quotas = quotas
        self._known: dict[tuple[str, str], ClientLimits | None] = {}
        quotas.on_change = self._look_again
        self._look_again()

    def limits_of(self, user: str, client_id: str) -> ClientLimits | None:
        """Return the quotas that apply to this client; None if none does."""
        client_id = client_id[: LONGEST_NAME + 1]  # longer ids cannot have quotas
        asked, known = (user, client_id), self._known
        if asked not in known:
            if len(known) >= MAX_KNOWN:
                known.clear()
            limits = ClientLimits(self._quotas, user, client_id)
            known[asked] = limits if limits.is_any else None
        return known[asked]

    def _look_again(self) -> None:
        """Note which kinds of quota exist, and forget which quotas apply to which client. Called after a change of
        quotas.
        """
        self._known.clear()
        self.is_active = any(map(self._quotas.has_any, OF_CLIENTS))
        self.times_requests = self._quotas.has_any(REQUEST_PERCENTAGE)
