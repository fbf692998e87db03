"""Names of any length and any characters: every path with such a name works, and every link to it."""

import json
from collections.abc import AsyncIterator, Iterator
from urllib.parse import quote

import pytest
import pytest_asyncio
from console_client import ConsoleClient, console_of
from fencepost.client.admin.admin import Admin
from fencepost.client.admin.values import NewTopic
from fencepost.console.http.parameters import LONGEST_NAME, name_of, segment_of
from fencepost.protocol.messages.offsets import OffsetCommitRequest
from fencepost.protocol.messages.transactions import AddPartitionsToTxnRequest, InitProducerIdRequest, TxnTopic
from hypothesis import given
from hypothesis import strategies as st
from served_broker import ServedBroker

ODD = [
    ".",
    "..",
    "..;",
    ".;;",
    "a\0b",
    "a/b",
    "a%2Fb",
    "a?b#c&d=e+f",
    "..%2f..",
    " ",
    "naïve ☃ 𝄞 \u202e\u0301",
    ":abort",
    "l" * 1_001,
    "☃" * 10_000,
    "x" * 32_000,
]


@pytest.fixture(scope="module")
def broker() -> Iterator[ServedBroker]:
    with ServedBroker() as served:
        yield served


@pytest_asyncio.fixture
async def console(broker: ServedBroker) -> AsyncIterator[ConsoleClient]:
    async with Admin(f"127.0.0.1:{broker.port}") as admin:
        if "t" not in await admin.list_topics():
            await admin.create_topics([NewTopic("t", 1)])
    async with console_of(f"127.0.0.1:{broker.port}") as client:
        client.cluster = (await client.get("/v3/clusters"))["data"][0]["cluster_id"]
        yield client


async def create_transaction_and_group(broker: ServedBroker, name: str) -> None:
    """Begin a transaction with this transactional id, and commit an offset of a group with this name."""
    async with Admin(f"127.0.0.1:{broker.port}") as admin:
        init = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        pair = await admin._ask(("transaction", name), init, lambda r: [r.error_code])
        assert pair.error_code == 0
        identity = {"v3_and_below_producer_id": pair.producer_id, "v3_and_below_producer_epoch": pair.producer_epoch}
        topics = [TxnTopic(name="t", partitions=[0])]
        add = AddPartitionsToTxnRequest(v3_and_below_transactional_id=name, **identity, v3_and_below_topics=topics)
        await admin._ask(("transaction", name), add, lambda _: (), cap=3)
        Topic = OffsetCommitRequest.Topic
        where = [Topic(name="t", partitions=[Topic.Partition(partition_index=0, committed_offset=0)])]
        await admin._ask(("group", name), OffsetCommitRequest(group_id=name, topics=where), lambda _: (), cap=9)


def ids(name: str) -> str:
    return json.dumps(name[:12])


@pytest.mark.parametrize("name", ODD, ids=ids)
async def test_transactions_and_groups_with_any_name_have_a_working_path(
    console: ConsoleClient, broker: ServedBroker, name: str
) -> None:
    await create_transaction_and_group(broker, name)
    path = quote(segment_of(name), safe="")
    row = await console.get(f"transactions/{path}")
    assert (row["transactional_id"], row["is_open"]) == (name, True)
    assert (await console.get(row["metadata"]["self"]))["transactional_id"] == name
    group = await console.get(f"consumer-groups/{path}")
    assert group["consumer_group_id"] == name
    assert (await console.get(group["lags"]["related"]))["data"][0]["topic_name"] == "t"
    body = {"confirm": name, "producer_id": row["producer_id"], "producer_epoch": row["producer_epoch"]}
    status, done = await console.change(f"transactions/{path}:abort", body)
    assert (status, done["transactional_id"]) == (200, name), done


async def test_names_of_any_length_are_listed_in_pages_of_limited_size(
    console: ConsoleClient, broker: ServedBroker
) -> None:
    many = [*ODD, *(f"{'y' * 32_000}{number}" for number in range(12))]
    for name in many:
        await create_transaction_and_group(broker, name)
    await console.wait_for_view()
    for what, field in (("transactions?sort=id", "transactional_id"), ("consumer-groups?", "consumer_group_id")):
        found: list[str] = []
        path: str | None = f"/v3/clusters/{console.cluster}/{what}&page_size=1000"
        while path is not None:
            page = await console.get(path)
            assert len(json.dumps(page)) < 5 << 20
            found += [each[field] for each in page["data"]]
            path = page["metadata"]["next"]
        assert found == sorted(many)
    snapshot = await console.get("/v1/snapshot")
    assert len(json.dumps(snapshot)) < 2 << 20
    assert snapshot["counts"]["open_transactions"] == len(many)


@pytest.mark.parametrize("name", [".", "..", "a\0b", "a/b", "a%2Fb", " ", "t" * 250, "☃", "x" * 32_000], ids=ids)
async def test_an_invalid_topic_name_gets_422_with_a_message_that_has_the_name_once(
    console: ConsoleClient, name: str
) -> None:
    for more in ("", "/partitions", "/configs", "/partitions/0/records", "/partitions/0/timeline"):
        status, _, body = await console.ask(
            "GET", f"/v3/clusters/{console.cluster}/topics/{quote(segment_of(name), safe='')}{more}"
        )
        assert (status, body["error_code"]) == (422, 42201), (more, body)
        assert body["message"]
        assert len(body["message"]) < 40_000, "the longest of these names, once, and a sentence"


async def test_a_path_with_a_name_above_the_longest_allowed_gets_422(console: ConsoleClient) -> None:
    path = f"/v3/clusters/{console.cluster}/transactions/{'x' * (LONGEST_NAME + 1)}"
    status, _, body = await console.ask("GET", path)
    assert (status, body["error_code"]) == (422, 42201)


@given(st.text(alphabet=".;a/") | st.text())
def test_any_name_maps_to_a_path_segment_that_is_not_a_dot_folder_and_back(name: str) -> None:
    assert segment_of(name) not in (".", "..")
    assert name_of(segment_of(name)) == name
