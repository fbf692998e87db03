"""The address clients are told to connect to. Pure.

What `advertised.listeners` says, else the listen address; where that is every interface, the address that the client's
connection arrived on, which it can surely reach. Clients connect to what metadata says, whatever they came by (T17).
"""

from .settings import BrokerSettings, address

EVERY_INTERFACE = ("", "0.0.0.0", "::")
IPV4_IN_IPV6 = "::ffff:"


def advertised(settings: BrokerSettings, reached: tuple[str, int]) -> tuple[str, int]:
    """Host and port for a client whose connection arrived at `reached` (our end of it)."""
    listeners = [address(text) for text in settings.listeners]
    number = _listener(listeners, reached[1])
    told = [address(text) for text in settings.advertised_listeners]
    if told:
        host, port = told[number if len(told) == len(listeners) else 0]
    else:
        host, port = listeners[number][0], reached[1]
    if host in EVERY_INTERFACE:
        host = reached[0].removeprefix(IPV4_IN_IPV6)
    return host, port or reached[1]


def _listener(listeners: list[tuple[str, int]], port: int) -> int:
    """Which listener a connection to this port came by: the one that names it, else one that took a free port."""
    ports = [listener[1] for listener in listeners]
    for wanted in (port, 0):
        if wanted in ports:
            return ports.index(wanted)
    return 0
