"""`fencepost topic`: what people see, what programs get, what is refused and how."""

import os
import re
import subprocess
from collections.abc import Iterator

import pytest
from fencepost.client import sync
from served_broker import ServedBroker
from terminal import FENCEPOST, Terminal


@pytest.fixture(scope="module")
def terminal() -> Iterator[Terminal]:
    with ServedBroker() as broker:
        yield Terminal(broker)


def test_topic_commands_create_list_describe_and_delete_topics(terminal: Terminal) -> None:
    assert terminal.run("topic create orders bills -p 2 -c retention.ms=1000") == "orders created\nbills created\n"
    assert terminal.run("topic list").splitlines() == [
        "TOPIC   PARTITIONS  REPLICAS",
        "bills            2         1",
        "orders           2         1",
    ]
    terminal.plain("orders", "a", "b")
    producer = terminal.open_transaction("t", "orders", "c")
    described = terminal.run("topic describe orders")
    assert "orders: 2 partitions, 1 replica" in described
    assert described.splitlines()[2].split()[:8] == ["0", "1", "1", "1", "0", "2", "3", "1"]
    assert "retention.ms  1000   topic" in described
    producer.abort_transaction()
    assert terminal.run("topic delete orders bills") == "orders deleted\nbills deleted\n"
    assert terminal.run("topic list") == ""
    assert "fencepost topic create" in terminal.err


def test_topic_commands_print_the_same_facts_as_json(terminal: Terminal) -> None:
    terminal.run("topic create told -p 1 -c retention.ms=1000")
    (described,) = terminal.objects("topic describe told")
    assert described["offsets"] == [
        {"partition": 0, "leader": 1, "replicas": [1], "isr": [1], "start": 0, "lso": 0, "hw": 0, "open": 0}
        | {"oldest_ms": None},
    ]
    assert described["configs"]["retention.ms"] == {"value": "1000", "source": "topic"}
    assert terminal.objects("topic create told --if-not-exists") == [{"topic": "told", "created": False}]
    terminal.open_transaction("t", "told", "a").abort_transaction()  # makes the internal topic, if it is the first
    assert [each["topic"] for each in terminal.objects("topic list --internal") if each["internal"]] == [
        "__transaction_state"
    ]


def test_topic_describe_shows_the_timestamp_of_the_oldest_record(terminal: Terminal) -> None:
    terminal.run("topic create aged -p 2")
    with sync.Producer(terminal.bootstrap) as producer:
        for day in (3, 2):
            producer.send("aged", b"x", partition=0, timestamp_ms=day * 86_400_000)
    (described,) = terminal.objects("topic describe aged")
    assert [each["oldest_ms"] for each in described["offsets"]] == [3 * 86_400_000, None]
    assert "OLDEST" in terminal.run("topic describe aged")
    first, second = terminal.run("topic describe aged").splitlines()[2:4]
    assert re.search(r" 1970-01-0[345] ", first)  # in the local time zone
    assert second.endswith("-")


def test_topic_commands_alter_configs_add_partitions_and_delete_records(terminal: Terminal) -> None:
    terminal.run("topic create grown -c retention.ms=1000")
    assert terminal.run("topic alter grown -c max.message.bytes=2000 -d retention.ms") == "grown is altered\n"
    assert "max.message.bytes  2000   topic" in terminal.run("topic describe grown")
    assert terminal.run("topic add-partitions grown --num 2") == "grown has 3 partitions\n"
    assert terminal.run("topic add-partitions grown --to 4 -q") == ""
    terminal.plain("grown", "a", "b", "c")
    assert [each["start"] for each in terminal.objects("topic trim grown --before 0:2,end")] == [2, 0, 0, 0]
    assert terminal.objects("topic trim grown:0 --before end") == [{"topic": "grown", "partition": 0, "start": 3}]


@pytest.mark.parametrize(
    ("line", "code", "cause"),
    [
        ("topic describe nope", 3, "nope"),
        ("topic delete nope", 3, "nope"),
        ("topic trim there:9 --before end", 3, "no partition 9"),
        ("topic create there", 5, "there"),
        ("topic alter there", 2, "the command names no setting to change"),
        ("topic add-partitions there", 2, "exactly one of --num and --to"),
        ("topic create x -c retention.ms", 2, "NAME=VALUE"),
        ("topic list -b 127.0.0.1:1", 4, "connection refused"),
        ("topic list -X client.idd=x", 2, "client.id"),
        ("topic list -X security.protocol=SASL_PLAINTEXT", 2, "sasl_mechanism"),
    ],
)
def test_refused_topic_commands_print_cause_and_hint_and_set_the_exit_code(
    terminal: Terminal, line: str, code: int, cause: str
) -> None:
    terminal.run("topic create there --if-not-exists")
    got, output, hint = terminal.refused(line)
    assert (got, cause in output, bool(hint)) == (code, True, True), output


def test_wrong_usage_of_topic_commands_exits_with_2(terminal: Terminal) -> None:
    for line in ("topic trim t --before soon", "topic list --timeout never", "topic list -o xml", "topic nope"):
        terminal.run(line)
        assert terminal.code == 2, line


def test_topic_commands_time_out_if_the_broker_never_answers(terminal: Terminal) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        code, cause, _ = terminal.refused(f"topic list -b 127.0.0.1:{port} --timeout 300ms")
    assert (code, str(port) in cause) == (4, True)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this machine has no full device")
@pytest.mark.parametrize("more", ["", "-o json"])
def test_topic_list_reports_an_output_that_cannot_be_written(terminal: Terminal, more: str) -> None:
    terminal.run("topic create full")
    line = f"{FENCEPOST} topic list {more} -b {terminal.bootstrap} > /dev/full"
    done = subprocess.run(["bash", "-c", line], capture_output=True, timeout=60, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (1, 2)
    assert done.stderr.startswith("error: input or output: No space left on device\nhint: ")
