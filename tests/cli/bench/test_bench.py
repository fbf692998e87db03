"""`fencepost bench`: its figures, its errors with a hint, that it deletes its topic, and that a signal ends it."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_process import free_port
from click.testing import CliRunner
from confluent_kafka import KafkaError, KafkaException
from eventually import wait_until
from fencepost.bench.topics import create, delete
from fencepost.cli import main
from fencepost.cli.bench.loads import failure_of
from fencepost.protocol.messages.cluster import MetadataRequest
from served_broker import ServedBroker

from fencepost import RequestTimedOutError

SHORT = ["--seconds", "0.1"]


@pytest.fixture(scope="module")
def served() -> Iterator[ServedBroker]:
    with ServedBroker(message_max_bytes=10_000) as served:
        yield served
        served.close_clients()


def reported(*arguments: str) -> tuple[int, str, str]:
    found = CliRunner().invoke(main, ["bench", *arguments])
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    cause, hint = found.stderr.splitlines()[-2:]
    assert cause.startswith("error: ")
    assert hint.startswith("hint: ")
    return found.exit_code, cause, hint


def topics(served: ServedBroker) -> list[str]:
    with served.connect() as client:
        return [topic.name for topic in client.call(MetadataRequest(topics=None), 9).topics]


@pytest.mark.parametrize("load", [["small"], ["produce"], ["txn"], ["consume", "--topic", "x"]])
def test_bench_reports_a_missing_broker_and_a_wrong_address(load: list[str]) -> None:
    code, cause, hint = reported(*load, "-b", f"127.0.0.1:{free_port()}")
    assert (code, "refused" in cause, "fencepost serve" in hint) == (4, True, True)
    for address in ("foo", "foo:", "127.0.0.1:99999", "127.0.0.1:-1", "127.0.0.1:0"):
        code, cause, hint = reported(*load, "-b", address)
        assert (code, address in cause, "HOST:PORT" in hint) == (2, True, True)


@pytest.mark.parametrize("load", ["small", "produce", "txn", "modes", "observed", "consume"])
def test_bench_uses_the_bootstrap_address_of_the_environment(load: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FENCEPOST_BOOTSTRAP", "from-the-environment")
    code, cause, _ = reported(load, "--topic", "x")
    assert (code, "from-the-environment" in cause) == (2, True)


@pytest.mark.parametrize("load", ["small", "produce", "txn", "consume"])
def test_bench_does_not_create_a_missing_topic(served: ServedBroker, load: str) -> None:
    code, cause, _ = reported(load, "-b", f"127.0.0.1:{served.port}", "--topic", "nosuch")
    assert (code, "nosuch" in cause) == (3, True)
    assert topics(served) == []


@pytest.mark.parametrize(
    "load", [["small", "--size", "50000", *SHORT], ["produce", "--size", "50000", "--records", "20"]]
)
def test_bench_reports_too_large_records_and_deletes_its_topic(served: ServedBroker, load: list[str]) -> None:
    code, cause, hint = reported(*load, "-b", f"127.0.0.1:{served.port}")
    assert code == 1
    assert "TOO_LARGE" in cause
    assert "message.max.bytes" in hint
    assert topics(served) == []


@pytest.mark.parametrize(
    ("name", "code"),
    [("_TRANSPORT", 4), ("_ALL_BROKERS_DOWN", 4), ("_TIMED_OUT", 4), ("REQUEST_TIMED_OUT", 4),
     ("UNKNOWN_TOPIC_OR_PART", 3), ("_UNKNOWN_TOPIC", 3), ("_FENCED", 5), ("_AUTHENTICATION", 6),
     ("TOPIC_AUTHORIZATION_FAILED", 6), ("_INVALID_ARG", 2), ("MSG_SIZE_TOO_LARGE", 1)],
)  # fmt: skip
def test_failure_of_gives_each_librdkafka_error_its_exit_code(name: str, code: int) -> None:
    error = KafkaException(KafkaError(getattr(KafkaError, name)))
    of_a_worker = RuntimeError(f"a transaction failed: {error}")
    of_a_worker.__cause__ = error
    for each in (error, of_a_worker):
        failure = failure_of(each)
        assert failure is not None
        assert failure.exit_code == code


def test_failure_of_gives_each_sdk_error_its_exit_code() -> None:
    failure = failure_of(RequestTimedOutError())
    assert failure is not None
    assert failure.exit_code == 4


@pytest.mark.parametrize("number", ["0", "-1", "nan", "inf", "x"])
def test_bench_with_a_size_or_number_that_is_not_a_positive_number_exits_with_2(number: str) -> None:
    for option in ("--seconds", "--size", "--records", "--connections", "--depth", "--partitions"):
        assert CliRunner().invoke(main, ["bench", "small", option, number]).exit_code == 2


def test_bench_measures_transactions_and_deletes_its_topic() -> None:
    load = ["txn", "--producers", "2", "--records", "3", "--seconds", "0.5", "-o", "json"]
    with ServedBroker() as served:  # one of its own, because transactions create __transaction_state
        found = CliRunner().invoke(main, ["bench", *load, "-b", f"127.0.0.1:{served.port}"])
        assert found.exit_code == 0, found.output
        assert [name for name in topics(served) if not name.startswith("__")] == []
        served.close_clients()
    reported = json.loads(found.stdout)
    assert reported["records"] == 3 * reported["requests"] > 0
    assert reported["p99_ms"] >= reported["p50_ms"] > 0


PRODUCE = ["produce", "--records", "50000000", "--batch", "5000"]  # below the broker's message.max.bytes


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("load", [["small", "--seconds", "60"], PRODUCE])
def test_an_interrupted_bench_ends_at_once_and_deletes_its_topic(
    served: ServedBroker, load: list[str], number: signal.Signals
) -> None:
    for after_s in (0.0, 0.15, 1.5):  # the topic is being made; the client library is loaded; the load runs
        bench = begun(served, load)
        wait_until_its_topic_is_there(bench, served)
        time.sleep(after_s)
        check_it_ends(bench, number)
        assert topics(served) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_bench_can_be_interrupted_while_it_waits_for_records(served: ServedBroker, number: signal.Signals) -> None:
    create("127.0.0.1", served.port, "empty", 1)
    try:
        for after_s in (0.0, 0.2, 1.5):
            bench = begun(served, ["consume", "--topic", "empty"])
            wait_until_it_catches(bench)
            time.sleep(after_s)
            check_it_ends(bench, number)
    finally:
        delete("127.0.0.1", served.port, "empty")


def begun(served: ServedBroker, load: list[str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "fencepost", "bench", *load, "-b", f"127.0.0.1:{served.port}"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def wait_until_its_topic_is_there(bench: "subprocess.Popen[str]", served: ServedBroker) -> None:
    wait_until(lambda: bench.poll() is not None or topics(served))  # if it has ended, check_it_ends() shows why


def wait_until_it_catches(bench: "subprocess.Popen[str]") -> None:
    wait_until(lambda: bench.poll() is not None or catches(bench.pid))


def catches(pid: int) -> bool:
    """Return whether the process has set its signal handlers: SIGTERM's is the last that it sets."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = int(status.split("SigCgt:")[1].split()[0], 16)
    return bool(caught >> (signal.SIGTERM - 1) & 1)


def check_it_ends(bench: "subprocess.Popen[str]", number: signal.Signals) -> None:
    bench.send_signal(number)
    _, err = bench.communicate(timeout=20)
    assert bench.returncode == 130, err
    assert [line.split(":")[0] for line in err.splitlines()] == ["error", "hint"], err


@pytest.mark.long
@pytest.mark.requirement("S-13")
def test_bench_prints_the_cost_of_each_delivery_mode(served: ServedBroker) -> None:
    bounds = ["--records", "2000", "--seconds", "1", "-o", "json"]
    found = CliRunner().invoke(main, ["bench", "modes", "-b", f"127.0.0.1:{served.port}", *bounds])
    assert found.exit_code == 0, found.output
    reported = [json.loads(line) for line in found.stdout.splitlines()]
    assert [each["work"].split(",")[0] for each in reported] == ["at most once", "at least once", *["exactly once"] * 4]
    assert all(each["records_per_second"] > 0 and each["p50_ms"] >= 0 for each in reported)
    commits_a_record = [each["requests"] / each["records"] for each in reported[2:]]
    assert commits_a_record == [1, 0.1, 0.01, 0.001]
    assert not [name for name in topics(served) if not name.startswith("__")]


@pytest.mark.long
def test_bench_observed_compares_plain_clients_with_ones_with_metrics_or_tracing(served: ServedBroker) -> None:
    bounds = ["--records", "500", "--rounds", "2", "-o", "json"]
    found = CliRunner().invoke(main, ["bench", "observed", "-b", f"127.0.0.1:{served.port}", *bounds])
    assert found.exit_code == 0, found.output
    reported = {each["way"]: each for each in map(json.loads, found.stdout.splitlines())}
    assert list(reported)[:2] == ["plain", "metrics"]
    assert reported["plain"]["cpu_ratio"] == 1
    assert len(reported) == 6
    assert all(each["records"] == 1000 and each["records_per_second"] > 0 for each in reported.values())
    assert not [name for name in topics(served) if not name.startswith("__")]
