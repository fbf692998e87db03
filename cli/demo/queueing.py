"""A work queue of `fencepost demo`: workers take orders from one partition, and are killed at random.

The workers are processes of one share group. Each acknowledges its orders in the transaction that writes their
invoices. So an order whose worker or broker was killed is delivered to another worker only if its invoice was not
committed. At the end every order must have one invoice.
"""

import queue
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...client.errors import KafkaError
from ...client.values import TopicPartition
from ...effects.threads import start_thread
from ..output.writing import show
from .copying import read_all
from .stage import whole_lines

if TYPE_CHECKING:
    from ...client.sync.admin import Admin

ORDERS, INVOICES, GROUP = "queue-of-orders", "invoices", "billing"
PROGRAM = Path(__file__).with_name("worker.py")
WORKERS = 8
MAX_DELIVERIES = 10
LOOK_S = 0.2  # between two looks at what is left
STUCK_S = 120.0  # without an invoice


@dataclass(frozen=True, slots=True)
class Plan:
    """How many orders and workers, and after how many invoices a worker and the broker are killed."""

    orders: int
    workers: int
    worker_dies_at: tuple[int, ...]
    broker_dies_at: tuple[int, ...]

    @classmethod
    def of(cls, seed: int, orders: int, worker_kills: int, broker_kills: int, workers: int = WORKERS) -> "Plan":
        """Plan kills at random moments. None is in the last tenth, where it might come too late."""
        chosen = random.Random(seed)
        moments = [chosen.randrange(orders * 9 // 10) for _ in range(worker_kills + broker_kills)]
        return cls(orders, workers, tuple(sorted(moments[broker_kills:])), tuple(sorted(moments[:broker_kills])))


@dataclass(slots=True)
class Worked:
    """Counts of orders and invoices at the end."""

    invoices: int = 0
    lost: int = 0
    twice: int = 0
    workers_killed: int = 0
    brokers_killed: int = 0

    @property
    def good(self) -> bool:
        """Whether there are invoices, and no order has none or two."""
        return self.invoices > 0 and not (self.lost or self.twice)


class Workers:
    """Worker processes; one that has ended is replaced by another of the same name."""

    def __init__(self, bootstrap: str, count: int, seed: int) -> None:
        self._bootstrap = bootstrap
        self._random = random.Random(seed)
        self._printed: queue.Queue[str] = queue.Queue()
        self._processes: list[subprocess.Popen[str]] = []
        for number in range(count):
            self._processes.append(self._start(number))

    def _start(self, number: int) -> "subprocess.Popen[str]":
        """Start the worker process with this number."""
        command = [sys.executable, "-P", str(PROGRAM), self._bootstrap, GROUP, ORDERS, INVOICES, str(number)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        start_thread(self._listen, "output of a worker", process)
        return process

    def _listen(self, process: "subprocess.Popen[str]") -> None:
        """Put each line that a worker prints into the queue; runs in a thread until the worker ends."""
        assert process.stdout is not None
        with process.stdout:
            for line in whole_lines(process.stdout):
                self._printed.put(line)

    def next_line(self, timeout_s: float) -> str | None:
        """Return the next printed line, or None if there is none in time."""
        try:
            return self._printed.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def kill_one(self) -> None:
        """Send SIGKILL to one worker after a random delay, and start its successor."""
        time.sleep(self._random.random() * 0.05)
        number = self._random.randrange(len(self._processes))
        self._end(number)
        self._processes[number] = self._start(number)

    def replace_ended(self) -> None:
        """Start a new process for each worker that has ended."""
        for number, process in enumerate(self._processes):
            if process.poll() is not None:
                self._processes[number] = self._start(number)

    def kill_all(self) -> None:
        for number in range(len(self._processes)):
            self._end(number)

    def _end(self, number: int) -> None:
        """Kill the worker process with this number, and wait until it has ended."""
        self._processes[number].kill()
        self._processes[number].wait()


def prepare(bootstrap: str, orders: int) -> None:
    """Create a topic of one partition full of orders, and a group with a high delivery limit."""
    from ...client.admin.values import NewTopic
    from ...client.sync.admin import Admin
    from ...client.sync.producer import Producer

    with Admin(bootstrap) as admin:
        admin.create_topics([NewTopic(ORDERS, 1), NewTopic(INVOICES, 1)])
        admin.alter_configs(group=GROUP, set={"share.delivery.count.limit": str(MAX_DELIVERIES)})
    with Producer(bootstrap) as producer:
        for number in range(orders):
            producer.send(ORDERS, b"order %d" % number, partition=0)


def work(
    plan: Plan,
    bootstrap: str,
    seed: int,
    kill_broker: Callable[[], None],
    killed: Callable[[str, int], None],
    look: Callable[[int], None],
) -> Worked:
    """Let workers process all orders. Returns the counts. kill_broker: kills and restarts the broker. killed: called
    with what was killed, after how many invoices. look: called with the number of invoices so far.
    """
    from ...client.sync.admin import Admin

    worked = Worked()
    workers = Workers(bootstrap, plan.workers, seed)
    try:
        with Admin(bootstrap) as admin:
            _supervise(plan, workers, worked, admin, kill_broker, killed, look)
    finally:
        workers.kill_all()
    _end_transactions(plan.workers, bootstrap)
    return worked


def _end_transactions(workers: int, bootstrap: str) -> None:
    """End the transactions that the last workers left open, because they block read_committed readers."""
    from ...client.sync.producer import Producer

    for number in range(workers):
        with Producer(bootstrap, transactional_id=f"{GROUP}-{number}"):
            pass


def _supervise(
    plan: Plan,
    workers: Workers,
    worked: Worked,
    admin: "Admin",
    kill_broker: Callable[[], None],
    killed: Callable[[str, int], None],
    look: Callable[[int], None],
) -> None:
    """Kill workers and broker as the plan says, and start them again, until every order is acknowledged.

    Invoices are counted by what the workers print, and by what the broker says is left: a worker may be killed after
    its commit and before it prints.
    """
    done, left = 0, plan.orders
    next_look = last = time.monotonic()
    while left:
        line = workers.next_line(0.05)
        if line is not None and line.startswith("invoiced"):
            done += int(line.split()[1])
            last = time.monotonic()
        look(done)
        if sum(done >= moment for moment in plan.broker_dies_at) > worked.brokers_killed:
            worked.brokers_killed += 1
            kill_broker()
            killed("the broker", done)
        if sum(done >= moment for moment in plan.worker_dies_at) > worked.workers_killed:
            worked.workers_killed += 1
            workers.kill_one()
            killed("a worker", done)
        if time.monotonic() > next_look:
            workers.replace_ended()
            left = _left(admin, left)
            done = max(done, plan.orders - left)
            next_look = time.monotonic() + LOOK_S
        if time.monotonic() - last > STUCK_S:
            return  # what is left counts as lost


def _left(admin: "Admin", before: int) -> int:
    """Return how many orders are not processed yet; `before` if the broker does not answer."""
    try:
        found = admin.list_share_group_offsets(GROUP).get(TopicPartition(ORDERS, 0))
    except KafkaError:
        return before
    return before if found is None or found.lag is None else found.lag


def count(worked: Worked, bootstrap: str, orders: int) -> None:
    """Read the invoices at read_committed and compare them with the orders."""
    messages = read_all(bootstrap, INVOICES, 1)
    wanted = Counter(b"invoice for order %d" % number for number in range(orders))
    found = Counter(message.value() for message in messages)
    worked.invoices = len(messages)
    worked.lost = sum((wanted - found).values())
    worked.twice = sum((found - wanted).values())


def report(worked: Worked, orders: int) -> None:
    """Print the counts."""
    rows: list[tuple[str, object]] = [
        ("workers killed", worked.workers_killed),
        ("brokers killed", worked.brokers_killed),
        ("orders", f"{orders:,}"),
        ("invoices", f"{worked.invoices:,}"),
        ("orders without an invoice", worked.lost),
        ("orders with two", worked.twice),
    ]
    show()
    for label, value in rows:
        show(f"  {label:36}{value!s:>10}")
