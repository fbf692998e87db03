"""`backup`, `restore` and `store` with URLs: what they show, and what they refuse, in two lines."""

import json

import pytest
from click.testing import CliRunner
from fencepost.broker.config.settings import BrokerSettings
from fencepost.cli import main
from left_directory import left_in
from odd_store import OddStore, error_body
from produce_requests import batch, create, produce
from simulated_broker import SimulatedBroker

USAGE = 2
DENIED = 6


def run(*words):
    found = CliRunner().invoke(main, list(map(str, words)))
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    return found


def refused(*words, code=1):
    """Run a command that fails with this exit code, and return its cause and its hint."""
    found = run(*words)
    assert found.exit_code == code, found.output
    cause, hint = found.stderr.splitlines()[-2:]
    assert (cause[:7], hint[:6]) == ("error: ", "hint: ")
    return cause[7:], hint[6:]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A data directory that a broker left when it was killed, with two topics."""
    with SimulatedBroker(BrokerSettings(log_dir="/d")) as world:
        for topic in "ab":
            world.ask(create(topic))
            world.ask(produce(topic, batch()))
        world.wait(60)
        return left_in(tmp_path_factory.mktemp("broker") / "d", world.disk, "/d")


@pytest.fixture
def url(tmp_path):
    return f"file://{tmp_path / 'store'}"


def test_backup_to_a_url_can_be_listed_verified_and_restored(written, url, tmp_path):
    found = run("backup", written, url)
    assert found.exit_code == 0, found.output
    assert found.stdout.startswith(f"{url}: ")
    assert found.stdout.endswith("; no broker ran\n")
    status = run("store", "status", url).stdout
    assert [line.split()[0] for line in status.splitlines()] == [
        "restorable", "newest", "points", "data", "store", "follower",
    ]  # fmt: skip
    assert ": sound: 1 point, " in run("store", "verify", url).stdout
    assert ": sound: 1 point, " in run("restore", "--check", url).stdout
    restored = run("restore", url, tmp_path / "copy")
    assert restored.exit_code == 0, restored.output
    assert run("log", "verify", tmp_path / "copy").exit_code == 0


def test_a_second_backup_writes_fewer_bytes_than_the_first(written, url):
    first = json.loads(run("backup", written, url, "-o", "json").stdout)
    second = json.loads(run("backup", written, url, "-o", "json").stdout)
    assert second["bytes"] < first["bytes"]
    assert second["last_unit"] == first["last_unit"]
    assert "damaged" not in run("store", "status", url).stdout


def test_the_option_at_of_restore_takes_an_iso_8601_time_not_before_the_backup(written, url, tmp_path):
    run("backup", written, url)
    newest_ms = json.loads(run("store", "status", url, "-o", "json").stdout)["newest_ms"]
    facts = json.loads(run("restore", url, "--data-dir", tmp_path / "copy", "--at", "2100-01-01", "-o", "json").stdout)
    assert facts["moment_ms"] == newest_ms
    cause, hint = refused("restore", url, tmp_path / "other", "--at", "2026-01-01T00:00Z")
    assert "the oldest point is of 20" in cause
    assert hint.endswith("or later")
    assert (
        refused("restore", url, tmp_path / "other", "--at", "yesterday", code=USAGE)[0] == "--at yesterday is no time"
    )


def test_store_verify_and_restore_name_a_damaged_object_and_exit_with_1(written, url, tmp_path):
    run("backup", written, url)
    part = next((tmp_path / "store" / "0" / "parts").iterdir())
    part.write_bytes(part.read_bytes()[:-1] + b"?")
    found = run("store", "verify", url)
    assert found.exit_code == 1
    assert f"0/parts/{part.name}" in found.stdout
    assert f"0/parts/{part.name}" in refused("restore", url, tmp_path / "copy")[0]
    assert list((tmp_path / "copy").iterdir()) == []


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (["backup", "--follow", "DIR", "FOLDER"], "is a folder: it cannot be followed into"),
        (["backup", "FOLDER"], "name the data directory and where the backup is"),
        (["backup", "DIR", "http://x/y"], "no store of objects is known by http://"),
        (["backup", "DIR", "file://relative"], "the path is not absolute"),
        (["backup", "--every", "1ms", "--follow", "DIR", "URL"], "--every 1ms is too often"),
        (["restore", "FOLDER", "DIR", "--at", "2026-01-01"], "is a folder, which has one moment"),
        (["restore", "URL"], "name a DIR, or use --check without one"),
        (["restore", "URL", "DIR", "--data-dir", "DIR"], "DIR and --data-dir are both given"),
        (["serve", "--ephemeral", "--backup", "URL"], "--ephemeral and --backup cannot be used together"),
        (["serve", "--backup", "ftp://x"], "no store of objects is known by ftp://"),
    ],
)
def test_wrong_backup_and_restore_arguments_exit_with_2_and_the_cause(words, cause, url, tmp_path):
    places = {"DIR": tmp_path / "d", "FOLDER": tmp_path / "f", "URL": url}
    assert cause in refused(*(places.get(word, word) for word in words), code=USAGE)[0]


def test_store_and_restore_commands_refuse_a_url_without_a_backup(url, tmp_path):
    assert refused("store", "status", url, code=3)[0] == f"{url} has neither a backup nor a journal"
    assert refused("store", "verify", url, code=3)[0] == f"{url} has neither a backup nor a journal"
    assert refused("restore", url, tmp_path / "copy")[0].startswith(f"{url} has no backup, or one")
    assert not (tmp_path / "copy").exists()
    assert "has no broker's data" in refused("backup", tmp_path, url)[0]


@pytest.fixture
def bucket(monkeypatch, tmp_path):
    odd = OddStore()
    monkeypatch.setenv("AWS_ENDPOINT_URL", odd.endpoint)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "key")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    yield odd
    odd.close()


@pytest.mark.parametrize(
    ("status", "code", "cause"),
    [
        (404, "NoSuchBucket", "s3://bucket: there is no such bucket"),
        (403, "AccessDenied", "the store does not allow it"),
    ],
)
def test_store_errors_of_bucket_or_rights_are_printed_as_one_cause_and_one_hint(
    written, bucket, status, code, cause, tmp_path
):
    commands = (
        ["backup", written], ["backup", "--follow", written], ["store", "status"], ["store", "verify"],
        ["restore", "--data-dir", tmp_path / "copy"],
    )  # fmt: skip
    for words in commands:
        bucket.answers = [(status, error_body(code))] * 5
        found_cause, hint = refused(*words, "s3://bucket/prefix", code=DENIED)
        assert cause in found_cause
        assert hint
    assert not (tmp_path / "copy").exists()


def test_backup_to_s3_without_obstore_names_the_extra_to_install(written, monkeypatch):
    import builtins

    imported = builtins.__import__

    def without(name, *more):
        if name == "obstore":
            raise ModuleNotFoundError(name=name)
        return imported(name, *more)

    monkeypatch.delitem(__import__("sys").modules, "fencepost.effects.objects.remote", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    cause, hint = refused("backup", written, "s3://bucket")
    assert cause == "this command needs obstore, which is not installed"
    assert hint == "pip install 'fencepost[store]'"
