"""`fencepost spark`: what Spark needs to start here, and the sinks of its queries."""

import os
import shlex

import click

from .failures import Failure


@click.group()
def spark() -> None:
    """The PySpark connector: the environment it needs."""


@spark.command()
def env() -> None:
    """Print JAVA_HOME and PYSPARK_PYTHON for a shell: eval "$(fencepost spark env)"."""
    from ..spark.requirements import SparkUnusable
    from ..spark.sessions import environment

    try:
        found = environment(os.environ)
    except SparkUnusable as problem:
        raise Failure(str(problem), "docs/spark.md says what Spark needs") from None
    for name, value in found.items():
        click.echo(f"export {name}={shlex.quote(value)}")
