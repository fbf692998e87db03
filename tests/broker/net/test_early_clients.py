"""Clients that connect to a broker before it serves: how long they wait."""

import asyncio

from fencepost.broker.config.settings import BrokerSettings
from fencepost.broker.net import early_clients
from fencepost.broker.net.early_clients import EarlyClients
from fencepost.effects.simulated.net import SimulatedNet


def test_clients_that_wait_longer_than_the_limit_are_sent_away(monkeypatch):
    """Another broker may be serving meanwhile, and they would not find it."""
    monkeypatch.setattr(early_clients, "MOST_WAIT_S", 0)

    async def main() -> None:
        released = asyncio.Queue[None]()
        monkeypatch.setattr(SimulatedNet, "release", lambda net: released.put_nowait(None))
        early = EarlyClients(SimulatedNet(), BrokerSettings())
        assert await early.let_wait()
        await released.get()  # of an earlier attempt
        await released.get()

    asyncio.run(main())
