"""The command line: one module a noun, imported only when used."""

import click


@click.group()
@click.version_option(package_name="fencepost")
def main() -> None:
    """A message broker with the Apache Kafka protocol and exactly-once that holds."""
