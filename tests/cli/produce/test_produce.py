"""`fencepost produce`: lines in, records there; transactions that commit, abort, stay open, or are interrupted."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from eventually import wait_until
from fencepost.cli.output.failures import TIMED_OUT
from fencepost.testing.served import ObservedBroker
from served_broker import ServedBroker
from terminal import FENCEPOST, Terminal


class Typing(Terminal):
    """Gives commands an input: a process of its own, as the command reads a descriptor."""

    def start(self, *words: str) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "fencepost", *words, "-b", self.bootstrap]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def typed(self, given: bytes, *words: str) -> tuple[int, str, str]:
        """Run `fencepost produce` with this input. Return its exit code, its output and its errors."""
        process = self.start("produce", *words)
        out, err = process.communicate(given, timeout=60)
        assert b"Traceback" not in err, err
        return process.returncode, out.decode(), err.decode()

    def fates(self, topic: str) -> list[tuple[str, str]]:
        """Return (value, or the kind of a marker; fate) of each record, as `consume --explain` tells them."""
        rows = self.objects(f"consume {topic} --explain")
        return [(each.get("value") or each.get("marker") or "null", each["fate"]) for each in rows]

    def until_open(self, transactional_id: str) -> None:
        wait_until(lambda: transactional_id in [each["transactional_id"] for each in self.objects("txn list")])


@pytest.fixture(scope="module")
def terminal() -> Iterator[Typing]:
    with ServedBroker() as broker:
        yield Typing(broker)


def test_produce_writes_each_input_line_as_a_record(terminal: Typing) -> None:
    code, out, _ = terminal.typed(b"a\nb c\n\nlast", "plain")
    assert (code, out) == (0, "sent 4 records to plain, the last to partition 0 at offset 3\n")
    assert terminal.fates("plain") == [("a", "plain"), ("b c", "plain"), ("null", "plain"), ("last", "plain")]


def test_produce_writes_its_whole_input_in_one_transaction(terminal: Typing) -> None:
    assert terminal.typed(b"1\n2\n", "one", "--txn", "t")[:2] == (0, "committed 2 records in 1 transaction\n")
    assert terminal.typed(b"3\n", "one", "--txn", "t", "--abort")[:2] == (0, "aborted 1 record in 1 transaction\n")
    assert terminal.fates("one") == [
        ("1", "committed"), ("2", "committed"), ("commit", "marker"), ("3", "aborted"), ("abort", "marker"),
    ]  # fmt: skip


def test_produce_with_txn_every_begins_a_transaction_after_each_n_records(terminal: Typing) -> None:
    code, out, _ = terminal.typed(b"1\n2\n3\n4\n", "every", "--txn", "t", "--txn-every", "2", "-o", "json")
    facts = json.loads(out)
    assert (code, facts["records"], facts["transactions"]) == (0, 4, 2)
    markers = [fate for fate in terminal.fates("every") if fate[1] == "marker"]
    assert markers == [("commit", "marker")] * 2


def test_produce_applies_key_headers_and_partition_options_to_every_record(terminal: Typing) -> None:
    terminal.run("topic create shaped -p 3")
    words = ("shaped", "-K", ":", "-H", "src:web", "-H", "empty:", "-p", "2", "-z", "zstd")
    assert terminal.typed(b"alice:1:x\n", *words)[0] == 0
    (row,) = terminal.objects("consume shaped --explain")
    assert (row["partition"], row["key"], row["value"]) == (2, "alice", "1:x")
    assert row["headers"] == [{"name": "src", "value": "web"}, {"name": "empty", "value": ""}]


def test_produce_reads_json_records_and_writes_null_as_a_tombstone(terminal: Typing) -> None:
    given = b'{"value": {"a": 1}, "key": "k", "timestamp_ms": 1795000000000}\n{"value": null, "key": "k"}\n'
    assert terminal.typed(given, "objects", "--jsonl", "-k", "other")[0] == 0
    first, second = terminal.objects("consume objects --explain")
    assert (first["value"], first["key"], first["timestamp_ms"]) == ('{"a": 1}', "k", 1_795_000_000_000)
    assert (second["value"], second["key"]) == (None, "k")


def test_produce_aborts_its_transaction_at_an_invalid_line(terminal: Typing) -> None:
    terminal.run("topic create spoilt")
    code, out, err = terminal.typed(b'{"value": "1"}\nno\n', "spoilt", "--jsonl", "--txn", "t")
    assert (code, out) == (2, "")
    assert err.startswith("error: line 2: it is not JSON")
    assert ("1", "committed") not in terminal.fates("spoilt")


def test_a_failing_produce_prints_how_many_records_it_committed_before(terminal: Typing) -> None:
    # The spaces put the end of the bad line into a later block of the input than the two records.
    given = b'{"value": "1"}\n{"value": "2"}\n' + b" " * (1 << 17) + b"no\n"
    code, _, err = terminal.typed(given, "partly", "--jsonl", "--txn", "t", "--txn-every", "1")
    assert (code, err.splitlines()[0]) == (2, "2 records committed before that")


def test_producing_no_records_begins_no_transaction(terminal: Typing) -> None:
    assert terminal.typed(b"", "nothing", "--txn", "unused")[:2] == (0, "no records, nothing sent\n")
    assert [each["state"] for each in terminal.objects("txn describe unused")] == ["Empty"]


def test_produce_keeps_its_transaction_open_until_ctrl_c_aborts_it(terminal: Typing) -> None:
    process = terminal.start("produce", "held", "--txn", "holder", "--hold", "10m")
    assert process.stdin is not None
    process.stdin.write(b"1\n2\n")
    process.stdin.close()
    process.stdin = None
    assert process.stderr is not None
    held = process.stderr.readline()  # the last of its records may be sent after the transaction is seen to be open
    terminal.until_open("holder")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, b"")
    assert b"held for 10 min" in held
    assert b"aborted 2 records" in err
    assert b"Traceback" not in err
    assert terminal.fates("held") == [("1", "aborted"), ("2", "aborted"), ("abort", "marker")]


def test_ctrl_c_while_produce_waits_for_input_aborts_its_transaction(terminal: Typing) -> None:
    process = terminal.start("produce", "waits", "--txn", "waiter")
    assert process.stdin is not None
    process.stdin.write(b"1\n")
    process.stdin.flush()
    terminal.until_open("waiter")
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    _, err = process.communicate()
    assert b"interrupted; committed 0 records" in err
    assert b"Traceback" not in err
    assert terminal.objects("txn list") == []


def test_produce_exits_with_5_when_its_producer_was_fenced(terminal: Typing) -> None:
    process = terminal.start("produce", "fenced", "--txn", "twice")
    assert process.stdin is not None
    process.stdin.write(b"1\n")
    process.stdin.flush()
    terminal.until_open("twice")
    terminal.run("txn fence twice")
    out, err = process.communicate(b"2\n", timeout=30)
    assert (process.returncode, out) == (5, b"")
    cause, hint = err.decode().splitlines()
    assert (cause[:7], hint[:6]) == ("error: ", "hint: ")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("t", "--abort"), 2),
        (("t", "--hold", "1s"), 2),
        (("t", "-H", "novalue"), 2),
        (("t", "-K", ":"), 2),
        (("t", "--jsonl", "-K", ":"), 2),
        (("t", "-X", "acks=0"), 2),
        (("no such topic",), 2),
    ],
)
def test_produce_with_wrong_arguments_prints_cause_and_hint_and_sets_the_exit_code(
    terminal: Typing, words: tuple[str, ...], code: int
) -> None:
    got, out, err = terminal.typed(b"line\n", *words)
    assert (got, out, err.startswith("error: "), "\nhint: " in err) == (code, "", True, True), err


def test_produce_with_standard_input_closed_exits_with_2_and_a_hint(terminal: Typing) -> None:
    command = f"{FENCEPOST} produce t -b {terminal.bootstrap} <&-"
    done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=60, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: standard input is closed\nhint: ")


def test_produce_without_a_broker_exits_with_4(terminal: Typing) -> None:
    command = [sys.executable, "-m", "fencepost", "produce", "t", "-b", "127.0.0.1:1"]
    done = subprocess.run(command, input=b"x\n", capture_output=True, timeout=30)
    assert (done.returncode, done.stderr.startswith(b"error: cannot connect")) == (4, True)


def test_produce_waits_for_its_producer_id_as_long_as_the_option_timeout_says() -> None:
    with ObservedBroker() as broker:
        broker.faults.blackhole("InitProducerId")
        command = [sys.executable, "-m", "fencepost", "produce", "t", "--txn", "x", "--timeout", "2s"]
        command += ["-b", broker.bootstrap_servers]
        # Without --timeout it would wait for the SDK's default, a minute.
        ended = subprocess.run(command, input=b"1\n", capture_output=True, timeout=30, check=False)
        broker.faults.clear()
    assert (ended.returncode, ended.stdout) == (TIMED_OUT, b"")
    assert b"InitProducerId did not succeed within 2000 ms" in ended.stderr
