"""`fencepost group`: lag and its cause, offsets moved, settings changed."""

from collections.abc import Iterator

import pytest
from served_broker import ServedBroker
from terminal import Terminal

from fencepost.sync import Consumer


@pytest.fixture(scope="module")
def terminal() -> Iterator[Terminal]:
    with ServedBroker(group_initial_rebalance_delay_ms=0) as broker:
        yield Terminal(broker)


def test_group_describe_shows_lag_to_lso_and_to_high_watermark_and_the_blocker(terminal: Terminal) -> None:
    terminal.run("topic create orders")
    terminal.plain("orders", "a", "b", "c")
    terminal.run("group seek billing -t orders --to 1")
    producer = terminal.open_transaction("orders-1", "orders", "d", "e")
    output = terminal.run("group describe billing").splitlines()
    assert output[0] == "billing: Empty, 0 members"
    assert output[1].split() == ["TOPIC", "PARTITION", "COMMITTED", "LSO", "HW", "LAG-LSO", "LAG-HW", "MEMBER", "HOST"]
    assert output[2].split() == ["orders", "0", "1", "3", "5", "2", "4", "-", "-"]
    assert output[3].startswith("orders-0 is blocked at 3 (2 offsets wait) by transaction orders-1 of producer ")
    (facts,) = terminal.objects("group describe billing")
    assert (facts["lag_lso"], facts["lag_hw"]) == (2, 4)
    assert facts["blocked"][0]["transactional_id"] == "orders-1"
    producer.abort_transaction()
    assert (terminal.objects("group describe billing"))[0]["blocked"] == []


def test_group_describe_why_blocked_and_doctor_name_the_holder_of_a_groups_offsets(terminal: Terminal) -> None:
    """The holder is the open transaction with pending offsets of this group. Another group's older transaction in the
    same partition is not named.
    """
    terminal.run("topic create copied -p 2")
    terminal.plain("copied", "a", "b", "c")
    for name in ("copiers", "others"):
        terminal.run(f"group seek {name} -t copied --to start")
    other = terminal.hold_offsets("other-1", "others", "copied", 1)
    holder = terminal.hold_offsets("copier-1", "copiers", "copied", 2)
    words = "group copiers: its offsets of copied-0 are held by transaction copier-1 of producer "
    for line in ("group describe copiers", "txn why-blocked --group copiers"):
        (told,) = [each for each in terminal.run(line).splitlines() if "held by" in each]
        assert told.startswith(words), line
        assert "Ongoing for " in told
        assert told.endswith(" of 1 min; a member that starts waits for the end of it")
    assert words in terminal.run("doctor")
    assert {each["group"] for each in terminal.objects("txn why-blocked copied:0")} == {"copiers", "others"}
    assert terminal.run("txn why-blocked copied:1") == "copied:1 is not blocked\n"
    (facts,) = terminal.objects("txn why-blocked -g copiers")
    assert (facts["transactional_id"], facts["holds"], facts["hangs"]) == ("copier-1", ["copied-0"], False)
    assert (terminal.objects("group describe copiers"))[0]["held"][0]["transactional_id"] == "copier-1"
    terminal.run("txn abort copier-1")
    assert terminal.run("txn why-blocked --group copiers") == "group copiers is not blocked\n"
    assert terminal.refused("txn why-blocked --group nobody")[0] == 3
    other.abort_transaction()
    del holder  # kept until here, so that its transaction stayed open


def test_lag_of_a_group_below_the_log_start_counts_from_the_log_start(terminal: Terminal) -> None:
    terminal.run("topic create trimmed")
    terminal.plain("trimmed", *"abcdef")
    terminal.run("group seek laggard -t trimmed --to 1")
    terminal.run("topic trim trimmed --before 4")
    (facts,) = terminal.objects("group describe laggard")
    assert (facts["partitions"][0]["committed"], facts["lag_lso"], facts["lag_hw"]) == (1, 2, 2)


def test_group_commands_reset_offsets_by_position_and_delete_groups(terminal: Terminal) -> None:
    terminal.run("topic create moved -p 2")
    terminal.plain("moved", "a", "b", "c")
    rows = terminal.objects("group seek movers -t moved --to 0:-1,start")
    assert [(each["before"], each["after"]) for each in rows] == [(None, 2), (None, 0)]
    assert [each["after"] for each in terminal.objects("group seek movers --to end")] == [3, 0]
    assert [each["after"] for each in terminal.objects("group seek movers -t moved:0 --to @-1h --dry-run")] == [0]
    assert [each["committed"] for each in terminal.objects("group describe movers")[0]["partitions"]] == [3, 0]
    assert "movers" in [each["group"] for each in terminal.objects("group list")]
    assert terminal.run("group delete movers movers") == "movers deleted\n"


def test_group_describe_shows_members_with_their_partitions(terminal: Terminal) -> None:
    from confluent_kafka import Consumer

    terminal.run("topic create shared")
    settings = {"bootstrap.servers": terminal.bootstrap, "group.id": "sharers", "client.id": "somebody"}
    consumer = Consumer(settings)
    consumer.subscribe(["shared"])
    while not consumer.assignment():
        consumer.poll(0.1)
    output = terminal.run("group describe sharers --members")
    assert output.startswith("sharers: Stable, range, 1 member\n")
    assert "somebody" in output
    assert "shared-0" in output
    code, cause, hint = terminal.refused("group seek sharers -t shared --to start")
    assert (code, "has active members" in cause, "stop its consumers" in hint) == (5, True, True)
    assert terminal.refused("group delete sharers")[0] == 5
    consumer.close()


def test_group_commands_show_a_group_of_the_consumer_protocol(terminal: Terminal) -> None:
    """A group with a member cannot be deleted."""
    terminal.run("topic create handed")
    with Consumer(
        terminal.bootstrap, topics=["handed"], group_id="newer", group_protocol="consumer", auto_offset_reset="earliest"
    ) as consumer:
        consumer.assigned()
        output = terminal.run("group describe newer --members").splitlines()
        assert output[0].startswith("newer: Stable, uniform, epoch ")
        assert output[0].endswith(", 1 member")
        assert output[-2].split() == ["MEMBER", "INSTANCE", "CLIENT", "HOST", "PARTITIONS", "EPOCH", "WAITS-FOR"]
        assert "handed-0" in output[-1]
        (facts,) = terminal.objects("group describe newer")
        assert (facts["type"], facts["members"][0]["partitions"]) == ("consumer", ["handed-0"])
        rows = terminal.objects("group list --type consumer")
        assert [(each["group"], each["state"]) for each in rows] == [("newer", "Stable")]
        assert terminal.run("group list --type consumer").splitlines()[0].split() == [
            "GROUP",
            "STATE",
            "TYPE",
            "PROTOCOL",
        ]
        assert terminal.refused("group delete newer")[0] == 5
    assert terminal.run("group delete newer") == "newer deleted\n"


def test_group_alter_changes_settings_and_group_describe_shows_them(terminal: Terminal) -> None:
    """A dry run changes none, and a value out of its bounds exits with 2."""
    terminal.run("topic create tuned")
    terminal.run("group seek tuners -t tuned --to start")
    heartbeat, session = "consumer.heartbeat.interval.ms", "consumer.session.timeout.ms"
    assert terminal.run(f"group alter tuners -c {heartbeat}=7000 --dry-run") == "tuners would be altered\n"
    assert terminal.run(f"group alter tuners -c {heartbeat}=6000 -c {session}=50000") == "tuners is altered\n"
    (facts,) = terminal.objects("group describe tuners")
    assert facts["configs"] == {heartbeat: "6000", session: "50000"}
    terminal.run(f"group alter tuners -d {session}")
    assert terminal.run("group describe tuners").splitlines()[-1] == f"{heartbeat}=6000"
    code, cause, _ = terminal.refused(f"group alter tuners -c {session}=1")
    bound = f"{session} must be greater than or equal to group.consumer.min.session.timeout.ms"
    assert (code, bound in cause) == (2, True)
    assert terminal.refused("group alter tuners -c streams.session.timeout.ms=50000")[0] == 2
    assert terminal.refused("group alter tuners")[:2] == (2, "the command names no setting to change")


@pytest.mark.parametrize(
    ("line", "code"),
    [("group describe nope", 3), ("group delete nope", 3), ("group seek nope --to start", 3),
     ("group seek g -t nope --to start", 3), ("group seek g -t orders:x --to start", 2)],
)  # fmt: skip
def test_group_commands_with_an_unknown_group_or_topic_set_the_exit_code(
    terminal: Terminal, line: str, code: int
) -> None:
    assert terminal.refused(line)[0] == code
