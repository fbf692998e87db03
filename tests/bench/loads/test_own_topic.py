"""Topics that are deleted between measurements: the next step waits until their disk space is free."""

import contextlib
from collections.abc import Iterator

import pytest
from fencepost.bench import topics
from fencepost.bench.contest.contest import Surroundings
from fencepost.bench.loads import produce, small
from fencepost.bench.loads.own_topic import own_topic
from fencepost.bench.peers import disk
from fencepost.bench.peers.peers import Peer

PEER = Peer("one", "127.0.0.1", 9092, 1, directory="/somewhere")


@pytest.fixture
def done(monkeypatch):
    """Replace the functions for topics and the disk by ones that add a text to this list when they are called."""
    done = []

    @contextlib.contextmanager
    def topic(host, port, name, partitions):
        assert (host, port, name) == (PEER.host, PEER.port, None)
        done.append(f"made with {partitions}")
        yield "bench-1"
        done.append("deleted")

    monkeypatch.setattr(topics, "topic", topic)
    monkeypatch.setattr(topics, "delete", lambda host, port, topic: done.append(f"deleted {topic}"))
    monkeypatch.setattr(disk, "wait_until_freed", lambda directory, topic: done.append(f"{topic} freed in {directory}"))
    return done


def test_own_topic_deletes_its_topic_and_waits_until_the_disk_space_is_free(done):
    with own_topic(PEER, 4) as topic:
        done.append(f"loaded {topic}")
    assert done == ["made with 4", "loaded bench-1", "deleted", "bench-1 freed in /somewhere"]


def test_delete_removes_a_loads_topic_and_waits_until_its_disk_space_is_free(done):
    Surroundings().delete(PEER, "left")
    assert done == ["deleted left", "left freed in /somewhere"]


class Entered(Exception):
    """Raised by the replacement of own_topic()."""


@contextlib.contextmanager
def entered(peer: Peer, partitions: int) -> Iterator[str]:
    raise Entered
    yield "no topic"


@pytest.mark.parametrize(("module", "load"), [(small, small.table()[-1]), (produce, produce.table()[0])])
def test_a_load_that_writes_gigabytes_runs_each_window_in_own_topic(module, load, monkeypatch):
    assert module.own_topic is own_topic
    monkeypatch.setattr(module, "own_topic", entered)
    with pytest.raises(Entered):
        load.window(PEER, 1.0)
