"""`fencepost quota`: how much each user, client id or address may ask for, before it has to wait."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ...effects.counts import count_text
from ..arguments.connecting import Target, connecting
from ..arguments.ranges import Finite
from ..output.failures import NOT_FOUND, WRONG_USAGE, Failure
from ..output.tables import NOTHING, Column, number
from .offline import ask, data_dir

if TYPE_CHECKING:
    from ...client.admin.admin import Admin
    from ...client.admin.values import QuotaEntity

    _OfNumber = click.ParamType[float]
    _OfPair = click.ParamType[tuple[str, str]]
else:
    _OfNumber = _OfPair = click.ParamType  # not generic in older versions of click

F = TypeVar("F", bound=Callable[..., Any])

EVERYBODY, DEFAULT, ANY = "*", "<default>", "<any>"
_FIELDS = {"user": "user", "client-id": "client_id", "ip": "ip"}
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}


class _Bytes(_OfNumber):
    """An option with a number of bytes a second, such as 500, 100k, 10M or 2.5G."""

    name = "bytes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return bytes a second from a number with an optional unit: 500, 100k, 10M, 2.5G."""
        text = str(value).strip().lower()
        digits = text.rstrip("kmg")
        try:
            found = float(digits) * _UNITS[text[len(digits) :]]
        except (KeyError, ValueError):
            return self.fail(f"{value!r} is not a rate: write 500, 100k, 10M or 2.5G", param, ctx)
        if not 1 <= found < 2**63:
            return self.fail(f"{value!r} is out of range", param, ctx)
        return float(math.floor(found))


class _Who(_OfPair):
    """An argument that names whom a quota is for: user=NAME, client-id=NAME or ip=ADDRESS."""

    name = "who"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Return (entity type, name) from user=NAME, client-id=NAME or ip=ADDRESS."""
        if isinstance(value, tuple):
            return value
        type_, _, name = str(value).partition("=")
        if type_ not in _FIELDS or not name:
            return self.fail(f"{value!r} is not user=NAME, client-id=NAME or ip=ADDRESS", param, ctx)
        return _FIELDS[type_], name


_POSITIVE = Finite(min=0, min_open=True)
_RATES: dict[str, tuple[str, str, Any, str]] = {  # by Kafka's name: option, its unit, its type, its help
    "producer_byte_rate": ("--produce", "BYTES", _Bytes(), "Bytes a second that it may send: 500, 100k, 10M."),
    "consumer_byte_rate": ("--fetch", "BYTES", _Bytes(), "Bytes a second that it may read."),
    "request_percentage": ("--request-time", "PERCENT", _POSITIVE, "Share of one thread that its requests may take."),
    "controller_mutation_rate": ("--mutations", "RATE", _POSITIVE, "Partitions a second to create and delete."),
    "connection_creation_rate": ("--connections", "RATE", click.IntRange(1, 2**31 - 1), "New ones a second, of an ip."),
}


def _about_quotas(command: F) -> F:
    """Add the arguments WHO and the option --data-dir to a command."""
    for each in (click.argument("who", type=_Who(), nargs=-1), data_dir):
        command = each(command)
    return command


def _with_rate_options(command: F) -> F:
    """Add one option for each kind of quota to a command."""
    for key, (option, unit, type_, text) in reversed(_RATES.items()):
        command = click.option(option, key, metavar=unit, type=type_, help=text)(command)
    return command


@click.group()
def quota() -> None:
    """Quotas: how much a user, a client id, both together, or an address may ask for.

    A client over its quota gets its answer, and then has to wait. '*' in place of a name means all that
    have no quotas of their own; each of them gets that much.
    """


@quota.command("set")
@connecting
@_with_rate_options
@_about_quotas
def set_quotas(to: Target, who: Sequence[tuple[str, str]], data_dir: str | None, **rates: float | None) -> None:
    """Set quotas of WHO: user=NAME, client-id=NAME, both, or ip=ADDRESS. Quotas that are not given stay as they are.

    \b
    fencepost quota set user=alice --produce 10M --fetch 20M
    fencepost quota set user=alice client-id=batch --request-time 50
    fencepost quota set 'ip=*' --connections 20
    """
    entity, wanted = _one_entity(who), {key: float(value) for key, value in rates.items() if value is not None}
    if not wanted:
        raise Failure("no quota is given", f"use {', '.join(option for option, *_ in _RATES.values())}", WRONG_USAGE)

    async def work(admin: "Admin") -> None:
        """Set the quotas of the entity."""
        await admin.alter_client_quotas(_entity(entity), set=wanted)

    ask(to, data_dir, work, may_create=True)
    for key, value in wanted.items():
        to.output.result(f"{_show_entity(entity)}: {key} {_rate(value)}", {**entity, "quota": key, "value": value})


@quota.command("list")
@connecting
@_about_quotas
def list_quotas(to: Target, who: Sequence[tuple[str, str]], data_dir: str | None) -> None:
    """List the quotas of all entities, or only of entities that have every name in WHO."""
    names = _entity_names(who)
    found = ask(to, data_dir, lambda admin: admin.describe_client_quotas(_entity(names)))
    rows = [{**_names_by_type(entity), **values} for entity, values in found.items()]
    to.output.rows(rows, _COLUMNS, "no quotas; fencepost quota set sets one")


@quota.command()
@connecting
@click.option("--only", "keys", type=click.Choice(list(_RATES)), multiple=True, help="Only this one. [default: all]")
@_about_quotas
def rm(to: Target, who: Sequence[tuple[str, str]], data_dir: str | None, keys: Sequence[str]) -> None:
    """Remove the quotas of exactly the entity WHO."""
    entity = _one_entity(who)

    async def work(admin: "Admin") -> list[str]:
        """Remove the entity's quotas, all or those named with `keys`, and return the names of the removed ones."""
        wanted = _entity(entity)
        there = (await admin.describe_client_quotas(wanted, strict=True)).get(wanted, {})
        gone = [key for key in there if not keys or key in keys]
        if gone:
            await admin.alter_client_quotas(wanted, delete=gone)
        return gone

    removed = ask(to, data_dir, work)
    if not removed:
        raise Failure(f"{_show_entity(entity)} has no such quotas", "fencepost quota list shows all quotas", NOT_FOUND)
    for key in removed:
        to.output.result(f"{_show_entity(entity)}: {key} removed", {**entity, "quota": key, "value": None})
    to.output.remark(f"{count_text(len(removed), 'quota')} removed")


def _entity_names(who: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return the names in WHO by type (user, client-id, ip). Raises Failure if a type is given twice."""
    if len(dict(who)) != len(who):
        raise Failure("a user, client id or ip is named twice", "each command is about one of each", WRONG_USAGE)
    return dict(who)


def _one_entity(who: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return the names of the one entity that WHO names, by type. Raises Failure if WHO is empty, or names an ip
    together with others.
    """
    names = _entity_names(who)
    if not names:
        raise Failure("nobody is named", "name user=NAME, client-id=NAME, both, or ip=ADDRESS", WRONG_USAGE)
    if "ip" in names and len(names) > 1:
        raise Failure("a quota of an ip is for no user or client id", "name ip=ADDRESS alone", WRONG_USAGE)
    return names


def _entity(names: Mapping[str, str]) -> "QuotaEntity":
    """Return the quota entity with these names by type; EVERYBODY becomes Kafka's default entity."""
    from ...client.admin.values import QuotaEntity

    return QuotaEntity(**{field: DEFAULT if name == EVERYBODY else name for field, name in names.items()})


def _names_by_type(entity: "QuotaEntity") -> dict[str, str | None]:
    """Return the entity's names by type: EVERYBODY for Kafka's default entity, None for a type that it does not
    have.
    """
    return {field: EVERYBODY if name == DEFAULT else name for field, name in entity._asdict().items()}


def _show_entity(names: Mapping[str, str]) -> str:
    """Return the entity as it is given on the command line: user=alice client-id=batch."""
    return " ".join(f"{type_}={names[field]}" for type_, field in _FIELDS.items() if field in names)


def _rate(value: float | None) -> str:
    return NOTHING if value is None else f"{value:,.2f}".rstrip("0").rstrip(".")


_COLUMNS = (
    Column("USER", "user"),
    Column("CLIENT ID", "client_id"),
    Column("IP", "ip"),
    number("PRODUCE", "producer_byte_rate", _rate),
    number("FETCH", "consumer_byte_rate", _rate),
    number("REQUEST TIME", "request_percentage", _rate),
    number("MUTATIONS", "controller_mutation_rate", _rate),
    number("CONNECTIONS", "connection_creation_rate", _rate),
)
