"""Admin's calls about rules of access and users with a password, against a broker."""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from fencepost.broker.config.security_settings import STANDARD_AUTHORIZER
from fencepost.broker.security.credentials import Mechanism
from fencepost.client.admin.admin import Admin
from fencepost.client.admin.security_values import (
    AclBinding,
    AclFilter,
    ScramCredentialInfo,
    ScramDeletion,
    ScramUpsertion,
)
from fencepost.client.errors import AuthorizationError, ClientError, InvalidConfigurationError, KafkaError
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.acls import CreateAclsResponse, DescribeAclsResponse
from odd_answers import answered
from served_broker import ServedBroker
from txn_world import BOOTSTRAP, within

READ = AclBinding("User:alice", "read", "topic", "orders")
PREFIX = AclBinding("User:alice", "all", "group", "or", pattern="prefixed", host="10.0.0.1", permission="deny")
CLUSTER = AclBinding("User:*", "idempotent_write", "cluster", "kafka-cluster")


@pytest.fixture(scope="module")
def broker() -> Iterator[ServedBroker]:
    with ServedBroker(authorizer_class_name=STANDARD_AUTHORIZER, super_users="User:ANONYMOUS") as served:
        yield served


@pytest_asyncio.fixture
async def admin(broker: ServedBroker) -> AsyncIterator[Admin]:
    async with Admin(f"127.0.0.1:{broker.port}") as opened:
        yield opened


async def test_admin_creates_describes_and_deletes_acls(admin: Admin) -> None:
    await admin.create_acls([READ, PREFIX, CLUSTER])
    await admin.create_acls(READ)
    assert await admin.describe_acls() == sorted([READ, PREFIX, CLUSTER])
    for wanted, found in [
        (AclFilter(principal="User:alice"), [PREFIX, READ]),
        (AclFilter(operation="read"), [READ]),
        (AclFilter(resource_type="cluster"), [CLUSTER]),
        (AclFilter(resource_type="group", resource_name="orders", pattern="match"), [PREFIX]),
        (AclFilter(resource_name="orders", pattern="literal"), [READ]),
        (AclFilter(host="10.0.0.1"), [PREFIX]),
        (AclFilter(permission="deny", principal="User:bob"), []),
    ]:
        assert await admin.describe_acls(wanted) == found
    assert await admin.delete_acls([AclFilter(operation="read"), AclFilter(resource_name="orders")]) == [READ]
    assert await admin.delete_acls(AclFilter()) == sorted([PREFIX, CLUSTER])
    assert await admin.describe_acls() == []


async def test_a_refused_acl_is_named_in_the_error_and_the_others_are_created(admin: Admin) -> None:
    wrong = READ._replace(principal="alice")
    with pytest.raises(KafkaError, match=r"allow alice read topic orders: .*principal") as raised:
        await admin.create_acls([wrong, CLUSTER])
    assert raised.value.code is ErrorCode.INVALID_REQUEST
    assert await admin.delete_acls(AclFilter()) == [CLUSTER]


@pytest.mark.parametrize(
    "wrong",
    [READ._replace(operation="reed"), READ._replace(resource_type="topics"), READ._replace(pattern="match")],
)
async def test_an_acl_with_an_unknown_operation_type_or_pattern_is_refused_unsent(
    admin: Admin, wrong: AclBinding
) -> None:
    with pytest.raises(InvalidConfigurationError, match="is not known"):
        await admin.create_acls([CLUSTER, wrong])
    assert await admin.describe_acls() == []


def test_str_of_an_acl_is_one_line() -> None:
    assert str(READ) == "allow User:alice read topic orders"
    assert str(PREFIX) == "deny User:alice from 10.0.0.1 all group or*"
    assert str(CLUSTER) == "allow User:* idempotent_write cluster"


async def test_admin_sets_describes_and_removes_scram_passwords(admin: Admin, broker: ServedBroker) -> None:
    """describe_user_scram_credentials() gives mechanisms and iterations, of all users or of those that are named."""
    both = [ScramUpsertion("alice", "secret of alice", each) for each in ("SCRAM-SHA-256", "SCRAM-SHA-512")]
    await admin.alter_user_scram_credentials([*both, ScramUpsertion("bob", "other", "SCRAM-SHA-512", 8192)])
    infos = (ScramCredentialInfo("SCRAM-SHA-256", 4096), ScramCredentialInfo("SCRAM-SHA-512", 4096))
    bobs = (ScramCredentialInfo("SCRAM-SHA-512", 8192),)
    assert await admin.describe_user_scram_credentials() == {"alice": infos, "bob": bobs}
    assert await admin.describe_user_scram_credentials(["bob", "carol", "bob"]) == {"bob": bobs, "carol": ()}
    assert await admin.describe_user_scram_credentials([]) == {}
    users = broker.broker.security_log.state.users
    for mechanism in Mechanism:
        kept = users.find("alice", mechanism)
        assert kept is not None
        assert kept.is_made_from(b"secret of alice")
        assert not kept.is_made_from(b"other")
    await admin.alter_user_scram_credentials(ScramDeletion("bob", "SCRAM-SHA-512"))
    await admin.alter_user_scram_credentials([ScramDeletion("alice"), ScramDeletion("alice", "SCRAM-SHA-512")])
    assert await admin.describe_user_scram_credentials() == {}


async def test_a_refused_user_change_raises_an_error_with_the_users_name(admin: Admin) -> None:
    with pytest.raises(KafkaError, match="user carol: Attempt to delete") as raised:
        await admin.alter_user_scram_credentials([ScramDeletion("carol"), ScramUpsertion("dave", "secret")])
    assert raised.value.code is ErrorCode.RESOURCE_NOT_FOUND
    assert list(await admin.describe_user_scram_credentials()) == ["dave"]
    await admin.alter_user_scram_credentials(ScramDeletion("dave"))


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        (ScramUpsertion("a", ""), "empty"),
        (ScramUpsertion("a", "p", "SCRAM-SHA-1"), "SCRAM-SHA-1"),  # type: ignore[arg-type]
        (ScramDeletion("a", "PLAIN"), "PLAIN"),  # type: ignore[arg-type]
        (ScramUpsertion("a", "p", iterations=4095), "4095"),
    ],
)
async def test_an_empty_password_an_unknown_mechanism_and_too_few_iterations_are_refused(
    admin: Admin, wrong: ScramUpsertion, what: str
) -> None:
    with pytest.raises(InvalidConfigurationError, match=what):
        await admin.alter_user_scram_credentials([ScramUpsertion("erin", "secret"), wrong])
    assert await admin.describe_user_scram_credentials("erin") == {"erin": ()}


def test_the_repr_of_a_scram_upsertion_does_not_show_its_password() -> None:
    assert "hush" not in repr(ScramUpsertion("alice", "hush"))


async def test_admin_calls_without_the_right_raise_an_authorization_error() -> None:
    with ServedBroker(authorizer_class_name=STANDARD_AUTHORIZER, super_users="User:admin") as closed:
        async with Admin(f"127.0.0.1:{closed.port}") as admin:
            for call in (
                admin.create_acls(READ),
                admin.describe_acls(),
                admin.delete_acls(AclFilter()),
                admin.describe_user_scram_credentials(),
                admin.alter_user_scram_credentials(ScramUpsertion("alice", "secret")),
            ):
                with pytest.raises(AuthorizationError, match="Not allowed on the cluster"):
                    await call


async def test_acl_calls_without_an_authorizer_raise_security_disabled() -> None:
    with ServedBroker() as open_:
        async with Admin(f"127.0.0.1:{open_.port}") as admin:
            for call in (admin.create_acls(READ), admin.describe_acls(), admin.delete_acls(AclFilter())):
                with pytest.raises(KafkaError) as raised:
                    await call
                assert raised.value.code is ErrorCode.SECURITY_DISABLED


def test_missing_acl_results_raise_and_unknown_acl_codes_are_shown_as_numbers() -> None:
    resource = DescribeAclsResponse.Resource
    acl = resource.Acl(principal="User:a", host="*", operation=99, permission_type=3)
    newer = DescribeAclsResponse(resources=[resource(resource_type=50, resource_name="x", pattern_type=9, acls=[acl])])

    async def main(world):  # type: ignore[no-untyped-def]
        async with Admin(BOOTSTRAP, environment=world.world.environment) as asking:
            world.intercept(answered("CreateAcls", lambda request: CreateAclsResponse(results=[])))
            with pytest.raises(ClientError, match="0 of 1 rules"):
                await asking.create_acls(READ)
            world.intercept(answered("DescribeAcls", lambda request: newer))
            (found,) = await asking.describe_acls()
            assert str(found) == "allow User:a unknown(99) unknown(50) x"

    within(main)
