"""`fencepost doctor` and `fencepost health`: what they find, from the connection to the broker's disk."""

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from fencepost.cli.doctor import RELEASES
from fencepost.cli.doctor.probes import addresses, connects
from fencepost.effects.disk import SystemDisk
from served_broker import ServedBroker
from terminal import Terminal

from fencepost import Broker


@pytest.fixture(scope="module")
def terminal() -> Iterator[Terminal]:
    with ServedBroker() as broker:
        yield Terminal(broker)


def checks(terminal: Terminal, address: str, timeout: str = "5s") -> dict[str, dict[str, str]]:
    out = terminal.run(f"doctor {address} -o json --timeout {timeout}")
    return {each["check"]: each for each in map(json.loads, out.splitlines())}


def test_doctor_passes_every_check_on_a_healthy_broker(terminal: Terminal) -> None:
    found = checks(terminal, terminal.bootstrap)
    assert terminal.code == 0
    assert {each["state"] for each in found.values()} == {"ok"}, found
    assert list(found) == [
        "connection", "protocol", "features", "cluster", "advertised", "disk", "topics", "transactions", "clock",
    ]  # fmt: skip
    assert "transaction.version 2" in found["features"]["text"]
    output = terminal.run(f"doctor {terminal.bootstrap}")
    assert all(line.startswith("✔ ") for line in output.splitlines())
    assert terminal.run(f"doctor {terminal.bootstrap} -q") == ""


def test_doctor_and_health_report_low_disk_space_and_health_stays_good(tmp_path: Path) -> None:
    floor = 2 * SystemDisk().free_bytes(str(tmp_path))
    with ServedBroker(storage_min_free_bytes=floor) as broker:
        terminal = Terminal(broker)
        found = checks(terminal, terminal.bootstrap)
        assert terminal.code == 1
        assert found["disk"]["state"] == "failed"
        assert f"{floor:,} stay free (storage.min.free.bytes), so produce requests are refused" in found["disk"]["text"]
        assert "retention" in found["disk"]["hint"]
        assert "but the disk of broker " in terminal.run("health")
        assert terminal.code == 0, "a restart frees nothing"
        (facts,) = terminal.objects("health")
        assert (facts["healthy"], len(facts["low"])) == (True, 1)


@pytest.mark.parametrize(
    ("advertised", "text"),
    [("no-such-host.invalid:9092", "does not resolve from here"), ("127.0.0.1:1", "connection refused")],
)
def test_doctor_names_an_unreachable_advertised_address_with_a_hint(advertised: str, text: str) -> None:
    with ServedBroker(advertised_listeners=(advertised,)) as broker:
        terminal = Terminal(broker)
        found = checks(terminal, terminal.bootstrap)
    assert terminal.code == 1
    assert [each["state"] for each in found.values()] == ["ok", "ok", "ok", "ok", "failed"]
    assert advertised in found["advertised"]["text"]
    assert text in found["advertised"]["text"]
    assert "advertised.listeners" in found["advertised"]["hint"]


def test_a_command_redirected_to_an_unreachable_address_names_it_and_doctor() -> None:
    with ServedBroker(advertised_listeners=("127.0.0.1:1",)) as broker:
        terminal = Terminal(broker)
        code, cause, hint = terminal.refused("topic create x --timeout 2s")
    assert code == 4
    assert "127.0.0.1:1: connection refused" in cause
    assert hint.startswith("clients connect to the address that the broker advertises: ")
    assert hint.endswith(f"fencepost doctor {terminal.bootstrap} checks it")


def test_doctor_names_the_transaction_that_blocks_readers(terminal: Terminal) -> None:
    terminal.run("topic create blocked")
    producer = terminal.open_transaction("blocker", "blocked", "a")
    assert "by transaction blocker" in checks(terminal, terminal.bootstrap)["transactions"]["text"]
    producer.abort_transaction()


def test_doctor_exits_with_1_at_an_unknown_host_name_or_refused_connection(terminal: Terminal) -> None:
    assert checks(terminal, "no-such-host.invalid:9092")["name"]["state"] == "failed"
    assert checks(terminal, "127.0.0.1:1")["connection"]["text"].endswith("connection refused")
    assert terminal.code == 1
    assert terminal.refused("doctor 127.0.0.1:port")[0] == 2


def test_doctor_reports_a_port_that_does_not_speak_kafkas_protocol(terminal: Terminal) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        other.settimeout(20)
        found = checks(terminal, f"127.0.0.1:{other.getsockname()[1]}", "300ms")
    assert (found["connection"]["state"], found["protocol"]["state"]) == ("ok", "failed")


def test_doctors_hint_for_a_wrong_password_names_user_and_sasl_options(terminal: Terminal) -> None:
    with Broker(users={"alice": "right"}) as broker:
        wrong = {**broker.client_config("alice"), "sasl.password": "wrong"}
        options = " ".join(f"-X {name}={value}" for name, value in wrong.items() if name != "bootstrap.servers")
        found = checks(terminal, f"{broker.bootstrap_servers} {options}")["protocol"]
    assert (found["state"], found["hint"]) == ("failed", "check --user, its password and --sasl")


async def test_doctor_resolves_names_and_reports_refused_connections() -> None:
    assert await addresses("127.0.0.1") == ["127.0.0.1"]
    assert await addresses("no-such-host.invalid") == []
    assert (await connects("127.0.0.1", 1, 1_000))[1] == "connection refused"


def test_doctor_compares_with_kafka_releases_from_the_newest_to_the_oldest() -> None:
    assert sorted(RELEASES, reverse=True) == list(RELEASES)


def test_health_exits_with_0_if_the_broker_answers_and_else_with_1(terminal: Terminal) -> None:
    assert terminal.run("health").startswith(f"healthy: {terminal.bootstrap} answers in ")
    assert terminal.objects("health")[0]["healthy"] is True
    assert terminal.refused("health -b 127.0.0.1:1 --timeout 300ms")[0] == 1
    assert json.loads(terminal.run("health -b 127.0.0.1:1 -o json --timeout 300ms"))["healthy"] is False
    assert terminal.code == 1


def test_health_waits_for_a_broker_that_is_starting() -> None:
    early = socket.create_server(("127.0.0.1", 0))
    early.settimeout(20)
    port = early.getsockname()[1]
    served = ServedBroker(listeners=(f"127.0.0.1:{port}",))
    terminal = Terminal.__new__(Terminal)  # its __init__() needs a broker that has started
    terminal.bootstrap = f"127.0.0.1:{port}"
    stop = threading.Event()

    def later() -> None:
        with early, early.accept()[0] as asking:
            asking.settimeout(20)
            while asking.recv(1000):  # the first connection gets no answer, until its client gives up
                pass
        with served:
            stop.wait(30)

    thread = threading.Thread(target=later)
    thread.start()
    try:
        assert terminal.run("health --wait 20s --timeout 300ms").startswith("healthy")
    finally:
        stop.set()
        thread.join()
