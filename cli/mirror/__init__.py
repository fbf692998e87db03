"""`fencepost mirror`: copies topics of one Kafka cluster exactly once to another, and moves consumer groups there."""

import click

from ..arguments.ranges import DURATION
from .sides import Both, both_sides


class _RunsByDefault(click.Group):
    """A group for which `fencepost mirror --from …` means `fencepost mirror run --from …`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line; if it begins with an option, `run` is put before it."""
        if args and args[0].startswith("-") and args[0] not in ("-h", "--help"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_RunsByDefault)
def mirror() -> None:
    """Copy topics exactly once from one Kafka cluster to another, and move consumer groups there.

    Without a command: run.
    """


@mirror.command()
@click.option(
    "--topics", metavar="REGEX", required=True, help="Which topics: an expression that must match the whole name."
)
@click.option(
    "--every", "every_ms", type=DURATION, default="5s", show_default=True, help="How often to print the progress."
)
@click.option("--metrics", metavar="HOST:PORT", default=None, help="Serve metrics for Prometheus there.")
@both_sides
def run(to: Both, topics: str, every_ms: int, metrics: str | None) -> None:
    """Copy topics exactly once until Ctrl-C.

    To be faster, run several of these processes at the same time, also on other machines: they share the partitions.

    -X from.NAME=VALUE and to.NAME=VALUE set properties of the clients of one side.
    """
    from .running import run_mirror

    run_mirror(to, topics, every_ms, metrics)


@mirror.command()
@click.option(
    "--groups", metavar="REGEX", required=True, help="Which groups to move: an expression that must match the whole id."
)
@click.option("--dry-run", is_flag=True, help="Show every step, what takes it back, and the offsets; change nothing.")
@click.option(
    "--producers-stopped",
    is_flag=True,
    help="Nobody writes to the source any more: for a Kafka without an authorizer, which cannot refuse writes.",
)
@click.option(
    "--partly",
    is_flag=True,
    help="Move groups that have offsets in topics which the mirror does not copy, too; those offsets stay.",
)
@both_sides
def cutover(to: Both, groups: str, dry_run: bool, producers_stopped: bool, partly: bool) -> None:
    """Move consumer groups: refuse writes at the source, wait for the mirror, and commit exact offsets at the target.

    The mirror has to run meanwhile. If a step fails, those before it are undone; after a crash run it again, to go on.
    """
    from .cutover import cut_over_groups, show_plan

    if dry_run:
        show_plan(to, groups, producers_stopped=producers_stopped, partly=partly)
    else:
        cut_over_groups(to, groups, producers_stopped=producers_stopped, partly=partly)


@mirror.command()
@click.option(
    "--every", "every_ms", type=DURATION, default="2s", show_default=True, help="How long to measure the rate."
)
@both_sides
def status(to: Both, every_ms: int) -> None:
    """How far the mirror is: rate, lag, time left, and which partitions have stopped, and why."""
    from .status import show_status

    show_status(to, every_ms)
