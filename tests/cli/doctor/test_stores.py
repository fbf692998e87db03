"""`fencepost doctor --store`: what it finds of stores that are a fence, and of those that are none."""

import json

import pytest
from click.testing import CliRunner
from fencepost.cli import main
from fencepost.cli.doctor import stores
from fencepost.cli.store import looking
from fencepost.effects.objects import Exists, Mount
from fencepost.effects.simulated.objects import SimulatedObjects


def checks(url):
    found = CliRunner().invoke(main, ["doctor", "--store", url, "-o", "json"])
    return {each["check"]: each for each in map(json.loads, found.stdout.splitlines())}, found.exit_code


@pytest.fixture
def simulated(monkeypatch):
    """Make commands use these objects, whatever URL they are given."""

    def use(objects):
        monkeypatch.setattr(looking, "objects_of", lambda url: objects)
        return objects

    return use


def test_a_directory_passes_and_nothing_is_left_in_it(tmp_path):
    found, code = checks(f"file://{tmp_path}/store")
    assert code == 0, found
    assert {each["state"] for each in found.values()} == {"ok"}, found
    assert list(found) == ["mount", "use", "create", "list", "delete", "latency"]
    assert not [path for path in (tmp_path / "store").rglob("*") if path.is_file()]


class Ignores(SimulatedObjects):
    """A store that ignores the condition of a create."""

    def create(self, name: str, content: bytes) -> None:
        self.put(name, content)


def test_a_store_on_which_two_can_win_is_refused(simulated):
    simulated(Ignores())
    found, code = checks("file:///simulated")
    assert code == 1
    assert found["create"]["state"] == "failed"
    assert "of 4 creates of one name 4 succeeded" in found["create"]["text"]
    assert "list" not in found


class Full(SimulatedObjects):
    """A store that says of every name that it is there."""

    def create(self, name: str, content: bytes) -> None:
        raise Exists(name, "412")


def test_a_store_that_creates_no_name_is_refused_after_some_races(simulated):
    simulated(Full())
    found, code = checks("file:///simulated")
    assert (code, found["create"]["state"]) == (1, "failed")
    assert found["create"]["text"] == f"in {stores.MOST_RACES} races no create of a new name succeeded often enough"


def test_one_of_whose_addresses_the_condition_is_not_kept_is_refused(simulated, monkeypatch):
    kept, ignored = SimulatedObjects(), Ignores()
    ignored.content = kept.content
    simulated(kept)
    monkeypatch.setattr(stores, "addresses_of", lambda url: [kept, ignored])
    found, code = checks("file:///simulated")
    assert (code, found["create"]["state"], found["addresses"]["text"]) == (1, "failed", "2: each takes part")


def test_one_that_keeps_what_is_deleted_or_holds_a_backup_is_warned_of(simulated):
    objects = simulated(SimulatedObjects())
    objects.faults.keeps = 1.0
    objects.content["0/claims/0000000001"] = b"of a follower"
    found, code = checks("file:///simulated")
    assert (code, found["delete"]["state"], found["use"]["state"]) == (0, "warning", "warning")


def test_one_that_does_not_list_what_was_created_is_refused(simulated, monkeypatch):
    objects = simulated(SimulatedObjects())
    monkeypatch.setattr(objects, "list", lambda prefix, after="": [])
    found, code = checks("file:///simulated")
    assert (code, found["list"]["state"]) == (1, "failed")


def test_a_cached_mount_is_refused_before_anything_is_written(monkeypatch, tmp_path):
    mount = Mount(str(tmp_path), "nfs4", frozenset({"rw"}))
    monkeypatch.setattr(stores, "mount_of_url", lambda url: mount)
    found, code = checks(f"file://{tmp_path}/store")
    assert (code, list(found), found["mount"]["state"]) == (1, ["mount"], "failed")
    assert not (tmp_path / "store").exists()
