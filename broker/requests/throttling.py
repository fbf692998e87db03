"""Enforces client quotas: measures what each request costs, and mutes the connections of clients that are over a quota.

The rules are Kafka's (KIP-124, KIP-219, KIP-599): a request is carried out and answered at once. The answer contains
the time that the client has to wait, during which no further request of its connection is handled; of several waits the
longest applies. A Fetch over its quota is answered without records, and costs no bytes. A Produce with acks=0 costs no
request time. Request time is the time that the loop and worker threads spend on it; the time for encoding an answer is
added to the client's next request. If no client has a quota, all this costs one test of `measures.is_active` for each
request.
"""

from collections.abc import Callable
from copy import copy
from typing import Any, TypeVar

from ...effects.clock import Clock
from ...protocol.errors import ErrorCode, KafkaError
from ..metrics import Metrics
from ..net.connection import Connection
from ..net.turns import Steps
from ..quotas.entities import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)
from ..quotas.limits import ClientLimits, Measures
from ..quotas.mutes import Mutes
from ..security.principals import Session

T = TypeVar("T")

PRODUCE, WRITE_TXN_MARKERS = 0, 27
MAX_FETCHED = 2**31 - 1
PERCENT_OF_NS = 100 / 1e9  # 100 %: a second of one thread


class Meter:
    """Measures the cost of one request of a client with quotas."""

    __slots__ = (
        "_throttling",
        "api_key",
        "began_ns",
        "connection",
        "is_judged",
        "limits",
        "mutations_judged_ms",
        "mutations_wait_ms",
        "size_bytes",
        "spent_ns",
        "wait_for",
        "wait_ms",
        "worked_ns",
    )

    def __init__(
        self, throttling: "Throttling", limits: ClientLimits, connection: Connection, api_key: int, size_bytes: int
    ) -> None:
        """limits: the quotas of the client. size_bytes: the size of the request."""
        self._throttling = throttling
        self.limits = limits
        self.connection = connection
        self.api_key = api_key
        self.size_bytes = size_bytes
        self.began_ns: int | None = throttling.clock.work_ns()  # when the current piece of work began
        self.spent_ns = 0  # by the loop, in earlier pieces of work
        self.worked_ns: list[int] = []  # by workers, which may be several at once
        self.mutations_wait_ms = 0  # how long the client must wait because of partitions it created or deleted
        self.mutations_judged_ms = 0  # when that was decided, in monotonic ms
        self.is_judged = False
        self.wait_ms = 0
        self.wait_for = ""

    def begin(self) -> None:
        """Start counting time spent on the request."""
        self.began_ns = self._throttling.clock.work_ns()

    def pause(self) -> None:
        """Stop counting time until the next begin()."""
        if self.began_ns is not None:
            self.spent_ns += self._throttling.clock.work_ns() - self.began_ns
            self.began_ns = None

    def taken_percent(self) -> float:
        """Return the time spent on the request since the last call, as a percentage of one second of one thread."""
        if self.began_ns is not None:
            self.pause()
            self.begin()
        spent_ns, self.spent_ns = self.spent_ns + sum(self.worked_ns), 0
        self.worked_ns.clear()
        return spent_ns * PERCENT_OF_NS

    def pieces(self, steps: Steps[T]) -> Steps[T]:
        """Run the steps and yield what they yield. Counts the time spent in them, but not the time between them.
        Returns what they return.
        """
        try:
            while True:
                self.begin()
                try:
                    units = next(steps)
                except StopIteration as end:
                    result: T = end.value
                    return result
                finally:
                    self.pause()
                yield units
        finally:
            steps.close()
            if self.is_judged:
                self._throttling.add_time(self)

    def measure(self, work: Callable[[], T]) -> Callable[[], T]:
        """Return a function that calls `work` in a worker thread and counts its time."""

        def run() -> T:
            """Do the work, and add its time to the request's."""
            clock = self._throttling.clock
            began_ns = clock.work_ns()
            try:
                return work()
            finally:
                self.worked_ns.append(clock.work_ns() - began_ns)

        return run


class Throttling:
    """The quotas of clients, enforced by one broker."""

    def __init__(self, measures: Measures, mutes: Mutes, clock: Clock, metrics: Metrics) -> None:
        """measures: how much clients have used lately, and their limits. mutes: stops the reading from connections for
        some time.
        """
        self.measures = measures
        self.clock = clock
        self._mutes = mutes
        self._metrics = metrics

    def is_free(self, session: Session, client_id: str | None) -> bool:
        """Return whether no quota applies to this client."""
        return self.measures.limits_of(session.principal.name, client_id or "") is None

    def meter(self, connection: Connection, api_key: int, client_id: str | None, size_bytes: int) -> Meter | None:
        """Return a meter for a new request; None if no quota applies to its client.

        Returns None also before the client has logged in, because its client id may be that of somebody else, whose
        quota it would use up.
        """
        if connection.login is not None and not connection.login.is_over:
            return None
        limits = self.measures.limits_of(connection.session.principal.name, client_id or "")
        return None if limits is None else Meter(self, limits, connection, api_key, size_bytes)

    # ---- what is asked while a request is carried out --------------------------------------------------------

    def most_fetched_bytes(self, meter: Meter) -> int:
        """Return how many bytes a Fetch may return at most. A larger answer would exceed the client's quota at every
        attempt.
        """
        limit = meter.limits.fetch
        return MAX_FETCHED if limit is None else int(min(self.measures.fetch.most_at_once(limit), MAX_FETCHED))

    def is_fetch_over(self, meter: Meter, answer_bytes: int) -> bool:
        """Return whether the client is over its quota, so that its Fetch is answered without records. If it is not,
        record the cost of the answer.

        A batch that is larger than the quota ever allows at once is returned, and the client waits afterwards; in Kafka
        the client never gets it. The client waits on all its connections, because a new connection would otherwise be a
        way around the quota.
        """
        now_ms, limit, fetch = self.clock.monotonic_ms(), meter.limits.fetch, self.measures.fetch
        self._record_time(meter, now_ms)
        meter.is_judged = True
        if limit is None:
            return meter.wait_ms > 0
        if owed_ms := fetch.owed_ms(limit, now_ms):
            self._wait(meter, CONSUMER_BYTE_RATE, owed_ms)
            return True
        comes_anyway = answer_bytes > fetch.most_at_once(limit) and not fetch.is_over(limit, now_ms)
        comes_anyway = comes_anyway and not meter.wait_ms
        wait_ms = fetch.record(limit, answer_bytes, now_ms)
        self._wait(meter, CONSUMER_BYTE_RATE, wait_ms)
        if comes_anyway:
            fetch.owe(limit, wait_ms, now_ms)
        if comes_anyway or not meter.wait_ms:
            return False
        fetch.take_back(limit, answer_bytes, now_ms)
        return True

    def is_over_already(self, meter: Meter) -> bool:
        """Return whether a client is over a quota before records are acquired for its ShareFetch. If so, it gets no
        records.
        """
        now_ms, limit, fetch = self.clock.monotonic_ms(), meter.limits.fetch, self.measures.fetch
        self._record_time(meter, now_ms)
        if limit is not None:
            self._wait(meter, CONSUMER_BYTE_RATE, fetch.owed_ms(limit, now_ms) or fetch.record(limit, 0, now_ms))
        meter.is_judged = meter.wait_ms > 0
        return meter.is_judged

    def charge(self, meter: Meter, answer_bytes: int) -> None:
        """Record the bytes that a client gets, even if they exceed its quota.

        If they do, the client then waits, on all its connections.
        """
        now_ms, limit, fetch = self.clock.monotonic_ms(), meter.limits.fetch, self.measures.fetch
        self._record_time(meter, now_ms)
        meter.is_judged = True
        if limit is not None and (wait_ms := fetch.record(limit, answer_bytes, now_ms)):
            self._wait(meter, CONSUMER_BYTE_RATE, wait_ms)
            fetch.owe(limit, wait_ms, now_ms)

    def check_mutations(self, meter: Meter | None, partitions: int, *, strict: bool) -> None:
        """Record that `partitions` partitions are to be created or deleted. If strict and the client is over its quota,
        raise THROTTLING_QUOTA_EXCEEDED.
        """
        if meter is None or meter.limits.mutations is None:
            return
        now_ms = self.clock.monotonic_ms()
        taken, wait_ms = self.measures.mutations.record(meter.limits.mutations, partitions, now_ms, strict=strict)
        if wait_ms:
            meter.mutations_wait_ms, meter.mutations_judged_ms = wait_ms, now_ms
        if not taken:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)

    # ---- when the answer is known ----------------------------------------------------------------------------

    def judge(self, meter: Meter, response: Any) -> Any:
        """Record the request's cost, unless that is already done, and mute the connection if the client is over a
        quota.

        Returns the response, with its throttle_time_ms set. response: None if the request has no response.
        """
        if not meter.is_judged:
            self._record(meter, answered=response is not None)
        if not meter.wait_ms:
            return response
        self._mutes.mute(meter.connection, meter.wait_ms)
        self._metrics.throttled(meter.wait_for, meter.wait_ms)
        if hasattr(response, "throttle_time_ms"):
            response = copy(response)
            response.throttle_time_ms = meter.wait_ms
        return response

    def _record(self, meter: Meter, *, answered: bool) -> None:
        """Record what a request used of each quota, and how long its client must wait."""
        now_ms, limit = self.clock.monotonic_ms(), meter.limits.produce
        meter.is_judged = True
        if answered and meter.api_key != WRITE_TXN_MARKERS:
            self._record_time(meter, now_ms)
        if meter.mutations_wait_ms:
            waited_ms = now_ms - meter.mutations_judged_ms
            self._wait(meter, CONTROLLER_MUTATION_RATE, meter.mutations_wait_ms - waited_ms)
        if limit is not None and meter.api_key == PRODUCE:
            self._wait(meter, PRODUCER_BYTE_RATE, self.measures.produce.record(limit, meter.size_bytes, now_ms))

    def add_time(self, meter: Meter) -> None:
        """Record the time spent since judge() was called. It counts when the client's next request is judged."""
        limit, percent = meter.limits.request, meter.taken_percent()
        if limit is not None and percent:
            self.measures.request.record(limit, percent, self.clock.monotonic_ms())

    def _record_time(self, meter: Meter, now_ms: int) -> None:
        """If the client has a quota of request time, record the time that was spent, and set how long the client must
        wait.
        """
        if meter.limits.request is not None:
            wait_ms = self.measures.request.record(meter.limits.request, meter.taken_percent(), now_ms)
            self._wait(meter, REQUEST_PERCENTAGE, wait_ms)

    @staticmethod
    def _wait(meter: Meter, kind: str, wait_ms: int) -> None:
        """Set the client's wait for this kind of quota, unless a longer wait is set already."""
        if wait_ms > meter.wait_ms:
            meter.wait_ms, meter.wait_for = wait_ms, kind
