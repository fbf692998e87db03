"""Settings that a command changes: `-c NAME=VALUE` sets, `-d NAME` resets; other settings keep their values."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import click

from ..output.failures import WRONG_USAGE, Failure
from .connecting import Target, pairs

if TYPE_CHECKING:
    from ...client.admin.admin import Admin

Kind = Literal["topic", "group"]


def settings_of(kind: Kind) -> Callable[[Any], Any]:
    """Return a decorator that adds the option `configs` to a command: settings of one topic or group."""
    return click.option(
        "-c", "--config", "configs", metavar="NAME=VALUE", multiple=True, help=f"A setting of the {kind}."
    )


def changes_of(kind: Kind) -> Callable[[Any], Any]:
    """Return a decorator that adds the options `configs`, `deleted` and `dry_run` to a command; they are for
    alter_settings().
    """

    def decorate(command: Any) -> Any:
        dry_run = click.option("--dry-run", is_flag=True, help="Let the broker only validate it.")
        reset = "A setting to reset to its default."
        deleted = click.option("-d", "--delete", "deleted", metavar="NAME", multiple=True, help=reset)
        return settings_of(kind)(deleted(dry_run(command)))

    return decorate


def alter_settings(
    to: Target, kind: Kind, name: str, configs: Sequence[str], deleted: Sequence[str], dry_run: bool
) -> None:
    """Change settings of a topic or group, and show the result. Raises Failure if no change is given."""
    changes = dict(pairs(configs, "-c"))
    if not changes and not deleted:
        raise Failure(
            "the command names no setting to change",
            "-c NAME=VALUE sets a setting, -d NAME resets it to its default",
            WRONG_USAGE,
        )

    async def work(admin: "Admin") -> None:
        """Change the settings; with --dry-run the broker only validates them."""
        which: dict[str, Any] = {kind: name}
        await admin.alter_configs(**which, set=changes, delete=deleted, validate_only=dry_run)

    to.ask(work)
    facts = {kind: name, "set": changes, "deleted": list(deleted), "altered": not dry_run}
    to.output.result(f"{name} {'would be' if dry_run else 'is'} altered", facts)
