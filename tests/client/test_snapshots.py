"""state() and repr of the clients: what is true at that moment, typed and frozen, and no secrets in it."""

import asyncio
import dataclasses
import json

import pytest
from fencepost.client.admin.admin import Admin
from fencepost.client.consumer.consumer import Consumer
from fencepost.client.errors import BrokerUnreachableError
from fencepost.client.producer.pool import ProducerPool
from fencepost.client.producer.producer import Producer
from reading import member, write
from txn_world import BOOTSTRAP, TxnWorld, within

T0 = ("t", 0)


def test_a_producers_state_shows_its_buffer_its_requests_and_its_transaction():
    async def main(world: TxnWorld) -> None:
        producer = await world.producer()
        seen = producer.state()
        assert (seen.life, seen.transaction, seen.transactional_id) == ("open", "ready", "x")
        assert seen.transaction_age_ms is None
        assert any(one.is_open and one.broker == BOOTSTRAP for one in seen.connections)
        silence = world.faults.blackhole("Produce", when="before_write")
        async with producer.transaction() as tx:
            await tx.send("t", b"x" * 1_000)
            await asyncio.sleep(0.5)
            seen = producer.state()
            assert seen.transaction == "in_transaction"
            assert seen.transaction_age_ms >= 500
            assert seen.transaction_partitions == {T0}
            assert (seen.buffered_batches, seen.in_flight) == (1, 1)
            assert 1_000 < seen.buffered_bytes < seen.buffer_memory
            assert sum(one.in_flight for one in seen.connections) == 1
            world.faults.remove(silence)
        seen = producer.state()
        assert (seen.buffered_batches, seen.buffered_bytes, seen.in_flight, seen.last_error) == (0, 0, 0, None)
        await producer.close()
        assert producer.state().life == "closed"

    within(main)


def test_a_consumers_state_shows_its_membership_and_its_positions():
    async def main(world: TxnWorld) -> None:
        await write(world, b"1", b"2", b"3")
        consumer = member(world)
        assert consumer.state().life == "not started"
        async with consumer:
            assert consumer.state().generation == -1
            await consumer.getone()
            seen = consumer.state()
            assert (seen.group_id, seen.membership, seen.generation) == ("g", "stable", 1)
            assert seen.member_id
            assert seen.subscription == {"t"}
            found = seen.partitions[T0]
            consumer.pause(T0)
            assert (found.position, found.high_watermark, found.last_error) == (1, 3, None)
            assert await consumer.position(T0) == 1
            assert (found.is_paused, consumer.state().partitions[T0].is_paused) == (False, True)
            assert consumer.state().partitions[T0].position == 1
        assert consumer.state().life == "closed"

    within(main)


def test_a_pools_state_has_its_number_of_waiting_transactions_and_its_producers():
    async def main(world: TxnWorld) -> None:
        pool = ProducerPool(BOOTSTRAP, prefix="api", size=1, environment=world.world.environment)
        async with pool:
            assert pool.state().producers == {}
            async with pool.transaction():
                waiting = asyncio.create_task(pool.transaction().__aenter__())
                await asyncio.sleep(0)
                seen = pool.state()
                assert (seen.life, seen.size, seen.taken, seen.waiting) == ("open", 1, 1, 1)
                assert seen.producers["api-0"].transaction == "in_transaction"
                waiting.cancel()
        assert pool.state().life == "closed"

    within(main)


def test_the_snapshot_of_a_lost_connection_has_the_reason():
    async def main(world: TxnWorld) -> None:
        async with Admin(BOOTSTRAP, environment=world.world.environment) as admin:
            await admin.list_topics()
            assert [one.is_open for one in admin.state().connections] == [True]
            await world.world.stop_broker()
            await asyncio.sleep(0.1)
            (lost,) = admin.state().connections
            assert not lost.is_open
            assert lost.failures == 1
            assert "closed the connection" in lost.last_error
            assert "0 connections" in repr(admin)
            await world.start()

    within(main)


@pytest.mark.parametrize("make", [Producer, Consumer, Admin, lambda *a, **k: ProducerPool(*a, prefix="api", **k)])
def test_a_clients_state_shows_no_password_and_is_read_only(make):
    secret = {"sasl_plain_username": "alice", "sasl_plain_password": "hunter2", "ssl_password": "hunter2"}
    client = make("127.0.0.1:1", security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN", **secret)
    seen = client.state()
    shown = repr(client) + repr(seen) + json.dumps(dataclasses.asdict(seen), default=str)
    assert "hunter2" not in shown
    name = dataclasses.fields(seen)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(seen, name, None)


def test_the_error_in_a_connections_snapshot_shows_no_password():
    async def main() -> None:
        async with asyncio.timeout(20):
            consumer = Consumer("127.0.0.1:1", connect_timeout_ms=100, sasl_plain_password="hunter2")
            with pytest.raises(BrokerUnreachableError):
                await consumer.start()
            (failed,) = consumer.state().connections
            assert failed.last_error
            assert "hunter2" not in repr(consumer.state())
            await consumer.close()

    asyncio.run(main())
