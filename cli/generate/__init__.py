"""`fencepost generate`: files for systems that run and watch a broker, printed to standard output.

The rule: a board or an alert rule names only metrics that /metrics exports; a test checks that.
"""

from importlib.resources import files

import click

from ..output.writing import show_own_text


@click.group()
def generate() -> None:
    """Print a Grafana board, scrape and alert rules of Prometheus, or a systemd unit."""


@generate.command()
@click.option("--title", default="fencepost", show_default=True, help="The board's title.")
def grafana(title: str) -> None:
    """A board for Grafana 10 or newer, as JSON: Dashboards, New, Import."""
    import json

    from .board import board

    show_own_text(json.dumps(board(title), indent=2) + "\n")


@generate.command()
@click.option("--target", default="127.0.0.1:8082", show_default=True, help="Where the console serves /metrics.")
@click.option("--rules", "only_rules", is_flag=True, help="Only the alert rules, as a file of their own.")
def prometheus(target: str, only_rules: bool) -> None:
    """A scrape configuration and alert rules, as YAML."""
    from .rules import rules_text, scrape_text

    show_own_text(rules_text() if only_rules else scrape_text(target))


@generate.command()
def systemd() -> None:
    """A unit for `serve`, with the protection that systemd offers."""
    show_own_text(files(__name__).joinpath("fencepost.service").read_text(encoding="utf-8"))
