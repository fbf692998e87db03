"""The command line with a broker that has only the APIs of an older Kafka: it shows less, and nothing wrong."""

from collections.abc import Iterator

import pytest
from capped_broker import cap
from served_broker import ServedBroker
from terminal import Terminal


@pytest.fixture(scope="module", params=["2.1", "2.5", "2.8"])
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def terminal(release: str) -> Iterator[Terminal]:
    with ServedBroker() as broker:
        broker.inside(lambda inside: cap(inside, release))
        terminal = Terminal(broker)
        terminal.run("topic create held")
        holder = terminal.open_transaction("holder", "held", "a", "b")
        yield terminal
        holder.abort_transaction()


def test_consume_explain_on_an_older_broker_marks_open_records_as_open(terminal: Terminal) -> None:
    assert [each["fate"] for each in terminal.objects("consume held --explain")] == ["open", "open"]
    output = terminal.run("consume held --explain").splitlines()
    assert output[0].startswith("─── LSO 0 < HW 2: read_committed stops here")
    assert [line.split()[0] for line in output[1:]] == ["?", "?"]


def test_group_describe_on_an_older_broker_shows_lag_without_the_blocker(terminal: Terminal) -> None:
    terminal.run("group seek readers -t held --to start")
    (facts,) = terminal.objects("group describe readers")
    assert (facts["lag_lso"], facts["lag_hw"], facts["blocked"]) == (0, 2, [])


@pytest.mark.parametrize("line", ["txn list", "txn why-blocked held", "txn find-hanging held --older-than 0s"])
def test_txn_commands_on_an_older_broker_exit_with_1_and_a_hint(terminal: Terminal, line: str) -> None:
    code, cause, hint = terminal.refused(line)
    assert (code, "too old" in hint) == (1, True), (cause, hint)


def test_a_transactional_id_can_be_fenced_on_an_older_broker(terminal: Terminal) -> None:
    assert terminal.run("txn fence somebody").startswith("fenced somebody: producer ")


def test_doctor_names_the_release_of_an_older_broker(terminal: Terminal, release: str) -> None:
    """Or the one before it that was the first to have its version of Fetch."""
    found = {each["check"]: each for each in terminal.objects("doctor")}
    named = {"2.1": "2.1", "2.5": "2.3", "2.8": "2.7"}[release]
    assert found["protocol"]["text"].endswith(f" APIs, as Kafka {named} or newer")
    assert found["features"]["text"].startswith("transaction.version 0")


@pytest.mark.parametrize("line", ["spark list", "spark abort sink", "spark reset sink"])
def test_a_broker_without_a_ledger_has_no_sinks_to_manage(terminal: Terminal, line: str) -> None:
    code, cause, hint = terminal.refused(line)
    assert code == 1
    assert "there is no ledger of sinks here" in cause
    assert "on Apache Kafka the sink delivers at least once" in hint
