"""The settings of a broker as they are now."""

from .settings import BrokerSettings


class LiveSettings:
    """Some settings change while a broker runs; then the whole value is replaced. now: the value that counts."""

    __slots__ = ("now",)

    def __init__(self, now: BrokerSettings) -> None:
        self.now = now
