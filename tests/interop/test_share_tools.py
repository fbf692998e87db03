"""Kafka's own command-line tools for share groups, as their scripts call them.

kafka-console-share-consumer, kafka-share-consumer-perf-test and kafka-share-groups. The scripts themselves only begin a
JVM with the class that is called here; all calls of a worker share one.
"""

import time

import pytest
from confluent_kafka import ShareConsumer
from java_clients import JavaClients, ToolEnded
from share_orders import left, prepare

CONSOLE, PERFORMANCE, GROUPS = (
    "consumer.ConsoleShareConsumer",
    "ShareConsumerPerformance",
    "consumer.group.ShareGroupCommand",
)


def console(java: JavaClients, broker, name: str, more: str) -> list[list[str]]:
    """Run Kafka's console share consumer, and return [offset, delivery count, value] of each record that it read."""
    shown = "--formatter-property print.delivery=true --formatter-property print.offset=true"
    printed = java.tool(CONSOLE, broker.bootstrap, f"--topic {name} --group {name} --timeout-ms 3000 {shown} {more}")
    lines = (line.split() for line in printed.splitlines())
    return [[word.rpartition(":")[2] for word in line] for line in lines if line and line[0].startswith("Offset:")]


def test_kafkas_console_share_consumer_accepts_releases_and_rejects_records(java, broker, name):
    prepare(broker.bootstrap, name, name, 6)
    assert console(java, broker, name, "--max-messages 6 --release") == [[str(n), "1", str(n)] for n in range(6)]
    assert console(java, broker, name, "--max-messages 2 --reject") == [["0", "2", "0"], ["1", "2", "1"]]
    assert [offset for offset, *_ in console(java, broker, name, "--max-messages 4")] == ["2", "3", "4", "5"]
    assert left(broker.bootstrap, name, name) == []


def test_kafkas_share_performance_tool_reads_every_record_with_several_threads(java, broker, name):
    prepare(broker.bootstrap, name, name, 2_000, partitions=2)
    printed = java.tool(
        PERFORMANCE, broker.bootstrap, f"--topic {name} --group {name} --num-records 2000 --threads 2 --timeout 5000"
    )
    header, numbers = (line.split(", ") for line in printed.splitlines() if line.count(", ") > 3)
    assert float(dict(zip(header, numbers, strict=True))["data.consumed.in.nMsg"]) == 2_000
    assert left(broker.bootstrap, name, name) == []


def rows(printed: str) -> list[dict[str, str]]:
    """Return the rows of the table in a tool's output, each by the column's title."""
    lines = [line.split() for line in printed.splitlines() if line.strip()]
    (first,) = (number for number, line in enumerate(lines) if line[0] == "GROUP")
    return [dict(zip(lines[first], line, strict=False)) for line in lines[first + 1 :]]


def test_kafkas_share_groups_tool_lists_describes_resets_and_deletes_groups(java, broker, name):
    """A group with a member is not reset."""

    def groups(arguments: str) -> str:
        return java.tool(GROUPS, broker.bootstrap, arguments)

    prepare(broker.bootstrap, name, name, 10)
    member = ShareConsumer({"bootstrap.servers": broker.bootstrap, "group.id": name, "client.id": "worker"})
    member.subscribe([name])
    until = time.monotonic() + 60
    while not (messages := member.poll(1)) and time.monotonic() < until:
        pass
    assert len(messages) == 10
    assert name in groups("--list").splitlines()
    assert {"GROUP": name, "STATE": "Stable"}.items() <= next(
        row for row in rows(groups("--list --state")) if row["GROUP"] == name
    ).items()
    (at,) = rows(groups(f"--describe --group {name}"))
    assert (at["TOPIC"], at["PARTITION"], at["START-OFFSET"], at["LAG"]) == (name, "0", "0", "10")
    (one,) = rows(groups(f"--describe --group {name} --members"))
    assert (one["CLIENT-ID"], one["ASSIGNMENT"]) == ("worker", f"{name}:0")
    (state,) = rows(groups(f"--describe --group {name} --state"))
    assert (state["STATE"], state["#MEMBERS"]) == ("Stable", "1")
    reset = f"--reset-offsets --group {name} --topic {name}"
    with pytest.raises(ToolEnded) as refused:
        groups(f"{reset} --to-latest --execute")
    assert f"Share group '{name}' is not empty" in refused.value.printed
    member.close()

    (moved,) = rows(groups(f"{reset} --to-earliest --execute"))
    assert (moved["PARTITION"], moved["NEW-OFFSET"]) == ("0", "0")
    assert len(console(java, broker, name, "--max-messages 10")) == 10
    (at,) = rows(groups(f"--describe --group {name}"))
    assert (at["START-OFFSET"], at["LAG"]) == ("10", "0")
    assert "Successful" in groups(f"--delete-offsets --group {name} --topic {name}")
    assert name in groups(f"--delete --group {name}")
    assert name not in groups("--list").splitlines()
