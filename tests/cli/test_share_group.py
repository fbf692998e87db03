"""`fencepost share-group`: where share groups stand, and moving them."""

import threading
from collections.abc import Iterator

import pytest
from fencepost.broker.share.values import AcquiredRange
from served_broker import ServedBroker
from terminal import Terminal


@pytest.fixture(scope="module")
def terminal() -> Iterator[Terminal]:
    with ServedBroker() as broker:
        opened = Terminal(broker)
        opened.run("topic create work -p 2")
        opened.plain("work", *"abcde")
        yield opened


def test_share_group_commands_reset_list_describe_and_delete_a_group(terminal: Terminal) -> None:
    rows = terminal.objects("share-group reset workers -t work --to 0:2,1:end")
    assert [(each["before"], each["after"], each["moved"]) for each in rows] == [(None, 2, True), (None, 0, True)]
    assert terminal.run("share-group list").splitlines() == ["GROUP    STATE", "workers  Empty"]
    output = terminal.run("share-group describe workers -m").splitlines()
    assert output[0].startswith("workers: Empty, epoch ")
    assert output[0].endswith(", 0 members")
    assert [line.split() for line in output[1:4]] == [
        ["TOPIC", "PARTITION", "START", "HW", "LAG", "WINDOW", "MEMBERS"],
        ["work", "0", "2", "5", "3", "0", "of", "2,000", "0"],
        ["work", "1", "0", "0", "0", "0", "of", "2,000", "0"],
    ]
    assert output[4:] == ["in all: 3 not done"]
    assert [each["after"] for each in terminal.objects("share-group reset workers --to start --dry-run")] == [0, 0]
    (facts,) = terminal.objects("share-group describe workers")
    assert (facts["type"], facts["lag"], facts["partitions"][0]["start"]) == ("share", 3, 2)
    assert terminal.run("share-group delete workers -t work") == "workers deleted in work\n"
    assert terminal.objects("share-group describe workers")[0]["partitions"] == []
    assert terminal.run("share-group delete workers workers") == "workers deleted\n"
    assert terminal.run("share-group list") == ""


def test_share_group_describe_shows_the_groups_own_settings(terminal: Terminal) -> None:
    terminal.run("share-group reset earliest -t work --to start")
    terminal.run("group alter earliest -c share.auto.offset.reset=earliest")
    assert terminal.run("share-group describe earliest").splitlines()[-1] == "share.auto.offset.reset=earliest"


def test_share_group_commands_report_a_window_that_its_members_keep_full() -> None:
    with ServedBroker(group_share_partition_max_record_locks=100) as served:
        terminal, shares = Terminal(served), served.broker.share_partitions
        terminal.run("topic create jobs")
        terminal.plain("jobs", *map(str, range(150)))
        terminal.run("share-group reset packing -t jobs --to start")
        acquired = threading.Event()

        def acquire() -> None:
            ((_, kept),) = shares.state_log.known.items()
            kept.machine.acquire([AcquiredRange(0, 99, 1)], "m", 1 << 60)
            acquired.set()

        served.loop.call_soon_threadsafe(acquire)
        assert acquired.wait(10)
        told = (
            "share group packing gets nothing new of jobs-0: its window of 100 records from 0 on is full, and the first"
            " of them is not done: a member has it, or it is to be delivered again"
        )
        shown = terminal.run("share-group describe packing").splitlines()
        assert shown[2].split() == ["jobs", "0", "0", "150", "150", "100", "of", "100", "0"]
        assert told in shown
        assert terminal.run("txn why-blocked -g packing") == f"{told}\n"
        assert terminal.run("txn why-blocked") == "no partition is blocked\n", "no transaction has to do with it"
        assert told not in terminal.run("doctor")
        (row,) = terminal.objects("txn why-blocked -g packing")
        assert (row["share_group"], row["window"], row["limit"], row["transactions"]) == ("packing", 100, 100, [])


def test_group_commands_refer_to_share_group_commands_for_a_share_group(terminal: Terminal) -> None:
    terminal.run("share-group reset elsewhere -t work --to start")
    terminal.run("group describe elsewhere -m")
    assert "fencepost share-group describe -m shows where it stands" in terminal.err
    code, _, hint = terminal.refused("group seek elsewhere -t work --to start")
    assert (code, "share-group is for those of the type share" in hint) == (3, True)
    terminal.run("share-group delete elsewhere")


def test_share_group_describe_and_doctor_name_groups_with_too_little_memory() -> None:
    with ServedBroker(group_metadata_max_bytes=1 << 20) as served:
        terminal, shares = Terminal(served), served.broker.share_partitions
        terminal.run("topic create jobs")
        terminal.run("share-group reset packing -t jobs --to start")
        assert "✔ shares       no share group lacks memory" in terminal.run("doctor")

        def fill() -> None:
            ((key, kept),) = shares.state_log.known.items()
            kept.machine.acquire([AcquiredRange(n, n, 1 + n % 2) for n in range(11_000)], "m", 1 << 60)
            shares.state_log.count_runs(key)

        served.loop.call_soon_threadsafe(fill)
        told = (
            "share group packing gets nothing new of jobs-0: its 11,000 runs of records there take more than their part"
            " of group.metadata.max.bytes"
        )
        assert told in terminal.run("share-group describe packing").splitlines()
        assert f"! shares       {told}" in terminal.run("doctor")
        (facts,) = terminal.objects("share-group describe packing")
        lacking = {"share_group": "packing", "topic": "jobs", "partition": 0, "runs": 11_000}
        assert facts["lacks_memory"] == [lacking]


def test_share_group_commands_name_a_missing_group_or_one_of_another_type(terminal: Terminal) -> None:
    terminal.run("group seek readers -t work --to start")
    for name in ("nobody", "readers"):
        for line in (f"share-group describe {name}", f"share-group delete {name}"):
            code, cause, hint = terminal.refused(line)
            assert (code, cause) == (3, f"there is no share group {name}")
            assert hint == "fencepost share-group list shows all share groups"
    code, cause, hint = terminal.refused("share-group reset nobody --to start")
    assert (code, cause, "-t TOPIC" in hint) == (3, "share group nobody has read nothing", True)
    code, cause, _ = terminal.refused("share-group reset readers -t work --to start")
    assert (code, "readers" in cause) == (3, True)
