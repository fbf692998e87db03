"""`fencepost doctor --store`: what it finds in stores that can keep a journal, and in those that cannot."""

import json

import pytest
from click.testing import CliRunner
from fencepost.cli import main
from fencepost.cli.doctor import stores
from fencepost.cli.store import looking
from fencepost.effects.objects import Content, Exists, Mount, Unclear, open_objects
from fencepost.effects.simulated.objects import SimulatedObjects
from s3_servers import STORES, opened_store


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


CHECKS = ["use", "create", "list", "delete", "latency"]


@pytest.mark.parametrize("kind", STORES)
def test_doctor_passes_a_store_whose_creates_are_atomic_and_leaves_no_object_in_it(kind, tmp_path, monkeypatch):
    with opened_store(kind, tmp_path, monkeypatch) as url:
        found, code = checks(url)
        assert code == 0, found
        assert {each["state"] for each in found.values()} == {"ok"}, found
        assert [each for each in found if each in CHECKS] == CHECKS
        assert ("mount" in found) is url.startswith("file:")
        assert open_objects(url).list("") == []
    assert not [path for path in (tmp_path / "store").rglob("*") if path.is_file()]


class DeletesAtTheSecondAttempt(SimulatedObjects):
    """A store that does not answer the first delete of an object, and has not carried it out."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: set[str] = set()

    def delete(self, name: str) -> None:
        if name not in self.asked:
            self.asked.add(name)
            raise Unclear(name, "no answer in 4 s")
        super().delete(name)


def test_doctor_deletes_its_objects_again_where_a_delete_had_no_answer(simulated):
    objects = DeletesAtTheSecondAttempt()
    simulated(objects)
    _, code = checks("file:///simulated")
    assert code == 0
    assert objects.list("") == []


class Ignores(SimulatedObjects):
    """A store that ignores the condition of a create."""

    def create(self, name: str, content: Content) -> None:
        self.put(name, content)


def test_doctor_fails_a_store_where_two_creates_of_one_name_succeed(simulated):
    simulated(Ignores())
    found, code = checks("file:///simulated")
    assert code == 1
    assert found["create"]["state"] == "failed"
    assert "of 4 creates of one name 4 succeeded" in found["create"]["text"]
    assert "list" not in found


class Full(SimulatedObjects):
    """A store that says of every name that it is there."""

    def create(self, name: str, content: Content) -> None:
        raise Exists(name, "412")


def test_doctor_fails_a_store_where_no_conditional_create_succeeds(simulated):
    simulated(Full())
    found, code = checks("file:///simulated")
    assert (code, found["create"]["state"]) == (1, "failed")
    assert found["create"]["text"] == f"in {stores.MAX_RACES} races no create of a new name succeeded often enough"


def test_doctor_fails_a_store_if_one_of_its_addresses_ignores_conditional_creates(simulated, monkeypatch):
    kept, ignored = SimulatedObjects(), Ignores()
    ignored.content = kept.content
    simulated(kept)
    monkeypatch.setattr(stores, "open_at_each_address", lambda url: [kept, ignored])
    found, code = checks("file:///simulated")
    assert (code, found["create"]["state"], found["addresses"]["text"]) == (1, "failed", "2: each takes part")


def test_doctor_warns_of_a_store_that_keeps_deleted_objects_or_has_a_backup(simulated):
    objects = simulated(SimulatedObjects())
    objects.faults.keeps = 1.0
    objects.content["0/claims/0000000001"] = b"of a follower"
    found, code = checks("file:///simulated")
    assert (code, found["delete"]["state"], found["use"]["state"]) == (0, "warning", "warning")


def test_doctor_fails_a_store_that_does_not_list_created_objects(simulated, monkeypatch):
    objects = simulated(SimulatedObjects())
    monkeypatch.setattr(objects, "list", lambda prefix, after="": [])
    found, code = checks("file:///simulated")
    assert (code, found["list"]["state"]) == (1, "failed")


def test_doctor_warns_of_a_store_that_lists_names_in_no_order(simulated):
    """S3 Express does; a listing of several pages proves nothing there, and a take-over waits for one that does."""
    simulated(SimulatedObjects())
    found, code = checks("file:///simulated")
    assert (code, found["list"]["state"]) == (0, "warning")
    assert found["list"]["text"].endswith("its names are in no order")
    assert found["list"]["hint"].startswith("nobody can take over while a journal there has more than 1,000 rounds")


def test_doctor_fails_a_store_on_an_nfs_mount_before_it_writes_anything(monkeypatch, tmp_path):
    mount = Mount(str(tmp_path), "nfs4", frozenset({"rw"}))
    monkeypatch.setattr(stores, "mount_of_url", lambda url: mount)
    found, code = checks(f"file://{tmp_path}/store")
    assert (code, list(found), found["mount"]["state"]) == (1, ["mount"], "failed")
    assert not (tmp_path / "store").exists()
