"""The work queue of `fencepost demo`, with few orders."""

import io
import tempfile
from collections.abc import Iterator
from unittest.mock import Mock

import pytest
from fencepost.cli.demo import _queueing, queueing
from fencepost.cli.demo.flaky_proxy import FlakyProxy
from fencepost.cli.demo.queueing import Plan, Worked, Workers
from fencepost.cli.demo.stage import Broker, whole_lines
from fencepost.cli.output.interruption import Interruption


def test_whole_lines_of_a_demo_workers_output_omits_a_last_line_without_line_end() -> None:
    assert list(whole_lines(io.StringIO("invoiced 5\ninvoiced"))) == ["invoiced 5"]


@pytest.fixture
def proxy() -> Iterator[FlakyProxy]:
    with FlakyProxy(1, 0.0) as proxy:
        yield proxy


@pytest.mark.slow
@pytest.mark.requirement("S-121", "S-123")
def test_the_demo_invoices_each_order_although_worker_and_broker_are_killed(
    proxy: FlakyProxy, capsys: pytest.CaptureFixture[str]
) -> None:
    with tempfile.TemporaryDirectory() as directory, Interruption() as interruption:
        broker = Broker(directory, proxy.port)
        try:
            proxy.target_port = broker.start()
            assert _queueing(Plan(300, 4, (80, 200), (140,)), 1, proxy, broker, interruption)
        finally:
            broker.stop()
    shown = capsys.readouterr().out
    assert (shown.count("kill -9 of a worker"), shown.count("kill -9 of the broker")) == (2, 1)
    counts = dict(line.rsplit(maxsplit=1) for line in shown.splitlines()[-6:])
    assert {name.strip(): found for name, found in counts.items()} == {
        "workers killed": "2",
        "brokers killed": "1",
        "orders": "300",
        "invoices": "300",
        "orders without an invoice": "0",
        "orders with two": "0",
    }


def test_the_demo_kills_on_time_although_its_workers_print_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(Workers):
        def __init__(self) -> None:
            self.killed = 0

        def next_line(self, timeout_s: float) -> str | None:
            return None

        def kill_one(self) -> None:
            self.killed += 1

        def replace_ended(self) -> None:
            """Do nothing: there are no processes."""

    left = iter((300, 200, 100, 0))
    monkeypatch.setattr(queueing, "LOOK_S", 0.0)
    monkeypatch.setattr(queueing, "_left", lambda *_: next(left))
    workers, worked, told = Silent(), Worked(), list[tuple[str, int]]()
    queueing._supervise(
        Plan(300, 4, (80, 180), (140,)), workers, worked, Mock(), Mock(), lambda *what: told.append(what), Mock()
    )
    assert told == [("a worker", 100), ("the broker", 200), ("a worker", 200)]
    assert (worked.workers_killed, worked.brokers_killed, workers.killed) == (2, 1, 2)


def test_the_demos_count_finds_orders_without_an_invoice_and_orders_with_two(monkeypatch: pytest.MonkeyPatch) -> None:
    class Message:
        def __init__(self, number: int) -> None:
            self._number = number

        def value(self) -> bytes:
            return b"invoice for order %d" % self._number

    monkeypatch.setattr(queueing, "read_all", lambda *_: [Message(number) for number in (0, 2, 2, 4)])
    worked = Worked()
    queueing.count(worked, "", 5)
    assert (worked.invoices, worked.lost, worked.twice, worked.good) == (4, 2, 1, False)


def test_the_demos_plan_kills_workers_and_broker_within_the_first_90_of_100_orders() -> None:
    for seed in range(50):
        plan = Plan.of(seed, 100, 5, 2)
        assert (len(plan.worker_dies_at), len(plan.broker_dies_at)) == (5, 2)
        assert max(*plan.worker_dies_at, *plan.broker_dies_at) < 90
