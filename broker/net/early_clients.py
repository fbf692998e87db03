"""Clients that connect while this broker takes over from an owner that has handed the journal over.

The rule: nobody serves then, and this broker will within a second. A client that is refused tries again only after some
time, librdkafka after half a second. So the addresses are listened on already, and the system keeps the connections
until the server accepts them. A broker that takes over from an owner that was only silent does not do this: that owner
may still be at work, and clients should find it.

If it takes longer, another broker may be serving, and clients that wait here would not find that one. So after
MAX_WAIT_S they are sent away.
"""

import asyncio
import logging

from ...effects.net import Net
from ..config.settings import BrokerSettings

log = logging.getLogger("fencepost.broker")

MAX_WAIT_S = 5.0  # librdkafka waits 10 s for the first answer on a connection, other clients longer


class EarlyClients:
    """Lets clients connect to all listeners of a broker that does not serve yet."""

    def __init__(self, net: Net, settings: BrokerSettings) -> None:
        self._net = net
        self._settings = settings
        self._limit: asyncio.TimerHandle | None = None
        self._was_refused = False

    async def let_wait(self) -> bool:
        """Let clients connect, and wait until the server listens, but no longer than MAX_WAIT_S. Returns whether all
        addresses can be listened on; if not, nobody waits.
        """
        self.send_away()
        try:
            for each in self._settings.served_listeners:
                await self._net.reserve(each.host, each.port, self._settings.socket_send_buffer_bytes)
        except OSError as error:
            self.send_away()
            if not self._was_refused:
                at = ", ".join(f"{each.host}:{each.port}" for each in self._settings.served_listeners)
                log.warning(
                    "an owner has handed over, but this broker cannot listen at %s yet: %s; it tries again", at, error
                )
            self._was_refused = True
            return False
        except BaseException:
            self.send_away()
            raise
        self._limit = asyncio.get_running_loop().call_later(MAX_WAIT_S, self.send_away)
        return True

    def send_away(self) -> None:
        """Close the connections of the clients that still wait, and accept no more."""
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None
        self._net.release()
