"""`fencepost store`: what an object store has, whether all of it is undamaged, and who owns it."""

import click

_output = click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="json: one JSON object.",
)


@click.group()
def store() -> None:
    """Look into a store of objects: a backup, or the journal of `fencepost serve --store`."""


@store.command()
@click.argument("url", metavar="URL")
@_output
def status(url: str, output: str) -> None:
    """Show what is in the store at URL.

    Of a backup: which moments can be restored, and which follower ships to it. Of a journal: which broker owns it, and
    its newest round.
    """
    from . import backups, journals
    from .looking import looking_into

    with looking_into(url) as asked:
        show_status = journals.show_status if asked.is_journal else backups.show_status
        show_status(asked, as_json=output == "json")


@store.command()
@click.argument("url", metavar="URL")
@_output
def verify(url: str, output: str) -> None:
    """Read every object in URL that a restore or a take-over would need, and compare it with its checksum."""
    from . import backups, journals
    from .looking import looking_into

    with looking_into(url) as asked:
        verify = journals.verify if asked.is_journal else backups.verify
        verify(asked, as_json=output == "json")


@store.command()
@click.argument("url", metavar="URL")
@click.option("--yes", is_flag=True, help="Do not ask.")
@_output
def take(url: str, yes: bool, output: str) -> None:
    """End the epoch of the broker that owns the journal in URL, so that one that waits takes over at once.

    For an owner that its clients cannot reach, while it reaches the store: else a waiting broker takes over by itself.
    """
    from .looking import looking_into
    from .taking import take_from_owner

    with looking_into(url) as asked:
        take_from_owner(asked, is_sure=yes, as_json=output == "json")
