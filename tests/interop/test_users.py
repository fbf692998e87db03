"""Users who log in by SCRAM, by other people's admin clients: added, told of, removed, the same after kill -9."""

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, ClassVar

import pytest
from broker_process import BrokerProcess, broker_process
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from fencepost.broker.config.security_settings import STANDARD_AUTHORIZER
from kafka.admin import KafkaAdminClient
from kafka.admin import ScramMechanism as KafkaMechanism
from kafka.admin import UserScramCredentialDeletion as KafkaDeletion
from kafka.admin import UserScramCredentialUpsertion as KafkaUpsertion
from kafka.errors import ClusterAuthorizationFailedError

SHA_256, SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
PASSWORD = "correct horse battery staple"

Users = dict[str, dict[str, int]]
"""Of each user its mechanisms, and the iterations of each."""


class KafkaPython:
    """kafka-python."""

    def __init__(self, bootstrap: str) -> None:
        self._admin = KafkaAdminClient(bootstrap_servers=bootstrap)

    def close(self) -> None:
        self._admin.close()

    def put(self, name: str, mechanism: str, iterations: int = 4096) -> str | None:
        """Add or change a user's credential. Return the error's text if that is refused, else None."""
        return self._alter(KafkaUpsertion(name, mechanism, PASSWORD, iterations))

    def remove(self, name: str, mechanism: str) -> str | None:
        return self._alter(KafkaDeletion(name, mechanism))

    def _alter(self, change: Any) -> str | None:
        ((_, error),) = self._admin.alter_user_scram_credentials([change]).items()
        return error

    def describe(self, *names: str) -> Users:
        found = self._admin.describe_user_scram_credentials(list(names) or None)
        names = {KafkaMechanism.SCRAM_SHA_256: SHA_256, KafkaMechanism.SCRAM_SHA_512: SHA_512}
        return {
            name: {names[one["mechanism"]]: one["iterations"] for one in each["credential_infos"]}
            for name, each in found.items()
        }


class Librdkafka:
    """confluent-kafka."""

    MECHANISMS: ClassVar = {SHA_256: ScramMechanism.SCRAM_SHA_256, SHA_512: ScramMechanism.SCRAM_SHA_512}

    def __init__(self, bootstrap: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def close(self) -> None:
        pass

    def put(self, name: str, mechanism: str, iterations: int = 4096) -> str | None:
        """Add or change a user's credential. Return the error's text if that is refused, else None."""
        info = ScramCredentialInfo(self.MECHANISMS[mechanism], iterations)
        return self._alter(UserScramCredentialUpsertion(name, info, PASSWORD.encode()))

    def remove(self, name: str, mechanism: str) -> str | None:
        return self._alter(UserScramCredentialDeletion(name, self.MECHANISMS[mechanism]))

    def _alter(self, change: Any) -> str | None:
        (future,) = self._admin.alter_user_scram_credentials([change]).values()
        error = future.exception(20)
        return None if error is None else error.args[0].str()

    def describe(self, *names: str) -> Users:
        if not names:
            return {
                name: self._of(each) for name, each in self._admin.describe_user_scram_credentials().result(20).items()
            }
        futures = self._admin.describe_user_scram_credentials(list(names))
        found: Users = {}
        for name, future in futures.items():
            try:
                found[name] = self._of(future.result(20))
            except KafkaException:
                found[name] = {}
        return found

    def _of(self, described: Any) -> dict[str, int]:
        names = {value: name for name, value in self.MECHANISMS.items()}
        return {names[info.mechanism]: info.iterations for info in described.scram_credential_infos}


CLIENTS = pytest.mark.parametrize("connect", [KafkaPython, Librdkafka])


@pytest.fixture
def broker(tmp_path: Any) -> Iterator[BrokerProcess]:
    with broker_process(str(tmp_path / "data")) as broker:
        yield broker


@CLIENTS
def test_users_are_added_described_removed_and_survive_a_restart_and_kill_9(
    broker: BrokerProcess, connect: Callable[[str], Any]
) -> None:
    with closing(connect(broker.bootstrap)) as admin:
        assert admin.describe() == {}
        assert admin.put("alice", SHA_256) is None
        assert admin.put("alice", SHA_512, 8192) is None
        assert admin.put("bob", SHA_512) is None
        assert admin.describe("alice") == {"alice": {SHA_256: 4096, SHA_512: 8192}}
        assert admin.remove("bob", SHA_512) is None
    broker.kill()
    broker.start()
    with closing(connect(broker.bootstrap)) as admin:
        assert admin.describe() == {"alice": {SHA_256: 4096, SHA_512: 8192}}
        assert admin.remove("alice", SHA_256) is None
    assert broker.stop() == 0
    broker.start()
    with closing(connect(broker.bootstrap)) as admin:
        assert admin.describe() == {"alice": {SHA_512: 8192}}


@CLIENTS
def test_refused_user_changes_return_kafkas_error_text(broker: BrokerProcess, connect: Callable[[str], Any]) -> None:
    with closing(connect(broker.bootstrap)) as admin:
        assert admin.remove("alice", SHA_256) == "Attempt to delete a user credential that does not exist"
        assert admin.put("alice", SHA_256, 1000) == "Too few iterations"
        assert admin.describe() == {}


@CLIENTS
def test_changing_users_without_the_right_is_refused(tmp_path: Any, connect: Callable[[str], Any]) -> None:
    """Describing is tried with kafka-python only: confluent-kafka 2.16 crashes when any broker refuses it."""
    options = ("-X", f"authorizer.class.name={STANDARD_AUTHORIZER}", "-X", "super.users=User:admin")
    with broker_process(str(tmp_path / "data"), *options) as broker, closing(connect(broker.bootstrap)) as admin:
        assert admin.put("alice", SHA_256) == "Not allowed on the cluster."
        if connect is KafkaPython:
            with pytest.raises(ClusterAuthorizationFailedError):
                admin.describe()
