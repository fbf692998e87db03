"""A TCP proxy that loses some answers: the request arrives, the answer does not, and the connection is closed. It can
also cut the network off.
"""

import asyncio
import random
import threading


class LosingProxy:
    """Forwards connections to a port of this machine for the `with` block, in a thread of its own.

    share: how many of the pieces that the server sends are lost, from 0 to 1. lost: how many were.
    """

    def __init__(self, upstream_port: int, share: float, seed: int) -> None:
        self.lost = 0
        self._is_cut = self._is_silent = False
        self._open: set[asyncio.Task[None]] = set()  # connections
        self._upstream_port = upstream_port
        self._share = share
        self._rng = random.Random(seed)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> "LosingProxy":
        self._thread.start()
        starting = asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._server = asyncio.run_coroutine_threadsafe(starting, self._loop).result()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def port(self) -> int:
        return int(self._server.sockets[0].getsockname()[1])

    def cut(self, *, is_silent: bool) -> None:
        """Let nothing through until mend(). is_silent: connections stay open, and what is sent on them is lost; else
        they are closed, and new ones too.
        """
        asyncio.run_coroutine_threadsafe(self._cut(is_silent), self._loop).result()

    async def _cut(self, is_silent: bool) -> None:
        self._is_silent, self._is_cut = is_silent, not is_silent
        if self._is_cut:
            for each in self._open:
                each.cancel()

    def mend(self) -> None:
        """Let connections through again. Those that were silent are closed."""
        asyncio.run_coroutine_threadsafe(self._mend(), self._loop).result()

    async def _mend(self) -> None:
        self._is_silent = self._is_cut = False
        for each in self._open:
            each.cancel()

    async def _end(self) -> None:
        self._server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one connection until either side has closed it, an answer is lost, or the network is cut."""
        connection = asyncio.current_task()
        assert connection is not None
        self._open.add(connection)
        connection.add_done_callback(self._open.discard)
        if self._is_cut:
            writer.close()
            return
        try:
            to_reader, to_writer = await asyncio.open_connection("127.0.0.1", self._upstream_port)
        except OSError:
            writer.close()
            return
        pumps = [
            asyncio.create_task(self._pump(reader, to_writer, 0)),
            asyncio.create_task(self._pump(to_reader, writer, self._share)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            to_writer.close()
            writer.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, share: float) -> None:
        """Forward bytes in one direction until they end, or some are lost."""
        try:
            while data := await reader.read(1 << 16):
                if self._is_silent:
                    continue
                if self._rng.random() < share:
                    self.lost += 1
                    return
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
