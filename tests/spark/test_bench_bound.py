"""The bound of Spark, on few records, in a session of its own."""

import pytest
from fencepost.bench.bounds.bounds import BOUNDS
from fencepost.bench.bounds.sizes import Size
from fencepost.bench.contest.aims import AIMS
from fencepost.bench.peers.names import SPARK_JAR


@pytest.mark.jvm
@pytest.mark.long
def test_the_spark_benchmark_measures_every_figure_that_has_an_aim() -> None:
    output: list[str] = []
    measured = BOUNDS["bound Spark"].measure("bound Spark", Size(rounds=1, seconds=0.1, share=0.001), output.append)
    found = {(each.scenario, each.peer): each.figures for each in measured}
    for aim in AIMS:
        if aim.scenario.startswith("bound Spark"):
            for peer in {aim.ours, aim.theirs or ""} - {SPARK_JAR}:
                assert len(found[aim.scenario, peer][aim.figure]) == 1
