"""The console of a Kafka broker that is not fencepost: what only fencepost has is absent, and nothing is guessed.

kafka_offers.json is what Apache Kafka answered to ApiVersions. Clients use nothing else of a fencepost broker that
answers so, and therefore these tests need no Kafka. With KAFKA=HOST:PORT they run with that broker too, and compare its
answer with the recorded one.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from confluent_kafka import KafkaException
from console_client import ConsoleClient, console_of
from console_story import FATES, Story
from fencepost.client.admin.admin import Admin
from fencepost.client.net.versions import OWN_FEATURE
from fencepost.protocol.messages.cluster import ApiVersionsRequest, ApiVersionsResponse
from odd_answers import answered
from playwright.sync_api import expect, sync_playwright
from served_broker import ServedBroker
from served_console import NO_CHROMIUM, ServedConsole, find_chromium
from wire_client import WireClient

OFFERS = json.loads((Path(__file__).parent / "kafka_offers.json").read_text())
KAFKA = os.environ.get("KAFKA", "")
no_kafka = pytest.mark.skipif(not KAFKA, reason="no Apache Kafka is given: KAFKA=HOST:PORT")
pytestmark = pytest.mark.slow

expect.set_options(timeout=30_000)


def as_kafka(_: Any) -> ApiVersionsResponse:
    """Answer ApiVersions as Apache Kafka did (kafka_offers.json)."""
    Key, Feature = ApiVersionsResponse.ApiKey, ApiVersionsResponse.FinalizedFeature
    versions = OFFERS["versions"].items()
    return ApiVersionsResponse(
        api_keys=[Key(api_key=int(key), min_version=low, max_version=high) for key, (low, high) in versions],
        finalized_features_epoch=1,
        finalized_features=[
            Feature(name=name, max_version_level=level, min_version_level=1)
            for name, level in OFFERS["features"].items()
        ],
    )


@pytest.fixture(scope="module", params=["recorded", pytest.param("running", marks=no_kafka)])
def servers(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "running":
        yield KAFKA
        return
    with ServedBroker(group_initial_rebalance_delay_ms=0) as broker:
        broker.inside(lambda inside: inside.intercept(answered("ApiVersions", as_kafka, times=10_000)))
        yield f"127.0.0.1:{broker.port}"


@pytest.fixture(scope="module")
def run() -> str:
    """A text that all names of this run contain, because a Kafka that is given still has the names of earlier runs."""
    return f"c{os.getpid()}"


@pytest.fixture(scope="module")
def story(servers: str, run: str) -> Iterator[Story]:
    told = Story(servers)
    told.tell(f"{run}-story")
    reader = told.read(f"{run}-billing", f"{run}-story", 2)
    yield told
    reader.close()
    for each in told.open.values():
        each.abort_transaction()


@pytest_asyncio.fixture
async def console(servers: str, story: Story) -> AsyncIterator[ConsoleClient]:
    async with console_of(servers) as client:
        client.cluster = (await client.get("/v3/clusters"))["data"][0]["cluster_id"]
        yield client


@no_kafka
def test_kafka_gives_the_recorded_api_versions_answer() -> None:
    host, _, port = KAFKA.rpartition(":")
    with WireClient(host, int(port)) as client:
        found = client.call(ApiVersionsRequest(client_software_name="test", client_software_version="1"), version=3)
    assert {str(each.api_key): [each.min_version, each.max_version] for each in found.api_keys} == OFFERS["versions"]
    assert {each.name: each.max_version_level for each in found.finalized_features} == OFFERS["features"]


async def test_for_a_kafka_broker_the_console_has_no_clients_owners_or_fencepost_metrics(
    console: ConsoleClient,
) -> None:
    (cluster,) = (await console.get("/v3/clusters"))["data"]
    assert cluster["fencepost"] is False
    assert OWN_FEATURE not in cluster["features"]
    snapshot = await console.get("/v1/snapshot")
    assert (snapshot["cluster"]["fencepost"], snapshot["cluster"]["fencepost_version"]) == (False, None)
    assert snapshot["missing"] == []
    status, _, body = await console.ask("GET", f"/v3/clusters/{console.cluster}/clients")
    assert (status, body["error_code"]) == (501, 50101)
    assert (await console.get("transactions/holder"))["owner"] is None
    metrics = (await console.ask("GET", "/metrics"))[2].decode()
    assert "kafka_topic_partition_current_offset{" in metrics
    assert "fencepost_requests_total" not in metrics


async def test_records_timeline_and_blocker_of_a_topic_on_kafka_are_shown(console: ConsoleClient, run: str) -> None:
    topic = f"topics/{run}-story"
    page = await console.get(f"{topic}/partitions/0/records?offset=0")
    while page["high_watermark"] < len(FATES):  # Kafka writes a marker after it has answered a commit
        await asyncio.sleep(0.05)
        page = await console.get(f"{topic}/partitions/0/records?offset=0")
    states = [each["state"] for each in page["data"]]
    assert states[:6] == FATES[:6]
    assert sorted(states) == sorted(FATES)  # the last marker may come after the record that was written last
    assert (page["last_stable_offset"], page["high_watermark"]) == (5, 9)
    timeline = await console.get(f"{topic}/partitions/0/timeline?from=0")
    assert [each["base_offset"] for each in timeline["blocks"]] == list(range(9))
    await console.wait_for_view()
    (blocker,) = [each for each in (await console.get("blockers"))["data"] if each["topic_name"] == f"{run}-story"]
    assert (blocker["transactional_id"], blocker["waiting"], blocker["hangs"]) == ("holder", 4, False)
    group = await console.get(f"consumer-groups/{run}-billing")
    assert group["lag"]["partitions"] == 1  # its member has read from one alone
    assert (await console.get(f"{topic}/configs/cleanup.policy"))["value"] == "delete"


async def test_a_transaction_is_aborted_and_its_producer_fenced(
    console: ConsoleClient, story: Story, servers: str, run: str
) -> None:
    story.hold(f"{run}-to-end", f"{run}-story")
    row = await console.get(f"transactions/{run}-to-end")
    body = {"confirm": f"{run}-to-end", "producer_id": row["producer_id"], "producer_epoch": row["producer_epoch"]}
    status, done = await console.change(f"transactions/{run}-to-end:abort", body)
    assert (status, done["done"]) == (200, "aborted"), done
    assert done["next_epoch"] > row["producer_epoch"]
    async with Admin(servers) as admin:
        assert not (await admin.describe_transactions(f"{run}-to-end"))[f"{run}-to-end"].is_open
    with pytest.raises(KafkaException) as refused:
        story.open.pop(f"{run}-to-end").commit_transaction(30)
    assert refused.value.args[0].fatal()


@pytest.mark.skipif(find_chromium() is None, reason=NO_CHROMIUM)
def test_pages_for_a_kafka_broker_hide_clients_and_owners_and_show_no_error(
    servers: str, story: Story, run: str
) -> None:
    with ServedConsole(int(servers.rpartition(":")[2])) as console, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium())
        page = browser.new_page()
        complaints: list[str] = []
        page.on("pageerror", lambda error: complaints.append(str(error)))
        for where in ("", "topics", f"topics/{run}-story/timeline", "groups", "transactions", "settings"):
            page.goto(f"{console.url}#/{where}")
            expect(page.locator("main")).to_have_attribute("data-shown", f"#/{where}")
            expect(page.locator(".problem")).to_have_count(0)
        expect(page.locator("#nav a", has_text="Clients")).to_have_count(0)
        expect(page.locator("#nav a", has_text="Settings")).to_have_count(1)
        page.goto(f"{console.url}#/transactions/holder")
        expect(page.locator(".facts")).to_contain_text("Coordinator")
        expect(page.locator(".facts")).not_to_contain_text("Owner")
        page.goto(f"{console.url}#/clients")
        expect(page.locator(".empty")).to_contain_text("does not say who is connected")
        browser.close()
        assert complaints == []
