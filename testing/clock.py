"""Lets a test move the broker's time."""

from ..broker.embedded.broker import Broker


class BrokerTime:
    """The time of an embedded broker. It passes normally, and advance() moves it forward."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._began_ms = broker.clock.monotonic_ms()

    def advance(self, seconds: float) -> None:
        """Move the broker's time forward by this many seconds. When it returns, everything that became due is done:
        transactions aborted, sessions ended, records expired.
        """
        self._broker.advance(seconds)

    def now(self) -> float:
        """Return the broker's wall clock, in seconds since 1970."""
        return self._broker.clock.now_ms() / 1000

    def set_wall_right(self) -> None:
        """Set the broker's wall clock to the machine's time again. Its monotonic clock is not set back."""
        self._broker.clock.set_wall_right()
