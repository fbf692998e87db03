"""A real broker on a real socket, in a thread of this process, for what only sockets show.

A test that ends with an exception inside the broker fails here, whatever it asserted.
"""

import asyncio
import tempfile
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from fencepost.broker.broker import Broker
from fencepost.broker.config.settings import BrokerSettings
from loops import new_loop
from wire_client import WireClient

T = TypeVar("T")


class ServedBroker:
    """A broker that runs for the `with` block."""

    def __init__(self, **settings: Any) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="fencepost-test-")
        settings = {"listeners": ("127.0.0.1:0",), "log_dir": self._directory.name, **settings}
        self.settings = BrokerSettings(**settings)
        self.loop: asyncio.AbstractEventLoop = new_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._clients: list[WireClient] = []

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        self.loop.close()

    def __enter__(self) -> "ServedBroker":
        self._thread.start()
        self.broker = Broker(self.settings)
        try:
            self._wait(self.broker.start())
        except BaseException:
            self._end_loop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._wait(self.broker.stop())
        self._end_loop()
        assert not self.broker.metrics.failures, self.broker.metrics.failures

    def _end_loop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self._directory.cleanup()

    def _wait(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(30)

    @property
    def port(self) -> int:
        return self.broker.addresses[0][1]

    def connect(self, host: str = "127.0.0.1", **more: Any) -> WireClient:
        """Return a new client of the broker, which close_clients() closes."""
        client = WireClient(host, self.port, **more)
        self._clients.append(client)
        return client

    def close_clients(self) -> None:
        """Close all clients that connect() has returned."""
        for client in self._clients:
            client.close()
        self._clients.clear()

    def inside(self, look: Callable[[Broker], T]) -> T:
        """Call `look` with the broker in the broker's own loop, and return its result."""

        async def run() -> T:
            return look(self.broker)

        found: T = self._wait(run())
        return found
