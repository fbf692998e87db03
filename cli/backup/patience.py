"""How long calls to a store that does not answer are repeated, and what is printed meanwhile.

The rule: one line is printed when the store stops answering, and one when it answers again, not one for each attempt. A
signal ends the wait.
"""

import random
import time
from collections.abc import Callable

from ...effects.objects import ObjectsError

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
LOOKED_EVERY_S = 0.05  # for signals
SAID_AFTER = 3  # failed attempts in a row: single ones are common


class Patience:
    """Called before a failed call to a store is repeated. It waits, longer after each failure in a row.

    most_s: it gives up if no call has succeeded for so long; None: never.
    """

    def __init__(
        self,
        check: Callable[[], None],
        say: Callable[[str], None],
        most_s: float | None,
        now_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """check: raises if the wait must end. say: called with a line for people."""
        self._check = check
        self._say = say
        self.most_s = most_s
        self._now_s = now_s
        self._sleep = sleep
        self._since_s: float | None = None
        self._attempts = 0
        self.trouble = ""
        self.tell: Callable[[], None] = _nothing  # called at each wait, once there is something to say

    def __call__(self, trouble: ObjectsError) -> None:
        now_s = self._now_s()
        if self._since_s is None:
            self._since_s = now_s
        self._attempts += 1
        if self.most_s is not None and now_s - self._since_s >= self.most_s:
            raise trouble
        if self._attempts == SAID_AFTER:
            self._say(f"the store does not do what it is asked, and is asked again: {trouble}")
        if self._attempts >= SAID_AFTER:
            self.trouble = str(trouble)
            self.tell()
        self.wait(min(FIRST_PAUSE_S * 2 ** min(self._attempts, 10), LONGEST_PAUSE_S) * random.uniform(0.5, 1))

    def over(self) -> None:
        """Note that the store has answered. Prints a line about it if several attempts in a row had failed."""
        if self._attempts >= SAID_AFTER and self._since_s is not None:
            self._say(f"the store answers again, after {self._now_s() - self._since_s:.0f} s")
        self._since_s, self._attempts, self.trouble = None, 0, ""

    def noting(self, report: Callable[[int, int], None]) -> Callable[[int, int], None]:
        """Return a function that calls `report`, and notes that the store has answered, because there is progress."""

        def noted(done: int, of: int) -> None:
            self.over()
            report(done, of)

        return noted

    def wait(self, seconds: float) -> None:
        """Sleep for this many seconds. Raises what `check` raises after a signal."""
        until_s = self._now_s() + seconds
        while (left_s := until_s - self._now_s()) > 0:
            self._check()
            self._sleep(min(left_s, LOOKED_EVERY_S))
        self._check()


def _nothing() -> None:
    """Do nothing. What Patience calls at each wait unless its `tell` is set."""
