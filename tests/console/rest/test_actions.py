"""Changes whose moment matters: what happens between the check of a transaction and its end."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
import pytest_asyncio
from acl_client import guarded, rule
from console_client import ConsoleClient, console_of
from fencepost.broker.security.acl_records import acl_added, acl_removed
from fencepost.client.admin.admin import Admin
from fencepost.client.admin.values import NewTopic
from fencepost.protocol.messages.transactions import InitProducerIdRequest
from served_broker import ServedBroker
from wire_client import WireClient

import fencepost as fp


@pytest.fixture(scope="module")
def broker() -> Iterator[ServedBroker]:
    with ServedBroker(group_initial_rebalance_delay_ms=0, transaction_two_phase_commit_enable=True) as served:
        yield served


@pytest_asyncio.fixture
async def console(broker: ServedBroker) -> AsyncIterator[ConsoleClient]:
    async with Admin(f"127.0.0.1:{broker.port}") as admin:
        if "orders" not in await admin.list_topics():
            await admin.create_topics([NewTopic("orders", 1)])
    async with console_of(f"127.0.0.1:{broker.port}") as client:
        client.cluster = (await client.get("/v3/clusters"))["data"][0]["cluster_id"]
        yield client


async def seen(console: ConsoleClient, name: str) -> dict[str, Any]:
    row = await console.get(f"transactions/{name}")
    return {"confirm": name, **{each: row[each] for each in ("producer_id", "producer_epoch", "started_ms")}}


def between(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], Awaitable[None]]) -> None:
    """Call `happens` after the check of each transaction, just before InitProducerId is sent."""
    ask = Admin._init_producer_id

    async def later(self: Admin, *about: Any) -> Any:
        await happens()
        return await ask(self, *about)

    monkeypatch.setattr(Admin, "_init_producer_id", later)


@pytest.mark.parametrize("change", ["abort", "fence"])
async def test_abort_and_fence_do_not_end_a_transaction_that_begins_after_the_check(
    console: ConsoleClient, broker: ServedBroker, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    async with fp.Producer(f"127.0.0.1:{broker.port}", transactional_id=f"late-{change}") as producer:
        await producer.begin_transaction()
        await producer.send("orders", b"seen")
        await producer.flush()
        body = await seen(console, f"late-{change}")

        async def next_transaction() -> None:
            await producer.commit_transaction()
            await producer.begin_transaction()
            await producer.send("orders", b"later")
            await producer.flush()

        between(monkeypatch, next_transaction)
        body = body if change == "abort" else {"confirm": body["confirm"]}
        status, answer = await console.change(f"transactions/late-{change}:{change}", body)
        assert (status, answer["error_code"]) == (409, 40901), answer
        assert "another producer id or epoch" in answer["message"]
        assert (await console.get(f"transactions/late-{change}"))["state"] == "Ongoing"
        await producer.commit_transaction()  # nobody has fenced it


async def test_aborting_does_not_fence_a_producer_that_restarts_after_the_check(
    console: ConsoleClient, broker: ServedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = f"127.0.0.1:{broker.port}"
    first, second = (fp.Producer(servers, transactional_id="restarted") for _ in range(2))
    try:
        await first.start()
        await first.begin_transaction()
        await first.send("orders", b"left open")
        await first.flush()
        body = await seen(console, "restarted")

        async def restart() -> None:
            await second.start()
            await second.begin_transaction()
            await second.send("orders", b"of the new one")
            await second.flush()

        between(monkeypatch, restart)
        status, answer = await console.change("transactions/restarted:abort", body)
        assert (status, answer["error_code"]) == (409, 40901), answer
        await second.commit_transaction()
    finally:
        await second.close()
        await first.close()


async def test_a_two_phase_transactional_id_can_be_fenced(console: ConsoleClient, broker: ServedBroker) -> None:
    """Its transactions have the timeout 2^31-1, which brokers refuse from other producers (KIP-939)."""
    request = InitProducerIdRequest(transactional_id="two-phase", transaction_timeout_ms=1, enable2_pc=True)
    async with Admin(f"127.0.0.1:{broker.port}") as admin:
        with WireClient("127.0.0.1", broker.port) as client:  # ApiVersions lists no version with enable2_pc
            answer = client.call(request, version=6)
        assert answer.error_code == 0
        found = (await admin.describe_transactions("two-phase"))["two-phase"]
        assert found.timeout_ms == 0x7FFFFFFF
        assert (await admin.fence_producers("two-phase"))["two-phase"].epoch == answer.producer_epoch + 1
        status, done = await console.change("transactions/two-phase:fence", {"confirm": "two-phase"})
        assert (status, done["next_epoch"]) == (200, answer.producer_epoch + 2), done


async def test_changing_a_transaction_that_an_acl_denies_gets_403_naming_the_right() -> None:
    """The overview cannot show this: it asks for rights to all names, not to single ones."""
    rights = ["ALL TOPIC = *", "ALL TRANSACTIONAL_ID = *", "DESCRIBE CLUSTER = kafka-cluster"]
    rules = [rule(f"allow User:ANONYMOUS {each}") for each in rights]
    settings = {"authorizer_class_name": guarded().authorizer_class_name, "super_users": "User:root"}
    with ServedBroker(**settings) as broker:
        servers = f"127.0.0.1:{broker.port}"
        broker.inside(lambda inside: inside.security_log.commit([acl_added(each) for each in rules]))
        async with Admin(servers) as admin:
            await admin.create_topics([NewTopic("orders", 1)])
        async with fp.Producer(servers, transactional_id="precious") as producer, console_of(servers) as console:
            console.cluster = (await console.get("/v3/clusters"))["data"][0]["cluster_id"]
            await producer.begin_transaction()
            await producer.send("orders", b"held")
            await producer.flush()
            body = await seen(console, "precious")
            denied = acl_added(rule("deny User:ANONYMOUS WRITE TRANSACTIONAL_ID = precious"))
            broker.inside(lambda inside: inside.security_log.commit([denied]))
            assert (await console.get("/v1/snapshot"))["missing"] == []
            for change in ("abort", "fence"):
                wanted = body if change == "abort" else {"confirm": "precious"}
                status, answer = await console.change(f"transactions/precious:{change}", wanted)
                assert (status, answer["error_code"]) == (403, 40303), answer
                assert "nothing has changed" in answer["message"]
                assert "Write on transactional id precious" in answer["hint"]
            hanging = {**body, "confirm": "orders-0", "start_offset": 0}
            del hanging["started_ms"]
            console.console.parts.hangs_after_ms = 0
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(Admin, "_owners", _nobody)
                status, answer = await console.change("topics/orders/partitions/0:abort-hanging", hanging)
            assert (status, answer["error_code"]) == (403, 40303), answer
            assert "ClusterAction" in answer["hint"]
            removed = acl_removed(rule("deny User:ANONYMOUS WRITE TRANSACTIONAL_ID = precious"))
            broker.inside(lambda inside: inside.security_log.commit([removed]))
            await producer.abort_transaction()


async def _nobody(*_: Any) -> dict[int, Any]:
    return {}
