"""What every store of objects does: the one in a directory, the simulated one, and S3 servers."""

import os
import threading

import pytest
from fencepost.effects.objects import Exists, Found, Missing, Refused, Unclear, open_objects
from fencepost.effects.objects.directory import WRITING, DirectoryObjects
from fencepost.effects.simulated.objects import Faults, SimulatedObjects, StoreCut
from s3_servers import STORES, opened_store

RACES, RACERS = 20, 8


@pytest.fixture(params=["simulated", *STORES])
def objects(request, tmp_path, monkeypatch):
    if request.param == "simulated":
        yield SimulatedObjects()
    else:
        with opened_store(request.param, tmp_path, monkeypatch) as url:
            yield open_objects(url)


@pytest.fixture(params=STORES)
def url(request, tmp_path, monkeypatch):
    with opened_store(request.param, tmp_path, monkeypatch) as found:
        yield found


def test_an_object_is_created_once_and_read_whole_or_in_part(objects):
    objects.create("a/b/1", b"hello")
    with pytest.raises(Exists):
        objects.create("a/b/1", b"other")
    assert objects.read("a/b/1") == b"hello"
    assert objects.read("a/b/1", 1) == b"ello"
    assert objects.read("a/b/1", 1, 3) == b"ell"
    assert objects.read("a/b/1", 3, 99) == b"lo"


def test_of_racers_that_create_one_object_at_most_one_succeeds_and_the_bytes_are_its(url):
    """If an answer was unclear, perhaps no racer is told that it succeeded; then the bytes are of an unclear one."""
    clients = [open_objects(url) for _ in range(RACERS)]
    for number in range(RACES):
        name, won, unclear, start = f"0/races/{number}", [], [], threading.Barrier(RACERS)

        def race(racer, name=name, won=won, unclear=unclear, start=start):
            start.wait()
            try:
                clients[racer].create(name, b"%d" % racer)
                won.append(racer)
            except Exists:
                pass
            except Unclear:
                unclear.append(racer)

        threads = [threading.Thread(target=race, args=(racer,)) for racer in range(RACERS)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        assert len(won) == 1 or (unclear and not won)
        assert int(clients[0].read(name)) in (won or unclear)


def test_putting_an_object_replaces_one_of_the_same_name(objects):
    objects.put("a/1", b"one")
    objects.put("a/1", b"two")
    assert objects.read("a/1") == b"two"


@pytest.mark.parametrize("name", ["none", "a/none", "a/b/none", "a/b"])
def test_reading_an_object_that_was_never_created_raises_missing(objects, name):
    objects.create("a/b/1", b"hello")
    with pytest.raises(Missing):
        objects.read(name)


def test_a_listing_has_the_names_below_a_prefix_and_their_sizes(objects):
    assert objects.list("a/") == []
    for name in ("a/1", "a/2", "a/3/4", "ab/1"):
        objects.create(name, b"x" * len(name))
    assert sorted(objects.list("a/")) == [Found("a/1", 3), Found("a/2", 3), Found("a/3/4", 5)]
    assert sorted(objects.list("a/", after="a/2")) == [Found("a/3/4", 5)]


def test_deleting_a_deleted_or_unknown_object_raises_nothing(objects):
    objects.create("a/1", b"x")
    objects.delete("a/1")
    objects.delete("a/1")
    objects.delete("never/there")
    assert objects.list("a/") == []
    objects.create("a/1", b"again")


def test_of_four_threads_that_create_one_object_exactly_one_succeeds(tmp_path):
    for number in range(20):
        won = []

        def race(racer, number=number, won=won):
            try:
                DirectoryObjects(str(tmp_path / "store")).create(f"folder{number}/name", b"%d" % racer)
                won.append(racer)
            except Exists:
                pass

        threads = [threading.Thread(target=race, args=(racer,)) for racer in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        assert [b"%d" % each for each in won] == [
            DirectoryObjects(str(tmp_path / "store")).read(f"folder{number}/name")
        ]
    assert os.listdir(tmp_path / "store" / WRITING) == []


def test_half_written_objects_of_a_crash_are_not_listed(tmp_path):
    objects = DirectoryObjects(str(tmp_path / "store"))
    objects.create("a/1", b"x")
    (tmp_path / "store" / WRITING / "left").write_bytes(b"half")
    assert objects.list("a/") == [Found("a/1", 1)]


def test_a_store_directory_whose_parent_is_missing_is_refused_with_a_hint(tmp_path):
    with pytest.raises(Refused, match="is no directory") as refused:
        DirectoryObjects(str(tmp_path / "not" / "there")).create("a", b"x")
    assert "make it first" in refused.value.hint
    assert not (tmp_path / "not").exists()


def test_a_store_directory_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(Refused, match="Not a directory"):
        DirectoryObjects(str(tmp_path / "file")).create("a", b"x")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_store_directory_without_write_permission_is_refused(tmp_path):
    (tmp_path / "store").mkdir(mode=0o500)
    with pytest.raises(Refused, match="Permission denied"):
        DirectoryObjects(str(tmp_path / "store")).create("a", b"x")


def test_the_url_of_a_store_directory_opens_the_same_store(tmp_path):
    from fencepost.effects.objects import open_objects

    objects = DirectoryObjects(str(tmp_path / "a b%20c"))
    objects.create("x", b"1")
    assert open_objects(objects.where).read("x") == b"1"


# ---- the faults of the simulated one ---------------------------------------------------------------------------


def test_a_simulated_create_that_raises_unclear_may_or_may_not_have_its_effect():
    before, after = SimulatedObjects(faults=Faults(before=1)), SimulatedObjects(faults=Faults(after=1))
    for objects in (before, after):
        with pytest.raises(Unclear):
            objects.create("a", b"x")
    assert (before.content, after.content) == ({}, {"a": b"x"})


def test_a_simulated_late_create_takes_effect_later_and_replaces_no_object():
    objects = SimulatedObjects(faults=Faults(late=1))
    with pytest.raises(Unclear):
        objects.create("a", b"late")
    with pytest.raises(Unclear):
        objects.create("b", b"late")
    objects.faults = Faults()
    objects.create("b", b"mine")
    for _ in range(25):  # a late create takes effect during later calls
        objects.list("a")
    assert objects.content == {"a": b"late", "b": b"mine"}


def test_a_simulated_store_that_is_away_or_refuses_raises_unclear_or_refused():
    objects = SimulatedObjects()
    objects.is_away = True
    with pytest.raises(Unclear):
        objects.read("a")
    objects.is_away, objects.refuses = False, "403"
    with pytest.raises(Refused, match="403"):
        objects.list("")
    assert objects.calls == [("read", "a"), ("list", "")]


@pytest.mark.parametrize("after", [False, True])
def test_a_simulated_client_can_die_before_or_after_the_effect_of_a_call(after):
    objects = SimulatedObjects()
    objects.cut_at(1, after=after)
    objects.create("a", b"x")
    with pytest.raises(StoreCut):
        objects.create("b", b"x")
    assert set(objects.client().content) == ({"a", "b"} if after else {"a"})


def test_simulated_deletes_may_have_no_effect_and_contents_may_be_damaged():
    objects = SimulatedObjects(faults=Faults(keeps=1))
    objects.create("a", b"x")
    objects.delete("a")
    objects.rot("a")
    assert objects.read("a") == b"y"


def test_a_store_directory_is_listed_in_order_even_while_objects_are_created(tmp_path):
    objects = DirectoryObjects(str(tmp_path / "store"))
    for name in ("j/2/b", "j/1/z", "j/1/a", "j/2/a"):
        objects.create(name, b"x")
    assert [found.name for found in objects.list("j/")] == ["j/1/a", "j/1/z", "j/2/a", "j/2/b"]
    walk = objects._walk(str(tmp_path / "store" / "j"))
    seen = [next(walk).name]
    for name in ("j/2/c", "j/3/a"):
        objects.create(name, b"x")
    assert [*seen, *(found.name for found in walk)] == ["j/1/a", "j/1/z", "j/2/a", "j/2/b", "j/2/c", "j/3/a"]
