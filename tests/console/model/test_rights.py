"""What the console shows with a login that may not see everything, on a real broker with an authorizer."""

from collections.abc import Iterator

import pytest
from acl_client import guarded, rule
from console_client import ConsoleClient, console_of
from fencepost.broker.security.acl_records import acl_added
from fencepost.client.admin.admin import Admin
from fencepost.console.model.rights import ONLY
from served_broker import ServedBroker


@pytest.fixture
def broker() -> Iterator[ServedBroker]:
    settings = {"authorizer_class_name": guarded().authorizer_class_name, "super_users": "User:root"}
    with ServedBroker(**settings) as served:
        yield served


def allow(broker: ServedBroker, *rights: str) -> None:
    changes = [acl_added(rule(f"allow User:ANONYMOUS {each}")) for each in rights]
    broker.inside(lambda inside: inside.security_log.commit(changes))


async def missing(console: ConsoleClient) -> list[str]:
    """Return the missing rights of a snapshot, after reading the rights again."""
    model = console.console.parts.model
    model._rights_due_ms = 0
    await model.next_view()
    return (await console.get("/v1/snapshot"))["missing"]


async def test_the_snapshot_lists_for_which_kinds_of_resources_its_login_lacks_rights(broker: ServedBroker) -> None:
    allow(broker, "DESCRIBE GROUP = mine", "DESCRIBE TRANSACTIONAL_ID = mine")
    async with Admin(f"127.0.0.1:{broker.port}") as admin:  # these requests create the internal topics
        assert await admin.describe_groups("mine") == await admin.describe_transactions("mine") == {}
    async with console_of(f"127.0.0.1:{broker.port}") as console:
        snapshot = await console.get("/v1/snapshot")
        assert (snapshot["counts"]["topics"], snapshot["reachable"]) == (0, True)
        assert snapshot["missing"] == [f"topics, groups, transactions: {ONLY}"]
        async with console.events() as stream:
            await stream.next()
            allow(broker, "DESCRIBE TOPIC = *")
            assert await missing(console) == [f"groups: {ONLY}", f"transactions: {ONLY}"]
            assert (await stream.until("missing"))["rows"] == [f"groups: {ONLY}", f"transactions: {ONLY}"]
        allow(broker, "DESCRIBE GROUP = *")
        assert await missing(console) == [f"transactions: {ONLY}"]
        allow(broker, "DESCRIBE TRANSACTIONAL_ID = *")
        assert await missing(console) == []


async def test_checking_the_consoles_rights_creates_no_topic() -> None:
    with ServedBroker() as broker:
        at = f"127.0.0.1:{broker.port}"
        async with console_of(at) as console, Admin(at) as admin:
            assert (await console.get("/v1/snapshot"))["missing"] == []
            assert await admin.describe_topics() == {}
