"""Every command at a terminal, in a cluster with names full of control characters: the terminal gets plain text.

The rule: a command that is not in LINES is in WITHOUT, with the reason why it shows nothing that others chose.
"""

import re
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer
from fencepost.broker.config.security_settings import STANDARD_AUTHORIZER
from fencepost.cli import main
from fencepost.protocol.messages.ledger import EndTxnsRequest
from fencepost.protocol.messages.ledger import PrepareTxnRequest as Prepare
from fencepost.protocol.messages.transactions import InitProducerIdRequest
from pty_terminal import at_terminal, until_shown
from served_broker import ServedBroker
from terminal import Terminal

# Clears the screen, sets the title and the clipboard, rings, goes up a line, begins a row, turns the text around.
WORST = (
    "w\n\x1b[2J\x1b]0;t\x07\x1b]52;c;aGk=\x07\rforged: row\x1b[1A\x9b2J\x08\x7f\u202egnp\u2067x\u2028forged: row\u200bw"
)
READER, WRITER, SINK = f"group{WORST}", f"id{WORST}", f"sink{WORST}"
LINES: dict[str, list[list[str]]] = {
    "topic create": [["made", "-c", f"x{WORST}=1"], [WORST]],
    "topic delete": [[WORST]],
    "topic describe": [["t", "--all-configs"], [WORST]],
    "topic list": [[]],
    "topic alter": [["t", "-c", f"retention.ms={WORST}"]],
    "topic trim": [["t", "--before", WORST], ["t", "--before", "0"]],
    "topic add-partitions": [[WORST, "-n", "1"]],
    "group list": [[]],
    "group describe": [[READER, "-m"], [WORST]],
    "group seek": [[READER, "--to", "end"], [WORST, "--to", "end"]],
    "group alter": [[READER, "-c", "consumer.session.timeout.ms=50000"], [READER, "-c", f"x{WORST}=1"]],
    "group delete": [[READER], [WORST]],
    "share-group list": [[]],
    "share-group describe": [[WORST]],
    "share-group reset": [[WORST, "-t", "t", "--to", "end"], [WORST, "-t", WORST, "--to", "end"]],
    "share-group delete": [[WORST]],
    "named-producer list": [[], [WORST]],
    "named-producer rm": [[WORST]],
    "user add": [[WORST, "--password-stdin"]],
    "user list": [[], [WORST]],
    "user rm": [[WORST]],
    "acl add": [["--allow", WORST, "--operation", "read", "--topic", WORST]],
    "acl list": [[], ["--topic", WORST]],
    "acl rm": [["--allow", WORST, "--dry-run"], ["--allow", "nobody" + WORST]],
    "quota set": [[f"client-id={WORST}", "--produce", "5M"]],
    "quota list": [[], [f"user={WORST}"]],
    "quota rm": [[f"user={WORST}"]],
    "clients": [[]],
    "txn list": [[], ["--all"]],
    "txn describe": [[WRITER], [WORST]],
    "txn producers": [["t"], [WORST]],
    "txn find-hanging": [["t", "--older-than", "0s"], [WORST]],
    "txn why-blocked": [[], ["t"], [WORST]],
    "txn abort": [[WORST]],
    "txn resolve": [["--db", "sqlite:////none" + WORST]],
    "sql forget": [[WORST, "--db", "sqlite:////none" + WORST]],
    "txn fence": [["fenced" + WORST]],
    "outbox": [
        ["--db", "sqlite:////none" + WORST, "--to", "t"],
        ["--db", "sqlite:////tmp/none", "--to", WORST, "--columns", WORST],
    ],
    "produce": [[WORST]],
    "consume": [
        ["t", "-e", "--isolation", "read_uncommitted", "-f", r"%k %s %h\n"],
        ["t", "-e", "--isolation", "read_uncommitted"],
        ["t", "--explain"],
        [WORST],
        ["t", "-f", f"%{WORST}"],
    ],
    "health": [[]],
    "doctor": [[], ["--store", "file:///none" + WORST]],
    "spark list": [[]],
    "spark reset": [[WORST]],
    "spark abort": [[SINK, "--yes"]],
    "log dump": [["DIRECTORY"], [f"/none{WORST}"]],
    "log verify": [["DIRECTORY"], [f"/none{WORST}"]],
    "backup": [["/none" + WORST, "/none" + WORST]],
    "restore": [["/none" + WORST, "/none" + WORST]],
    "store status": [["file:///none" + WORST]],
    "store verify": [["file:///none" + WORST]],
    "store take": [["file:///none" + WORST, "--yes"]],
    "mirror cutover": [["--from", "BOOTSTRAP", "--to", "BOOTSTRAP", "--groups", WORST, "--name", WORST, "--dry-run"]],
    "mirror run": [["--from", "BOOTSTRAP", "--to", "BOOTSTRAP", "--topics", WORST, "--name", WORST]],
    "mirror status": [["--from", "BOOTSTRAP", "--to", "BOOTSTRAP", "--name", WORST, "--every", "1ms"]],
    "bench compare": [["/none" + WORST, "/none" + WORST]],
}
OURS = "shows nothing that others chose"
WITHOUT = {
    "serve": "its log lines are tests/cli/output/test_writing.py's",
    "console": "its log lines are tests/cli/output/test_writing.py's, its pages those of tests/console",
    "txn watch": "does not end by itself; below",
    **dict.fromkeys(("generate grafana", "generate prometheus", "generate systemd", "spark demo", "spark env"), OURS),
    **dict.fromkeys(("bench consume", "bench modes", "bench observed", "bench produce", "bench small"), OURS),
    **dict.fromkeys(("bench txn", "demo", "sql schema"), OURS),
}
DRAWING = re.compile(r"\x1b\[(\?(25|1049|7)[hl]|[HJK])")
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def commands(command: click.Command, ctx: click.Context, *path: str) -> Iterator[str]:
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            inner = command.get_command(ctx, name)
            assert inner is not None
            yield from commands(inner, ctx, *path, name)
    else:
        yield " ".join(path)


def test_every_command_is_tested_with_hostile_names_or_has_a_reason() -> None:
    with main.make_context("fencepost", [], resilient_parsing=True) as ctx:
        assert sorted(commands(main, ctx)) == sorted({**LINES, **WITHOUT})


@pytest.fixture(scope="module")
def outputs() -> Iterator[dict[str, list[str]]]:
    settings = {"authorizer_class_name": STANDARD_AUTHORIZER, "super_users": "User:ANONYMOUS"}
    with ServedBroker(group_initial_rebalance_delay_ms=0, **settings) as broker:
        terminal = Terminal(broker)
        terminal.run("topic create t")
        producer = terminal.open_transaction(WRITER, "t", WORST)
        terminal.keyed("t", WORST, WORST)
        prepare(broker, f"task{WORST}", SINK)
        consumer = member(terminal)
        lines = {name: [[*name.split(), *more] for more in LINES[name]] for name in sorted(LINES, key=_order)}
        directory = str(broker.settings.log_dir)
        places = {"DIRECTORY": directory, "BOOTSTRAP": terminal.bootstrap}
        words = [[places.get(each, each) for each in line] for every in lines.values() for line in every]
        found = iter(at_terminal(words, terminal.bootstrap, b"secret\n"))
        yield {name: [next(found) for _ in every] for name, every in lines.items()}
        consumer.close()
        producer.abort_transaction()


def _order(name: str) -> tuple[int, str]:
    """Return the sort key of a command: commands that make something run first, those that remove something last."""
    verb = name.split()[-1]
    return (0 if verb in ("add", "set", "create") else 2 if verb in ("rm", "delete", "reset", "abort") else 1, name)


def member(terminal: Terminal) -> Consumer:
    settings = {"bootstrap.servers": terminal.bootstrap, "group.id": READER, "client.id": f"client{WORST}"}
    consumer = Consumer({**settings, "group.instance.id": f"instance{WORST}", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    while not consumer.assignment():
        consumer.poll(0.1)
    return consumer


def prepare(broker: ServedBroker, name: str, sink: str) -> None:
    """Prepare a transaction for decision 2 of a sink, and decide its batch 1, which ends no transaction."""
    client = broker.connect()
    given = client.call(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000), 4)
    pair = {"producer_id": given.producer_id, "producer_epoch": given.producer_epoch}
    client.call(Prepare(transactional_id=name, **pair, ledger_key=sink, number=2, prepared_timeout_ms=3_600_000), 0)
    decision = {"number": 1, "owner": f"query{WORST}", "digest": b"d", "committed": True, "transactions": []}
    client.call(EndTxnsRequest(ledger_key=sink, **decision), 0)
    broker.close_clients()


@pytest.mark.parametrize("name", LINES)
def test_commands_print_only_plain_text_and_colours_to_a_terminal(name: str, outputs: dict[str, list[str]]) -> None:
    for output in outputs[name]:
        lines = COLOURS.sub("", output).split("\r\n")
        assert [each for each in lines if not each.isprintable()] == []
        assert [each for each in lines if each.startswith("forged")] == []


NO_UTF_8 = "x\udcff"  # as Python has a byte of an argument that is not UTF-8


@pytest.mark.parametrize(
    "words",
    [
        ["topic", "create", NO_UTF_8],
        ["topic", "describe", NO_UTF_8],
        ["group", "describe", NO_UTF_8],
        ["txn", "describe", NO_UTF_8],
        ["acl", "add", "--allow", NO_UTF_8, "--operation", "read", "--topic", "t"],
        ["consume", NO_UTF_8],
        ["mirror", "status", "--from", "SOURCE", "--to", "BOOTSTRAP", "--name", NO_UTF_8],
        ["mirror", "cutover", "--from", "SOURCE", "--to", "BOOTSTRAP", "--groups", ".*", "--name", NO_UTF_8],
        ["mirror", "run", "--from", "SOURCE", "--to", "BOOTSTRAP", "--topics", ".*", "--name", NO_UTF_8],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_a_name_that_is_not_utf_8_is_refused_with_one_line_of_cause_and_one_of_hint(words: list[str]) -> None:
    with ServedBroker() as broker, ServedBroker() as source:
        places = {"BOOTSTRAP": f"127.0.0.1:{broker.port}", "SOURCE": f"127.0.0.1:{source.port}"}
        line = [places.get(each, each) for each in words]
        result = CliRunner().invoke(main, line, env={"FENCEPOST_BOOTSTRAP": places["BOOTSTRAP"]})
    assert result.exit_code == 2, result.exception
    cause, hint = result.stderr.splitlines()
    assert cause.startswith("error: the name ")
    assert cause.endswith("x\ufffd is not valid UTF-8")
    assert hint.startswith("hint: names are UTF-8")


@pytest.mark.parametrize(
    "name",
    ["group list", "group describe", "txn list", "txn describe", "txn why-blocked", "clients", "quota list", "acl list",
     "consume", "spark list"],
)  # fmt: skip
def test_hostile_names_appear_with_replacement_characters_in_the_output(
    name: str, outputs: dict[str, list[str]]
) -> None:
    assert "w��[2J�" in outputs[name][0]


def test_txn_watch_draws_hostile_names_as_printable_text() -> None:
    with ServedBroker() as broker:
        terminal = Terminal(broker)
        terminal.run("topic create t")
        producer = terminal.open_transaction(WRITER, "t", WORST)
        drawn = until_shown(["txn", "watch"], terminal.bootstrap, "idw�")  # the beginning of WRITER, as it is shown
        producer.abort_transaction()
    lines = DRAWING.sub("", COLOURS.sub("", drawn)).split("\r\n")
    assert [each for each in lines if not each.isprintable()] == []
    assert [each for each in lines if each.startswith("forged")] == []
