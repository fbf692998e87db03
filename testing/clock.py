"""The broker's time in the hands of a test."""

from ..broker.embedded.broker import Broker


class BrokerTime:
    """`advance` lets time pass in the broker; it goes on by itself as well."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._began_ms = broker.clock.monotonic_ms()

    def advance(self, seconds: float) -> None:
        """What is due by then has happened at the return: transactions aborted, sessions ended, records expired."""
        self._broker.advance(seconds)

    def now(self) -> float:
        """The broker's wall clock, seconds since 1970."""
        return self._broker.clock.now_ms() / 1000

    def set_wall_right(self) -> None:
        """The wall clock shows the machine's time again; what has passed has passed."""
        self._broker.clock.set_wall_right()
