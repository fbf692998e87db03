"""The settings of a broker as they are now."""

from .settings import BrokerSettings


class LiveSettings:
    """The broker's settings in effect. now: a new BrokerSettings replaces it when a setting is changed at runtime."""

    __slots__ = ("now",)

    def __init__(self, now: BrokerSettings) -> None:
        self.now = now
