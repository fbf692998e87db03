"""/metrics: kafka_exporter's names of any Kafka, and a fencepost broker's own; read by Prometheus' parser."""

import asyncio

import pytest
from acl_client import guarded
from capped_broker import cap
from console_client import TOKEN, console_of
from fencepost.broker.requests.exported_metrics import FAMILIES
from fencepost.client.admin.admin import Admin
from fencepost.console import metrics
from fencepost.console.metrics import READ, Scraper, metrics_text
from prometheus_client.parser import text_string_to_metric_families
from served_broker import ServedBroker

import fencepost as fp

OFFSETS_PARTITIONS = 50  # of __consumer_offsets, for which MAX_BYTES leaves no room either

Found = dict[str, dict[tuple[str, ...], float]]


def parsed(text: bytes) -> Found:
    """Parse the metrics. Returns each value by the sample's name, then by the values of its labels."""
    found: Found = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            labels = sorted(sample.labels.items(), key=lambda item: item[0] == "partition")  # its value comes last
            found.setdefault(sample.name, {})[tuple(value for _, value in labels)] = sample.value
    return found


async def scraped(broker: ServedBroker) -> Found:
    async with Admin(f"127.0.0.1:{broker.port}") as admin:
        return parsed(await metrics_text(admin))


async def something_happened(broker: ServedBroker) -> None:
    """Write three records to the topic orders. The group billing has committed offset 1 there."""
    at = f"127.0.0.1:{broker.port}"
    async with fp.Admin(at) as admin:
        await admin.create_topics(fp.NewTopic("orders", num_partitions=1))
        await admin.alter_group_offsets("billing", {fp.TopicPartition("orders", 0): 1})
    async with fp.Producer(at) as producer:
        for _ in range(3):
            await producer.send_and_wait("orders", b"v")


async def test_metrics_have_the_names_of_kafka_exporter_and_show_an_open_transaction() -> None:
    with ServedBroker() as broker:
        await something_happened(broker)
        at = f"127.0.0.1:{broker.port}"
        async with fp.Producer(at, transactional_id="open-1") as producer, producer.transaction() as tx:
            for _ in range(3):
                await tx.send_and_wait("orders", b"w")
            found = await scraped(broker)
    assert found["kafka_brokers"] == {(): 1}
    assert found["kafka_topic_partitions"][("orders",)] == 1
    here, group = ("orders", "0"), ("billing", "orders", "0")
    assert found["kafka_topic_partition_current_offset"][here] == 6
    assert found["kafka_topic_partition_oldest_offset"][here] == 0
    assert found["fencepost_partition_last_stable_offset"][here] == 3
    assert found["kafka_consumergroup_current_offset"][group] == 1
    assert found["kafka_consumergroup_lag"][group] == 5
    assert found["fencepost_consumergroup_lag_stable"][group] == 2
    assert found["kafka_consumergroup_lag_sum"][("billing", "orders")] == 5
    assert found["fencepost_transactions"] == {("Ongoing",): 1}
    assert found["fencepost_produce_records_total"][("orders",)] == 6
    assert found["fencepost_fsync_duration_seconds_count"][()] > 0
    assert (
        found["fencepost_fsync_duration_seconds_bucket"][("+Inf",)]
        == found["fencepost_fsync_duration_seconds_count"][()]
    )
    assert set(found["fencepost_scrape_errors"].values()) == {0}


async def test_the_lag_metric_of_a_share_group_counts_the_records_it_has_not_done() -> None:
    with ServedBroker() as broker:
        at = f"127.0.0.1:{broker.port}"
        async with Admin(at) as admin, fp.Producer(at) as producer:
            await admin.create_topics(fp.NewTopic("jobs", num_partitions=1))
            queue = fp.ShareConsumer(at, topics=["jobs"], group_id="packing", auto_offset_reset="earliest")
            async with queue:
                for _ in range(5):
                    await producer.send_and_wait("jobs", b"v")
                held = []
                while len(held) < 5:
                    held += await queue.getmany(timeout_ms=5_000)
                queue.acknowledge(held[3])  # the records before it are not done, so the start offset stays
                await queue.commit()
                found = await scraped(broker)
    group = ("packing", "jobs", "0")
    assert found["kafka_consumergroup_current_offset"][group] == 0
    assert found["kafka_consumergroup_lag"][group] == 4
    assert found["fencepost_consumergroup_lag_stable"][group] == 4
    assert found["kafka_consumergroup_lag_sum"][("packing", "jobs")] == 4


async def test_metrics_of_a_kafka_broker_lack_only_the_families_of_fenceposts_broker() -> None:
    with ServedBroker() as broker:
        await something_happened(broker)
        broker.inside(lambda inside: cap(inside, "4.3"))
        found = await scraped(broker)
    assert found["kafka_consumergroup_lag"][("billing", "orders", "0")] == 2
    assert set(found["fencepost_scrape_errors"].values()) == {0}
    assert not {each.name for each in FAMILIES} & found.keys()


async def test_metrics_the_login_may_not_read_are_omitted_and_count_as_scrape_errors() -> None:
    settings = {"authorizer_class_name": guarded().authorizer_class_name, "super_users": "User:root"}
    with ServedBroker(**settings) as broker:
        found = await scraped(broker)
    assert found["kafka_brokers"] == {(): 1}
    assert found["fencepost_scrape_errors"][("broker",)] == 1
    assert "fencepost_requests_total" not in found


async def test_metrics_beyond_the_partition_limit_omit_whole_topics_and_count_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metrics, "MAX_PARTITIONS", 5)
    with ServedBroker() as broker:
        async with fp.Admin(f"127.0.0.1:{broker.port}") as admin:
            await admin.create_topics([fp.NewTopic("a", num_partitions=4), fp.NewTopic("b", num_partitions=3)])
        found = await scraped(broker)
    assert found["kafka_topic_partitions"] == {("a",): 4}
    assert found["fencepost_scrape_left_out"] == {("partitions",): 3, ("groups",): 0}


async def test_metrics_text_omits_topics_and_groups_that_would_exceed_max_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name, odd = "t" * 249, 'g"\\\n' * 100
    # Room for one topic with one partition, and for one group that has read it.
    most = (9 + 1) * (90 + len(name)) + (90 + 700) + 5 * (90 + 700 + len(name))
    monkeypatch.setattr(metrics, "MAX_BYTES", most)
    with ServedBroker() as broker:
        async with fp.Admin(f"127.0.0.1:{broker.port}") as admin:
            await admin.create_topics([fp.NewTopic(name, num_partitions=1), fp.NewTopic("u" * 249, num_partitions=3)])
            for group in (odd, "z"):
                await admin.alter_group_offsets(group, {fp.TopicPartition(name, 0): 0})
            text = await metrics_text(admin)
    found = parsed(text)
    assert found["kafka_topic_partitions"] == {(name,): 1}
    assert list(found["kafka_consumergroup_lag"]) == [(odd, name, "0")]
    assert found["fencepost_scrape_left_out"] == {("partitions",): 3 + OFFSETS_PARTITIONS, ("groups",): 1}
    assert sum(len(line) for line in text.splitlines(keepends=True) if name.encode() in line) <= most


async def test_simultaneous_scrapes_read_the_cluster_only_once() -> None:
    asked = 0
    with ServedBroker() as broker:
        async with Admin(f"127.0.0.1:{broker.port}") as admin:

            async def connected() -> Admin:
                nonlocal asked
                asked += 1
                return admin

            scraper = Scraper(connected)
            first = asyncio.ensure_future(scraper.text())
            await asyncio.sleep(0)  # it begins
            assert await scraper.text() == await first
            assert asked == 1
            await scraper.text()
            assert asked == 2


async def test_the_metrics_page_is_served_and_needs_the_token_if_there_is_one() -> None:
    with ServedBroker() as broker:
        at = f"127.0.0.1:{broker.port}"
        async with console_of(at) as client:
            status, headers, body = await client.ask("GET", "/metrics")
            assert (status, headers["Content-Type"]) == (200, metrics.METRICS_CONTENT_TYPE)
            assert parsed(body)["kafka_brokers"] == {(): 1}
        async with console_of(at, token=TOKEN) as client:
            assert (await client.ask("GET", "/metrics"))[0] == 401
            bearer = {"Authorization": f"Bearer {TOKEN}"}
            assert (await client.ask("GET", "/metrics", headers=bearer))[0] == 200


async def test_scraping_metrics_while_the_broker_is_unreachable_raises_kafka_error() -> None:
    async def connected() -> Admin:
        raise fp.BrokerUnreachableError("nobody is there")

    with pytest.raises(fp.BrokerUnreachableError):
        await Scraper(connected).text()


def test_no_two_metrics_have_the_same_name() -> None:
    names = [each.name for each in READ] + [each.name for each in FAMILIES]
    assert len(set(names)) == len(names)
