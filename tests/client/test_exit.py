"""Clients that are open when the interpreter exits, by what it calls then; test_programs_that_end.py has real exits."""

import asyncio
import gc
import logging
from types import SimpleNamespace
from weakref import WeakSet

import pytest
from fencepost.client import sync, unclosed
from fencepost.client.producer.producer import Producer
from fencepost.testing.served import ObservedBroker

KEEPS_BACK = 60_000


@pytest.fixture(scope="module")
def broker():
    with ObservedBroker() as broker:
        yield broker


@pytest.fixture
def leave(monkeypatch):
    """Give a function that does for the clients of the test what the interpreter's exit would do."""
    registered = []
    monkeypatch.setattr(unclosed, "_open", WeakSet())
    monkeypatch.setattr(
        unclosed, "atexit", SimpleNamespace(register=registered.append, unregister=lambda call: registered.clear())
    )

    def call_all():
        for call in registered:
            call()

    return call_all


def errors(caplog):
    return [said.getMessage() for said in caplog.records if said.levelno >= logging.WARNING]


def test_a_blocking_producer_sends_accepted_records_at_exit(broker, leave, caplog):
    producers = [sync.Producer(broker.bootstrap_servers, linger_ms=KEEPS_BACK) for _ in range(2)]
    for producer in producers:
        producer.start()
        for n in range(50):
            producer.send("sent", b"%d" % n)
    assert broker.records("sent") == []
    leave()
    assert len(broker.records("sent")) == 100
    leave()
    assert errors(caplog) == []
    for producer in producers:
        producer.close()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("transactional_id", [None, "open"])
def test_records_that_a_producer_cannot_send_any_more_are_logged_once(broker, leave, caplog, transactional_id):
    async def main():
        producer = Producer(broker.bootstrap_servers, linger_ms=KEEPS_BACK, transactional_id=transactional_id)
        await producer.start()
        if transactional_id is not None:
            await producer.begin_transaction()
        for n in range(100):
            await producer.send("lost", b"%d" % n)
        return producer

    kept = [asyncio.run(main())]
    leave()
    said = errors(caplog)
    assert sum("dropped 100 records to lost-0; they were not written" in each for each in said) == 1, said
    assert sum("transaction 'open' was open" in each for each in said) == (transactional_id is not None), said
    leave()
    kept.clear()
    gc.collect()  # here, where its connection, whose loop has ended, may end with a warning
    assert errors(caplog) == said
