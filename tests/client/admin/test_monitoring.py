"""Admin at a fencepost broker: who is connected, whose a transaction is, what is counted; elsewhere it says so."""

import math
from collections.abc import AsyncIterator, Iterator

import pytest
from capped_broker import cap
from fencepost.client.admin.admin import Admin
from fencepost.client.errors import UnsupportedVersionError
from fencepost.client.producer.producer import Producer
from served_broker import ServedBroker


@pytest.fixture(scope="module")
def broker() -> Iterator[ServedBroker]:
    with ServedBroker() as broker:
        yield broker


@pytest.fixture
async def admin(broker: ServedBroker) -> AsyncIterator[Admin]:
    async with Admin(f"127.0.0.1:{broker.port}", client_id="looks") as admin:
        yield admin


async def test_connected_clients_are_described(admin: Admin) -> None:
    (me,) = [each for each in await admin.describe_clients() if each.client_id == "looks"]
    assert me.software.startswith("fencepost")
    assert (me.host, me.principal, me.idle_ms) == ("127.0.0.1", "User:ANONYMOUS", 0)
    assert me.connections >= 1 <= me.requests


async def test_a_transaction_has_an_owner(admin: Admin, broker: ServedBroker) -> None:
    at = f"127.0.0.1:{broker.port}"
    async with Producer(at, client_id="writes", transactional_id="owned-1") as producer, producer.transaction() as tx:
        await tx.send_and_wait("orders", b"v")
        assert (await admin.describe_transaction_owners())["owned-1"].client_id == "writes"
        found = await admin.describe_transaction_owners(["owned-1", "nobody"])
        assert found.keys() == {"owned-1"}
        assert found["owned-1"].connected


async def test_metrics_come_as_families_of_samples(admin: Admin) -> None:
    families = {each.name: each for each in await admin.describe_metrics()}
    requests = families["fencepost_requests_total"]
    assert (requests.kind, requests.labels) == ("counter", ("api",))
    assert {each.labels[0]: each.value for each in requests.samples}["DescribeMetrics"] >= 1
    (syncs,) = families["fencepost_fsync_duration_seconds"].samples
    assert syncs.buckets[-1][0] == math.inf
    assert [count for _, count in syncs.buckets] == sorted(count for _, count in syncs.buckets)
    assert syncs.value > 0 < syncs.buckets[-1][1], "the topics' creation was synced"


async def test_another_broker_is_not_asked() -> None:
    with ServedBroker() as other:
        other.inside(lambda inside: cap(inside, "4.3"))
        async with Admin(f"127.0.0.1:{other.port}") as admin:
            for ask in (admin.describe_clients, admin.describe_transaction_owners, admin.describe_metrics):
                with pytest.raises(UnsupportedVersionError):
                    await ask()
