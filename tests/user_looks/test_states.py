"""A user looks: for each state that somebody is paged for, what each tool says names the cause.

STATES is the table: by state, what each of LOOKS has to contain. A look that is not in a row has nothing to tell of
that state, and docs/on-call.md sends nobody there.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from console_client import console_of
from fencepost.client.admin.admin import Admin
from fencepost.client.errors import ClientError
from fencepost.effects.disk import SystemDisk
from fencepost.protocol.messages.ledger import PrepareTxnRequest
from served_broker import ServedBroker
from terminal import Terminal

import fencepost as fp

pytestmark = pytest.mark.slow


@dataclass
class World:
    """A broker in a state. told: what a client of the SDK was told."""

    broker: ServedBroker
    terminal: Terminal
    told: str = ""
    logged: list[str] = field(default_factory=list[str])
    kept: list[Any] = field(default_factory=list[Any])  # clients that live as long as the state


@contextmanager
def served(**settings: Any) -> Iterator[World]:
    with ServedBroker(group_initial_rebalance_delay_ms=0, **settings) as broker:
        terminal = Terminal(broker)
        yield World(broker, terminal)


def error_of(work: Callable[[], Any]) -> str:
    """What a person reads of a client's error."""
    with pytest.raises((ClientError, fp.KafkaError)) as raised:
        asyncio.run(work())
    return str(raised.value)


def write(world: World, **settings: Any) -> Callable[[], Any]:
    async def send() -> None:
        async with fp.Producer(world.terminal.bootstrap, delivery_timeout_ms=3_000, **settings) as producer:
            await producer.send_and_wait("orders", b"v")

    return send


# ---- the states ------------------------------------------------------------------------------------------------------


@contextmanager
def disk_low(tmp_path: Path) -> Iterator[World]:
    directory = str(tmp_path / "data")
    with served(log_dir=directory) as world:
        world.terminal.run("topic create orders")
    with served(log_dir=directory, storage_min_free_bytes=2 * SystemDisk().free_bytes(str(tmp_path))) as world:
        world.told = error_of(write(world))
        yield world


@contextmanager
def offsets_held(tmp_path: Path) -> Iterator[World]:
    with served() as world:
        world.terminal.run("topic create orders")
        world.terminal.plain("orders", "a", "b")
        world.terminal.run("group seek readers -t orders --to start")
        holder = world.terminal.hold_offsets("copier", "readers", "orders", 1)
        yield world
        holder.abort_transaction()


@contextmanager
def transaction_open(tmp_path: Path) -> Iterator[World]:
    with served() as world:
        world.terminal.run("topic create orders")
        world.terminal.run("group seek readers -t orders --to start")
        holder = world.terminal.open_transaction("copier", "orders", "a")
        yield world
        holder.abort_transaction()


@contextmanager
def prepared(tmp_path: Path) -> Iterator[World]:
    with served() as world:
        world.terminal.run("topic create orders")
        world.terminal.run("group seek readers -t orders --to start")
        world.kept.append(world.terminal.open_transaction("copier", "orders", "a"))
        (row,) = world.terminal.objects("txn describe copier")
        pair = {name: row[name] for name in ("producer_id", "producer_epoch")}
        request = PrepareTxnRequest(transactional_id="copier", **pair, ledger_key="the-sink", number=17)
        assert world.broker.connect().call(request, 0).error_code == 0
        world.broker.close_clients()
        yield world


@contextmanager
def partition_offline(tmp_path: Path) -> Iterator[World]:
    with served() as world:
        world.terminal.run("topic create orders")

        def go_offline(broker: Any) -> None:
            broker.topics.by_name["orders"].partitions[0].log.offline = "a segment is damaged"

        world.broker.inside(go_offline)
        world.told = error_of(write(world))
        yield world
        world.broker.inside(lambda broker: setattr(broker.topics.by_name["orders"].partitions[0].log, "offline", None))


@contextmanager
def fenced(tmp_path: Path) -> Iterator[World]:
    with served() as world:
        world.terminal.run("topic create orders")

        async def overtaken() -> None:
            at = world.terminal.bootstrap
            async with fp.Producer(at, transactional_id="copier") as producer, producer.transaction() as tx:
                await tx.send_and_wait("orders", b"v")
                async with Admin(at) as admin:
                    await admin.fence_producers("copier")
                await tx.send_and_wait("orders", b"w")

        world.told = error_of(overtaken)
        yield world


@contextmanager
def quota_met(tmp_path: Path) -> Iterator[World]:
    with served() as world:
        world.terminal.run("topic create orders")
        world.terminal.run("quota set client-id=loud --produce 1")
        producer = Producer({"bootstrap.servers": world.terminal.bootstrap, "client.id": "loud"})
        producer.produce("orders", bytes(1_000))
        assert producer.flush(30) == 0
        yield world


@contextmanager
def login_refused(tmp_path: Path) -> Iterator[World]:
    users = {"sasl_enabled_mechanisms": ("SCRAM-SHA-256",), "listeners": ("SASL_PLAINTEXT://127.0.0.1:0",)}
    with served(**users) as world:
        login = {"sasl_mechanism": "SCRAM-SHA-256", "sasl_plain_username": "alice", "sasl_plain_password": "wrong"}
        world.told = error_of(write(world, security_protocol="SASL_PLAINTEXT", **login))
        yield world


# ---- the looks -------------------------------------------------------------------------------------------------------


def command(line: str) -> Callable[[World], str]:
    def look(world: World) -> str:
        return world.terminal.run(line) + world.terminal.err

    return look


def console(world: World) -> str:
    async def snapshot() -> str:
        async with console_of(world.terminal.bootstrap) as client:
            found = await client.get("/v1/snapshot")
            return "\n".join(each["sentence"] for each in (*found["alarms"], *found["blockers"]))

    return asyncio.run(snapshot())


def metrics(world: World) -> str:
    """The samples that are not 0, of the console's page."""
    from fencepost.console.metrics import metrics_text

    async def scraped() -> str:
        async with Admin(world.terminal.bootstrap) as admin:
            return (await metrics_text(admin)).decode()

    return "\n".join(line for line in asyncio.run(scraped()).splitlines() if not line.endswith(" 0.0"))


ALICE = "-X security.protocol=SASL_PLAINTEXT -X sasl.mechanism=SCRAM-SHA-256 -X sasl.username=alice -X sasl.password=no"
LOOKS: dict[str, Callable[[World], str]] = {
    "client": lambda world: world.told,
    "doctor": command("doctor"),
    "health": command("health"),
    "doctor, logged in": command(f"doctor {ALICE}"),
    "health, logged in": command(f"health {ALICE}"),
    "group describe": command("group describe readers"),
    "why-blocked": command("txn why-blocked orders"),
    "why-blocked --group": command("txn why-blocked --group readers"),
    "txn describe": command("txn describe copier"),
    "quota list": command("quota list"),
    "console": console,
    "metrics": metrics,
    "log": lambda world: "\n".join(world.logged),
}
FLOOR = "storage.min.free.bytes"
HELD = ("group readers", "orders-0", "held by transaction copier", "Ongoing for")
BLOCKED = ("orders-0 is blocked", "transaction copier", "Ongoing for")
DECISION = ("transaction copier", "Prepared for", "waits for the decision of sink the-sink about batch 17")
STATES: dict[str, tuple[Callable[[Path], Any], dict[str, tuple[str, ...]]]] = {
    "disk low": (
        disk_low,
        {
            "client": ("the disk is nearly full", FLOOR),
            "doctor": ("is nearly full", FLOOR, "retention"),
            "health": ("is nearly full", FLOOR),
            "console": ("is nearly full", FLOOR),
            "metrics": ("fencepost_storage_refusals_total", "fencepost_storage_min_free_bytes"),
            "log": ("is nearly full", FLOOR),
        },
    ),
    "offsets held": (
        offsets_held,
        {
            "doctor": HELD,
            "group describe": HELD,
            "why-blocked": HELD,
            "why-blocked --group": HELD,
            "console": ("offsets of group readers are held by transaction copier",),
            "metrics": ('fencepost_consumergroup_offsets_held{consumergroup="readers"} 1.0',),
        },
    ),
    "transaction open": (
        transaction_open,
        {
            "doctor": BLOCKED,
            "group describe": BLOCKED,
            "why-blocked": BLOCKED,
            "why-blocked --group": BLOCKED,
            "txn describe": ("copier: Ongoing", "open for"),
            "console": ("orders-0 is held", "by transaction copier"),
            "metrics": ("fencepost_oldest_open_transaction_seconds", 'fencepost_transactions{state="Ongoing"} 1.0'),
        },
    ),
    "prepared": (
        prepared,
        {
            "doctor": DECISION,
            "group describe": DECISION,
            "why-blocked": DECISION,
            "why-blocked --group": DECISION,
            "txn describe": ("copier: Prepared", "waits for the decision of sink the-sink about batch 17"),
            "console": ("waits for the decision of sink the-sink about batch 17",),
            "metrics": ('fencepost_transactions{state="Prepared"} 1.0',),
        },
    ),
    "partition offline": (
        partition_offline,
        {
            "client": ("orders-0 has no leader", "its log is offline"),
            "doctor": ("without a leader: orders-0", "brokers' logs"),
            "metrics": ('kafka_topic_partition_leader{partition="0",topic="orders"} -1.0',),
        },
    ),
    "fenced": (
        fenced,
        {
            "client": ("another producer uses this transactional id",),
            "metrics": ("fencepost_producer_fenced_total",),
        },
    ),
    "quota": (
        quota_met,
        {
            "quota list": ("loud",),
            "metrics": ('fencepost_throttles_total{quota="producer_byte_rate"}',),
        },
    ),
    "login refused": (
        login_refused,
        {
            "client": ("does not accept the user name and password",),
            "doctor, logged in": ("does not accept the user name and password", "--user"),
            "health, logged in": ("does not accept the user name and password", "--user"),
            "log": ("a login of 127.0.0.1 by SCRAM-SHA-256 failed",),
        },
    ),
}


@pytest.mark.parametrize("state", STATES)
def test_each_tool_names_the_cause(state: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fencepost")
    enter, cells = STATES[state]
    missing: dict[str, str] = {}
    with ExitStack() as stack:
        world = stack.enter_context(enter(tmp_path))
        for look, words in cells.items():
            world.logged = [each.getMessage() for each in caplog.records]
            told = LOOKS[look](world)
            if any(word not in told for word in words):
                missing[look] = told
    assert missing == {}
