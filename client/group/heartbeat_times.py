"""When a member heartbeats, and when it has been silent for too long, to the group or to its application. Pure.

Source: Kafka's Heartbeat; KIP-62. All times are of a monotonic clock, in milliseconds.
"""


class HeartbeatTimes:
    """The three timers of a member."""

    def __init__(self, *, interval_ms: int, session_timeout_ms: int, max_poll_interval_ms: int, now_ms: int) -> None:
        self._interval_ms = interval_ms
        self._session_timeout_ms = session_timeout_ms
        self.max_poll_interval_ms = max_poll_interval_ms
        self.due_ms = now_ms
        self._heard_ms = now_ms
        self._polled_ms = now_ms
        self._polls = 0  # under way
        self.was_polled = False  # since the last `look`: for what is called once a record, and may not ask for the time

    def joined(self, now_ms: int) -> None:
        """A generation begins."""
        self.due_ms = now_ms + self._interval_ms
        self._heard_ms = now_ms

    def sent(self, now_ms: int) -> None:
        self.due_ms = now_ms + self._interval_ms

    def heard(self, now_ms: int) -> None:
        self._heard_ms = now_ms

    def failed(self, now_ms: int, backoff_ms: int) -> None:
        """No answer, or an error that asks to try again later."""
        self.due_ms = now_ms + min(backoff_ms, self._interval_ms)

    def session_is_over(self, now_ms: int) -> bool:
        """There was no answer for so long that the group has taken the member out, if its coordinator lives."""
        return now_ms - self._heard_ms >= self._session_timeout_ms

    # ---- polls -----------------------------------------------------------------------------------------------

    def poll_begins(self, now_ms: int) -> None:
        self._polls += 1
        self._polled_ms = now_ms

    def poll_ends(self, now_ms: int) -> None:
        self._polls -= 1
        self._polled_ms = now_ms

    def polled(self, now_ms: int) -> None:
        self._polled_ms = now_ms

    def look(self, now_ms: int) -> None:
        """Count what was noted in was_polled as a poll of now."""
        if self.was_polled:
            self.was_polled = False
            self._polled_ms = now_ms

    @property
    def poll_until_ms(self) -> int | None:
        """When the application has to have polled again; None while it does."""
        return None if self._polls else self._polled_ms + self.max_poll_interval_ms

    def poll_is_late(self, now_ms: int) -> bool:
        until_ms = self.poll_until_ms
        return until_ms is not None and now_ms >= until_ms
