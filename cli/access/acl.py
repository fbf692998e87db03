"""`fencepost acl`: who may do what, as rules of access (Kafka's ACLs)."""

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from ..arguments.connecting import Target, connecting
from ..output.failures import NOT_FOUND, WRONG_USAGE, Failure
from ..output.tables import Column
from ..output.writing import Cell
from .offline import ask, data_dir
from .rules import CLUSTER, OPERATIONS, Resource, Unclear, Wanted, filters_of, principal_of, rules_of

if TYPE_CHECKING:
    from ...client.admin.admin import Admin
    from ...client.admin.security_values import AclBinding

F = TypeVar("F", bound=Callable[..., Any])

if TYPE_CHECKING:
    _OfText = click.ParamType[str]
else:
    _OfText = click.ParamType  # not generic in older versions of click


class _Operation(_OfText):
    """An option with an operation in Kafka's words, in any spelling: IdempotentWrite, idempotent-write,
    idempotent_write.
    """

    name = "operation"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the operation by its Kafka name, from any spelling: upper or lower case, with or without dashes."""
        plain = str(value).lower().replace("-", "").replace("_", "")
        for each in OPERATIONS:
            if each.replace("_", "") == plain:
                return each
        return self.fail(f"{value!r} is not an operation: use one of {', '.join(OPERATIONS)}", param, ctx)


def _about_rules(command: F) -> F:
    """Add the options of a connection and of rules to a command; it gets a Target and a Wanted (what the options
    describe).
    """

    @functools.wraps(command)
    def described(
        to: Target,
        allow: Sequence[str],
        deny: Sequence[str],
        host: Sequence[str],
        operation: Sequence[str],
        topic: Sequence[str],
        group: Sequence[str],
        transactional_id: Sequence[str],
        cluster: bool,
        prefixed: bool,
        producer: bool,
        consumer: bool,
        **rest: Any,
    ) -> Any:
        """Call the command with the rules that its options describe."""
        named = {"topic": topic, "group": group, "transactional_id": transactional_id}
        resources = [Resource(kind, name) for kind, names in named.items() for name in names]
        wanted = Wanted(
            principals=[("allow", principal_of(each)) for each in allow]
            + [("deny", principal_of(each)) for each in deny],
            hosts=host,
            operations=operation,
            resources=resources + ([Resource("cluster", CLUSTER)] if cluster else []),
            prefixed=prefixed,
            producer=producer,
            consumer=consumer,
        )
        try:
            return command(to, wanted, **rest)
        except Unclear as error:
            raise Failure(str(error), error.hint, WRONG_USAGE) from None

    connected: Any = connecting(described)
    for option in reversed((*_OPTIONS, data_dir)):
        connected = option(connected)
    return cast("F", connected)


_OPTIONS = (
    click.option("--allow", metavar="USER", multiple=True, help="Who may: NAME, '*' for everybody, or TYPE:NAME."),
    click.option("--deny", metavar="USER", multiple=True, help="Who may not, whatever other rules allow."),
    click.option("--host", metavar="ADDRESS", multiple=True, help="Only from this address. [default: any]"),
    click.option("--operation", type=_Operation(), multiple=True, help="read, write, create, describe, all, …"),
    click.option("--topic", metavar="NAME", multiple=True, help="A topic; '*' means all."),
    click.option("--group", metavar="NAME", multiple=True, help="A consumer group."),
    click.option("--transactional-id", metavar="ID", multiple=True, help="A transactional id."),
    click.option("--cluster", is_flag=True, help="The cluster as a whole."),
    click.option("--prefixed", is_flag=True, help="Names are beginnings of names."),
    click.option("--producer", is_flag=True, help="All that sending takes, to --topic, with --transactional-id."),
    click.option("--consumer", is_flag=True, help="All that reading takes, from --topic, as a member of --group."),
)


@click.group()
def acl() -> None:
    """Rules of access: who may do what, with which topics, groups and transactional ids.

    A broker with an authorizer refuses what no rule allows, and what a rule denies.
    """


@acl.command()
@_about_rules
def add(to: Target, wanted: Wanted, data_dir: str | None) -> None:
    """Add rules.

    \b
    fencepost acl add --allow alice --producer --topic orders
    fencepost acl add --allow bob --consumer --topic orders --group billing
    fencepost acl add --deny '*' --host 10.0.0.7 --operation all --topic '*'
    """
    rules = rules_of(wanted)

    async def work(admin: "Admin") -> "list[AclBinding]":
        """Create the rules, and return them."""
        from ...client.admin.security_values import AclBinding

        acls = [AclBinding(**each) for each in rules]
        await admin.create_acls(acls)
        return acls

    for each in ask(to, data_dir, work, may_create=True):
        to.output.result(str(each), each._asdict())


@acl.command("list")
@_about_rules
def list_rules(to: Target, wanted: Wanted, data_dir: str | None) -> None:
    """List rules: all, or those that the options describe. --topic NAME lists all rules that apply to that topic."""
    filters = filters_of(wanted, applying=not wanted.prefixed)
    to.output.rows(
        ask(to, data_dir, lambda admin: _find(admin, filters)), _COLUMNS, "no rules; fencepost acl add adds one"
    )


async def _find(admin: "Admin", filters: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the ACLs that match any of the filters, sorted, as JSON objects."""
    from ...client.admin.security_values import AclFilter

    found = {each for fields in filters for each in await admin.describe_acls(AclFilter(**fields))}
    return [each._asdict() for each in sorted(found)]


@acl.command()
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@_about_rules
def rm(to: Target, wanted: Wanted, dry_run: bool, data_dir: str | None) -> None:
    """Remove the rules that the options describe.

    An option that is left out includes all: --allow alice removes every rule that allows alice something.
    """
    from ...effects.counts import count_text

    if wanted.says_nothing:
        raise Failure("no rules are described", "--allow '*' --topic NAME and the like say which", WRONG_USAGE)
    filters = filters_of(wanted, applying=False)

    async def work(admin: "Admin") -> list[dict[str, Any]]:
        """Delete the rules that match the filters, and return their fields; with --dry-run only find them."""
        from ...client.admin.security_values import AclFilter

        if dry_run:
            return await _find(admin, filters)
        return [each._asdict() for each in await admin.delete_acls([AclFilter(**fields) for fields in filters])]

    removed = ask(to, data_dir, work)
    if not removed:
        raise Failure("there are no such rules", "fencepost acl list shows all rules", NOT_FOUND)
    to.output.rows(removed, _COLUMNS)
    to.output.remark(f"{count_text(len(removed), 'rule')} {'would be ' if dry_run else ''}removed")


def _permission(word: str) -> str | Cell:
    return Cell(word, "red") if word == "deny" else word


_COLUMNS = (
    Column("PERMISSION", "permission", _permission),
    Column("PRINCIPAL", "principal"),
    Column("HOST", "host"),
    Column("OPERATION", "operation"),
    Column("RESOURCE", "resource_type"),
    Column("NAME", "resource_name"),
    Column("PATTERN", "pattern"),
)
