"""The address that clients are given to connect to. Pure.

What `advertised.listeners` says, else the listen address; where that is every interface, the address that the client's
connection arrived on, which it can surely reach. Clients connect to what metadata says, whatever they came by.
"""

from ..config.listener_settings import address
from ..config.settings import BrokerSettings

EVERY_INTERFACE = ("", "0.0.0.0", "::")
IPV4_IN_IPV6 = "::ffff:"


def advertised(settings: BrokerSettings, reached: tuple[str, int]) -> tuple[str, int]:
    """Host and port for a client whose connection arrived at `reached` (our end of it)."""
    listeners = [address(text) for text in settings.listeners]
    number = _listener(listeners, reached)
    advertised = [address(text) for text in settings.advertised_listeners]
    if advertised:
        host, port = advertised[number if len(advertised) == len(listeners) else 0]
    else:
        host, port = listeners[number][0], reached[1]
    if host in EVERY_INTERFACE:
        host = reached[0].removeprefix(IPV4_IN_IPV6)
    return host, port or reached[1]


def _listener(listeners: list[tuple[str, int]], reached: tuple[str, int]) -> int:
    """Which listener a connection came by: of those that name its port, else of those that took a free one.

    Of several the one that names its host, else one that listens on every interface, else one with a host's name.
    """
    host, port = reached[0].removeprefix(IPV4_IN_IPV6), reached[1]
    for wanted in (port, 0):
        found = [number for number, listener in enumerate(listeners) if listener[1] == wanted]
        if found:
            return min(found, key=lambda number: _distance(listeners[number][0], host))
    return 0


def _distance(listener: str, host: str) -> int:
    """How unlikely it is that a connection to `host`, a numeric address, came by this listener."""
    if listener == host:
        return 0
    if listener in EVERY_INTERFACE:
        return 1 if (":" in listener) == (":" in host) else 2
    return 4 if _is_numeric(listener) else 3


def _is_numeric(host: str) -> bool:
    return ":" in host or host.replace(".", "").isdecimal()
