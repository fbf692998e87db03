"""A share group in the REST API: its state, members, offsets and pending records, in the shape of /openapi.json."""

import jsonschema_rs
from console_client import console_of
from fencepost.client.admin.admin import Admin
from fencepost.client.admin.values import NewTopic, PendingRange, SharePartitionOffsets, ShareWindow
from fencepost.client.values import TopicPartition
from fencepost.console.rest.share_groups import partition_row
from fencepost.console.serving.openapi import schemas
from served_broker import ServedBroker

import fencepost as fp


async def test_a_share_group_has_resources_of_its_own_and_an_unknown_one_gets_404() -> None:
    with ServedBroker() as broker:
        at = f"127.0.0.1:{broker.port}"
        async with Admin(at) as admin:
            await admin.create_topics([NewTopic("jobs", 2)])
            await admin.alter_share_group_offsets("packing", {TopicPartition("jobs", 1): 0})
        async with console_of(at) as console:
            console.cluster = (await console.get("/v3/clusters"))["data"][0]["cluster_id"]
            one = await console.get("share-groups/packing")
            assert (one["state"], one["members"]) == ("Empty", 0)
            assert (await console.get(one["consumers"]["related"]))["data"] == []
            (row,) = (await console.get(one["partitions"]["related"]))["data"]
            assert (row["topic_name"], row["partition_id"], row["start_offset"], row["lag"]) == ("jobs", 1, 0, 0)
            assert (row["window"], row["window_limit"], row["pending"], row["pending_ranges"]) == (0, 2000, 0, [])
            for path in ("share-groups/nobody", "share-groups/nobody/partitions", "share-groups/nobody/consumers"):
                assert (await console.ask("GET", f"/v3/clusters/{console.cluster}/{path}"))[0] == 404


async def test_the_list_of_groups_has_members_and_lag_of_a_share_group() -> None:
    with ServedBroker() as broker:
        at = f"127.0.0.1:{broker.port}"
        queue = fp.ShareConsumer(at, topics=["jobs"], group_id="packing", auto_offset_reset="earliest")
        async with Admin(at) as admin, fp.Producer(at) as producer, queue:
            await admin.create_topics([NewTopic("jobs", 2)])
            for number in range(5):
                await producer.send_and_wait("jobs", b"v", partition=number % 2)
            while not await queue.getmany(timeout_ms=5_000):
                pass
            async with console_of(at) as console:
                console.cluster = (await console.get("/v3/clusters"))["data"][0]["cluster_id"]
                (row,) = (await console.get("consumer-groups"))["data"]
                assert (row["consumer_group_id"], row["state"], row["members"]) == ("packing", "Stable", 1)
                sums = {"to_stable": None, "to_high_watermark": 5, "partitions": 2, "blocked_partitions": 0}
                assert row["lag"] == sums
                assert row["partition_assignor"] == "simple"
                jsonschema_rs.validate(schemas()["ConsumerGroup"], row)
                for link in ("consumers", "lags"):
                    assert (await console.get(row[link]["related"]))["data"], link
                assert (await console.get(row["metadata"]["self"]))["share_group_id"] == "packing"


def test_a_full_share_window_shows_its_transactions_and_fits_the_schema() -> None:
    window = ShareWindow(2000, 2000, 2, (PendingRange(5, 6, "worker-1", 9, "m"),))
    row = partition_row("c", "packing", TopicPartition("jobs", 0), SharePartitionOffsets(5, 0, 7, window))
    assert row["held_by_transaction"]
    assert [(each["transactional_id"], each["first_offset"]) for each in row["pending_ranges"]] == [("worker-1", 5)]
    other = partition_row("c", "packing", TopicPartition("jobs", 0), SharePartitionOffsets(5, 0, 7))
    assert (other["window"], other["held_by_transaction"]) == (None, False)
    for each in (row, other):
        jsonschema_rs.validate(schemas()["ShareGroupPartition"], each)
