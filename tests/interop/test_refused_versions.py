"""`transaction.v1.policy=refuse`: clients of the old protocol are told so, those of the new one go on."""

from contextlib import closing

import library_producers
import pytest
from library_producers import LIBRARIES
from old_client import Looker
from served_broker import ServedBroker


@pytest.fixture(scope="module")
def strict():
    with ServedBroker(transaction_v1_policy="refuse") as broker:
        yield f"127.0.0.1:{broker.port}"


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_tv1_client_gets_unsupported_version_when_the_broker_requires_tv2(strict, library, name, monkeypatch):
    monkeypatch.setattr(library_producers, "TIMEOUT_S", 2)  # librdkafka asks again until its time is over
    with closing(LIBRARIES[library](strict, f"id-{name}")) as producer:
        with pytest.raises(Exception, match=r"(?i)unsupported_?version") as refused:
            producer.init()
        del refused


def test_a_tv2_client_of_java_commits_when_the_broker_requires_tv2(strict, java, name):
    producer = java.producer(strict, f"id-{name}")
    with Looker(strict) as look:
        look.topic(name)
        producer.do("init")
        producer.do("begin")
        producer.send(name, "one")
        producer.do("commit")
        assert look.committed(name) == [b"one"]
    producer.do("close")
