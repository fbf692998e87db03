"""Clients that connect while this broker takes over from an owner that has handed the journal over.

The rule: nobody serves then, and this broker will within a second. A client that is refused tries again only after some
time, librdkafka after half a second. So the addresses are listened on already, and the system keeps the connections
until the server accepts them. A broker that takes over from an owner that was only silent does not do this: that owner
may still be at work, and clients should find it.
"""

from ...effects.net import Net
from ..config.settings import BrokerSettings


class EarlyClients:
    """Lets clients connect to all listeners of a broker that does not serve yet."""

    def __init__(self, net: Net, settings: BrokerSettings) -> None:
        self._net = net
        self._settings = settings

    async def let_wait(self) -> None:
        """Let clients connect, and wait until the server listens. Raises OSError if an address cannot be listened
        on.
        """
        self.send_away()
        try:
            for each in self._settings.served_listeners:
                await self._net.reserve(each.host, each.port, self._settings.socket_send_buffer_bytes)
        except BaseException:
            self.send_away()
            raise

    def send_away(self) -> None:
        """Close the connections of the clients that still wait, and accept no more."""
        self._net.release()
