"""A producer that may not log in any more, once it has lost its connection: its errors and its state say so."""

import asyncio
import contextlib

import pytest
from client_world import BOOTSTRAP, run
from fencepost.broker.security.credentials import Mechanism, credential_removed
from fencepost.client.errors import AuthenticationError, BrokerUnreachableError, DeliveryTimeoutError
from fencepost.client.producer.producer import Producer
from fencepost.protocol.headers import read_request_header
from fencepost.protocol.messages.produce import ProduceRequest
from fencepost.protocol.schema import schema_of
from login_client import add_users

ALICE = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "SCRAM-SHA-256",
    "sasl_plain_username": "alice",
    "sasl_plain_password": "alice-pw",
    "delivery_timeout_ms": 20_000,
    "request_timeout_ms": 5_000,
    "linger_ms": 0,
}


def cutting(serve):
    """Cut each connection at its next Produce, without writing anything."""

    def served(connection, frame):
        if read_request_header(frame).api_key == schema_of(ProduceRequest).api:
            connection.abort()
        else:
            serve(connection, frame)

    return served


def shut_out(main, **settings):
    """Run main(producer, broker) with a producer that has written one record. From then on each Produce cuts its
    connection, and each login is refused.
    """

    async def within(world):
        broker = await world.start_broker(
            listeners=("SASL_PLAINTEXT://127.0.0.1:9092",), sasl_enabled_mechanisms=("SCRAM-SHA-256",)
        )
        add_users(broker)
        async with Producer(BOOTSTRAP, environment=world.environment, **ALICE, **settings) as producer:
            async with producer.transaction() if settings.get("transactional_id") else contextlib.nullcontext():
                await (await producer.send("t", b"first"))
            broker.security_log.commit([credential_removed("alice", each) for each in Mechanism])
            broker.intercept(cutting)
            try:
                return await main(producer, broker)
            finally:
                broker.intercept(None)

    return run(within)


@pytest.mark.slow
@pytest.mark.parametrize("idempotent", [True, False])
def test_a_record_expiring_after_a_refused_login_names_the_login(idempotent):
    """Like Java's producer it retries until the delivery timeout, since the login may be repaired meanwhile."""

    async def main(producer, broker):
        began = asyncio.get_running_loop().time()
        with pytest.raises(DeliveryTimeoutError, match="does not accept the user name and password") as caught:
            await (await producer.send("t", b"second"))
        assert isinstance(caught.value.__cause__, AuthenticationError)
        assert caught.value.maybe_written
        assert 19 < asyncio.get_running_loop().time() - began < 22, "after delivery_timeout_ms"
        assert "AuthenticationError" in producer.state().last_error

    shut_out(main, enable_idempotence=idempotent)


@pytest.mark.slow
def test_a_record_never_sent_fails_at_once_when_the_login_is_refused():
    async def main(producer, broker):
        sent = await producer.send("t", b"second")
        await asyncio.sleep(2)
        began = asyncio.get_running_loop().time()
        with pytest.raises(AuthenticationError, match="does not accept"):
            await (await producer.send("t", b"third"))
        assert asyncio.get_running_loop().time() - began < 3
        assert any("AuthenticationError" in (one.last_error or "") for one in producer.state().connections)
        with pytest.raises(DeliveryTimeoutError):
            await sent

    shut_out(main)


def test_a_login_that_is_repaired_in_time_delivers_waiting_records():
    async def main(producer, broker):
        sent = await producer.send("t", b"second")
        await asyncio.sleep(5)
        assert "AuthenticationError" in producer.state().last_error
        broker.intercept(None)
        add_users(broker, "alice")
        assert (await sent).offset == 1
        assert producer.state().last_error is None

    shut_out(main)


@pytest.mark.slow
def test_a_transaction_after_a_refused_login_raises_the_authentication_error():
    async def main(producer, broker):
        with pytest.raises(AuthenticationError, match="does not accept"):
            async with producer.transaction():
                await producer.send("t", b"second")
        assert "AuthenticationError" in producer.state().last_error

    shut_out(main, transactional_id="x")


def test_an_unreachable_broker_is_the_cause_of_expired_records():
    async def main(producer, broker):
        await broker.stop()
        with pytest.raises(DeliveryTimeoutError, match="cannot connect to") as caught:
            await (await producer.send("t", b"second"))
        assert isinstance(caught.value.__cause__, BrokerUnreachableError)
        assert producer.state().last_error is None, "it will come back"

    shut_out(main)
