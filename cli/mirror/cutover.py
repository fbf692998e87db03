"""`fencepost mirror cutover`: shows what a cutover would do, or does it, and says what remains to be done."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from ..output.failures import CONFLICT, Failure
from ..output.tables import Column, number
from .sides import Both, check_expression

if TYPE_CHECKING:
    from ...client.admin.admin import Admin
    from ...client.mirror.cutover.plan import Found
    from ...client.mirror.cutover.record import CutoverRecord
    from ...client.mirror.cutover.sides import AdminSides
    from ...client.mirror.findings import Finding

_COLUMNS = (
    Column("GROUP", "group"),
    Column("PARTITION", "partition"),
    number("SOURCE", "source"),
    number("TARGET", "target"),
)
_NOW = {
    "nothing": "nothing was changed",
    "taken back": "everything that the cutover did is taken back",
    "left": "writes may still be refused at the source: run the cutover again, which finishes it or takes it back",
    "moved": "the groups have their offsets at the target: run the cutover again, which does what remains",
}


def show_plan(to: Both, groups: str, *, producers_stopped: bool, partly: bool) -> None:
    """Print the steps of a cutover and the offsets that the groups would get. Raises Failure if the cutover would be
    refused.
    """
    from ...client.mirror.cutover.plan import AFTERWARDS, find_refusals, steps
    from ...client.mirror.cutover.record import explain_left

    async def work() -> "tuple[Found, list[dict[str, Any]], list[Finding], str | None]":
        async with to.admins() as (source, target):
            sides = _sides(to, source, target, groups, producers_stopped=producers_stopped, partly=partly)
            found = await sides.look()
            moves, problems = await sides.preview(found) if found.topics else ([], [])
            left = explain_left(await sides.read_record())
            return found, [each._asdict() for each in moves], [*find_refusals(found), *problems], left

    check_expression("--groups", groups, "billing.*")
    found, moves, refusals, left = to.target.run(work)
    planned = steps(found)
    if to.output.json:
        to.output.object(
            {
                "refusals": [{"cause": each.text, "hint": each.hint} for each in refusals],
                "steps": [each._asdict() for each in planned],
                "offsets": [{**each, "partition": str(each["partition"])} for each in moves],
                "left": left,
            }
        )
    else:
        if left is not None:
            to.output.remark(left)
        for index, step in enumerate(planned, 1):
            to.output.line(f"{index}. {step.text}")
            if step.undo is not None:
                to.output.line(f"   taken back: {step.undo}")
        to.output.line()
        to.output.rows([{**each, "partition": str(each["partition"])} for each in moves], _COLUMNS)
        _say_what_stays(to, found)
        to.output.remark(f"afterwards: {AFTERWARDS}")
    if refusals:
        _fail(refusals, _NOW["nothing"])


def cut_over_groups(to: Both, groups: str, *, producers_stopped: bool, partly: bool) -> None:
    """Move the groups, and print each step and the offsets. Raises Failure that says what prevented it."""
    from ...client.mirror.cutover.plan import AFTERWARDS
    from ...client.mirror.cutover.running import CutoverFailed, Overtaken, cut_over

    async def work() -> "CutoverRecord":
        async with to.admins() as (source, target):
            sides = _sides(to, source, target, groups, producers_stopped=producers_stopped, partly=partly)
            try:
                return await cut_over(sides, to.output.remark)
            finally:
                await sides.close()

    check_expression("--groups", groups, "billing.*")
    try:
        done = to.target.run(work)
    except CutoverFailed as failed:
        _fail(failed.problems, _NOW[failed.now])
    except Overtaken as error:
        raise Failure(str(error), "wait for it; this one has stopped, and took nothing back", CONFLICT) from None
    if to.output.json:
        to.output.object({"cutover": done.state, "offsets": _moves(done), "refused": list(done.refused)})
        return
    to.output.rows(_moves(done), _COLUMNS)
    to.output.remark(AFTERWARDS)


def _sides(
    to: Both, source: "Admin", target: "Admin", groups: str, *, producers_stopped: bool, partly: bool
) -> "AdminSides":
    """Return both clusters in the form in which the cutover uses them."""
    from ...client.mirror.cutover.looking import Looking
    from ...client.mirror.cutover.sides import AdminSides

    looking = Looking(source, target, to.name, groups, producers_stopped, partly)
    return AdminSides(looking, to.producer)


def _moves(record: "CutoverRecord") -> list[dict[str, Any]]:
    return [
        {"group": name, "partition": str(partition), "source": each.source, "target": each.target.offset}
        for name, carried in sorted(record.groups.items())
        for partition, each in sorted(carried.items())
    ]


def _say_what_stays(to: Both, found: "Found") -> None:
    """Print in which topics the groups have offsets that no mirror copies."""
    others: Mapping[str, tuple[str, ...]] = {name: each.others for name, each in found.groups.items() if each.others}
    for name, topics in sorted(others.items()):
        to.output.remark(f"{name}: its offsets in topics that are not mirrored stay: {', '.join(topics)}")


def _fail(problems: "tuple[Finding, ...] | list[Finding]", now: str) -> NoReturn:
    """Print every problem but the last as error and hint, then raise the last as the Failure of the command.

    now: the state after the failure, as a clause such as "nothing was changed".
    """
    *others, last = problems
    for each in others:
        Failure(each.text, each.hint, CONFLICT).show()
    raise Failure(f"{last.text}; {now}", last.hint or "run the cutover again", CONFLICT)
