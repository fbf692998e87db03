"""The address that clients of a listener are told to connect to. Pure.

It is what `advertised.listeners` has for the listener that the client is connected to, or else that listener's own
address. If that is every interface, it is the address at which the client's connection arrived, which the client can
certainly reach. Clients connect to the address in metadata, whichever address they used first.
"""

from ..config.listener_settings import ListenerSettings

EVERY_INTERFACE = ("", "0.0.0.0", "::")
IPV4_IN_IPV6 = "::ffff:"


def advertised_address(listener: ListenerSettings, reached: tuple[str, int]) -> tuple[str, int]:
    """Return the (host, port) to which clients of this listener are to connect.

    reached: the broker's own address at which the client's connection arrived. Its host is used if the listener is on
    every interface, its port if that was chosen by the system.
    """
    host, port = listener.advertised or (listener.host, listener.port)
    if host in EVERY_INTERFACE:
        host = reached[0].removeprefix(IPV4_IN_IPV6)
    return host, port or reached[1]
