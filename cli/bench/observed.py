"""`fencepost bench observed`: what metrics and traces cost a producer of the SDK."""

from dataclasses import asdict

import click

from ..arguments.ranges import COUNT, PARTITIONS, RECORD_BYTES
from ..output.extras import require
from ..output.interruption import Interruption
from ..output.writing import show, show_json
from .progress import progress_bar
from .target import LoadTarget, connecting_loads


@click.command("observed")
@connecting_loads
@click.option("--topic", default=None, help="An existing topic; default: a new one, deleted afterwards.")
@click.option("--partitions", default=1, type=PARTITIONS, show_default=True, help="Partitions of the new topic.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option("--records", default=50_000, type=COUNT, show_default=True, help="Records of each way in each round.")
@click.option("--size", default=100, type=RECORD_BYTES, show_default=True, help="Bytes of a record.")
@click.option("--rounds", default=5, type=COUNT, show_default=True, help="In which all ways take turns.")
@click.pass_obj
def observed(
    interruption: Interruption,
    to: LoadTarget,
    topic: str | None,
    partitions: int,
    output: str,
    records: int,
    size: int,
    rounds: int,
) -> None:
    """What metrics and traces cost a producer of the SDK, in its own CPU time."""
    require("fencepost bench observed", "opentelemetry")
    import uvloop

    from ...bench import observed as observing

    with to.topic(topic, partitions) as name:
        load = observing.ObservedLoad(name, records, size, rounds)
        with progress_bar("records", records * rounds * len(observing.ways()), interruption) as progress:
            running = observing.run(to.bootstrap, load, progress, to.properties)
            found = interruption.run(running, uvloop.new_event_loop)
    if output == "json":
        for each in found:
            show_json({"work": each.way, "records": records * rounds, **asdict(each)})
        return
    width = max(len(each.way) for each in found)
    show(f"{'':{width}}  {'records/s':>10}  {'CPU, us each':>12}  {'CPU ratio':>9}")
    for each in found:
        rate, cost, ratio = each.records_per_second, each.cpu_us_per_record, each.cpu_ratio
        show(f"{each.way:{width}}  {rate:>10,.0f}  {cost:>12.2f}  {ratio:>9.2f}")
