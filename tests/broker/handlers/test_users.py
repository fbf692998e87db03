"""AlterUserScramCredentials, DescribeUserScramCredentials by a whole broker; what Kafka answers: tests/conformance."""

import logging
from typing import Any

import pytest
from acl_client import creating, guarded
from fencepost.broker.config.settings import BrokerSettings
from fencepost.broker.handlers import users as handlers
from fencepost.broker.security.credentials import Mechanism, salted_password
from fencepost.protocol.errors import ErrorCode, KafkaError
from fencepost.protocol.messages.scram_users import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
)
from simulated_broker import SimulatedBroker
from simulated_client import SimulatedClient

OK, FORBIDDEN, FULL = ErrorCode.NONE, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.POLICY_VIOLATION
UNKNOWN, TWICE = ErrorCode.RESOURCE_NOT_FOUND, ErrorCode.DUPLICATE_RESOURCE
SALT = b"salt-of-a-test"

Request = AlterUserScramCredentialsRequest


def putting(name: str, mechanism: int = 1, password: str = "secret of a user") -> Request.Upsertion:
    salted = salted_password(Mechanism(mechanism), password.encode(), SALT, 4096)
    return Request.Upsertion(name=name, mechanism=mechanism, iterations=4096, salt=SALT, salted_password=salted)


def removing(name: str, mechanism: int = 1) -> Request.Deletion:
    return Request.Deletion(name=name, mechanism=mechanism)


def altering(*changes: Request.Deletion | Request.Upsertion) -> Request:
    return Request(
        deletions=[each for each in changes if isinstance(each, Request.Deletion)],
        upsertions=[each for each in changes if isinstance(each, Request.Upsertion)],
    )


def altered(broker: Any, *changes: Request.Deletion | Request.Upsertion) -> dict[str, int]:
    """Alter credentials. Returns the error code of each user."""
    results = broker.ask(altering(*changes)).results
    codes = {each.user: each.error_code for each in results}
    assert len(codes) == len(results), "each user is answered once"
    return codes


def describing(*names: str) -> DescribeUserScramCredentialsRequest:
    asked = [DescribeUserScramCredentialsRequest.User(name=name) for name in names]
    return DescribeUserScramCredentialsRequest(users=asked or None)


def described(broker: Any, *names: str) -> dict[str, list[int] | int]:
    """Return the mechanisms of each user, or its error code."""
    answer = broker.ask(describing(*names))
    assert answer.error_code == OK
    return {each.user: each.error_code or [info.mechanism for info in each.credential_infos] for each in answer.results}


def test_users_are_added_described_and_removed_whether_or_not_there_is_an_authorizer() -> None:
    for settings in (BrokerSettings(), guarded()):
        with SimulatedBroker(settings) as broker:
            assert described(broker) == {}
            assert altered(broker, putting("alice"), putting("bob", 2)) == {"alice": OK, "bob": OK}
            assert altered(broker, putting("alice", 2)) == {"alice": OK}
            assert described(broker) == {"alice": [1, 2], "bob": [2]}
            assert described(broker, "bob", "carol", "bob") == {"bob": TWICE, "carol": UNKNOWN}
            assert altered(broker, removing("bob", 2), removing("alice")) == {"bob": OK, "alice": OK}
            assert described(broker) == {"alice": [2]}
            assert not broker.broker.metrics.failures


def test_scram_users_and_their_removal_survive_a_restart_and_a_power_cut() -> None:
    with SimulatedBroker() as broker:
        altered(broker, putting("alice"), putting("bob"))
        altered(broker, removing("bob"))
        users = broker.broker.security_log.state.users
        secret, kept = users.secret, users.find("alice", Mechanism.SHA_256)
        assert len(secret) == 32
        with broker.after_power_cut() as cut, cut.again() as again:
            users = again.broker.security_log.state.users
            assert (users.secret, users.find("alice", Mechanism.SHA_256)) == (secret, kept)
            assert described(again) == {"alice": [1]}


def test_no_password_equivalent_is_on_disk_or_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """The disk has the stored key, with which nobody can log in; the log says how many credentials were changed, and by
    whom.
    """
    asked = putting("alice")
    with caplog.at_level(logging.DEBUG), SimulatedBroker() as broker:
        altered(broker, asked)
        held = bytes_of(broker.disk, broker.settings.log_dir)
        broker.stop()
        held += bytes_of(broker.disk, broker.settings.log_dir)
    kept = broker.broker.security_log.state.users.find("alice", Mechanism.SHA_256)
    assert kept is not None
    assert kept.stored_key in held, "the files that are searched are those with the credentials"
    for secret in (asked.salted_password, b"secret of a user"):
        assert secret not in held
        assert secret.hex() not in caplog.text
    assert "secret of a user" not in caplog.text
    assert "credentials changed: 1, by User:ANONYMOUS from" in caplog.text


def bytes_of(disk: Any, directory: str) -> bytes:
    held = b""
    for name in disk.list(directory):
        path = f"{directory}/{name}"
        if disk.is_directory(path):
            held += bytes_of(disk, path)
        else:
            held += disk.open(path, read_only=True).read(disk.size(path), 0)
    return held


def test_listing_users_needs_cluster_describe_and_changing_them_cluster_alter() -> None:
    with SimulatedBroker(guarded()) as broker:
        altered(broker, putting("alice"))
        broker.ask(creating("allow User:ANONYMOUS DESCRIBE CLUSTER = kafka-cluster"))
        with broker.again(guarded(super_users="User:admin")) as reading:
            assert described(reading) == {"alice": [1]}
            refused = altered(reading, putting("bob"), removing("alice"), removing("bob"))
            assert refused == {"alice": FORBIDDEN, "bob": FORBIDDEN}
            assert described(reading) == {"alice": [1]}
    with SimulatedBroker(guarded(super_users="")) as closed:
        answer = closed.ask(describing("alice"))
        assert (answer.error_code, answer.results) == (FORBIDDEN, [])


def test_users_beyond_max_users_are_refused() -> None:
    with SimulatedBroker(BrokerSettings(max_users=2)) as broker:
        assert altered(broker, putting("a"), putting("b"), putting("c")) == {"a": OK, "b": OK, "c": FULL}
        assert altered(broker, putting("a", 2)) == {"a": OK}
        assert altered(broker, removing("b")) == {"b": OK}
        assert altered(broker, putting("c")) == {"c": OK}


def test_a_user_change_applies_to_the_next_request_of_the_same_connection() -> None:
    with SimulatedBroker() as broker:
        client = SimulatedClient(broker)
        first, second = client.ask_together(altering(putting("alice")), altering(removing("alice")))
        assert [each.error_code for each in first.results + second.results] == [OK, OK]


def test_users_whose_journal_entry_fails_get_a_storage_error_and_others_are_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handlers, "CHANGES_AT_ONCE", 2)
    with SimulatedBroker() as broker:
        altered(broker, putting("old"))
        log = broker.broker.security_log
        commit, calls = log.commit, [0]

        def fails_the_second_time(changes: Any) -> None:
            calls[0] += 1
            if calls[0] == 2:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no room")
            commit(changes)

        monkeypatch.setattr(log, "commit", fails_the_second_time)
        codes = altered(broker, *[putting(name) for name in "abcde"])
        assert [codes[name] for name in "abcde"] == [OK, OK, *[ErrorCode.KAFKA_STORAGE_ERROR] * 2, OK]
        assert described(broker).keys() == {"old", "a", "b", "e"}


@pytest.mark.slow
def test_a_change_of_many_users_is_made_in_parts_with_other_requests_between_them() -> None:
    names = [f"u{number}" for number in range(2_000)]
    with SimulatedBroker() as broker:
        client, other = SimulatedClient(broker), SimulatedClient(broker)
        salted = bytes(32)
        changes = [
            Request.Upsertion(name=name, mechanism=1, iterations=4096, salt=SALT, salted_password=salted)
            for name in names
        ]
        client.send(altering(*changes))
        for _ in range(40):
            other.send(describing())
            broker.wait(0)
        seen = [len(other.receive().results) for _ in range(40)]
        assert any(0 < count < 2_000 for count in seen)
        assert {each.error_code for each in client.receive().results} == {OK}
        assert described(broker).keys() == set(names)
        client.send(altering(*map(removing, names)))
        client.receive()
        with broker.after_power_cut() as again:
            assert described(again) == {}
