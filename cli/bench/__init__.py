"""`fencepost bench`: load against any Kafka broker, with the broker's own cost beside the rates."""

from array import array

import click

from ...bench.figures import Figures, percentile
from ..arguments.ranges import COUNT, PARTITIONS, RECORD_BYTES, SECONDS
from ..output.extras import require
from ..output.interruption import Interruption
from ..output.writing import show, show_json
from .compare import compare
from .loads import LoadGroup
from .observed import observed
from .progress import progress_bar
from .target import LoadTarget, connecting_loads


@click.group(cls=LoadGroup)
def bench() -> None:
    """Measure a broker: any Kafka address will do.

    The broker's CPU and memory are shown when it runs on this machine.
    """


bench.add_command(compare)
bench.add_command(observed)

_topic = click.option("--topic", default=None, help="An existing topic; default: a new one, deleted afterwards.")
_partitions = click.option(
    "--partitions", default=1, type=PARTITIONS, show_default=True, help="Partitions of the new topic."
)
_output = click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)


@bench.command("small")
@connecting_loads
@_topic
@_partitions
@_output
@click.option("--connections", default=64, type=COUNT, show_default=True)
@click.option("--depth", default=1, type=COUNT, show_default=True, help="Requests outstanding on each connection.")
@click.option("--size", default=100, type=RECORD_BYTES, show_default=True, help="Bytes of a record.")
@click.option("--records", default=1, type=COUNT, show_default=True, help="Records in a request.")
@click.option("--seconds", default=5.0, type=SECONDS, show_default=True)
@click.pass_obj
def small_requests(
    interruption: Interruption,
    to: LoadTarget,
    topic: str | None,
    partitions: int,
    output: str,
    connections: int,
    depth: int,
    size: int,
    records: int,
    seconds: float,
) -> None:
    """Small Produce requests in a closed loop."""
    import uvloop  # so that the load generator costs as little as possible

    from ...bench import small

    usage = BrokerUsage(to.port)
    with to.topic(topic, partitions) as name:
        load = small.SmallLoad(name, partitions, connections, depth, size, records, seconds)
        with progress_bar(f"{connections} connections x {depth}", None, interruption):
            result = interruption.run(small.run(to.host, to.port, load, usage.read, to.connect), uvloop.new_event_loop)
    sent = result.requests * records
    show_figures(usage.figures("small", result.requests, sent, sent * size, result.seconds, result.latencies), output)


@bench.command("produce")
@connecting_loads
@_topic
@_partitions
@_output
@click.option("--records", default=1_000_000, type=COUNT, show_default=True)
@click.option("--size", default=100, type=RECORD_BYTES, show_default=True, help="Bytes of a record.")
@click.option("--batch", default=1 << 17, type=COUNT, show_default=True, help="The client's batch.size, bytes.")
@click.option("-X", "properties", multiple=True, metavar="NAME=VALUE", help="A librdkafka property.")
@click.pass_obj
def produce(
    interruption: Interruption,
    to: LoadTarget,
    topic: str | None,
    partitions: int,
    output: str,
    records: int,
    size: int,
    batch: int,
    properties: tuple[str, ...],
) -> None:
    """Idempotent produce through librdkafka."""
    require("fencepost bench produce", "confluent_kafka")
    from ...bench import librdkafka

    usage = BrokerUsage(to.port)
    extra = tuple((name, value) for name, _, value in (item.partition("=") for item in properties))
    with to.topic(topic, partitions) as name:
        load = librdkafka.ProduceLoad(name, records, size, batch, (*to.for_librdkafka().items(), *extra))
        with progress_bar("records", records, interruption) as progress:
            usage.read()
            result = librdkafka.produce(to.bootstrap, load, progress)
            usage.read()
    show_figures(usage.figures("produce", 0, result.records, result.bytes, result.seconds, result.latencies), output)


@bench.command("txn")
@connecting_loads
@_topic
@_partitions
@_output
@click.option(
    "--producers", default=1, type=COUNT, show_default=True, help="Each in a thread, with its own transactional id."
)
@click.option("--records", default=1, type=COUNT, show_default=True, help="Records in a transaction.")
@click.option("--size", default=100, type=RECORD_BYTES, show_default=True, help="Bytes of a record.")
@click.option("--seconds", default=5.0, type=SECONDS, show_default=True)
@click.pass_obj
def transactions(
    interruption: Interruption,
    to: LoadTarget,
    topic: str | None,
    partitions: int,
    output: str,
    producers: int,
    records: int,
    size: int,
    seconds: float,
) -> None:
    """Transactions through librdkafka, one after another by each producer."""
    require("fencepost bench txn", "confluent_kafka")
    from ...bench import txn

    usage = BrokerUsage(to.port)
    with to.topic(topic, partitions) as name:
        login = tuple(to.for_librdkafka().items())
        load = txn.TransactionLoad(
            name, producers, partitions, records, size, seconds, ids=f"bench-{name}", login=login
        )
        with progress_bar("transactions", None, interruption) as progress:
            result = txn.run(to.bootstrap, load, usage.read, progress)
    sent = result.transactions * records
    show_figures(usage.figures("txn", result.transactions, sent, sent * size, result.seconds, result.latencies), output)


@bench.command("modes")
@connecting_loads
@_topic
@_partitions
@_output
@click.option("--records", default=100_000, type=COUNT, show_default=True, help="Records in each mode, at most.")
@click.option("--size", default=100, type=RECORD_BYTES, show_default=True, help="Bytes of a record.")
@click.option("--seconds", default=3.0, type=SECONDS, show_default=True, help="Time for each mode, at most.")
@click.pass_obj
def delivery_modes(
    interruption: Interruption,
    to: LoadTarget,
    topic: str | None,
    partitions: int,
    output: str,
    records: int,
    size: int,
    seconds: float,
) -> None:
    """Compare the cost of at most once, at least once and exactly once, with the SDK."""
    import uvloop

    from ...bench import modes

    with to.topic(topic, partitions) as name:
        load = modes.ModeLoad(name, records, size, seconds)
        for mode, batch in modes.modes():
            usage = BrokerUsage(to.port)
            title = f"{mode}, {batch} records a {'transaction' if mode == 'exactly once' else 'batch'}"
            with progress_bar(title, None, interruption) as progress:
                usage.read()
                running = modes.run(to.bootstrap, load, mode, batch, progress, to.properties)
                result = interruption.run(running, uvloop.new_event_loop)
                usage.read()
            count, batches = result.records, len(result.latencies)
            found = usage.figures(title, batches, count, count * size, result.seconds, result.latencies)
            if output == "table":
                show()
                show(title)
            show_figures(found, output)


@bench.command("consume")
@connecting_loads
@click.option("--topic", required=True)
@_output
@click.option("--records", default=1_000_000, type=COUNT, show_default=True)
@click.pass_obj
def consume(interruption: Interruption, to: LoadTarget, topic: str, output: str, records: int) -> None:
    """Read a topic from its beginning through librdkafka."""
    require("fencepost bench consume", "confluent_kafka")
    from ...bench import librdkafka

    to.check_exists(topic)
    usage = BrokerUsage(to.port)
    with progress_bar("records", records, interruption) as progress:
        usage.read()
        result = librdkafka.consume(to.bootstrap, topic, records, progress, to.for_librdkafka())
        usage.read()
    show_figures(usage.figures("consume", 0, result.records, result.bytes, result.seconds, result.latencies), output)


class BrokerUsage:
    """CPU time and memory of the broker's process: the difference between the last reading and the first. Empty if
    the broker is on another machine.
    """

    def __init__(self, port: int) -> None:
        from ...bench import accounting

        self._pid = accounting.listener_pid(port)
        self._readings: list[accounting.Usage] = []

    def read(self) -> None:
        """Read the broker's CPU time and memory now, if its process is on this machine."""
        from ...bench import accounting

        if self._pid is not None:
            self._readings.append(accounting.usage(self._pid))

    def figures(
        self, work: str, requests: int, records: int, size: int, seconds: float, latencies: "array[float]"
    ) -> Figures:
        """Return the load's result and the broker's cost. size: bytes of all records. latencies: in seconds."""
        ordered = array("d", sorted(latencies))
        p50, p99, p999 = (percentile(ordered, s) * 1e3 if ordered else None for s in (0.5, 0.99, 0.999))
        if len(self._readings) < 2:
            return Figures(work, requests, records, size, seconds, p50, p99, p999)
        cost = self._readings[-1].since(self._readings[0])
        per_request = cost.cpu_ns / 1e3 / requests if requests else None
        per_mb = cost.cpu_ns / 1e6 / (size / 1e6)
        return Figures(
            work, requests, records, size, seconds, p50, p99, p999, per_request, per_mb, cost.rss_bytes / 1e6
        )


def show_figures(figures: Figures, output: str) -> None:
    """Print the figures of one run."""
    if output == "json":
        show_json(figures.as_json())
        return
    width = max(len(label) for label, _ in figures.lines())
    for label, value in figures.lines():
        show(f"{label:{width}}  {value:>14}")
