"""The three Python client libraries, unchanged, behind one small face: transactional producers that wait for each call.

An application sees an exception of its library or none; these methods let it through.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

import aiokafka
import confluent_kafka
import kafka
import kafka.errors
from kafka.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

T = TypeVar("T")
TIMEOUT_S = 20
HANGS_S = 4  # longer than librdkafka ever takes for what it will do at all


class Hung(Exception):
    """Raised if a call of a library does not return, even after its own timeouts: see Confluent, and KafkaPython."""


def within(seconds: float, call: Callable[..., T], *arguments: Any) -> T:
    """Make a call that may never return in a thread that is left behind if it does not. Raises Hung."""
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(call(*arguments))
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        return outcome.result(seconds)
    except TimeoutError:
        if outcome.done():
            raise
        raise Hung(call.__name__) from None


def copy(producer: "LibraryProducer", number: int) -> None:
    """Write a number into topic t, and commit an offset for a group, in one transaction."""
    producer.begin()
    producer.send("t", b"%d" % number)
    producer.send_offset("group", "t", number)
    producer.commit()


class LibraryProducer(Protocol):
    """The methods that all library producers have here. patience_ms, an argument of their constructors: how long they
    wait for an answer before they repeat a request on another connection.
    """

    def init(self) -> None: ...
    def begin(self) -> None: ...
    def send(self, topic: str, value: bytes, partition: int = 0) -> None: ...
    def send_offset(self, group: str, topic: str, offset: int) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


class Confluent:
    """librdkafka.

    Its send_offsets_to_transaction can wait for ever for a group coordinator that is gone: the request is never sent.
    This broker wakes it (broker/transactions/awaited_offsets.py). At another one an application has to supervise that,
    and start a successor with the same id. hangs_s: how long such a call is waited for.
    """

    def __init__(
        self, bootstrap: str, transactional_id: str, patience_ms: int | None = None, hangs_s: float = HANGS_S
    ) -> None:
        self._hangs_s = hangs_s
        settings = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "linger.ms": 0}
        quick = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 50, "retry.backoff.ms": 10, "log_level": 0}
        if patience_ms is not None:
            quick["socket.timeout.ms"] = patience_ms
        self._producer = confluent_kafka.Producer({**settings, **quick})
        self._errors: list[object] = []

    def init(self) -> None:
        self._producer.init_transactions(TIMEOUT_S)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        self._producer.produce(topic, value, partition=partition, on_delivery=self._delivered)
        left = self._producer.flush(TIMEOUT_S)
        assert not left, "not delivered in time"
        assert not self._errors, self._errors

    def _delivered(self, error: object, message: object) -> None:
        if error is not None:
            self._errors.append(error)

    def send_offset(self, group: str, topic: str, offset: int) -> None:
        member = confluent_kafka.Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": group, "log_level": 0})
        with contextlib.closing(member):
            place = confluent_kafka.TopicPartition(topic, 0, offset)
            send = self._producer.send_offsets_to_transaction
            within(self._hangs_s, send, [place], member.consumer_group_metadata(), TIMEOUT_S)

    def commit(self) -> None:
        self._producer.commit_transaction(TIMEOUT_S)

    def abort(self) -> None:
        self._producer.abort_transaction(TIMEOUT_S)

    def close(self) -> None:
        with contextlib.suppress(confluent_kafka.KafkaException):
            self._producer.purge()


class Aio:
    """aiokafka, in a loop of its own."""

    def __init__(self, bootstrap: str, transactional_id: str, patience_ms: int | None = None) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

        async def make() -> Any:
            more = {} if patience_ms is None else {"request_timeout_ms": patience_ms}
            return aiokafka.AIOKafkaProducer(
                bootstrap_servers=bootstrap, transactional_id=transactional_id, retry_backoff_ms=10, **more
            )

        self._producer = self._run(make())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(asyncio.wait_for(work, TIMEOUT_S), self._loop).result()

    def init(self) -> None:
        self._run(self._producer.start())  # this is its init_transactions

    def begin(self) -> None:
        self._run(self._producer.begin_transaction())

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        self._run(self._producer.send_and_wait(topic, value, partition=partition))

    def send_offset(self, group: str, topic: str, offset: int) -> None:
        place = aiokafka.TopicPartition(topic, 0)
        self._run(self._producer.send_offsets_to_transaction({place: offset}, group))

    def commit(self) -> None:
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._run(self._producer.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class KafkaPython:
    """kafka-python 3. Its calls know no time limit, so they are made in a thread that may be left behind.

    It forgets the request for which it is making a connection if that fails, at any broker, and waits for its answer.
    """

    def __init__(self, bootstrap: str, transactional_id: str, patience_ms: int | None = None) -> None:
        quick = {"retry_backoff_ms": 10, "reconnect_backoff_ms": 10, "reconnect_backoff_max_ms": 50}  # its own is 30 s
        if patience_ms is not None:
            quick["request_timeout_ms"] = patience_ms
        self._producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id, **quick)

    def init(self) -> None:
        within(TIMEOUT_S, self._producer.init_transactions)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        self._producer.send(topic, value, partition=partition).get(TIMEOUT_S)

    def send_offset(self, group: str, topic: str, offset: int) -> None:
        offsets = {TopicPartition(topic, 0): OffsetAndMetadata(offset, "", -1)}
        within(TIMEOUT_S, self._producer.send_offsets_to_transaction, offsets, ConsumerGroupMetadata(group))

    def commit(self) -> None:
        within(TIMEOUT_S, self._producer.commit_transaction)

    def abort(self) -> None:
        within(TIMEOUT_S, self._producer.abort_transaction)

    def close(self) -> None:
        with contextlib.suppress(kafka.errors.KafkaError):
            self._producer.close(timeout=1)


LIBRARIES: dict[str, Callable[..., LibraryProducer]] = {
    "confluent-kafka": Confluent,
    "aiokafka": Aio,
    "kafka-python": KafkaPython,
}
