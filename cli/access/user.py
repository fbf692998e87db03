"""`fencepost user`: who may log in with a password, by SCRAM or PLAIN."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from ...effects.counts import count_text
from ..arguments.connecting import Target, connecting, connecting_with_own_password
from ..arguments.login import password_from_stdin, password_typed
from ..output.failures import NOT_FOUND, Failure
from ..output.tables import Column
from .offline import ask, data_dir

if TYPE_CHECKING:
    from ...client.admin.admin import Admin

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")

_mechanisms = click.option(
    "--mechanism",
    "mechanisms",
    type=click.Choice(MECHANISMS, case_sensitive=False),
    multiple=True,
    help="Only this mechanism. [default: both]",
)


@click.group()
def user() -> None:
    """Users who log in with a password: add, list and remove them."""


@user.command()
@click.argument("name", metavar="NAME")
@click.option("--password-stdin", is_flag=True, help="Read the new user's password from stdin. [default: ask for it]")
@_mechanisms
@click.option("--iterations", type=click.IntRange(4_096, 16_384), default=4_096, show_default=True, help="Of SCRAM.")
@data_dir
@connecting_with_own_password
def add(
    to: Target, name: str, password_stdin: bool, mechanisms: Sequence[str], iterations: int, data_dir: str | None
) -> None:
    """Add a user, or change its password.

    The broker keeps no password, only what SCRAM checks. A listener with PLAIN checks the same users.
    """
    password = password_from_stdin() if password_stdin else _ask_password(name)
    wanted = list(mechanisms or MECHANISMS)

    async def work(admin: "Admin") -> bool:
        """Set the user's password for each mechanism. Returns whether the user is new."""
        from ...client.admin.security_values import ScramUpsertion

        before = await admin.describe_user_scram_credentials(name)
        changes: Any = [ScramUpsertion(name, password, each, iterations) for each in wanted]  # type: ignore[arg-type]
        await admin.alter_user_scram_credentials(changes)
        return not before[name]

    new = ask(to, data_dir, work, may_create=True)
    text = f"{name} added" if new else f"{name} has a new password"
    to.output.result(f"{text} ({', '.join(wanted)})", {"user": name, "added": new, "mechanisms": wanted})


def _ask_password(name: str) -> str:
    return password_typed(f"New password of {name}", "--password-stdin reads it from standard input", confirm=True)


@user.command("list")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@data_dir
@connecting
def list_users(to: Target, names: Sequence[str], data_dir: str | None) -> None:
    """List users, and how they may log in."""

    async def work(admin: "Admin") -> list[dict[str, Any]]:
        """Return each user's mechanisms and iterations. Raises Failure if a named user does not exist."""
        found = await admin.describe_user_scram_credentials(names or None)
        for name, infos in found.items():
            if not infos:
                raise _unknown(name)
        return [
            {
                "user": name,
                "mechanisms": [info.mechanism for info in infos],
                "iterations": [info.iterations for info in infos],
            }
            for name, infos in found.items()
        ]

    columns = (Column("USER", "user"), Column("MECHANISMS", "mechanisms"), Column("ITERATIONS", "iterations"))
    to.output.rows(ask(to, data_dir, work), columns, "no users; fencepost user add NAME adds one")


@user.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@_mechanisms
@data_dir
@connecting
def rm(to: Target, names: Sequence[str], mechanisms: Sequence[str], data_dir: str | None) -> None:
    """Remove users. Their open connections stay until they log in again, or until a restart.

    Rules of access that name a user are kept: fencepost acl rm removes them.
    """

    async def work(admin: "Admin") -> dict[str, int]:
        """Remove the credentials of these users for these mechanisms (none named: all). Returns how many each user has
        left. Raises Failure for a user without one.
        """
        from ...client.admin.security_values import ScramDeletion

        found = await admin.describe_user_scram_credentials(names)
        changes = [
            ScramDeletion(name, info.mechanism)  # type: ignore[arg-type]
            for name, infos in found.items()
            for info in infos
            if info.mechanism in (mechanisms or MECHANISMS)
        ]
        for name in found:
            if name not in {each.user for each in changes}:
                raise _unknown(name, *mechanisms)
        await admin.alter_user_scram_credentials(changes)
        return {name: len(infos) - sum(each.user == name for each in changes) for name, infos in found.items()}

    for name, left in ask(to, data_dir, work).items():
        text = f"{name} removed" if not left else f"{name} may still log in by {count_text(left, 'other mechanism')}"
        to.output.result(text, {"user": name, "removed": not left})


def _unknown(name: str, *mechanisms: str) -> Failure:
    """Return the failure for a user that does not exist, or not with one of these mechanisms."""
    by = f" who logs in by {' or '.join(mechanisms)}" if mechanisms else ""
    return Failure(f"there is no user {name}{by}", "fencepost user list shows all users", NOT_FOUND)
