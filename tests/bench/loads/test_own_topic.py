"""A window's own topic, and one that a load deletes, are waited for until the disk has their blocks again."""

import contextlib

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
    """A list of what own_topic() does, in this order, to replaced functions for topics and the disk."""
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


@pytest.mark.parametrize("load", [small, produce])
def test_the_loads_that_write_gigabytes_make_their_topics_with_own_topic(load):
    assert load.own_topic is own_topic
