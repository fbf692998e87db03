"""Which transaction holds the offsets of a group, on fencepost and, with KAFKA=HOST:PORT, on that broker too."""

import os
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from fencepost.protocol.java_hash import java_hash
from served_broker import ServedBroker
from terminal import Terminal

KAFKA = os.environ.get("KAFKA", "")
no_kafka = pytest.mark.skipif(not KAFKA, reason="no Apache Kafka is given: KAFKA=HOST:PORT")


@pytest.fixture(scope="module", params=["fencepost", pytest.param("kafka", marks=no_kafka)])
def terminal(request: pytest.FixtureRequest) -> Iterator[Terminal]:
    if request.param == "kafka":
        yield Terminal(SimpleNamespace(port=int(KAFKA.rpartition(":")[2])))  # type: ignore[arg-type]
        return
    with ServedBroker(group_initial_rebalance_delay_ms=0) as broker:
        yield Terminal(broker)


def test_the_holder_of_a_groups_offsets_is_named_whatever_the_sign_of_the_java_hash(terminal: Terminal) -> None:
    run = f"held{os.getpid()}"
    groups = [
        next(name for n in range(99) if (java_hash(name := f"{n}-{run}") < 0) is below) for below in (True, False)
    ]
    terminal.run(f"topic create {run}")
    terminal.plain(run, "a")
    holders = {}
    for each in groups:
        terminal.run(f"group seek {each} -t {run} --to start")
        holders[each] = terminal.hold_offsets(f"copier-{each}", each, run, 1)
    for each, holder in holders.items():
        told = f"group {each}: its offsets of {run}-0 are held by transaction copier-{each} of producer "
        (blocked,) = terminal.run(f"txn why-blocked --group {each}").splitlines()
        described = terminal.run(f"group describe {each}")
        (facts,) = terminal.objects(f"txn why-blocked --group {each}")
        holder.abort_transaction()
        assert blocked.startswith(told)
        assert blocked.endswith("a member that starts waits for the end of it")
        assert told in described
        assert (facts["transactional_id"], facts["state"], facts["hangs"]) == (f"copier-{each}", "Ongoing", False)
        assert f"group {each} is not blocked" in terminal.run(f"txn why-blocked --group {each}")
