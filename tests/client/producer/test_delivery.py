"""A delivery where asyncio takes a future: waits, groups of waits, callbacks; and what a cancelled wait leaves."""

import asyncio
import contextvars

import pytest
from fencepost.client.errors import AuthorizationError, DeliveryTimeoutError
from fencepost.effects.simulated.loop import SimulatedLoop
from fencepost.protocol.errors import ErrorCode
from scripted_cluster import ScriptedCluster

FINAL = ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.fixture
def world():
    loop = SimulatedLoop()
    yield lambda **more: ScriptedCluster(loop, **more)
    loop.close()


def run(cluster, work):
    return cluster.loop.run_until_complete(work)


def test_asyncio_wait_returns_the_deliveries_that_are_done_and_those_pending(world):
    """result() and exception() raise InvalidStateError before a delivery is done."""
    cluster = world(leaders=(1, 2))
    first, second = cluster.inside(lambda: (cluster.deliver(0), cluster.deliver(1)))
    cluster.next().answer(offset=4)
    done, pending = run(cluster, asyncio.wait({first, second}, return_when=asyncio.FIRST_COMPLETED))
    assert (done, pending) == ({first}, {second})
    assert first.result() == ("t", 0, 4, 5)
    assert first.exception() is None
    with pytest.raises(asyncio.InvalidStateError):
        second.result()
    with pytest.raises(asyncio.InvalidStateError):
        second.exception()
    cluster.next().answer(offset=7)
    assert run(cluster, asyncio.wait([first, second])) == ({first, second}, set())


def test_asyncio_wait_with_first_exception_ends_at_the_first_failed_delivery(world, caplog):
    cluster = world(leaders=(1, 2))
    bad, waiting = cluster.inside(lambda: (cluster.deliver(0), cluster.deliver(1)))
    cluster.turn()
    cluster.loop.call_later(1, cluster.next().answer, FINAL)
    done, pending = run(cluster, asyncio.wait([bad, waiting], return_when=asyncio.FIRST_EXCEPTION))
    assert (done, pending) == ({bad}, {waiting})
    assert bad.exception().code == FINAL
    with pytest.raises(AuthorizationError):
        bad.result()
    assert not bad.cancelled()
    assert not caplog.records, "who was told needs no line in the log"


def test_cancelling_a_gather_of_deliveries_does_not_cancel_the_records(world):
    cluster = world(leaders=(1, 2))

    async def main():
        deliveries = [cluster.deliver(0), cluster.deliver(1)]
        both = asyncio.gather(*deliveries)
        await asyncio.sleep(0)
        both.cancel()
        with pytest.raises(asyncio.CancelledError):
            await both
        return deliveries

    deliveries = run(cluster, main())
    cluster.next().answer(offset=1)
    cluster.next().answer(offset=2)
    assert [cluster.result(one).offset for one in deliveries] == [1, 2]


def test_cancel_of_a_delivery_returns_false_and_its_record_is_still_written(world):
    cluster = world()
    delivery = cluster.put()
    assert not delivery.cancel()
    assert not delivery.cancelled()
    cluster.next().answer(offset=3)
    assert cluster.result(delivery).offset == 3


def test_done_callbacks_get_the_delivery_once_in_a_later_turn_of_the_loop(world):
    """Each runs in the context it was added with. A removed callback is not called; one added to a delivery that is
    done is called, too.
    """
    cluster = world()
    delivery = cluster.put()
    seen = []
    who = contextvars.ContextVar("who", default="nobody")
    context = contextvars.copy_context()
    context.run(who.set, "me")

    def note(one):
        seen.append((one, who.get()))

    def unwanted(one):
        seen.append("unwanted")

    def add():
        delivery.add_done_callback(note, context=context)
        delivery.add_done_callback(unwanted)
        delivery.add_done_callback(unwanted)
        assert delivery.remove_done_callback(unwanted) == 2
        assert delivery.remove_done_callback(unwanted) == 0

    cluster.inside(add)
    cluster.next().answer()
    assert not seen
    cluster.turn()
    assert seen == [(delivery, "me")]

    def add_late():
        delivery.add_done_callback(note)
        assert len(seen) == 1, "not inside of the call"

    cluster.inside(add_late)
    cluster.turn()
    assert seen[1:] == [(delivery, "nobody")]


def test_a_failed_delivery_that_nobody_awaited_is_logged(world, caplog):
    cluster = world(delivery_timeout_ms=1_000, request_timeout_ms=500)
    delivery = cluster.put()
    cluster.wait(2)
    assert isinstance(delivery.exception(), DeliveryTimeoutError)
    assert "delivery failed for 1 record to t-0" in caplog.text


def test_a_failed_delivery_that_is_awaited_is_not_logged(world, caplog):
    cluster = world()

    async def main():
        delivery = cluster.deliver(0)
        waiting = asyncio.ensure_future(ask(delivery))
        await asyncio.sleep(0)
        return waiting

    async def ask(delivery):
        with pytest.raises(AuthorizationError):
            await delivery

    waiting = run(cluster, main())
    cluster.next().answer(FINAL)
    run(cluster, waiting)
    assert not caplog.records


def test_a_done_callback_that_is_a_bound_method_can_be_removed(world):
    """Each access to a method makes another object, so callbacks are compared by equality."""
    cluster = world()
    delivery, seen = cluster.put(), []
    cluster.inside(lambda: delivery.add_done_callback(seen.append))
    assert delivery.remove_done_callback(seen.append) == 1
    cluster.next().answer(offset=3)
    cluster.result(delivery)
    assert not seen
