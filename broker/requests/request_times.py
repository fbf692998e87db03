"""Counts how long requests of each API take until their replies leave, by turns of the loop and rounds (writes) of the
journal.

The rules: the clock is read once in a turn of the loop, when its first request is answered, and once more when the
turn's answers are sent, or when the round that they wait for is released. So counting a request costs one addition, and
nothing more on the fast paths (fast_produce.py, fast_transactions.py). A request that is parked, or done in steps, is
timed by itself. A duration is measured from the turn in which the request was handled until its answer may leave.
"""

from collections import deque
from collections.abc import Callable
from typing import Protocol

from ..metrics import COUNTED_FAST, Histogram, Metrics

Counts = dict[int, int]


class Units(Protocol):
    """The numbers of the store's units (journal entries) that RequestTimes uses."""

    @property
    def last_unit(self) -> int:
        """The number of the newest unit in the journal."""
        ...

    @property
    def released_unit(self) -> int:
        """The number of the newest unit that is durable, so its replies may leave."""
        ...


class RequestTimes:
    """Counts how long the requests of one broker take, by API."""

    __slots__ = (
        "_answered",
        "_began_ns",
        "_fast",
        "_fast_before",
        "_flying",
        "_histograms",
        "_open",
        "_store",
        "_waiting",
        "now_ns",
    )

    def __init__(self, metrics: Metrics, store: Units, now_ns: Callable[[], int]) -> None:
        """now_ns: returns the monotonic time in nanoseconds."""
        self.now_ns = now_ns
        self._store = store
        self._answered: Counts = {}  # in this turn, by API (metrics.counter_of)
        self._waiting: Counts = {}  # those of this turn whose answers wait for a round
        self._fast = metrics.fast_requests
        self._fast_before = list(self._fast)
        self._histograms = metrics.request_ns
        self._began_ns = 0
        self._open: list[tuple[int, Counts]] = []  # of each turn whose answers wait for the open round: begin, counts
        self._flying: deque[list[tuple[int, Counts]]] = deque()  # the same for each round that is being written

    # ---- called by the dispatcher ------------------------------------------------------------------------------

    def note_answer(self, counter: int, waits: bool) -> int:
        """Count a request that was answered in this turn. Returns the unit (journal entry) whose release its reply
        waits for; 0 if it waits for none.

        counter: metrics.counter_of(API). waits: whether replies of this API wait at all.
        """
        unit = self._store.last_unit if waits else 0
        counts = self._waiting if unit > self._store.released_unit else self._answered
        counts[counter] = counts.get(counter, 0) + 1
        return unit

    def note_late_answer(self, counter: int, waits: bool, parked_ns: int) -> int:
        """Count a request that was parked since parked_ns and is answered now. Returns the unit (journal entry) whose
        release its reply waits for; 0 if it waits for none.
        """
        unit = self._store.last_unit if waits else 0
        if unit > self._store.released_unit:
            self._open.append((parked_ns, {counter: 1}))
        else:
            self._add(self.now_ns() - parked_ns, {counter: 1})
        return unit

    # ---- called by rounds --------------------------------------------------------------------------------------

    def begin_turn(self) -> None:
        """Note the time. Called at the first answer, or the first unit (journal entry), of this turn of the loop."""
        self._began_ns = self.now_ns()

    def end_turn(self, waits: bool) -> None:
        """Note that this turn's requests are done. waits: whether a round (write of the journal) is open or being
        written, for which answers wait.
        """
        counts, fast, before = self._waiting, self._fast, self._fast_before
        for counter in COUNTED_FAST:
            more = fast[counter] - before[counter]
            if more:
                before[counter] = fast[counter]
                counts[counter] = counts.get(counter, 0) + more
        if not counts:
            return
        self._waiting = {}
        if waits:
            self._open.append((self._began_ns, counts))
        else:
            self._add(self.now_ns() - self._began_ns, counts)

    def count_answers(self) -> None:
        """Count the durations of those answers of this turn that waited for no unit, because they have been
        sent now.
        """
        if self._answered:
            counts, self._answered = self._answered, {}
            self._add(self.now_ns() - self._began_ns, counts)

    def begin_round(self) -> None:
        """Note that the open round (the units that one write of the journal takes) is being written. Later units go to
        a new round.
        """
        self._flying.append(self._open)
        self._open = []

    def end_round(self, is_last: bool) -> None:
        """Count the durations of the answers that waited for the oldest round (write of the journal), which is released
        now. is_last: no other round has units: none is being written, and the open one is empty.
        """
        done = self._flying.popleft()
        if is_last and self._open:  # answers of later turns, which wrote nothing: they waited for this round, too
            done, self._open = done + self._open, []
        if done:
            now_ns = self.now_ns()
            for began_ns, counts in done:
                self._add(now_ns - began_ns, counts)

    def _add(self, duration_ns: int, counts: Counts) -> None:
        """Add this duration to the histogram of each API in `counts`, as many times as `counts` says."""
        for counter, count in counts.items():
            histogram = self._histograms.get(counter)
            if histogram is None:
                histogram = self._histograms[counter] = Histogram()
            histogram.add(max(0, duration_ns), count)
