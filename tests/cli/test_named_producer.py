"""`fencepost named-producer`: the highest sequences of each name, and removing names."""

import asyncio
from collections.abc import Iterator

import pytest
from served_broker import ServedBroker
from terminal import Terminal

import fencepost as fp


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    with ServedBroker() as broker:
        opened = Terminal(broker)
        opened.run("topic create readings -p 2")
        opened.run("topic create other")
        yield opened


def write(terminal: Terminal, name: str, **topics: dict[int, int]) -> None:
    """Send one record to each of these partitions as the named producer. topics: topic → {partition: sequence}."""

    async def work() -> None:
        async with fp.Producer(terminal.bootstrap, name=name, client_id="station") as producer:
            for topic, sequences in topics.items():
                for partition, sequence in sequences.items():
                    await producer.send_and_wait(topic, b"x", partition=partition, sequence=sequence)

    asyncio.run(work())


def test_named_producer_list_shows_highest_sequences_and_rm_removes_a_name(terminal: Terminal) -> None:
    assert terminal.run("named-producer list") == ""
    write(terminal, "sensor-7", readings={1: 41, 0: 12_000}, other={0: 3})
    write(terminal, "sensor-8")
    write(terminal, "sensor-7", readings={1: 42})
    rows = [line.split(maxsplit=5) for line in terminal.run("named-producer list").splitlines()]
    assert rows[0] == ["NAME", "TOPIC", "PARTITION", "HIGHEST", "EPOCH", "OWNER"]
    assert [row[:5] for row in rows[1:]] == [
        ["sensor-7", "other", "0", "3", "3"],
        ["sensor-7", "readings", "0", "12,000", "3"],
        ["sensor-7", "readings", "1", "42", "3"],
        ["sensor-8", "-", "-", "-", "2"],
    ]
    assert all("'station'" in row[5] for row in rows[1:])
    facts = terminal.objects("named-producer list sensor-7 -t other")
    assert [(each["topic"], each["highest"], each["epoch"]) for each in facts] == [("other", 3, 3)]
    assert terminal.run("named-producer list -t nothing") == ""
    assert terminal.run("named-producer rm sensor-7") == "sensor-7 removed\n"
    assert [each["name"] for each in terminal.objects("named-producer list")] == ["sensor-8"]


def test_an_unknown_named_producer_exits_with_3_and_nothing_is_removed(terminal: Terminal) -> None:
    write(terminal, "sensor-8")
    for line in ("named-producer list nobody", "named-producer rm sensor-8 nobody"):
        code, cause, hint = terminal.refused(line)
        assert (code, cause, "named-producer list" in hint) == (3, "there is no named producer nobody", True)
    assert [each["name"] for each in terminal.objects("named-producer list")] == ["sensor-8"]
