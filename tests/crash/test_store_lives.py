"""Two real brokers on one S3 server whose answers are lost now and then: the owner is killed or paused again and again.

KILLS and ZOMBIES say how often (100 each by default), SEED which answers are lost. One producer goes on through all.
"""

import os
import random
import signal

import pytest
from losing_store import Node, Sending, losing_store
from store_brokers import numbers

KILLS, ZOMBIES = (int(os.environ.get(name, "100")) for name in ("KILLS", "ZOMBIES"))
SEED = int(os.environ.get("SEED", "0")) or random.SystemRandom().randrange(1 << 31)
TAKEN_OVER = 71  # the exit code of `serve` when another broker owns the store


@pytest.fixture(params=["seaweedfs", "versitygw"])
def losing(request, tmp_path, monkeypatch):
    """The URL of a store behind a proxy that loses answers, and the proxy."""
    with losing_store(request.param, tmp_path, monkeypatch, SEED) as both:
        yield both


@pytest.mark.slow
@pytest.mark.long
def test_each_record_is_there_once_after_many_kills_and_pauses_of_owners(losing, tmp_path):
    url, proxy = losing
    rng = random.Random(SEED)
    faults = [signal.SIGKILL] * KILLS + [signal.SIGSTOP] * ZOMBIES
    rng.shuffle(faults)
    owner, other = (Node(str(tmp_path / f"node{number}"), url, number) for number in (1, 2))
    owner.begin()
    owner.wait_until_it_serves()
    sending = Sending(f"{owner.broker.bootstrap},{other.broker.bootstrap}")
    done = dict.fromkeys((signal.SIGKILL, signal.SIGSTOP), 0)
    try:
        for fault in faults:
            other.begin()
            sending.more()
            os.kill(owner.broker.process.pid, fault)
            other.wait_until_it_serves()
            if fault == signal.SIGSTOP:
                os.kill(owner.broker.process.pid, signal.SIGCONT)
            assert owner.broker.ended() == (TAKEN_OVER if fault == signal.SIGSTOP else -signal.SIGKILL)
            done[fault] += 1
            owner, other = other, owner
        sending.more()
        sending.end()
        assert not sending.failed
        assert sending.acked == list(range(sending.sent))
        assert numbers(owner.broker) == list(range(sending.sent))
        assert proxy.lost or not faults
    finally:
        sending.end()
        kills, zombies = done.values()
        for node in (owner, other):
            print(f"node {node.broker.options[3]}:", *node.broker.lines[-10:], sep="\n  ")
        print(f"seed {SEED}: {kills} kills, {zombies} zombies, {sending.sent} records, {proxy.lost} answers lost")
        for node in (owner, other):
            if node.broker.process is not None:
                node.broker.kill()
