"""A TCP proxy between Kafka clients and a broker that loses acknowledgements and cuts connections, chosen by a seed.

It forwards Produce and EndTxn requests, and may drop their answers: the fault for which idempotence exists. Everything
else passes unchanged. A request's API key and correlation id have fixed positions, so only Produce is decoded, for
counting.
"""

import asyncio
import random
import struct
import threading
from dataclasses import dataclass

from ...effects.threads import start_thread
from ...protocol import apis, batches, headers

PRODUCE = 0
END_TXN = 26


@dataclass(slots=True)
class Tally:
    """Counts of the proxy."""

    acknowledgements_lost: int = 0
    connections_cut: int = 0
    commits_lost: int = 0  # answers to EndTxn
    retries: int = 0  # batches that were sent again
    repeats_recognised: int = 0  # answers with the offset of an earlier answer


class FlakyProxy:
    """Listens on a free loopback port, in a thread with a loop of its own.

    lose: fraction of Produce answers that are lost; half of these with their connection. lose_next: an API key; the
    next answer of that API is lost together with its connection.
    """

    def __init__(self, seed: int, lose: float) -> None:
        self.tally = Tally()
        self.port = 0
        self.target_port = 0
        self.lose = lose
        self.lose_next: int | None = None
        self._random = random.Random(seed)
        self._sent: set[tuple[str, int, int, int]] = set()  # topic, partition, epoch, first sequence of every batch
        self._answered: set[tuple[str, int, int]] = set()  # topic, partition, base offset of every answer seen
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()

    def __enter__(self) -> "FlakyProxy":
        self._thread = start_thread(self._run, "flaky-proxy")
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        """Accept connections until the proxy is closed; runs in a thread with an event loop of its own."""
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._relay, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        server.close()
        self._loop.close()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Connect to the broker for one client, and pass requests and answers on until either side closes."""
        try:
            to_reader, to_writer = await asyncio.open_connection("127.0.0.1", self.target_port)
        except OSError:
            writer.close()
            return
        pending: dict[int, tuple[int, int]] = {}  # correlation id → API and version, of Produce and EndTxn
        pumps = [
            asyncio.ensure_future(self._requests(reader, to_writer, pending)),
            asyncio.ensure_future(self._answers(to_reader, writer, pending)),
        ]
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        writer.close()
        to_writer.close()

    async def _requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pending: dict[int, tuple[int, int]]
    ) -> None:
        """Pass requests on to the broker. Notes in `pending` which of them are Produce and EndTxn."""
        while (frame := await _frame(reader)) is not None:
            key, version, correlation_id = struct.unpack_from(">hhi", frame, 4)
            if key in (PRODUCE, END_TXN):
                pending[correlation_id] = key, version
            if key == PRODUCE:
                self._note_batches(frame[4:], version)
            writer.write(frame)
            await writer.drain()

    async def _answers(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pending: dict[int, tuple[int, int]]
    ) -> None:
        """Pass answers on to the client; drop some of them and close the connection, as lose and lose_next say."""
        while (frame := await _frame(reader)) is not None:
            key, version = pending.pop(struct.unpack_from(">i", frame, 4)[0], (None, 0))
            if key is not None and key == self.lose_next:
                self.lose_next = None
                self.tally.commits_lost += key == END_TXN
                return
            if key == PRODUCE:
                self._note_answers(frame, version)
                if self._random.random() < self.lose:
                    self.tally.acknowledgements_lost += 1
                    if self._random.random() < 0.5:
                        self.tally.connections_cut += 1
                        return
                    continue
            writer.write(frame)
            await writer.drain()

    def _note_batches(self, frame: bytes, version: int) -> None:
        """Count a batch that repeats the sequence of an earlier one: the client retried."""
        api, header = apis.APIS[PRODUCE], headers.read_request_header(frame)
        for topic in apis.decode_request(api, version, frame, header.position).topic_data:
            for partition in topic.partition_data:
                batch = batches.read(memoryview(partition.records))
                sent = (topic.name, partition.index, batch.producer_epoch, batch.base_sequence)
                self.tally.retries += sent in self._sent
                self._sent.add(sent)

    def _note_answers(self, frame: bytes, version: int) -> None:
        """Count an answer that repeats the base offset of an earlier one: the broker recognised a retry."""
        _, answer = apis.decode_response(apis.APIS[PRODUCE], version, frame[4:])
        for topic in answer.responses:
            for partition in topic.partition_responses:
                if partition.error_code == 0:
                    answered = (topic.name, partition.index, partition.base_offset)
                    self.tally.repeats_recognised += answered in self._answered
                    self._answered.add(answered)


async def _frame(reader: asyncio.StreamReader) -> bytes | None:
    """Read one length-prefixed frame, prefix included; None at the end."""
    try:
        prefix = await reader.readexactly(4)
        return prefix + await reader.readexactly(struct.unpack(">i", prefix)[0])
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
