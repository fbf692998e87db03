"""What is measured of each client that has a quota, and how long it has to wait: one object for all of a broker. Pure.

The rules: nothing is kept of a client without a quota. What is kept of one is dropped once it is as good as new, and
the longest unused goes when there are more than MOST_MEASURED: a flood of client ids costs a bounded amount, and lets
go only what somebody did before. What was recorded counts even where it is too much, so a wait brings its client to its
quota in the long run. Source: Kafka's ClientQuotaManager, ClientRequestQuotaManager, ControllerMutationQuotaManager.
"""

from collections.abc import Callable
from typing import TypeVar

from .entities import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    Limit,
    Owner,
    Quotas,
)
from .rates import TokenBucket, WindowedRate, Windows

MOST_MEASURED = 10_000  # of each kind
MOST_KNOWN = 10_000  # clients whose limits are remembered
DROPPED_AT_ONCE = 2
OF_CLIENTS = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)


T = TypeVar("T")


class ClientLimits:
    """What counts for one client, by kind; None where nothing does."""

    __slots__ = ("fetch", "mutations", "produce", "request")

    def __init__(self, quotas: Quotas, user: str, client_id: str) -> None:
        self.produce = quotas.limit(PRODUCER_BYTE_RATE, user, client_id)
        self.fetch = quotas.limit(CONSUMER_BYTE_RATE, user, client_id)
        self.request = quotas.limit(REQUEST_PERCENTAGE, user, client_id)
        self.mutations = quotas.limit(CONTROLLER_MUTATION_RATE, user, client_id)

    @property
    def is_any(self) -> bool:
        return any(limit is not None for limit in (self.produce, self.fetch, self.request, self.mutations))


class Rates:
    """The rates of all who have a quota of one kind."""

    def __init__(self, windows: Callable[[], Windows], *, cut: bool = False) -> None:
        """cut: a wait takes one window at the most, as in Kafka where what is measured is not bytes."""
        self._windows = windows
        self._cut = cut
        self._by_owner: dict[Owner, WindowedRate] = {}  # the longest unused first

    def __len__(self) -> int:
        return len(self._by_owner)

    def record(self, limit: Limit, amount: float, now_ms: int) -> int:
        """So much came; returns for how long nothing more may."""
        shape, rate = self._windows(), self._rate_of(limit.owner, now_ms)
        rate.record(amount, now_ms, shape)
        wait_ms = rate.throttle_ms(limit.value, now_ms, shape)
        return min(wait_ms, shape.size_ms) if self._cut else wait_ms

    def is_over(self, limit: Limit, now_ms: int) -> bool:
        """Whether too much came already."""
        rate = self._by_owner.get(limit.owner)
        return rate is not None and rate.throttle_ms(limit.value, now_ms, self._windows()) > 0

    def take_back(self, limit: Limit, amount: float, now_ms: int) -> None:
        """It was recorded now, and is not done."""
        self._rate_of(limit.owner, now_ms).record(-amount, now_ms, self._windows())

    def most_at_once(self, limit: Limit) -> float:
        """What may come in one piece, when nothing came lately, without having to wait."""
        shape = self._windows()
        return limit.value * (shape.number - 1) * shape.size_ms / 1000

    def _rate_of(self, owner: Owner, now_ms: int) -> WindowedRate:
        by_owner, shape = self._by_owner, self._windows()
        rate = by_owner.pop(owner, None)
        if rate is None:
            _drop(by_owner, lambda oldest: oldest.is_fresh(now_ms, shape))
            rate = WindowedRate()
        by_owner[owner] = rate
        return rate


class Buckets:
    """The same for what may come in bursts, and is refused or let in before it is done."""

    def __init__(self, windows: Callable[[], Windows]) -> None:
        self._windows = windows
        self._by_owner: dict[Owner, tuple[TokenBucket, float]] = {}  # with its limit; the longest unused first

    def __len__(self) -> int:
        return len(self._by_owner)

    def record(self, limit: Limit, amount: float, now_ms: int, *, strict: bool) -> tuple[bool, int]:
        """Whether it may be done, and for how long nothing more may. strict: what may not be is not recorded."""
        bucket, shape = self._bucket_of(limit, now_ms), self._windows()
        if strict and (wait_ms := bucket.throttle_ms(limit.value, now_ms, shape)):
            return False, wait_ms
        bucket.record(amount, limit.value, now_ms)
        return True, 0 if strict else bucket.throttle_ms(limit.value, now_ms, shape)

    def _bucket_of(self, limit: Limit, now_ms: int) -> TokenBucket:
        by_owner = self._by_owner
        bucket, _ = by_owner.pop(limit.owner, (None, 0.0))
        if bucket is None:
            _drop(by_owner, lambda oldest: oldest[0].is_fresh(oldest[1], now_ms))
            bucket = TokenBucket()
        by_owner[limit.owner] = bucket, limit.value
        return bucket


def _drop(by_owner: dict[Owner, T], is_fresh: Callable[[T], bool]) -> None:
    """Room for one more: the oldest go that tell nothing any more, and one more goes where there is no room."""
    for _ in range(DROPPED_AT_ONCE):
        oldest = next(iter(by_owner), None)
        if oldest is None or not (is_fresh(by_owner[oldest]) or len(by_owner) >= MOST_MEASURED):
            return
        del by_owner[oldest]


class Measures:
    """All kinds of one broker. is_active: whether any client has any quota; times_requests: one of request time."""

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
        """What counts for this client; None if nothing limits it."""
        asked, known = (user, client_id), self._known
        if asked not in known:
            if len(known) >= MOST_KNOWN:
                known.clear()
            limits = ClientLimits(self._quotas, user, client_id)
            known[asked] = limits if limits.is_any else None
        return known[asked]

    def _look_again(self) -> None:
        self._known.clear()
        self.is_active = any(map(self._quotas.has_any, OF_CLIENTS))
        self.times_requests = self._quotas.has_any(REQUEST_PERCENTAGE)
