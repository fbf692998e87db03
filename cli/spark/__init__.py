"""`fencepost spark`: prints the environment that Spark needs, and manages the sinks of its queries."""

import os
import shlex
import sys

import click

from ..arguments.ranges import COUNT
from ..output.failures import Failure
from ..output.writing import show_own_text
from .sinks import abort, list_sinks, reset


@click.group()
def spark() -> None:
    """The PySpark connector: the environment it needs, and the sinks of its queries."""


@spark.command()
def env() -> None:
    """Print JAVA_HOME and PYSPARK_PYTHON for a shell: eval "$(fencepost spark env)"."""
    from ...spark.requirements import NEEDS, SparkUnusable
    from ...spark.sessions import environment

    try:
        found = environment(os.environ)
    except SparkUnusable as problem:
        raise Failure(str(problem), NEEDS) from None
    for name, value in found.items():
        show_own_text(f"export {name}={shlex.quote(value)}\n")


@spark.command()
@click.option("--lines", default=20_000, type=COUNT, show_default=True, help="Lines to copy.")
def demo(lines: int) -> None:
    """Copy and count real text with Spark streams, kill executor and driver, and compare the results."""
    from ...spark.requirements import NEEDS, SparkUnusable
    from ...spark.sessions import environment
    from .demo import demonstrate

    try:
        environment(os.environ)  # raises before anything is started
        good = demonstrate(lines)
    except SparkUnusable as problem:
        raise Failure(str(problem), NEEDS) from None
    sys.exit(0 if good else 1)


for _command in (list_sinks, abort, reset):
    spark.add_command(_command)
