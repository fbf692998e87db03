"""A password is in no log line, error, repr, state, answer, metric or file, and in nothing that a command prints."""

import asyncio
import gc
import hashlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fencepost.broker.config.security_settings import STANDARD_AUTHORIZER
from fencepost.client.errors import ClientError
from fencepost.protocol.messages.configs import DescribeConfigsRequest
from login_client import add_users, log_in
from served_broker import ServedBroker
from terminal import Terminal

import fencepost as fp

RIGHT, WRONG, NEW = "root-pw", "no-such-Pa55", "changed-S3cret"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.fixture
def broker() -> Iterator[ServedBroker]:
    asking = ServedBroker(
        listeners=("SASL_PLAINTEXT://127.0.0.1:0",),
        sasl_enabled_mechanisms=MECHANISMS,
        authorizer_class_name=STANDARD_AUTHORIZER,
        super_users="User:root",
        ssl_key_password=WRONG,
        connection_failed_authentication_delay_ms=1,
    )
    with asking:
        asking.inside(lambda inner: add_users(inner, "root"))
        yield asking


def logged_in_as(mechanism: str, password: str = RIGHT) -> dict[str, Any]:
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "root",
        "sasl_plain_password": password,
    }


async def use_the_sdk(broker: ServedBroker, mechanism: str, shown: list[str]) -> None:
    """Do what a program does, with the right password and a wrong one, and keep all that it could print."""
    at, how = f"127.0.0.1:{broker.port}", logged_in_as(mechanism)
    async with fp.Admin(at, **how) as admin:
        await admin.alter_user_scram_credentials(fp.ScramUpsertion("new", NEW, mechanism="SCRAM-SHA-256"))
        shown += [repr(await admin.describe_user_scram_credentials()), repr(admin)]
    async with fp.Producer(at, transactional_id="t", **how) as producer:
        async with producer.transaction() as tx:
            await tx.send("t", b"1")
        shown += [repr(producer), repr(producer.state())]
    async with fp.Consumer(at, topics=["t"], group_id="g", auto_offset_reset="earliest", **how) as consumer:
        await consumer.getmany(timeout_ms=200)
        shown += [repr(consumer), repr(consumer.state())]
    with pytest.raises(ClientError) as refused:
        async with fp.Admin(at, request_timeout_ms=3_000, **logged_in_as(mechanism, WRONG)) as admin:
            await admin.list_topics()
    shown += [repr(refused.value), str(refused.value), str(refused.value.hint)]


def use_the_command_line(broker: ServedBroker, shown: list[str]) -> None:
    terminal = Terminal(broker)
    for password in (RIGHT, WRONG):
        login = f"-X sasl.username=root -X sasl.password={password}"
        options = f"-X security.protocol=SASL_PLAINTEXT -X sasl.mechanism=PLAIN {login}"
        for command in ("topic list", f"doctor {terminal.bootstrap}", f"doctor {terminal.bootstrap} -o json"):
            shown += [terminal.run(f"{command} --timeout 3s {options}"), terminal.err]


def see_what_the_broker_answers(broker: ServedBroker, shown: list[str]) -> None:
    with broker.connect() as client:
        assert log_in(client, "root").error_code == 0
        resource = DescribeConfigsRequest.Resource(resource_type=4, resource_name="1", configuration_keys=None)
        shown.append(repr(client.call(DescribeConfigsRequest(resources=[resource], include_synonyms=True))))
    with broker.connect() as client:
        shown.append(repr(log_in(client, "root", WRONG)))
    shown.append(repr(broker.broker.settings))
    metrics = broker.broker.metrics
    shown.append(repr({name: getattr(metrics, name, None) for name in metrics.__slots__}))


def reprs_of_living_objects() -> Iterator[str]:
    """Yield the repr of each object of a class of ours: what a debugger, an error report or a log line could print."""
    for each in gc.get_objects():
        if str(type(each).__module__).startswith("fencepost."):  # of some types it is no text
            try:
                yield repr(each)
            except Exception as error:  # half-made objects
                yield str(error)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_no_output_or_log_of_a_login_contains_the_password(
    broker: ServedBroker, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    shown: list[str] = []
    with caplog.at_level(logging.DEBUG):
        asyncio.run(use_the_sdk(broker, mechanism, shown))
        use_the_command_line(broker, shown)
        see_what_the_broker_answers(broker, shown)
    shown += [caplog.text, *reprs_of_living_objects()]
    assert "root" in "".join(shown), "who it was may be seen"
    for secret in (RIGHT, WRONG, NEW):
        assert not [text[:400] for text in shown if secret in text], secret


def test_no_file_of_the_broker_contains_a_password_or_its_unsalted_hash(broker: ServedBroker) -> None:
    shown: list[str] = []
    asyncio.run(use_the_sdk(broker, "PLAIN", shown))
    held = b"".join(path.read_bytes() for path in Path(broker.settings.log_dir).rglob("*") if path.is_file())
    assert b"new" in held, "the user is kept"
    hashes: list[Callable[[bytes], Any]] = [hashlib.md5, hashlib.sha1, hashlib.sha256, hashlib.sha512]
    for secret in (RIGHT.encode(), WRONG.encode(), NEW.encode()):
        assert secret not in held
        for made in hashes:
            assert made(secret).digest() not in held, "a password without salt is found in a table"
