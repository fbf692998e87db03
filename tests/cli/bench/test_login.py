"""`fencepost bench` where the broker asks for a login and checks rights."""

import json

import pytest
from click.testing import CliRunner
from fencepost.cli import main
from long_runs import first_only

from fencepost import Broker

LOADS = {
    "small": ["--connections", "2", "--seconds", "0.1"],
    "produce": ["--records", "100"],
    "txn": ["--seconds", "0.1"],
    "modes": ["--records", "20", "--seconds", "0.1"],
    "observed": ["--records", "20", "--rounds", "1"],
}


@pytest.fixture(scope="module")
def broker():
    with Broker(users={"root": "toor", "alice": "secret"}, super_users=["root"]) as broker:
        yield broker


def bench(broker, *arguments, user="root", password="toor"):
    options = ["-b", broker.bootstrap_servers, "-o", "json", "--user", user]
    return CliRunner().invoke(main, ["bench", *arguments, *options], env={"FENCEPOST_PASSWORD": password})


def topics(broker):
    return broker.inside(lambda inner: [name for name in inner.topics.by_name if not name.startswith("__")])


@pytest.mark.parametrize("load", first_only(LOADS, 2))
def test_every_bench_load_runs_with_a_user_and_password_and_deletes_its_topic(broker, load):
    found = bench(broker, load, *LOADS[load])
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout.splitlines()[0])["records"] > 0
    assert topics(broker) == []


def test_bench_consume_reads_all_records_with_a_user_and_password(broker):
    broker.inside(lambda inner: inner.topics.create("read", 1))
    assert bench(broker, "produce", "--topic", "read", "--records", "100").exit_code == 0
    found = bench(broker, "consume", "--topic", "read", "--records", "100")
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["records"] == 100
    broker.inside(lambda inner: inner.topics.delete(inner.topics.by_name["read"]))


@pytest.mark.parametrize("load", LOADS)
def test_bench_with_a_wrong_password_or_missing_right_exits_with_6_and_a_hint(broker, load):
    for user, password in (("root", "wrong"), ("alice", "secret")):
        found = bench(broker, load, *LOADS[load], user=user, password=password)
        assert found.exit_code == 6, found.output
        cause, hint = found.stderr.splitlines()[-2:]
        assert cause.startswith("error: ")
        assert hint.startswith("hint: ")
        assert password not in found.output


def test_bench_takes_its_password_from_the_client_config_file(broker, tmp_path):
    file = tmp_path / "client.properties"
    properties = broker.client_config("root")
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    found = CliRunner().invoke(main, ["bench", "small", *LOADS["small"], "--client-config", str(file), "-o", "json"])
    assert found.exit_code == 0, found.output
