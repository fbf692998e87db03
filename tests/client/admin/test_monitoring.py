"""Admin at a fencepost broker: who is connected, whose a transaction is, what is counted; elsewhere it says so."""

import inspect
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from capped_broker import cap
from fencepost.client.admin.admin import Admin
from fencepost.client.admin.values import TransactionDescription
from fencepost.client.errors import UnsupportedVersionError
from fencepost.client.producer.producer import Producer
from fencepost.protocol.apis import APIS
from fencepost.protocol.java_hash import partition_for
from served_broker import ServedBroker


@pytest.fixture(scope="module")
def broker() -> Iterator[ServedBroker]:
    with ServedBroker() as broker:
        yield broker


@pytest.fixture
async def admin(broker: ServedBroker) -> AsyncIterator[Admin]:
    async with Admin(f"127.0.0.1:{broker.port}", client_id="looks") as admin:
        yield admin


async def test_admin_lists_connected_clients(admin: Admin) -> None:
    (me,) = [each for each in await admin.describe_clients() if each.client_id == "looks"]
    assert me.software.startswith("fencepost")
    assert (me.host, me.principal, me.idle_ms) == ("127.0.0.1", "User:ANONYMOUS", 0)
    assert me.connections >= 1
    assert me.requests >= 1


async def test_admin_lists_the_client_that_owns_a_transaction(admin: Admin, broker: ServedBroker) -> None:
    at = f"127.0.0.1:{broker.port}"
    async with Producer(at, client_id="writes", transactional_id="owned-1") as producer, producer.transaction() as tx:
        await tx.send_and_wait("orders", b"v")
        assert (await admin.describe_transaction_owners())["owned-1"].client_id == "writes"
        found = await admin.describe_transaction_owners(["owned-1", "nobody"])
        assert found.keys() == {"owned-1"}
        assert found["owned-1"].connected


@pytest.mark.slow
@pytest.mark.requirement("S-124")
async def test_each_transaction_has_its_own_identifier_which_survives_a_broker_restart(tmp_path: Path) -> None:
    """It is None before the first, the same for all of a transaction, and greater for the next."""
    with ServedBroker(log_dir=str(tmp_path)) as broker:
        at = f"127.0.0.1:{broker.port}"
        async with Admin(at) as admin, Producer(at, transactional_id="numbered") as producer:
            assert (await _described(admin)).transaction_id is None, "none was opened yet"
            seen = []
            for _ in range(2):
                async with producer.transaction() as tx:
                    await tx.send_and_wait("orders", b"v")
                    opened = await _described(admin)
                    await tx.send_and_wait("bills", b"v")  # one more partition, the same transaction
                    assert (await _described(admin)).transaction_id == opened.transaction_id
                seen.append((await _described(admin)).transaction_id)
                assert seen[-1] == opened.transaction_id, "an ended transaction is named until the next"
            (listed,) = await admin.list_transactions()
            assert listed.transaction_id == seen[-1]
    assert seen[0] < seen[1]
    partition = partition_for("numbered", broker.settings.transaction_state_log_num_partitions)
    assert all(len(each) == 32 and each.startswith(f"{partition:04x}0000") for each in seen)
    with ServedBroker(log_dir=str(tmp_path)) as broker:
        async with Admin(f"127.0.0.1:{broker.port}") as admin:
            assert (await _described(admin)).transaction_id == seen[1]


async def _described(admin: Admin) -> TransactionDescription:
    return (await admin.describe_transactions("numbered"))["numbered"]


async def test_admin_returns_metrics_as_families_of_samples(admin: Admin) -> None:
    families = {each.name: each for each in await admin.describe_metrics()}
    requests = families["fencepost_requests_total"]
    assert (requests.kind, requests.labels) == ("counter", ("api",))
    assert {each.labels[0]: each.value for each in requests.samples}["DescribeMetrics"] >= 1
    (syncs,) = families["fencepost_fsync_duration_seconds"].samples
    assert syncs.buckets[-1][0] == math.inf
    assert [count for _, count in syncs.buckets] == sorted(count for _, count in syncs.buckets)
    assert syncs.value > 0 < syncs.buckets[-1][1], "the topics' creation was synced"


OWN_REQUESTS = {api.request.__name__ for api in APIS.values() if api.since}


def extensions() -> dict[str, Callable[..., Awaitable[object]]]:
    """Admin's public methods that send a request of our own APIs, themselves or through private ones, by name."""
    return {
        name: method
        for cls in Admin.__mro__
        for name, method in vars(cls).items()
        if name[0] != "_" and inspect.iscoroutinefunction(method) and sends_own_request(cls, name)
    }


def sends_own_request(cls: type, name: str) -> bool:
    used = set(vars(cls)[name].__code__.co_names)
    private = {each for each in used if each[0] == "_" and inspect.iscoroutinefunction(vars(cls).get(each))}
    return bool(used & OWN_REQUESTS) or any(sends_own_request(cls, each) for each in private - {name})


def some_value(parameter: inspect.Parameter) -> object:
    """Return a value for a parameter without a default: a number where one is asked for, else a name."""
    return 1 if parameter.annotation in (int, "int") else "anything"


@pytest.fixture(scope="module")
def kafka() -> Iterator[ServedBroker]:
    with ServedBroker() as other:
        other.inside(lambda inside: cap(inside, "4.3"))
        yield other


@pytest.mark.parametrize("name", extensions())
async def test_admin_extensions_but_prepared_transactions_are_refused_for_a_kafka_broker(
    kafka: ServedBroker, name: str
) -> None:
    parameters = list(inspect.signature(getattr(Admin, name)).parameters.values())[1:]
    needed = [some_value(each) for each in parameters if each.default is each.empty]
    async with Admin(f"127.0.0.1:{kafka.port}") as admin:
        if name == "prepared_transactions":  # none are prepared at another broker
            assert await admin.prepared_transactions() == {}
            return
        with pytest.raises(UnsupportedVersionError) as refused:
            await getattr(admin, name)(*needed)
        assert refused.value.hint is not None
        assert "only fencepost has this API" in refused.value.hint


def test_the_extensions_of_admin_are_found_by_the_requests_they_send() -> None:
    of_transactions = {"describe_transaction_owners", "prepared_transactions"}
    assert {"describe_clients", "describe_metrics", "remove_named_producers", *of_transactions} <= extensions().keys()
