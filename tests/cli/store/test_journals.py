"""`store` with the URL of a journal: what it shows, and what it refuses, in two lines."""

import json

import pytest
from click.testing import CliRunner
from crc32c import crc32c
from fencepost.broker.config.settings import BrokerSettings
from fencepost.broker.ownership.owner import InStore
from fencepost.cli import main
from fencepost.effects.objects import open_objects
from fencepost.storage.journal_source import StoreDamaged
from fencepost.storage.objects import format as form
from fencepost.storage.objects.errors import Fenced
from left_directory import left_in
from produce_requests import batch, create, produce
from simulated_broker import SimulatedBroker

SETTINGS = BrokerSettings(offsets_topic_num_partitions=1, transaction_state_log_num_partitions=1)


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


def serve(url, disk=None):
    return SimulatedBroker(SETTINGS, disk=disk, in_store=InStore(open_objects(url), lambda seconds: None))


@pytest.fixture
def url(tmp_path):
    return f"file://{tmp_path / 'store'}"


@pytest.fixture
def written(url):
    """The URL of a journal of a broker that was killed, with a checkpoint and rounds after it."""
    broker = serve(url)
    broker.ask(create("t"))
    for _ in range(20):
        broker.ask(produce("t", batch()), 11)
        broker.wait(3)
    broker.abandon()
    return url


def test_store_status_and_verify_describe_a_sound_journal(written):
    status = run("store", "status", written)
    assert status.exit_code == 0, status.output
    assert [line.split()[0] for line in status.stdout.splitlines()] == ["owner", "newest", "point", "epochs", "store"]
    assert "owner      epoch 1, node 1 at 127.0.0.1:9092, since round 1\n" in status.stdout
    facts = json.loads(run("store", "status", written, "-o", "json").stdout)
    assert (facts["epoch"], facts["owner"]["node"], facts["ended_by"]) == (1, 1, None)
    assert facts["point"]["last_unit"] <= facts["last_unit"]
    assert ": sound: " in run("store", "verify", written).stdout
    assert json.loads(run("store", "verify", written, "-o", "json").stdout)["damaged"] == []


def test_store_verify_and_status_exit_with_1_on_a_damaged_journal(written, tmp_path):
    rounds = sorted((tmp_path / "store" / "0" / "journal").rglob("[0-9][0-9]"))
    rounds[-2].write_bytes(rounds[-2].read_bytes()[:-1] + b"?")
    name = str(rounds[-2].relative_to(tmp_path / "store"))
    found = run("store", "verify", written)
    assert found.exit_code == 1
    assert name in found.stdout
    assert refused("store", "verify", written)[0] == "1 object damaged"
    rounds[-2].write_bytes(b"")
    assert run("store", "status", written).exit_code == 1


def newer(path):
    """Rewrite an object with the number of the next format and the checksum that belongs to it.

    Only for the object `format` and for claims (owners/…): other objects have more than one checksum.
    """
    content = bytearray(path.read_bytes())
    content[8:10] = (form.FORMAT + 1).to_bytes(2, "big")
    content[4:8] = crc32c(bytes(content[8:])).to_bytes(4, "big")
    path.chmod(0o600)
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["format", "owners/0000000001"])
def test_store_commands_name_an_object_of_a_newer_format_and_end_no_epoch(written, tmp_path, name):
    newer(tmp_path / "store" / "0" / name)
    for words in (["status"], ["verify"], ["take", "--yes"]):
        _, hint = refused("store", words[0], written, *words[1:])
        assert hint.startswith("start a newer fencepost")
    found = run("store", "verify", written)
    assert f"damaged: 0/{name}: it has format 2, which only a newer fencepost can read\n" in found.stdout
    assert json.loads(run("store", "status", written, "-o", "json").stdout)["seals"] == []


@pytest.mark.parametrize("content", [None, b"", b"not what it was"])
def test_store_commands_name_a_lost_or_damaged_identity_and_end_no_epoch(written, tmp_path, content):
    """Without it nobody takes over: `store take` would end the owner's epoch for nobody."""
    path = tmp_path / "store" / "0" / "format"
    path.unlink() if content is None else path.write_bytes(content)
    assert "0/format: it " in run("store", "verify", written).stdout
    assert "damaged    0/format: it " in run("store", "status", written).stdout
    assert "0/format: it " in refused("store", "take", written, "--yes")[0]
    assert json.loads(run("store", "status", written, "-o", "json").stdout)["ended_by"] is None


def test_restore_of_a_journal_makes_a_sound_data_directory_with_its_last_entry(written, tmp_path):
    restored = run("restore", written, "--data-dir", tmp_path / "copy")
    assert restored.exit_code == 0, restored.output
    assert restored.stdout.startswith(f"{tmp_path / 'copy'}: a point and ")
    assert run("log", "verify", tmp_path / "copy").exit_code == 0
    facts = json.loads(run("restore", written, tmp_path / "other", "-o", "json").stdout)
    assert facts["last_unit"] == json.loads(run("store", "status", written, "-o", "json").stdout)["last_unit"]
    assert ": sound: " in run("restore", "--check", written).stdout


def test_restoring_a_journal_to_a_point_in_time_exits_with_2_and_a_hint(written, tmp_path):
    cause, hint = refused("restore", written, tmp_path / "copy", "--at", "2026-01-01", code=2)
    assert cause == f"{written} has a journal, and of that its newest state only"
    assert hint.startswith("leave out --at")


def test_restore_of_a_journal_without_one_object_is_refused_naming_the_object(written, tmp_path):
    rounds = sorted((tmp_path / "store" / "0" / "journal").rglob("[0-9][0-9]"))
    rounds[-2].unlink()
    cause, _ = refused("restore", written, tmp_path / "copy")
    assert str(rounds[-2].relative_to(tmp_path / "store")) in cause
    assert not (tmp_path / "copy").exists()


# ---- take ----------------------------------------------------------------------------------------------------


def test_store_take_fences_the_owner_and_the_next_broker_serves(url):
    owner = serve(url)
    owner.ask(create("t"))
    taken = run("store", "take", url, "--yes")
    assert taken.exit_code == 0, taken.output
    assert taken.stdout.startswith(f"{url}: epoch 1 is ended at round ")
    status = run("store", "status", url).stdout
    assert (
        "owner      none: epoch 1, node 1 at 127.0.0.1:9092, since round 1, was handed over; nobody has begun since\n"
        in status
    )
    with pytest.raises(ConnectionError):
        owner.ask(produce("t", batch()), 11)
    assert isinstance(owner.broker.halted, Fenced)
    owner.abandon()
    after = serve(url)
    after.ask(produce("t", batch()), 11)
    facts = json.loads(run("store", "status", url, "-o", "json").stdout)
    assert (facts["epoch"], facts["ended_by"]) == (3, None)
    assert facts["seals"][0] == {"epoch": 1, "round": facts["seals"][0]["round"], "by": 2, "handed_over": True}
    after.stop()


def test_store_take_without_yes_or_of_a_store_without_owner_is_refused(written, tmp_path):
    cause, hint = refused("store", "take", written, code=2)
    assert cause == f"{written} is owned by epoch 1, node 1 at 127.0.0.1:9092"
    assert hint.startswith("--yes")
    assert run("store", "take", written, "--yes", "-o", "json").exit_code == 0
    cause, _ = refused("store", "take", written, "--yes")
    assert cause.endswith("epoch 1 was ended by epoch 2, and nobody has begun since")
    nothing = f"file://{tmp_path}/none"
    assert refused("store", "take", nothing, "--yes", code=3)[0] == f"{nothing} has no journal of a broker"


def test_store_take_is_refused_if_the_stores_last_broker_has_stopped_normally(url):
    serve(url).stop()
    cause, _ = refused("store", "take", url, "--yes")
    assert cause.endswith("epoch 1 was handed over by its owner, and nobody has begun since")
    assert ", was handed over; nobody has begun since\n" in run("store", "status", url).stdout


# ---- a journal and a backup ------------------------------------------------------------------------------------


@pytest.fixture
def plain(tmp_path):
    """A data directory without a store."""
    with SimulatedBroker(BrokerSettings(log_dir="/d")) as broker:
        broker.ask(create("t"))
        return left_in(tmp_path / "plain", broker.disk, "/d")


def test_backup_into_a_store_that_has_a_journal_is_refused_and_changes_nothing(written, plain):
    before = run("store", "status", written, "-o", "json").stdout
    for words in (["backup", plain, written], ["backup", "--follow", plain, written]):
        assert refused(*words)[0] == f"{written} holds the journal of brokers"
    assert run("store", "status", written, "-o", "json").stdout == before


def test_serving_a_journal_in_a_store_that_has_a_backup_is_refused(plain, url):
    assert run("backup", plain, url).exit_code == 0
    with pytest.raises(StoreDamaged, match="it holds a backup"):
        serve(url)
    assert refused("store", "take", url, "--yes", code=3)[0] == f"{url} has no journal of a broker"


def test_backup_of_a_directory_whose_journal_is_in_a_store_is_refused(url, tmp_path):
    with SimulatedBroker(
        BrokerSettings(log_dir="/d"), in_store=InStore(open_objects(url), lambda seconds: None)
    ) as broker:
        broker.ask(create("t"))
        directory = left_in(tmp_path / "copy", broker.disk, "/d")
    for target in (f"file://{tmp_path}/other", tmp_path / "folder"):
        cause, hint = refused("backup", directory, target)
        assert "its journal is in a store of objects" in cause
        assert hint.startswith("fencepost restore URL")
