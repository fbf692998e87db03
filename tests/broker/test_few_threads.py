"""A broker on a system that gives few threads: it is refused by name, or serves with those there are."""

import os

import pytest
from fencepost.broker.embedded.broker import Broker
from fencepost.client import sync
from fencepost.client.admin.values import NewTopic
from fencepost.client.errors import RetriableError
from fencepost.client.sync import loop_thread as loop_threads
from fencepost.effects.disk import CannotStartThread
from few_threads import threads_left

OWN = 1  # the thread in which an embedded broker lives
FIRSTS = 5  # one thread for each pool of the broker
LOGIN = {"users": {"ada": "secret"}}


@pytest.mark.slow
@pytest.mark.parametrize("left", range(OWN + FIRSTS))
@pytest.mark.parametrize("settings", [{}, LOGIN], ids=["plain", "logins"])
def test_a_start_without_enough_threads_is_refused_and_a_later_one_succeeds(tmp_path, left, settings):
    broker = Broker(tmp_path / "data", **settings)
    with threads_left(left) as refused, pytest.raises(CannotStartThread):
        broker.start()
    assert refused
    assert not broker.running
    broker.stop()
    with Broker(tmp_path / "data", **settings) as broker:
        assert broker.running


def test_a_start_refused_for_lack_of_threads_leaves_no_descriptors_or_files(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with Broker():
        pass
    before = len(os.listdir("/dev/fd"))
    for left in range(OWN + FIRSTS):
        with threads_left(left), pytest.raises(CannotStartThread):
            Broker().start()
    assert len(os.listdir("/dev/fd")) == before
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_with_one_thread_per_pool_the_broker_still_writes_and_reads(tmp_path):
    sync.Admin("127.0.0.1:1").close()  # starts the thread of the clients before threads are scarce
    with threads_left(OWN + FIRSTS) as refused, Broker(tmp_path / "data") as broker:
        servers = broker.bootstrap_servers
        with sync.Admin(servers) as admin:
            admin.create_topics([NewTopic("t", 3)])
        with sync.Producer(servers, acks="all") as producer:
            for number in range(300):
                producer.send("t", bytes(10_000), partition=number % 3)
        broker.advance(3600)  # time for flushes, checkpoints and removals of files
        with sync.Consumer(servers, topics=["t"], auto_offset_reset="earliest") as consumer:
            assert len([next(consumer) for _ in range(300)]) == 300
        assert broker.failures == []
    assert refused


def test_a_blocking_client_that_gets_no_thread_raises_a_retriable_error(monkeypatch):
    """The error's hint names `ulimit -u`. The next client, for which a thread can be started, works."""
    monkeypatch.setattr(loop_threads, "_current", None)
    with Broker() as broker:
        with threads_left(0), pytest.raises(RetriableError, match="no further thread") as refused:
            sync.Admin(broker.bootstrap_servers)
        assert "ulimit -u" in refused.value.hint
        with sync.Admin(broker.bootstrap_servers) as admin:
            assert admin.describe_cluster().nodes
