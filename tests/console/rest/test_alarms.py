"""The alarms of the snapshot: held offsets of a group, a full share window, a nearly full disk."""

import asyncio
from pathlib import Path
from typing import Any

from console_client import console_of
from fencepost.effects.disk import SystemDisk
from pending_shares import LIMIT, pending
from served_broker import ServedBroker
from terminal import Terminal


async def seen(bootstrap: str, group: str = "") -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the snapshot, and what the console shows of a group; {} for the latter if no group is given."""
    async with console_of(bootstrap) as console:
        snapshot = await console.get("/v1/snapshot")
        console.cluster = snapshot["cluster"]["cluster_id"]
        return snapshot, await console.get(f"consumer-groups/{group}") if group else {}


def test_pending_offsets_of_a_group_give_an_alarm_naming_group_and_transaction() -> None:
    """The group's own resource says so, too."""
    with ServedBroker() as broker:
        terminal = Terminal(broker)
        terminal.run("topic create orders")
        terminal.plain("orders", "a", "b")
        terminal.run("group seek copiers -t orders --to start")
        holder = terminal.hold_offsets("copier-1", "copiers", "orders", 1)
        snapshot, group = asyncio.run(seen(terminal.bootstrap, "copiers"))
        holder.abort_transaction()
    (alarm,) = snapshot["alarms"]
    assert (alarm["kind"], alarm["consumer_group_id"]) == ("held_offsets", "copiers")
    assert (alarm["transactional_id"], alarm["state"], alarm["hangs"]) == ("copier-1", "Ongoing", False)
    assert alarm["partitions"] == [{"topic_name": "orders", "partition_id": 0}]
    assert alarm["age_ms"] >= 0
    assert alarm["sentence"].startswith("the offsets of group copiers are held by transaction copier-1 of ")
    assert snapshot["counts"]["held_groups"] == 1
    assert group["offsets_held"]


def test_a_full_share_window_gives_an_alarm_naming_group_and_transaction() -> None:
    with ServedBroker(group_share_partition_max_record_locks=LIMIT) as broker:
        terminal = Terminal(broker)
        terminal.run("topic create jobs")
        terminal.plain("jobs", *map(str, range(LIMIT + 20)))
        with pending(terminal.bootstrap, "worker-1", "jobs", "packing"):
            snapshot, _ = asyncio.run(seen(terminal.bootstrap))
    (alarm,) = snapshot["alarms"]
    assert (alarm["kind"], alarm["share_group_id"], alarm["pending"]) == ("full_window", "packing", LIMIT)
    assert (alarm["transactional_id"], alarm["state"], alarm["hangs"]) == ("worker-1", "Ongoing", False)
    assert alarm["partitions"] == [{"topic_name": "jobs", "partition_id": 0}]
    assert alarm["age_ms"] >= 0
    assert alarm["sentence"].startswith(
        f"share group packing gets nothing new of jobs-0: its window is full, and {LIMIT} "
    )


def test_a_nearly_full_disk_gives_an_alarm_naming_storage_min_free_bytes(tmp_path: Path) -> None:
    floor = 2 * SystemDisk().free_bytes(str(tmp_path))
    with ServedBroker(storage_min_free_bytes=floor) as broker:
        snapshot, _ = asyncio.run(seen(f"127.0.0.1:{broker.port}"))
    (alarm,) = snapshot["alarms"]
    assert (alarm["kind"], alarm["floor_bytes"]) == ("low_disk", floor)
    assert "nearly full: produce requests are refused (storage.min.free.bytes)" in alarm["sentence"]
