"""Clients of the SDK as fixtures, on the test's event loop: for pytest-asyncio in either mode."""

import os
from collections.abc import AsyncIterator, Generator
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from .marker import wishes_of

if TYPE_CHECKING:
    from ..client.admin.admin import Admin
    from ..client.consumer.consumer import Consumer
    from ..client.producer.producer import Producer
    from ..client.share.consumer import ShareConsumer
    from .fixtures import AnyBroker


@pytest.fixture
def fp_login(request: pytest.FixtureRequest, fp_broker: "AnyBroker") -> dict[str, Any]:
    """Return the settings with which the fixtures' clients log in: as the marker's user, else as a super user. Empty
    if the broker needs no login.
    """
    login = fp_broker.login_of(wishes_of(request.node).user)
    if login is None:
        return {}
    user, password = login
    names = {"sasl_plain_username": user, "sasl_plain_password": password}
    return {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-256", **names}


@pytest_asyncio.fixture
async def fp_producer(fp_bootstrap: str, fp_login: dict[str, Any]) -> "AsyncIterator[Producer]":
    """An idempotent producer."""
    from ..client.producer.producer import Producer

    async with Producer(fp_bootstrap, **fp_login) as producer:
        yield producer


@pytest_asyncio.fixture
async def fp_txn_producer(
    request: pytest.FixtureRequest, fp_bootstrap: str, fp_login: dict[str, Any]
) -> "AsyncIterator[Producer]":
    """A transactional producer with a new transactional id, and the transaction_timeout of the marker."""
    from ..client.producer.producer import Producer

    timeout_ms = wishes_of(request.node).transaction_timeout_ms
    name = f"test-{os.urandom(6).hex()}"
    async with Producer(fp_bootstrap, transactional_id=name, transaction_timeout_ms=timeout_ms, **fp_login) as producer:
        yield producer


@pytest_asyncio.fixture
async def fp_consumer(fp_bootstrap: str, fp_topic: str, fp_login: dict[str, Any]) -> "AsyncIterator[Consumer]":
    """A consumer in a new group that reads fp_topic from the beginning with read_committed."""
    from ..client.consumer.consumer import Consumer

    group = f"test-{os.urandom(6).hex()}"
    async with Consumer(
        fp_bootstrap, topics=[fp_topic], group_id=group, auto_offset_reset="earliest", **fp_login
    ) as consumer:
        yield consumer


@pytest_asyncio.fixture
async def fp_share_consumer(
    fp_bootstrap: str, fp_topic: str, fp_login: dict[str, Any]
) -> "AsyncIterator[ShareConsumer]":
    """A consumer in a new share group that takes the records of fp_topic from the beginning."""
    from ..client.share.consumer import ShareConsumer

    group = f"test-{os.urandom(6).hex()}"
    async with ShareConsumer(
        fp_bootstrap, topics=[fp_topic], group_id=group, auto_offset_reset="earliest", **fp_login
    ) as consumer:
        yield consumer


@pytest_asyncio.fixture
async def fp_admin(fp_bootstrap: str, fp_login: dict[str, Any]) -> "AsyncIterator[Admin]":
    """An admin client."""
    from ..client.admin.admin import Admin

    async with Admin(fp_bootstrap, **fp_login) as admin:
        yield admin


@pytest.hookimpl(wrapper=True, tryfirst=True)  # before pytest-asyncio's own wrapper
def pytest_fixture_setup(fixturedef: Any, request: pytest.FixtureRequest) -> Generator[None, Any, Any]:
    """Let the client fixtures use the event loop of the test that requests them, whichever scope that loop has."""
    if fixturedef.func.__module__ == __name__:
        mark = request.node.get_closest_marker("asyncio")
        scope = mark.kwargs.get("loop_scope") if mark is not None else None
        fixturedef.func._loop_scope = scope or request.config.getini("asyncio_default_test_loop_scope")
    return (yield)
