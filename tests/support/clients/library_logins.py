"""One record sent and read back by each client library over a listener that asks who connects, with one face for all.

A way is what the libraries' settings say in common: protocol, authority, and how to log in. What a library raises for
a refused login is Refused.
"""

import asyncio
import gc
import ssl
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import aiokafka
import aiokafka.abc
import kafka
import kafka.errors
from confluent_kafka import Consumer, KafkaError, Producer
from java_clients import JavaClients, JavaError
from kafka.net.compat import KafkaNetClient
from kafka.net.sasl.oauth import AbstractTokenProvider

import fencepost as fp

WITHIN_S = 20

Made = TypeVar("Made")


class Refused(Exception):
    """Raised if the broker, or the library, did not accept the other side's identity."""


class Way(NamedTuple):
    protocol: str
    mechanism: str = ""
    user: str = "alice"
    password: str = "alice-pw"
    authority: str = ""
    certificate: tuple[str, str] | None = None
    token: Callable[[], str] | None = None

    @property
    def uses_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def context(self) -> ssl.SSLContext | None:
        if not self.uses_tls:
            return None
        context = ssl.create_default_context(cafile=self.authority)
        if self.certificate:
            context.load_cert_chain(*self.certificate)
        return context


def confluent(bootstrap: str, way: Way, topic: str, value: bytes) -> bytes:
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "security.protocol": way.protocol}
    settings |= {"reconnect.backoff.ms": 50, "log_level": 0}
    if way.uses_tls:
        settings["ssl.ca.location"] = way.authority
    if way.certificate:
        settings |= {"ssl.certificate.location": way.certificate[0], "ssl.key.location": way.certificate[1]}
    if way.mechanism:
        settings["sasl.mechanism"] = way.mechanism
        if way.token is None:
            settings |= {"sasl.username": way.user, "sasl.password": way.password}
        else:
            token = way.token
            settings["oauth_cb"] = lambda _: (token(), 4e9)
    failures: list[KafkaError] = []
    found: list[bytes] = []
    producer = Producer(settings | {"error_cb": failures.append})
    producer.produce(topic, value)
    for _ in range(WITHIN_S * 20):
        if not producer.flush(0.05) or any(each.code() in AUTHENTICATION for each in failures):
            break
    if len(producer):
        producer.purge()
        raise Refused(failures)
    consumer = Consumer(settings | {"group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        message = consumer.poll(WITHIN_S)
        assert message is not None
        found.append(message.value() or b"")
    finally:
        consumer.close()
    return found[0]


AUTHENTICATION = (KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._ALL_BROKERS_DOWN)


def kafka_python(bootstrap: str, way: Way, topic: str, value: bytes) -> bytes:
    settings: dict[str, Any] = {"bootstrap_servers": bootstrap, "security_protocol": way.protocol}
    settings["ssl_context"] = context = way.context
    if way.mechanism:
        settings["sasl_mechanism"] = way.mechanism
        if way.token is None:
            settings |= {"sasl_plain_username": way.user, "sasl_plain_password": way.password}
        else:
            settings["sasl_oauth_token_provider"] = _KafkaPythonTokens(way.token)
    clients: list[KafkaNetClient] = []
    sockets: list[ssl.SSLSocket] = []
    if context is not None:
        context.wrap_socket = _remembering(sockets, context.wrap_socket)  # type: ignore[method-assign]
    waits = {"max_block_ms": 3_000, "bootstrap_timeout_ms": 3_000}
    refusal: str | None = None
    try:
        with kafka.KafkaProducer(**settings, **waits, kafka_client=_remembering(clients, KafkaNetClient)) as producer:
            producer.send(topic, value).get(WITHIN_S)
    except (kafka.errors.KafkaError, OSError) as error:
        refusal = str(error)
    if refusal is not None:  # not above: the error's traceback would keep the sockets
        _close_what_kafka_python_leaves(clients, sockets)
        raise Refused(refusal)
    with kafka.KafkaConsumer(topic, **settings, auto_offset_reset="earliest", consumer_timeout_ms=20_000) as consumer:
        return bytes(next(consumer).value)


def _remembering(made: list[Made], make: Callable[..., Made]) -> Callable[..., Made]:
    """Return a function that calls `make` and adds the result to `made`, so that no open object is collected."""

    def remembered(*args: Any, **settings: Any) -> Made:
        made.append(make(*args, **settings))
        return made[-1]

    return remembered


def _close_what_kafka_python_leaves(clients: list[KafkaNetClient], sockets: list[ssl.SSLSocket]) -> None:
    """Close the clients and sockets that kafka-python leaves open when a producer could not log in."""
    while clients:
        clients.pop().close()
    for each in sockets:
        each.close()
    with warnings.catch_warnings():  # the socket of a connection that was still being made has not been wrapped
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


class _KafkaPythonTokens(AbstractTokenProvider):
    def __init__(self, token: Callable[[], str]) -> None:
        super().__init__()
        self._token = token

    def token(self) -> str:
        return self._token()


class _AiokafkaTokens(aiokafka.abc.AbstractTokenProvider):
    def __init__(self, token: Callable[[], str]) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token()


def aiokafka_(bootstrap: str, way: Way, topic: str, value: bytes) -> bytes:
    settings: dict[str, Any] = {"bootstrap_servers": bootstrap, "security_protocol": way.protocol}
    settings["ssl_context"] = way.context
    if way.mechanism:
        settings["sasl_mechanism"] = way.mechanism
        if way.token is None:
            settings |= {"sasl_plain_username": way.user, "sasl_plain_password": way.password}
        else:
            settings["sasl_oauth_token_provider"] = _AiokafkaTokens(way.token)

    async def send_and_read() -> bytes:
        producer = aiokafka.AIOKafkaProducer(**settings)
        try:
            await producer.start()
            await producer.send_and_wait(topic, value)
        except (aiokafka.errors.KafkaError, OSError) as error:
            raise Refused(error) from error
        finally:
            await producer.stop()
        async with aiokafka.AIOKafkaConsumer(topic, **settings, auto_offset_reset="earliest") as consumer:
            return bytes((await asyncio.wait_for(consumer.getone(), WITHIN_S)).value)

    async def run() -> bytes:
        made = _remember_connections()
        try:
            return await send_and_read()
        finally:  # aiokafka does not wait until TLS is closed, and the loop ends now
            for transport in made:
                transport.abort()

    return asyncio.run(run())


def _remember_connections() -> list[asyncio.WriteTransport]:
    """Return a list to which every transport is added that the running loop makes from now on."""
    loop = asyncio.get_running_loop()
    connect, made = loop.create_connection, []

    async def remembered(*args: Any, **settings: Any) -> Any:
        connection = await connect(*args, **settings)
        made.append(connection[0])
        return connection

    loop.create_connection = remembered  # type: ignore[method-assign]
    return made


def sdk(bootstrap: str, way: Way, topic: str, value: bytes) -> bytes:
    settings: dict[str, Any] = {"security_protocol": way.protocol, "ssl_context": way.context}
    if way.mechanism:
        settings |= {"sasl_mechanism": way.mechanism}
        settings |= {"sasl_plain_username": way.user, "sasl_plain_password": way.password}

    async def run() -> bytes:
        try:
            async with fp.Producer(bootstrap, **settings) as producer:
                await (await producer.send(topic, value))
        except (fp.AuthenticationError, fp.BrokerUnreachableError) as error:  # of TLS 1.3, at the first answer
            raise Refused(error) from error
        async with fp.Consumer(bootstrap, auto_offset_reset="earliest", **settings) as consumer:
            consumer.subscribe([topic])
            async for record in consumer:
                return bytes(record.value)
        raise AssertionError("nothing was read")

    return asyncio.run(run())


def java_settings(way: Way) -> dict[str, Any]:
    """Return the settings that JavaClients.producer and .consumer take."""
    settings: dict[str, Any] = {"security_protocol": way.protocol}
    if way.uses_tls:
        settings |= {"ssl_truststore_type": "PEM", "ssl_truststore_location": way.authority}
    if way.certificate:
        with open(way.certificate[0]) as chain, open(way.certificate[1]) as key:
            settings |= {"ssl_keystore_type": "PEM", "ssl_keystore_certificate_chain": chain.read()}
            settings["ssl_keystore_key"] = key.read()
    if way.mechanism:
        module = "plain.Plain" if way.mechanism == "PLAIN" else "scram.Scram"
        settings["sasl_mechanism"] = way.mechanism
        settings["sasl_jaas_config"] = (
            f"org.apache.kafka.common.security.{module}LoginModule required "
            f'username="{way.user}" password="{way.password}";'
        )
    return settings


def java(jvm: JavaClients, bootstrap: str, way: Way, topic: str, value: bytes) -> bytes:
    settings = java_settings(way)
    try:
        producer = jvm.producer(bootstrap, f"{topic}-id", **settings)
        producer.do("init")
    except JavaError as error:
        raise Refused(error) from error
    producer.do("begin")
    producer.send(topic, value.decode())
    producer.do("commit")
    producer.do("close")
    consumer = jvm.consumer(bootstrap, topic, **settings)
    consumer.do("subscribe", topic=topic)
    for _ in range(40):
        found = consumer.poll()
        if found:
            consumer.do("close")
            return found[0].encode()
    raise AssertionError("nothing was read")


LIBRARIES = {"confluent-kafka": confluent, "kafka-python": kafka_python, "aiokafka": aiokafka_, "SDK": sdk}
