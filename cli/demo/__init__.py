"""`fencepost demo`: shows exactly-once delivery in about a minute, on real text, with Kafka's own clients.

First idempotence: the network loses answers, the broker is killed, and every line arrives once. Then transactions: two
topics written atomically, a successor that fences its predecessor, a zombie that is refused, a lost answer to a commit.
Then the whole text is copied in transactions while copiers and broker are killed. At last eight workers on one
partition write invoices and acknowledge their orders in the same transactions, while workers and broker are killed.
Each part checks its results; one wrong result fails the demo.
"""

import sys
import tempfile
import time

import click

from ..arguments.ranges import COUNT, DURATION, SHARE
from ..output.extras import require
from ..output.failures import Failure
from ..output.interruption import INTERRUPTED, Interruption
from ..output.writing import show
from . import copying, idempotence, queueing, shown, transactions
from .flaky_proxy import FlakyProxy
from .queueing import Plan
from .stage import PARTITIONS, Broker, lines_of_text, progress, say, version

ORDERS, WORKER_KILLS, BROKER_KILLS = 2_000, 8, 1


@click.command()
@click.option(
    "--lines", default=20_000, type=COUNT, show_default=True, help="Lines to send; the text is read again if shorter."
)
@click.option(
    "--lose", default=0.05, type=SHARE, show_default=True, help="Share of acknowledgements that the proxy loses."
)
@click.option("--seed", default=1, show_default=True, help="Seed of the proxy's random choices.")
@click.option("--console", is_flag=True, help="Play the transactions slowly, while the web console shows them.")
@click.option("--pace", type=DURATION, default="3s", show_default=True, help="With --console: time between two steps.")
def demo(lines: int, lose: float, seed: int, console: bool, pace: int) -> None:
    """Send real text through a bad network and a killed broker, in transactions too, and count what arrives."""
    require("fencepost demo", "confluent_kafka", "aiokafka")
    if console:
        require("fencepost demo --console", "aiohttp", "prometheus_client")
    with Interruption() as interruption:
        try:
            if console:
                shown.play(seed, pace / 1000, interruption)
            else:
                _demonstrate(lines, lose, seed, interruption)
        except (KeyboardInterrupt, click.ClickException):
            if not interruption.wanted:
                raise
            raise Failure("interrupted", "its broker is stopped and its files are removed", INTERRUPTED) from None


def _demonstrate(lines: int, lose: float, seed: int, interruption: Interruption) -> None:
    """Run the scenes on a broker behind a faulty proxy, print their results, and exit with 0 if all were
    exactly once.
    """
    text = [f"{number}:{line}" for number, line in enumerate(lines_of_text(lines))]
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fencepost-demo-") as directory, FlakyProxy(seed, lose) as proxy:
        say(f"text      {len(text):,} lines of the project's own documents")
        broker = Broker(directory, proxy.port)
        try:
            proxy.target_port = broker.start()
            say(f"broker    ready in {broker.ready_s:.2f} s, data in a new directory, every ack after its sync")
            ok = [
                _idempotence(text, proxy, broker, interruption, lose),
                _transactions(proxy, interruption),
                _copying(text, proxy, broker, interruption),
                _queueing(Plan.of(seed, ORDERS, WORKER_KILLS, BROKER_KILLS), seed, proxy, broker, interruption),
            ]
        finally:
            broker.stop()
    mark, words = ("✔", "exactly once") if all(ok) else ("✘", "NOT exactly once")
    show()
    show(f"{mark} {words}, {time.monotonic() - began:.1f} s")
    sys.exit(0 if all(ok) else 1)


def _idempotence(text: list[str], proxy: FlakyProxy, broker: Broker, interruption: Interruption, lose: float) -> bool:
    """Run the first part: every line is produced while acknowledgements are lost. Returns whether each was written
    once.
    """
    show()
    show("Idempotence: nothing lost, nothing twice")
    say(f"proxy     between client and broker: loses {lose:.0%} of the acknowledgements, cuts connections")
    sent = idempotence.produce(text, proxy, broker, interruption)
    say(f"reading   everything back with aiokafka {version('aiokafka')}")
    proxy.lose = 0.0
    found = interruption.run(idempotence.read_back(f"127.0.0.1:{proxy.port}", len(text)))
    return idempotence.report(text, sent, found, proxy, broker)


def _transactions(proxy: FlakyProxy, interruption: Interruption) -> bool:
    """Run the second part: commits, aborts and fencing. Returns whether each result was as expected."""
    show()
    show("Transactions: all or nothing, and one owner")
    results = transactions.Results(f"127.0.0.1:{proxy.port}", proxy, interruption, say)
    transactions.run(results)
    return not results.wrong


def _copying(text: list[str], proxy: FlakyProxy, broker: Broker, interruption: Interruption) -> bool:
    """Run the third part: copiers and broker are killed while the text is copied. Returns whether the copy is exact."""
    show()
    show("Consume, transform, produce: the whole text in capitals, in transactions, under random kills")
    copied = copying.copy(idempotence.TOPIC, len(text), broker, proxy, interruption, say)
    copying.count(copied, f"127.0.0.1:{proxy.port}", text, PARTITIONS)
    copying.report(copied)
    return copied.good


def _queueing(plan: Plan, seed: int, proxy: FlakyProxy, broker: Broker, interruption: Interruption) -> bool:
    """Run the fourth part: workers of a share group are killed while they process orders. Returns whether each order
    has one invoice.
    """
    show()
    show(f"A work queue: {plan.workers} workers on one partition acknowledge in transactions, under random kills")
    bootstrap = f"127.0.0.1:{proxy.port}"
    queueing.prepare(bootstrap, plan.orders)

    def kill_broker() -> None:
        broker.kill()
        proxy.target_port = broker.start()

    def killed(what: str, done: int) -> None:
        then = f"ready again in {broker.ready_s:.2f} s" if what == "the broker" else "its successor continues"
        say(f"          kill -9 of {what} after {done:,} invoices; {then}")

    with progress(plan.orders) as shown_so_far:

        def look(done: int) -> None:
            interruption.check()
            shown_so_far(done)

        worked = queueing.work(plan, bootstrap, seed, kill_broker, killed, look)
    queueing.count(worked, bootstrap, plan.orders)
    queueing.report(worked, plan.orders)
    return worked.good
