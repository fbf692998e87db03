"""The blocking clients, interrupted by what a signal's handler raises, be it Ctrl-C or an Exception as some task queues
use for a time limit: at whatever moment, no transaction stays open and no slot stays taken.
"""

import asyncio

import pytest
from fencepost.client import sync
from fencepost.client.errors import IllegalStateError
from fencepost.client.sync import loop_thread
from fencepost.testing.served import ObservedBroker

QUICK = {"request_timeout_ms": 2_000, "max_block_ms": 5_000, "delivery_timeout_ms": 5_000}


class TimeLimitError(Exception):
    """What a handler raises."""


class InterruptedThread:
    """The clients' thread; its caller is interrupted in the moment in which a call has succeeded, once."""

    def __init__(self, thread, interruption):
        self.thread = thread
        self.interruption = interruption

    def run(self, make):
        result = self.thread.run(make)
        if self.interruption is not None:
            interruption, self.interruption = self.interruption, None
            raise interruption
        return result


@pytest.fixture(scope="module")
def servers():
    with ObservedBroker() as broker:
        yield broker.bootstrap_servers


def make_producer(servers):
    return sync.Producer(servers, transactional_id="interrupted", **QUICK)


def make_pool(servers):
    return sync.ProducerPool(servers, prefix="interrupted", size=1, max_wait_ms=1_000, **QUICK)


@pytest.mark.parametrize("make", [make_producer, make_pool])
@pytest.mark.parametrize("interruption", [TimeLimitError, KeyboardInterrupt])
def test_ctrl_c_while_a_blocking_transaction_begins_leaves_no_transaction_open(servers, make, interruption):
    with make(servers) as client:
        begun = client.transaction()
        begun._thread = InterruptedThread(begun._thread, interruption())
        with pytest.raises(interruption):
            begun.__enter__()
        with client.transaction() as tx:
            tx.send_and_wait("t", b"a")


@pytest.mark.parametrize("interruption", [TimeLimitError, KeyboardInterrupt])
@pytest.mark.parametrize("at", ["before", "after"])
@pytest.mark.parametrize("method", ["__enter__", "__exit__"])
def test_ctrl_c_while_a_call_is_passed_to_the_clients_thread_leaves_none_open(
    servers, monkeypatch, interruption, at, method
):
    """No transaction stays open, whether the signal's handler raises before the call is passed on or right after."""
    with make_producer(servers) as producer:
        tx = producer.transaction()
        if method == "__exit__":
            tx.__enter__()
            tx.send_and_wait("t", b"a")
        loop = tx._thread._loop
        hand_over = loop.call_soon_threadsafe

        def interrupted(*call):
            monkeypatch.undo()
            if at == "after":
                hand_over(*call)
            raise interruption

        monkeypatch.setattr(tx._thread, "_loop", Handing(loop, interrupted))
        with pytest.raises(interruption):
            getattr(tx, method)(*[None] * (3 if method == "__exit__" else 0))
        with producer.transaction() as following:
            following.send_and_wait("t", b"b")


class Handing:
    """A loop that is handed calls by a function."""

    def __init__(self, loop, hand_over):
        self.call_soon_threadsafe = hand_over
        self._loop = loop

    def __getattr__(self, name):
        return getattr(self._loop, name)


def test_refusing_a_second_transaction_leaves_the_producers_open_one_untouched(servers):
    with make_producer(servers) as producer, producer.transaction() as tx:
        with pytest.raises(IllegalStateError, match="can begin only after"):
            producer.transaction().__enter__()
        tx.send_and_wait("t", b"a")
    assert tx.outcome == "committed"


def test_ctrl_c_before_a_calls_first_step_cancels_the_call_after_that_step():
    """The call runs to its first await, so that its clean-up runs too: otherwise a transaction could stay open."""
    seen = []

    async def work():
        seen.append("begun")
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("ended")

    thread = loop_thread.loop_thread()
    running = loop_thread._Running(work)

    def both_in_one_turn():
        running.begin()
        running.cancel()

    thread._loop.call_soon_threadsafe(both_in_one_turn)
    assert running.ended.wait(5)
    assert seen == ["begun", "ended"]
