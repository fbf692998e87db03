"""Clients that connect to a broker before it serves: where, and how long they wait."""

import asyncio

import pytest
from fencepost.broker.config.settings import BrokerSettings
from fencepost.broker.net import early_clients
from fencepost.broker.net.early_clients import EarlyClients
from fencepost.effects.simulated.net import SimulatedNet

SETTINGS = BrokerSettings(listeners=("127.0.0.1:9092", "127.0.0.1:9093"), socket_send_buffer_bytes=65_536)


def test_clients_that_wait_longer_than_the_limit_are_sent_away(monkeypatch):
    """Another broker may be serving meanwhile, and they would not find it."""
    monkeypatch.setattr(early_clients, "MAX_WAIT_S", 0)

    async def main() -> None:
        released = asyncio.Queue[None]()
        monkeypatch.setattr(SimulatedNet, "release", lambda net: released.put_nowait(None))
        early = EarlyClients(SimulatedNet(), BrokerSettings())
        assert await early.let_wait()
        await released.get()  # of an earlier attempt
        await released.get()

    asyncio.run(main())


def test_clients_may_connect_to_all_listeners_with_the_send_buffer_of_the_settings(monkeypatch):
    reserved: list[tuple[str, int, int]] = []

    async def reserve(net: SimulatedNet, host: str, port: int, send_buffer_bytes: int) -> None:
        reserved.append((host, port, send_buffer_bytes))

    monkeypatch.setattr(SimulatedNet, "reserve", reserve)
    assert asyncio.run(EarlyClients(SimulatedNet(), SETTINGS).let_wait())
    assert reserved == [("127.0.0.1", 9092, 65_536), ("127.0.0.1", 9093, 65_536)]


def test_no_address_is_listened_on_if_one_cannot_be_or_the_attempt_is_cancelled(monkeypatch):
    held: list[int] = []

    async def reserve(net: SimulatedNet, host: str, port: int, send_buffer_bytes: int) -> None:
        if port == 9093:
            raise error
        held.append(port)

    monkeypatch.setattr(SimulatedNet, "reserve", reserve)
    monkeypatch.setattr(SimulatedNet, "release", lambda net: held.clear())
    early, error = EarlyClients(SimulatedNet(), SETTINGS), OSError("address already in use")
    assert not asyncio.run(early.let_wait())
    assert not held
    error = asyncio.CancelledError()
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(early.let_wait())
    assert not held
