"""A user looks: for each state that somebody is paged for, what each tool says names the cause.

STATES is the table: by state, what each look has to contain. Of EVERYWHERE each row has every look: one that has
nothing to tell of the state is Silent, with the reason, and docs/on-call.md sends nobody there. docs/on-call.md has a
row for each state.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest
from console_client import console_of
from fencepost.client.admin.admin import Admin
from fencepost.client.errors import ClientError
from fencepost.effects.disk import SystemDisk
from fencepost.protocol.messages.ledger import PrepareTxnRequest
from fencepost.storage.log.reads import judge_unreadable
from fencepost.storage.log.segment import SegmentDamaged
from pending_shares import LIMIT, pending
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
    options: str = ""  # of every command
    records: ClassVar[list[logging.LogRecord]] = []
    kept: list[Any] = field(default_factory=list[Any])  # clients that live as long as the state

    def logged(self, *names: str) -> str:
        """Return what the loggers wrote whose names begin so."""
        return "\n".join(each.getMessage() for each in self.records if each.name.startswith(names))


@contextmanager
def served(**settings: Any) -> Iterator[World]:
    with ServedBroker(group_initial_rebalance_delay_ms=0, **settings) as broker:
        terminal = Terminal(broker)
        yield World(broker, terminal)


def error_of(work: Callable[[], Any]) -> str:
    """Return what a person reads of a client's error."""
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

        async def wait() -> None:
            async with fp.Consumer(world.terminal.bootstrap, topics=["orders"], group_id="readers") as consumer:
                while "has held" not in world.logged("fencepost.client"):
                    await consumer.getmany(timeout_ms=100)

        asyncio.run(asyncio.wait_for(wait(), 60))
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
        world.terminal.run("group seek readers -t orders --to start")

        def go_offline(broker: Any) -> None:
            log = broker.topics.by_name["orders"].partitions[0].log
            judge_unreadable(log, SegmentDamaged("a segment", 100, "its index says otherwise"))

        world.broker.inside(go_offline)
        world.told = error_of(write(world))
        yield world
        world.broker.inside(lambda broker: setattr(broker.topics.by_name["orders"].partitions[0].log, "offline", None))


@contextmanager
def window_full(tmp_path: Path) -> Iterator[World]:
    with served(group_share_partition_max_record_locks=LIMIT) as world:
        world.terminal.run("topic create orders")
        world.terminal.plain("orders", *map(str, range(LIMIT + 20)))
        with pending(world.terminal.bootstrap, "copier", "orders", "readers"):
            yield world


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
        asyncio.run(write(world, client_id="loud")())
        yield world


@contextmanager
def login_refused(tmp_path: Path) -> Iterator[World]:
    users = {"sasl_enabled_mechanisms": ("SCRAM-SHA-256",), "listeners": ("SASL_PLAINTEXT://127.0.0.1:0",)}
    with served(**users) as world:
        login = {"sasl_mechanism": "SCRAM-SHA-256", "sasl_plain_username": "alice", "sasl_plain_password": "wrong"}
        world.told = error_of(write(world, security_protocol="SASL_PLAINTEXT", **login))
        world.options = ALICE
        yield world


# ---- the looks -------------------------------------------------------------------------------------------------------


Look = Callable[[World], str]


def command(line: str) -> Look:
    def look(world: World) -> str:
        return world.terminal.run(f"{line} {world.options}") + world.terminal.err

    return look


def console(world: World) -> str:
    async def snapshot() -> str:
        async with console_of(world.terminal.bootstrap) as client:
            found = await client.get("/v1/snapshot")
            return "\n".join(each["sentence"] for each in (*found["alarms"], *found["blockers"]))

    return asyncio.run(snapshot())


def console_transaction(world: World) -> str:
    async def page() -> str:
        async with console_of(world.terminal.bootstrap) as client:
            client.cluster = (await client.get("/v3/clusters"))["data"][0]["cluster_id"]
            return str((await client.get("transactions/copier"))["owner"])

    return asyncio.run(page())


def metrics(world: World) -> str:
    """Return the samples that are not 0, of the console's page."""
    from fencepost.console.metrics import metrics_text

    async def scraped() -> str:
        async with Admin(world.terminal.bootstrap) as admin:
            return (await metrics_text(admin)).decode()

    return "\n".join(line for line in asyncio.run(scraped()).splitlines() if not line.endswith(" 0.0"))


ALICE = "-X security.protocol=SASL_PLAINTEXT -X sasl.mechanism=SCRAM-SHA-256 -X sasl.username=alice -X sasl.password=no"
EVERYWHERE: dict[str, Look] = {
    "client": lambda world: world.told + world.logged("fencepost.client"),
    "doctor": command("doctor"),
    "health": command("health"),
    "group describe": command("group describe readers"),
    "why-blocked": command("txn why-blocked orders"),
    "console": console,
    "metrics": metrics,
    "log": lambda world: world.logged("fencepost.broker", "fencepost.storage"),
}
LOOKS: dict[str, Look] = {
    **EVERYWHERE,
    "why-blocked --group": command("txn why-blocked --group readers"),
    "share-group describe": command("share-group describe readers"),
    "txn describe": command("txn describe copier"),
    "console, transaction": console_transaction,
    "quota list": command("quota list"),
}


class Silent(str):
    """Why a look does not tell of a state."""


Cells = dict[str, tuple[str, ...] | Silent]
ON_CALL = Path(__file__).resolve().parents[2] / "docs/on-call.md"
FLOOR = "storage.min.free.bytes"
HELD = ("group readers", "orders-0", "held by transaction copier", "Ongoing for")
BLOCKED = ("orders-0 is blocked", "transaction copier", "Ongoing for")
DECISION = ("transaction copier", "Prepared for", "waits for the decision of sink the-sink about batch 17")
FULL = ("share group readers gets nothing new of orders-0", "is full", "pending in transaction copier", "Ongoing for")
ANSWERS = Silent("health tells whether the broker answers, for whoever would restart it: that would mend nothing here")
NO_GROUP = Silent("no group stands still by it")
NO_BLOCK = Silent("no transaction blocks anybody: readers of the partition get all there is")
REFUSED_LOGIN = ("does not accept the user name and password", "--user")
STATES: dict[str, tuple[Callable[[Path], Any], Cells]] = {
    "disk low": (
        disk_low,
        {
            "client": ("the disk is nearly full", FLOOR),
            "doctor": ("is nearly full", FLOOR, "retention"),
            "health": ("is nearly full", FLOOR),
            "group describe": NO_GROUP,
            "why-blocked": NO_BLOCK,
            "console": ("is nearly full", FLOOR),
            "metrics": ("fencepost_storage_refusals_total", "fencepost_storage_min_free_bytes"),
            "log": ("is nearly full", FLOOR),
        },
    ),
    "offsets held": (
        offsets_held,
        {
            "client": (
                "group readers",
                "has held the committed offsets of orders-0",
                "txn why-blocked --group readers",
            ),
            "doctor": HELD,
            "health": ANSWERS,
            "group describe": HELD,
            "why-blocked": HELD,
            "why-blocked --group": HELD,
            "console": ("offsets of group readers are held by transaction copier",),
            "metrics": ('fencepost_consumergroup_offsets_held{consumergroup="readers"} 1.0',),
            "log": Silent("an open transaction is as it should be; its end by its timeout is logged"),
        },
    ),
    "transaction open": (
        transaction_open,
        {
            "client": Silent("a consumer that has read up to the last stable offset has all that it may have"),
            "doctor": BLOCKED,
            "health": ANSWERS,
            "group describe": BLOCKED,
            "why-blocked": BLOCKED,
            "why-blocked --group": BLOCKED,
            "txn describe": ("copier: Ongoing", "open for", "taken last by client rdkafka"),
            "console": ("orders-0 is held", "by transaction copier"),
            "metrics": ("fencepost_oldest_open_transaction_seconds", 'fencepost_transactions{state="Ongoing"} 1.0'),
            "log": Silent("an open transaction is as it should be; its end by its timeout is logged"),
        },
    ),
    "prepared": (
        prepared,
        {
            "client": Silent("a consumer that has read up to the last stable offset has all that it may have"),
            "doctor": DECISION,
            "health": ANSWERS,
            "group describe": DECISION,
            "why-blocked": DECISION,
            "why-blocked --group": DECISION,
            "txn describe": ("copier: Prepared", "waits for the decision of sink the-sink about batch 17"),
            "console": ("waits for the decision of sink the-sink about batch 17",),
            "metrics": ('fencepost_transactions{state="Prepared"} 1.0',),
            "log": Silent("it is logged only after transaction.prepared.alert.ms: until then it is as it should be"),
        },
    ),
    "partition offline": (
        partition_offline,
        {
            "client": ("orders-0 has no leader", "its log is offline"),
            "doctor": ("without a leader: orders-0", "brokers' logs"),
            "health": ANSWERS,
            "group describe": ("orders-0 has no leader",),
            "why-blocked": ("orders-0 has no leader",),
            "console": ("orders-0: without a leader", "its own log says why"),
            "metrics": ('kafka_topic_partition_leader{partition="0",topic="orders"} -1.0',),
            "log": ("orders-0 is offline", "its index says otherwise"),
        },
    ),
    "window full": (
        window_full,
        {
            "client": Silent("an empty answer is all that a worker gets: the protocol has no place for the reason"),
            "doctor": FULL,
            "health": ANSWERS,
            "group describe": FULL,
            "share-group describe": FULL,
            "why-blocked": FULL,
            "why-blocked --group": FULL,
            "txn describe": ("copier: Ongoing", "pending in share group readers: orders-0 0 to 99"),
            "console": ("share group readers gets nothing new of orders-0", "pending in transaction copier"),
            "metrics": ("fencepost_share_pending_records 100.0", "fencepost_share_pending_oldest_seconds"),
            "log": Silent("an open transaction is as it should be; its end by its timeout is logged"),
        },
    ),
    "fenced": (
        fenced,
        {
            "client": ("another producer uses this transactional id",),
            "doctor": Silent("it is over: only the producer that was fenced stands still, and knows why"),
            "health": ANSWERS,
            "group describe": NO_GROUP,
            "why-blocked": NO_BLOCK,
            "txn describe": ("taken last by client", "(fencepost"),
            "console": Silent("the first page shows what stands still now; the transaction's page has its owner"),
            "console, transaction": ("software", "127.0.0.1"),
            "metrics": ("fencepost_producer_fenced_total",),
            "log": ("is the producer of 'copier' now, and fences that of 127.0.0.1", "open transaction is aborted"),
        },
    ),
    "quota": (
        quota_met,
        {
            "client": ("a quota of broker 1 holds 'loud' back", "fencepost quota list"),
            "doctor": Silent("a quota is set on purpose, and nobody can ask whom it holds back now"),
            "health": ANSWERS,
            "group describe": Silent("the broker's answer has no place for it; the member itself says so in its log"),
            "why-blocked": NO_BLOCK,
            "quota list": ("loud",),
            "console": Silent("what is known of clients has no waits, for which metrics count by quota"),
            "metrics": ('fencepost_throttles_total{quota="producer_byte_rate"}',),
            "log": Silent("clients for whom a quota is made meet it all the time, and are not at fault"),
        },
    ),
    "login refused": (
        login_refused,
        {
            "client": ("does not accept the user name and password",),
            "doctor": REFUSED_LOGIN,
            "health": REFUSED_LOGIN,
            "group describe": REFUSED_LOGIN,
            "why-blocked": REFUSED_LOGIN,
            "console": Silent("a console that may not log in ends at its start, with the words of every command"),
            "metrics": Silent("whoever may not log in gets none; others see fencepost_logins_total of failures"),
            "log": ("a login of 127.0.0.1 by SCRAM-SHA-256 failed",),
        },
    ),
}


@pytest.mark.parametrize("state", STATES)
def test_each_tool_of_an_operator_names_the_cause_of_each_broken_state(
    state: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "fencepost")
    monkeypatch.setattr(World, "records", caplog.records)
    enter, cells = STATES[state]
    missing: dict[str, str] = {}
    with enter(tmp_path) as world:
        for look, words in cells.items():
            if isinstance(words, Silent):
                continue
            told = LOOKS[look](world)
            if any(word not in told for word in words):
                missing[look] = told
    assert missing == {}


@pytest.mark.parametrize("state", STATES)
def test_each_broken_state_lists_what_every_tool_of_an_operator_must_say(state: str) -> None:
    assert set(EVERYWHERE) <= set(STATES[state][1])


@pytest.mark.parametrize("state", STATES)
def test_the_on_call_page_names_for_each_state_a_command_that_shows_its_cause(state: str) -> None:
    rows = [line for line in ON_CALL.read_text().splitlines() if line.startswith("|") and f"**{state}**" in line]
    (row,) = rows
    _, _, asked, *_ = row.split("|")
    tells = {look.split(" --")[0].split(",")[0] for look, words in STATES[state][1].items() if isinstance(words, tuple)}
    names = {"log": "the broker's log"}
    assert [look for look in tells if names.get(look, look) in asked], f"{asked} asks none of {tells}"


def test_every_command_and_option_on_the_on_call_page_exists(tmp_path: Path) -> None:
    from click.testing import CliRunner
    from fencepost.cli import main

    wrong: dict[str, str] = {}
    lines = re.findall(r"(?:`|\$ )fencepost ([a-z][^`\n]*)", ON_CALL.read_text())
    assert len(lines) > 10
    for line in lines:
        words = [word for word in line.split() if word.islower() or word.startswith("-")]
        result = CliRunner().invoke(main, [*(w for w in words if w.islower() and w[0] != "-"), "--help"])
        options = [word for word in words if word.startswith("-")]
        if result.exit_code or [each for each in options if each not in result.output]:
            wrong[line] = result.output
    assert wrong == {}
