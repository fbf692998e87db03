"""The REST API over a real socket, with a real broker that has topics, groups and open transactions."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from console_client import ConsoleClient, console_of
from fencepost.broker.transactions.deciding import Deciding
from fencepost.broker.transactions.ledger import Item, Proposal
from fencepost.broker.transactions.ledger_log import Preparation
from fencepost.client.admin.admin import Admin
from fencepost.client.admin.values import NewTopic
from fencepost.console.parts import MAX_DOWNLOADS, MAX_READINGS
from fencepost.console.rest import topics
from fencepost.protocol.messages.ledger import PrepareTxnRequest
from served_broker import ServedBroker

import fencepost as fp

HOSTILE = "<img src=x onerror=alert(1)>/../\"'&?#%:abort"


@pytest.fixture(scope="module")
def broker() -> Iterator[ServedBroker]:
    with ServedBroker(group_initial_rebalance_delay_ms=0) as served:
        yield served


@pytest_asyncio.fixture
async def console(broker: ServedBroker) -> AsyncIterator[ConsoleClient]:
    async with Admin(f"127.0.0.1:{broker.port}") as admin:
        names = await admin.list_topics()
        await admin.create_topics([NewTopic(each, 2) for each in ("orders", "payments") if each not in names])
    async with console_of(f"127.0.0.1:{broker.port}") as client:
        client.cluster = (await client.get("/v3/clusters"))["data"][0]["cluster_id"]
        yield client


def opened(broker: ServedBroker, transactional_id: str, *topics: str, count: int = 3) -> Producer:
    """Write `count` records to each topic in a transaction that stays open. Return its producer."""
    producer = Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{broker.port}",
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 60_000,
        }
    )
    producer.init_transactions(10)
    producer.begin_transaction()
    for topic in topics:
        for number in range(count):
            producer.produce(topic, str(number).encode(), partition=0)
    assert producer.flush(10) == 0
    return producer


def committed_offset(broker: ServedBroker, group: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": f"127.0.0.1:{broker.port}", "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


async def test_cluster_broker_and_configs_are_linked_as_in_confluents_rest_api(console: ConsoleClient) -> None:
    found = await console.get("/v3/clusters")
    (cluster,) = found["data"]
    assert (found["kind"], cluster["kind"]) == ("KafkaClusterList", "KafkaCluster")
    assert cluster["metadata"]["self"] == f"/v3/clusters/{console.cluster}"
    assert cluster["fencepost"] is True
    assert (await console.get("/v1/snapshot"))["cluster"]["fencepost_version"] == fp.__version__
    assert await console.get(cluster["metadata"]["self"]) == cluster
    (broker,) = (await console.get(cluster["brokers"]["related"]))["data"]
    assert await console.get(broker["metadata"]["self"]) == broker
    configs = await console.get(broker["configs"]["related"])
    assert {"name", "value", "is_default", "is_read_only", "is_sensitive", "source"} <= set(configs["data"][0])


async def test_requests_for_unknown_resources_get_404_with_error_code_40403(console: ConsoleClient) -> None:
    for path in (
        "/v3/clusters/other",
        "/v3/clusters/other/topics",
        "brokers/99",
        "topics/nobody",
        "topics/orders/partitions/9",
        "topics/orders/configs/nothing",
        "consumer-groups/nobody",
        "consumer-groups/nobody/lags",
        "transactions/nobody",
    ):
        whole = path if path.startswith("/") else f"/v3/clusters/{console.cluster}/{path}"
        status, _, body = await console.ask("GET", whole)
        assert (status, body["error_code"]) == (404, 40403), (path, body)


async def test_rest_lists_topics_in_pages_or_by_a_part_of_their_name_in_any_case(
    console: ConsoleClient, broker: ServedBroker
) -> None:
    first = await console.get("topics?page_size=1")
    assert [each["topic_name"] for each in first["data"]] == ["orders"]
    assert first["total"] == 2
    second = await console.get(first["metadata"]["next"])
    assert [each["topic_name"] for each in second["data"]] == ["payments"]
    assert second["metadata"]["next"] is None
    assert [each["topic_name"] for each in (await console.get("topics?contains=PAY"))["data"]] == ["payments"]
    assert (await console.get("topics/orders"))["partitions_count"] == 2
    configs = await console.get("topics/orders/configs")
    assert (await console.get("topics/orders/configs/retention.ms"))["name"] == "retention.ms"
    assert configs["data"][0]["topic_name"] == "orders"


@pytest.mark.parametrize(
    "query",
    [
        "page_size=0",
        "page_size=1001",
        "page_size=x",
        "page_token=zzz",
        "page_token=W10x",
        "internal=1",
        "contains=" + "x" * 201,
    ],
)
async def test_an_invalid_query_parameter_gets_422_with_its_name_in_the_message(
    console: ConsoleClient, query: str
) -> None:
    status, _, body = await console.ask("GET", f"/v3/clusters/{console.cluster}/topics?{query}")
    assert (status, body["error_code"]) == (422, 42201)
    assert query.partition("=")[0] in body["message"]


async def test_a_partition_whose_lso_lags_is_shown_as_blocked_with_its_transaction(
    console: ConsoleClient, broker: ServedBroker
) -> None:
    """Each list that shows the partition, its transaction or its group says so, and so does the snapshot."""
    before = (await console.get("topics/orders/partitions/0"))["high_watermark"]
    committed_offset(broker, "waiting", "orders", before)
    producer = opened(broker, "holder", "orders", "payments")
    try:
        await console.wait_for_view()
        found = await console.get("topics/orders/partitions")
        held, free = found["data"]
        assert (held["last_stable_offset"], held["high_watermark"], held["blocked"]) == (before, before + 3, True)
        assert free["blocked"] is False
        (row,) = [each for each in (await console.get("blockers"))["data"] if each["topic_name"] == "orders"]
        assert (row["transactional_id"], row["state"], row["hangs"], row["waiting"]) == ("holder", "Ongoing", False, 3)
        assert row["also_in"] == [{"topic_name": "payments", "partition_id": 0}]
        assert row["groups"] == [
            {"consumer_group_id": "waiting", "current_offset": before, "lag_to_stable": 0, "would_wait": True}
        ]
        assert "holder" in row["sentence"]
        assert 0 <= row["timeout_share"] < 1
        snapshot = await console.get("/v1/snapshot")
        assert snapshot["counts"]["blocked_partitions"] == 2
        assert snapshot["open_transactions"][0]["blocks"]["groups"] == 1
        (producers,) = (await console.get("topics/orders/partitions/0/producers"))["data"]
        assert (producers["transactional_id"], producers["transaction_start_offset"]) == ("holder", before)
        lag = (await console.get("consumer-groups/waiting/lags"))["data"][0]
        assert (lag["lag"], lag["lag_to_stable"], lag["blocked"]) == (3, 0, True)
        assert await console.get(lag["metadata"]["self"]) == lag
        summary = await console.get("consumer-groups/waiting/lag-summary")
        assert (summary["total_lag"], summary["total_lag_to_stable"], summary["max_lag_topic_name"]) == (3, 0, "orders")
        (group,) = (await console.get("consumer-groups?contains=wait"))["data"]
        assert group["lag"]["to_high_watermark"] == 3
    finally:
        producer.abort_transaction(10)


async def test_group_members_are_listed_under_consumers_with_their_assignments(
    console: ConsoleClient, broker: ServedBroker
) -> None:
    consumer = Consumer({"bootstrap.servers": f"127.0.0.1:{broker.port}", "group.id": "members", "client.id": "reader"})
    consumer.subscribe(["orders"])
    try:
        until = time.monotonic() + 20
        while not consumer.assignment() and time.monotonic() < until:
            consumer.poll(0.1)
        (member,) = (await console.get("consumer-groups/members/consumers"))["data"]
        assert (member["client_id"], len(member["assignments"])) == ("reader", 2)
        assert await console.get(member["metadata"]["self"]) == member
        found = await console.get("consumer-groups/members")
        assert (found["state"], found["members"], found["is_simple"]) == ("Stable", 1, False)
    finally:
        consumer.close()


async def test_open_transactions_are_listed_oldest_first_and_can_be_filtered(
    console: ConsoleClient, broker: ServedBroker
) -> None:
    names = ["first", "second", HOSTILE]
    producers = [opened(broker, name, "orders", count=1) for name in names]
    try:
        await console.wait_for_view()
        found = await console.get("transactions?open=true")
        assert [each["transactional_id"] for each in found["data"]] == names
        assert {(each["state"], len(each["transaction_id"])) for each in found["data"]} == {("Ongoing", 32)}
        for each in found["data"]:
            one = await console.get(each["metadata"]["self"])
            assert all(one[name] == each[name] for name in ("transactional_id", "transaction_id"))
            assert one["timeout_ms"] == 60_000
            assert one["partitions"] == [{"topic_name": "orders", "partition_id": 0}]
        paged = await console.get("transactions?open=true&page_size=2")
        rest = await console.get(paged["metadata"]["next"])
        assert [each["transactional_id"] for each in paged["data"] + rest["data"]] == names
        assert (await console.get("transactions?open=true&contains=sec"))["total"] == 1
        assert (await console.get("transactions?older_than_ms=3600000"))["total"] == 0
        assert (await console.get("transactions?state=prepareabort"))["total"] == 0
        assert (await console.get("transactions:hanging"))["data"] == []
    finally:
        for each in producers:
            each.abort_transaction(10)


async def test_clients_are_listed_and_a_transactions_owner_is_shown_on_fencepost(
    console: ConsoleClient, broker: ServedBroker
) -> None:
    producer = opened(broker, "owned", "orders", count=1)
    owner = (await console.get("transactions/owned"))["owner"]
    assert (owner["client_id"], owner["host"], owner["connected"]) == ("rdkafka", "127.0.0.1", True)
    found = await console.get("clients?contains=RDKAFKA")
    assert found["data"][0]["kind"] == "KafkaClient"
    assert found["data"][0]["requests"] > 0
    assert (await console.get("clients?contains=nobody"))["total"] == 0
    producer.abort_transaction(10)


async def test_ending_a_prepared_transaction_gets_409_unless_it_names_sink_and_batch(
    console: ConsoleClient, broker: ServedBroker
) -> None:
    async with Admin(f"127.0.0.1:{broker.port}") as admin:
        opened(broker, "prepared", "orders")
        body = await seen(console, "prepared")
        answer = await admin._ask(
            ("transaction", "prepared"),
            PrepareTxnRequest(
                transactional_id="prepared",
                producer_id=body["producer_id"],
                producer_epoch=body["producer_epoch"],
                ledger_key="the sink",
                number=17,
            ),
            lambda _: (),
        )
        assert answer.error_code == 0, answer
    wants = {"sink": "the sink", "batch": 17}
    for more in ({}, {"confirm_prepared": {**wants, "batch": 16}}):
        for change in ("abort", "fence"):
            status, refused = await console.change(f"transactions/prepared:{change}", {**_body(change, body), **more})
            assert (status, refused["error_code"]) == (409, 40902), refused
            assert refused["prepared"] == {**wants, "query": None, "held": False}
    await console.wait_for_view()
    (row,) = [each for each in (await console.get("blockers"))["data"] if each["transactional_id"] == "prepared"]
    assert row["prepared"]["sink"] == "the sink"
    assert "batch 17" in row["sentence"]
    status, done = await console.change("transactions/prepared:abort", {**body, "confirm_prepared": wants})
    assert (status, done["done"]) == (200, "aborted"), done
    assert not (await console.get("transactions/prepared"))["is_open"]


async def test_ending_a_transaction_held_for_a_ledger_decision_gets_409(
    console: ConsoleClient, broker: ServedBroker
) -> None:
    opened(broker, "held", "orders")
    body = await seen(console, "held")
    item = Item("held", body["producer_id"], body["producer_epoch"])
    waits = Preparation(item, "sql:db:held", 17, 60_000, hold=True)
    assert not broker.inside(lambda inside: inside.ledger.prepare(waits)).error
    for change in ("abort", "fence"):
        confirmed = {**_body(change, body), "confirm_prepared": {"sink": "sql:db:held", "batch": 17}}
        status, refused = await console.change(f"transactions/held:{change}", confirmed)
        assert (status, "decision 17 of database db" in refused["message"]) == (409, True), refused
    await console.wait_for_view()
    (row,) = [each for each in (await console.get("blockers"))["data"] if each["transactional_id"] == "held"]
    assert row["prepared"]["held"]
    proposal = Proposal("sql:db:held", 17, "", b"", False, False, (item,))
    broker.inside(lambda inside: Deciding(inside.ledger, proposal).finish())
    assert not (await console.get("transactions/held"))["is_open"]


def _body(change: str, seen: dict[str, Any]) -> dict[str, Any]:
    return seen if change == "abort" else {"confirm": seen["confirm"]}


async def test_rest_returns_records_and_single_values_and_the_timeline_of_a_partition(
    console: ConsoleClient, broker: ServedBroker
) -> None:
    producer = opened(broker, "seen", "payments", count=1)
    producer.commit_transaction(10)
    page = await console.get("topics/payments/partitions/0/records?last=2")
    assert page["data"][0]["transactional_id"] == "seen"
    offset = page["data"][0]["offset"]
    path = f"/v3/clusters/{console.cluster}/topics/payments/partitions/0/records/{offset}/value"
    status, headers, body = await console.ask("GET", path)
    assert (status, body, headers["Content-Type"]) == (200, b"0", "application/octet-stream")
    assert headers["Content-Disposition"].startswith("attachment;")
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert (await console.get("topics/payments/partitions/0/timeline"))["blocks"]


# ---- changes -------------------------------------------------------------------------------------------------------


async def seen(console: ConsoleClient, name: str) -> dict[str, Any]:
    """Return the body of a request to abort this transaction, as somebody sends it who sees the transaction now."""
    found = await console.get("transactions/" + name)
    return {
        "confirm": found["transactional_id"],
        "producer_id": found["producer_id"],
        "producer_epoch": found["producer_epoch"],
    }


async def test_record_reads_above_the_limit_wait_in_a_queue_and_all_are_answered(
    console: ConsoleClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = most = 0

    async def read(*_: Any, **__: Any) -> dict[str, Any]:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.05)
        now -= 1
        return {}

    monkeypatch.setattr(topics.browsing, "browse", read)
    monkeypatch.setattr(topics.timelines, "read", read)
    paths = ["topics/orders/partitions/0/records", "topics/orders/partitions/0/timeline"] * MAX_READINGS
    assert await asyncio.gather(*(console.get(each) for each in paths)) == [{}] * len(paths)
    assert most == MAX_READINGS


async def test_concurrent_value_downloads_are_limited_in_number_and_duration(
    console: ConsoleClient, broker: ServedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def large(*_: Any) -> bytes:
        return bytes(32 << 20)

    producer = opened(broker, "large-values", "orders")
    producer.commit_transaction(10)
    monkeypatch.setattr(topics.browsing, "raw", large)
    monkeypatch.setattr(topics, "DOWNLOAD_S", 3.0)
    path = f"/v3/clusters/{console.cluster}/topics/orders/partitions/0/records/0/value"
    port = int(console.base.rpartition(":")[2].strip("/"))
    silent = []
    for _ in range(MAX_DOWNLOADS):
        # With a small buffer: a reader that takes no more makes the download wait.
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        silent.append(writer)
    status, _, answer = await console.ask("GET", path)
    assert (status, answer["error_code"]) == (429, 42901)
    for _ in range(150):  # the downloads that nobody reads are ended after DOWNLOAD_S, and then there is room again
        status, _, _ = await console.ask("GET", path)
        if status == 200:
            break
        await asyncio.sleep(0.2)
    assert status == 200
    for writer in silent:
        writer.close()


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the log lines about changes. Each of them must say who asked for the change; that is cut off."""
    lines = [each.getMessage() for each in caplog.records if each.name.endswith("rest.actions")]
    who = ", by a browser or script at 127.0.0.1"
    assert all(each.endswith(who) for each in lines)
    return [each.removesuffix(who) for each in lines]


async def test_aborting_an_open_transaction_needs_its_identity_and_fences_its_producer(
    console: ConsoleClient, broker: ServedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """A wrong confirmation gets 422, another epoch or an ended transaction 409; the log names the abort."""
    producer = opened(broker, "to-abort", "orders")
    body = await seen(console, "to-abort")
    for wrong in ({**body, "confirm": "other"}, {"confirm": "to-abort"}, {**body, "producer_id": "1"}):
        assert (await console.change("transactions/to-abort:abort", wrong))[0] == 422
    status, answer = await console.change("transactions/to-abort:abort", {**body, "producer_epoch": 9})
    assert (status, answer["error_code"]) == (409, 40901)
    status, answer = await console.change("transactions/to-abort:abort", body)
    assert (status, answer["done"]) == (200, "aborted")
    assert answer["next_epoch"] > body["producer_epoch"]
    ends = ", asked for", f", epochs before {answer['next_epoch']} are refused"
    assert logged(caplog) == [f"aborted: transactional id 'to-abort'{end}" for end in ends]
    with pytest.raises(KafkaException):
        producer.commit_transaction(10)
    partition = await console.get("topics/orders/partitions/0")
    assert partition["last_stable_offset"] == partition["high_watermark"]
    status, answer = await console.change("transactions/to-abort:abort", await seen(console, "to-abort"))
    assert (status, answer["error_code"]) == (409, 40901)


async def test_an_abort_meant_for_an_earlier_transaction_of_the_id_gets_409(
    console: ConsoleClient, broker: ServedBroker
) -> None:
    producer = opened(broker, "goes-on", "orders")
    body = {**await seen(console, "goes-on"), "started_ms": (await console.get("transactions/goes-on"))["started_ms"]}
    producer.commit_transaction(10)
    await asyncio.sleep(0.01)  # so that the next one does not begin in the same millisecond
    producer.begin_transaction()
    producer.produce("orders", b"later")
    assert producer.flush(10) == 0
    status, answer = await console.change("transactions/goes-on:abort", body)
    assert (status, answer["error_code"]) == (409, 40901)
    found = await console.get("transactions/goes-on")
    now = {**body, "producer_epoch": found["producer_epoch"], "started_ms": found["started_ms"]}
    assert now["started_ms"] > body["started_ms"]
    assert (await console.change("transactions/goes-on:abort", now))[0] == 200


async def test_fencing_needs_the_id_confirmed_and_an_unknown_id_gets_404_and_is_not_made(
    console: ConsoleClient, broker: ServedBroker
) -> None:
    producer = opened(broker, "to-fence", "orders")
    producer.commit_transaction(10)
    assert (await console.change("transactions/to-fence:fence", {"confirm": "never"}))[0] == 422
    status, answer = await console.change("transactions/to-fence:fence", {"confirm": "to-fence"})
    assert (status, answer["done"]) == (200, "fenced")
    assert (await console.change("transactions/never:fence", {"confirm": "never"}))[0] == 404
    async with Admin(f"127.0.0.1:{broker.port}") as admin:
        assert await admin.describe_transactions("never") == {}


async def test_a_change_with_a_wrong_csrf_token_type_or_origin_changes_nothing(
    console: ConsoleClient, broker: ServedBroker
) -> None:
    producer = opened(broker, "kept", "orders")
    body = await seen(console, "kept")
    assert (await console.change("transactions/kept:abort", body, **{"X-CSRF-Token": "wrong"}))[0] == 403
    assert (await console.change("transactions/kept:abort", body, **{"Content-Type": "text/plain"}))[0] == 415
    assert (await console.change("transactions/kept:abort", body, Origin="http://evil.example"))[0] == 403
    assert (await console.get("transactions/kept"))["is_open"]
    producer.abort_transaction(10)


async def test_a_read_only_console_changes_nothing(console: ConsoleClient, broker: ServedBroker) -> None:
    producer = opened(broker, "read-only", "orders")
    async with console_of(f"127.0.0.1:{broker.port}", changes_allowed=False, changes_hint="say so") as reading:
        reading.cluster = console.cluster
        status, answer = await reading.change("transactions/read-only:abort", await seen(console, "read-only"))
        assert (status, answer["error_code"], answer["hint"]) == (403, 40301, "say so")
    assert (await console.get("transactions/read-only"))["is_open"]
    producer.abort_transaction(10)


async def test_abort_hanging_is_refused_for_a_transaction_its_coordinator_knows(
    console: ConsoleClient, broker: ServedBroker
) -> None:
    console.console.parts.hangs_after_ms = 0
    producer = opened(broker, "known", "orders")
    (row,) = [
        each
        for each in (await console.get("topics/orders/partitions/0/producers"))["data"]
        if each["transaction_start_offset"] is not None
    ]
    body = {
        "confirm": "orders-0",
        "start_offset": row["transaction_start_offset"],
        "producer_id": row["producer_id"],
        "producer_epoch": row["producer_epoch"],
    }
    status, answer = await console.change("topics/orders/partitions/0:abort-hanging", body)
    assert (status, answer["error_code"]) == (409, 40901)
    assert (await console.get("transactions/known"))["is_open"]
    producer.abort_transaction(10)


async def test_abort_hanging_ends_a_transaction_that_no_coordinator_knows(
    console: ConsoleClient, broker: ServedBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A request that names another offset, epoch or partition changes nothing."""

    async def nobody(*_: Any) -> dict[int, Any]:
        return {}

    monkeypatch.setattr(Admin, "_owners", nobody)
    console.console.parts.hangs_after_ms = 0
    opened(broker, "forgotten", "payments")
    (row,) = (await console.get("transactions:hanging?older_than_ms=0"))["data"]
    body = {name: row[name] for name in ("start_offset", "producer_id", "producer_epoch")}
    body |= {"confirm": "payments-0"}
    path = "topics/payments/partitions/0:abort-hanging"
    for wrong in ({"start_offset": row["start_offset"] + 1}, {"producer_epoch": 99}):
        assert (await console.change(path, {**body, **wrong}))[0] == 409
    assert (await console.change(path, {**body, "confirm": "payments-1"}))[0] == 422
    assert logged(caplog) == []
    status, answer = await console.change(path, body)
    assert (status, answer["done"], answer["transactional_id"]) == (200, "aborted", None)
    line = f"aborted by a marker: the transaction in 'payments-0' from offset {row['start_offset']}"
    assert logged(caplog) == [f"{line}, asked for", line]
    partition = await console.get("topics/payments/partitions/0")
    assert not partition["blocked"]
    assert (await console.change(path, body))[0] == 409
