"""When a member sends heartbeats, and when its session or its application's time for a poll is over. Pure.

Source: Kafka's Heartbeat; KIP-62. All times are of a monotonic clock, in milliseconds.
"""


class HeartbeatTimes:
    """When the next heartbeat is due, when the session ends, and until when the application must poll."""

    def __init__(self, *, interval_ms: int, session_timeout_ms: int, max_poll_interval_ms: int, now_ms: int) -> None:
        self._interval_ms = interval_ms
        self._session_timeout_ms = session_timeout_ms
        self.max_poll_interval_ms = max_poll_interval_ms
        self.due_ms = now_ms
        self._heard_ms = now_ms
        self._polled_ms = now_ms
        self._polls = 0  # running polls
        # since the last apply_was_polled(); set for each record, where reading the clock is too slow
        self.was_polled = False

    def joined(self, now_ms: int) -> None:
        """Restart the timers at the start of a generation."""
        self.due_ms = now_ms + self._interval_ms
        self._heard_ms = now_ms

    def sent(self, now_ms: int) -> None:
        self.due_ms = now_ms + self._interval_ms

    def heard(self, now_ms: int, interval_ms: int = 0) -> None:
        """Note a response. interval_ms: the new interval between heartbeats; 0: unchanged."""
        self._heard_ms = now_ms
        if interval_ms > 0 and interval_ms != self._interval_ms:
            self._interval_ms = interval_ms
            self.due_ms = now_ms + interval_ms

    def failed(self, now_ms: int, backoff_ms: int) -> None:
        """Set the time of the next heartbeat after one without a response, or with a retriable error."""
        self.due_ms = now_ms + min(backoff_ms, self._interval_ms)

    def session_is_over(self, now_ms: int) -> bool:
        """Return whether the last response is so old that the coordinator, if it runs, has removed the member."""
        return now_ms - self._heard_ms >= self._session_timeout_ms

    # ---- polls -----------------------------------------------------------------------------------------------

    def poll_begins(self, now_ms: int) -> None:
        """Note that a poll has begun: while one runs, max.poll.interval.ms does not end."""
        self._polls += 1
        self._polled_ms = now_ms

    def poll_ends(self, now_ms: int) -> None:
        """Note that a poll has ended: max.poll.interval.ms begins."""
        self._polls -= 1
        self._polled_ms = now_ms

    def polled(self, now_ms: int) -> None:
        self._polled_ms = now_ms

    def apply_was_polled(self, now_ms: int) -> None:
        """Count a poll at now_ms if was_polled was set since the last call."""
        if self.was_polled:
            self.was_polled = False
            self._polled_ms = now_ms

    @property
    def poll_until_ms(self) -> int | None:
        """The deadline of the application's next poll, in monotonic ms; None while one is running."""
        return None if self._polls else self._polled_ms + self.max_poll_interval_ms

    def poll_is_late(self, now_ms: int) -> bool:
        """Return whether max.poll.interval.ms has passed without a poll."""
        until_ms = self.poll_until_ms
        return until_ms is not None and now_ms >= until_ms
