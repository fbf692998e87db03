"""Logins and rights of an embedded broker, seen by the SDK."""

import pytest
from fencepost.client.errors import AuthenticationError, AuthorizationError, BrokerUnreachableError

from fencepost import AclBinding, Broker, sync

ORDERS = [AclBinding("User:alice", each, "topic", "orders") for each in ("write", "create")]


@pytest.fixture
def broker():
    with Broker(users={"alice": "secret", "root": "toor"}, super_users=["root"], acls=ORDERS) as broker:
        yield broker


def send(broker, user, topic="orders", **more):
    config = broker.client_config(user) | {"delivery.timeout.ms": 5_000} | more
    with sync.Producer.from_config(config) as producer:
        return producer.send(topic, b"42").result()


def test_a_user_may_do_only_the_operations_that_its_acls_allow(broker):
    assert send(broker, "alice").offset == 0
    with pytest.raises(AuthorizationError):
        send(broker, "alice", "other")


def test_a_super_user_may_do_everything(broker):
    assert send(broker, "root", "other").offset == 0


@pytest.mark.slow
def test_clients_without_a_login_or_with_a_wrong_password_are_not_served(broker):
    with pytest.raises(AuthenticationError):
        send(broker, "alice", **{"sasl.password": "wrong"})
    plain = broker.client_config() | {"default.api.timeout.ms": 1_000, "socket.connection.setup.timeout.ms": 1_000}
    with pytest.raises(BrokerUnreachableError), sync.Admin.from_config(plain) as admin:
        admin.list_topics()


def test_every_mechanism_with_a_password_lets_the_user_in(broker):
    for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        send(broker, "alice", **{"sasl.mechanism": mechanism})


def test_a_removed_acl_no_longer_applies_and_can_be_added_again(broker):
    send(broker, "alice")
    broker.remove_acls(ORDERS)
    with pytest.raises(AuthorizationError):
        send(broker, "alice")
    broker.add_acls(ORDERS)
    send(broker, "alice")


def test_changed_acls_survive_a_kill_of_the_embedded_broker(broker):
    send(broker, "alice")
    broker.remove_acls(ORDERS)
    broker.kill()
    broker.restart()
    with pytest.raises(AuthorizationError):
        send(broker, "alice")


@pytest.mark.slow
def test_users_can_be_added_and_removed_while_an_embedded_broker_runs(broker):
    broker.add_acls([AclBinding("bob", "write", "topic", "orders")])
    with pytest.raises(ValueError, match="no user 'bob'"):
        broker.client_config("bob")
    send(broker, "alice")
    broker.add_user("bob", "first")
    send(broker, "bob")
    broker.add_user("bob", "second")
    send(broker, "bob")
    broker.remove_user("bob")
    with pytest.raises(AuthenticationError):
        send(broker, "bob")


def test_restore_rights_of_an_embedded_broker_brings_back_its_initial_users_and_acls(broker):
    send(broker, "alice")
    broker.remove_acls(ORDERS)
    broker.remove_user("alice")
    broker.add_user("root", "other")
    broker.add_user("bob", "x")
    broker.add_acls([AclBinding("bob", "write", "topic", "orders")])
    broker.restore_rights()
    send(broker, "alice")
    send(broker, "root")
    with pytest.raises(ValueError, match="no user"):
        broker.client_config("bob")
    assert broker.inside(lambda inner: sorted(inner.security_log.state.users.names)) == ["alice", "root"]
    assert broker.inside(lambda inner: len(inner.security_log.state.authorizer)) == len(ORDERS)


def test_without_acls_every_authenticated_user_may_do_everything():
    with Broker(users={"alice": "secret"}) as broker:
        send(broker, "alice", "any")
        with pytest.raises(ValueError, match="no access control lists"):
            broker.add_acls(ORDERS)


@pytest.mark.slow
def test_changed_users_are_still_there_when_a_data_directory_is_used_again(tmp_path):
    """A user that is given again gets the password that is given now."""
    with Broker(tmp_path / "data", users={"alice": "secret"}, acls=ORDERS) as broker:
        send(broker, "alice")
        broker.add_user("bob", "x")
    with Broker(tmp_path / "data", users={"alice": "new"}, acls=ORDERS) as broker:
        send(broker, "alice")
        assert broker.inside(lambda inner: sorted(inner.security_log.state.users.names)) == ["alice", "bob"]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"users": {"": "x"}}, "name must be of 1 to"),
        ({"users": {"alice": ""}}, "password of alice is empty"),
        ({"acls": [AclBinding("alice", "wrote", "topic", "a")]}, "'wrote' is not a known operation"),
        ({"acls": [AclBinding("alice", "write", "topic", "")]}, "empty resource name"),
    ],
)
def test_invalid_users_and_acls_are_refused_before_an_embedded_broker_starts(given, text):
    with pytest.raises(ValueError, match=text):
        Broker(**given)


def test_the_repr_of_an_embedded_broker_shows_no_password(broker):
    assert "secret" not in repr(broker) + repr(broker._rights)
