"""Eight workers of one share group on one partition, and kill -9 of workers and broker at random: real processes.

With the SDK each order is acknowledged in the transaction that writes its invoice: none is lost, none is written twice.
With confluent-kafka an order is acknowledged by itself: none is lost, and one is worked on again only if its worker or
the broker was killed in between, or its lock has ended. The suite has shorter ones: the work queue of the demo
(tests/cli/demo/test_queueing.py), and workers with other clients (tests/interop/test_share_groups.py).
"""

import random
import time
from pathlib import Path

import pytest
from broker_process import broker_process
from fencepost.cli.demo import queueing
from fencepost.cli.demo.queueing import WORKERS, Plan
from share_orders import left, prepare
from share_workers import Crew

SEEDS = range(50)
ORDERS = 20_000
WITHIN_S = 600
pytestmark = pytest.mark.long


@pytest.mark.requirement("S-121", "S-123")
@pytest.mark.parametrize("seed", SEEDS)
def test_each_consumed_record_has_one_output_though_workers_and_broker_are_killed(tmp_path: Path, seed: int) -> None:
    plan = Plan.of(seed, ORDERS, worker_kills=24, broker_kills=4)
    with broker_process(str(tmp_path / "data")) as broker:
        queueing.prepare(broker.bootstrap, plan.orders)

        def kill_broker() -> None:
            broker.kill()
            broker.start()

        worked = queueing.work(plan, broker.bootstrap, seed, kill_broker, lambda *_: None, lambda _: None)
        queueing.count(worked, broker.bootstrap, plan.orders)
    assert (worked.workers_killed, worked.brokers_killed) == (len(plan.worker_dies_at), len(plan.broker_dies_at))
    assert (worked.invoices, worked.lost, worked.twice) == (plan.orders, 0, 0)


@pytest.mark.parametrize("seed", SEEDS)
def test_killed_share_workers_lose_no_record_and_get_none_that_is_locked_by_another(tmp_path: Path, seed: int) -> None:
    chosen = random.Random(seed)
    with broker_process(str(tmp_path / "data"), "-X", "group.share.delivery.count.limit=10") as broker:
        prepare(broker.bootstrap, "orders", "billing", ORDERS)
        with Crew(broker.bootstrap, "orders", "billing", tmp_path) as crew:
            for _ in range(WORKERS):
                crew.hire("librdkafka")
            for moment in sorted(chosen.sample(range(ORDERS * 9 // 10), 12)):
                crew.wait_until(moment, WITHIN_S)
                if chosen.random() < 0.25:
                    crew.broker_deaths.append(time.monotonic())
                    broker.kill()
                    broker.start()
                worker = chosen.choice(crew.workers)
                worker.kill()
                worker.start()
            crew.wait_until(ORDERS, WITHIN_S)
            time.sleep(2)  # the last acknowledgements
        assert left(broker.bootstrap, "orders", "billing") == []
        assert set(crew.done) == {str(number) for number in range(ORDERS)}
        assert crew.unexplained() == []
