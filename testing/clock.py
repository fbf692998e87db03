"""Lets a test move the broker's time."""

from ..broker.embedded.broker import Broker


class BrokerTime:
    """The broker's time. It passes normally, and advance() moves it forward."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._began_ms = broker.clock.monotonic_ms()

    def advance(self, seconds: float) -> None:
        """Move the time. On return all that is due is done: transactions aborted, sessions ended, records expired."""
        self._broker.advance(seconds)

    def now(self) -> float:
        """The broker's wall clock, seconds since 1970."""
        return self._broker.clock.now_ms() / 1000

    def set_wall_right(self) -> None:
        """Set the wall clock to the machine's time again; the monotonic clock is not set back."""
        self._broker.clock.set_wall_right()
