"""Connects loads to a broker that requires a login or TLS: with the SDK, and with librdkafka by the same settings.

The load is the same as without a login: the SDK opens a connection and logs in, and then the load takes the connection
over.
"""

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ..client.admin.admin import Admin
from ..client.admin.offsets import LATEST
from ..client.admin.values import NewTopic
from ..client.config_names import settings_from
from ..client.errors import InvalidConfigurationError, KafkaError, UnknownTopicError
from ..client.net.environment import SYSTEM
from ..client.net.opening import open_connection
from ..client.settings import AdminSettings
from ..client.values import TopicPartition
from .topics import NoTopic

FILES = {
    "ca_file": "ssl.ca.location",
    "certificate_file": "ssl.certificate.location",
    "key_file": "ssl.key.location",
}


class Login:
    """How clients log in to one broker. properties: the client's properties by their Kafka names."""

    def __init__(self, bootstrap: str, properties: Mapping[str, str]) -> None:
        """Read the login from the client's properties. Raises InvalidConfigurationError."""
        self.properties = dict(properties)
        self._bootstrap = bootstrap
        config = {"bootstrap.servers": bootstrap, "client.id": "bench", **properties}
        self._settings = settings_from(AdminSettings, config)
        self._tls = self._settings.security.tls_context()

    def __repr__(self) -> str:
        return f"Login({self._bootstrap})"

    @property
    def is_needed(self) -> bool:
        """Return whether a connection needs more than plain TCP: TLS or a login."""
        return self._settings.security.protocol != "PLAINTEXT"

    def for_librdkafka(self) -> dict[str, str]:
        """Return the same settings by librdkafka's names. Raises InvalidConfigurationError for one that it does not
        have.
        """
        security = self._settings.security
        if not self.is_needed:
            return {}
        if security.token_provider is not None:
            raise InvalidConfigurationError("a load cannot fetch tokens", hint="log in with a user and a password")
        found: dict[str, str | None] = {"security.protocol": security.protocol}
        found |= {name: getattr(security, field) for field, name in FILES.items()}
        found |= {"ssl.ca.pem": security.ca_pem, "ssl.certificate.pem": security.certificate_pem}
        found |= {"ssl.key.pem": security.key_pem, "ssl.key.password": security.key_password}
        found |= {"sasl.mechanism": security.mechanism, "sasl.username": security.username}
        found |= {"sasl.password": security.password}
        if security.uses_tls and not security.check_hostname:
            found["ssl.endpoint.identification.algorithm"] = "none"
        return {name: value for name, value in found.items() if value is not None}

    async def connect(self, host: str, port: int, protocol: asyncio.Protocol) -> None:
        """Open a connection, log in, and give it to this protocol, which gets all further bytes. Raises KafkaError."""
        settings = replace(self._settings, client_id="bench")
        connection = await open_connection((host, port), settings, SYSTEM, self._tls)
        transport = connection.hand_over()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)

    # ---- topics ----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def topic(self, name: str | None, partitions: int) -> Iterator[str]:
        """Yield the given topic, or a new one that is deleted at the block's end. Raises NoTopic, KafkaError."""
        if name is not None:
            self.check_exists(name)
            yield name
            return
        name = f"fencepost-bench-{uuid.uuid4().hex[:8]}"
        self._ask(lambda admin: _create(admin, name, partitions))
        try:
            yield name
        finally:
            with contextlib.suppress(OSError, KafkaError):  # the broker has ended, and the reason is reported already
                self._ask(lambda admin: admin.delete_topics([name]))

    def check_exists(self, name: str) -> None:
        """Check that the topic exists. Raises NoTopic, KafkaError."""
        try:
            self._ask(lambda admin: admin.describe_topics([name]))
        except UnknownTopicError as error:
            raise NoTopic(f"there is no topic {name} at {self._bootstrap}") from error

    def _ask(self, ask: Callable[[Admin], Coroutine[Any, Any, Any]]) -> None:
        """Run a call of Admin on a connection of its own, and wait for it."""

        async def run() -> None:
            async with Admin.of(self._settings) as admin:
                await ask(admin)

        asyncio.run(run())


async def _create(admin: Admin, name: str, partitions: int) -> None:
    """Create a topic and wait until the broker answers for every partition: Kafka's metadata names a broker as leader
    shortly before that broker leads the partition.
    """
    await admin.create_topics([NewTopic(name, partitions, 1)])
    await admin.ends([TopicPartition(name, number) for number in range(partitions)], LATEST)
