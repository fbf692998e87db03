"""`fencepost consume`: prints the records of a topic; with --explain, whether each one is committed.

The rule: records are printed before their offsets are committed. Without a group nothing is committed.
"""

import errno
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from ...effects.counts import count_text
from ..arguments.connecting import Target, connecting, partition_of, partitions_of
from ..arguments.places import END, PLACE, START, Place, Places, resolve
from ..arguments.ranges import COUNT
from ..output.failures import WRONG_USAGE, Failure
from ..output.record_text import FORMATS, BadFormat, as_facts, form_of
from ..output.tables import now_ms
from ..output.writing import as_json, flush, is_terminal, nobody_reads, show_bytes

if TYPE_CHECKING:
    from ...client.consumer.consumer import Consumer
    from ...client.values import Record, ShareRecord, TopicPartition

PROTOCOLS = ("classic", "consumer")
ISOLATIONS = ("read_committed", "read_uncommitted")
FROM_START: Places = {None: Place(START)}
POLL_MS = 200
MAX_PER_POLL = 500
JOINING_MS = 3_600_000  # joining may take long; Ctrl-C ends it
Write = Callable[["Record | ShareRecord"], bytes]


@click.command(
    epilog=f"FORMAT: {FORMATS}. PLACE: start, end, 42, -10 (before the end), @-5m, @2026-11-20T08:00, 0:42,1:end."
)
@click.argument("where", metavar="TOPIC[:PARTITION]")
@click.option(
    "-g", "--group", "group_id", default=None, help="Read as a member of this group, and commit the printed records."
)
@click.option(
    "--group-protocol",
    type=click.Choice(PROTOCOLS),
    default=None,
    help="With -g: consumer lets the broker assign partitions (KIP-848).  [default: classic]",
)
@click.option("--share", is_flag=True, help="With -g: as one of a share group, which accepts the printed records.")
@click.option(
    "--from",
    "place",
    type=PLACE,
    default=None,
    metavar="PLACE",
    help="[default: start; with --share, what the group has set]",
)
@click.option("-n", "--number", "limit", type=COUNT, default=None, help="Stop after N records.")
@click.option("-e", "--exit", "until_end", is_flag=True, help="Stop at the current end of the topic.")
@click.option("--isolation", type=click.Choice(ISOLATIONS), default=None, help=f"[default: {ISOLATIONS[0]}]")
@click.option("--show-control", is_flag=True, help="Also print transaction markers; stops at the end of the topic.")
@click.option("--explain", is_flag=True, help="Show whether each record is committed; stops at the end of the topic.")
@click.option("-f", "--format", "form", default=None, metavar="FORMAT", help=r"Such as '%t[%p]@%o %k %s\n'.")
@connecting
def consume(
    to: Target,
    where: str,
    group_id: str | None,
    group_protocol: str | None,
    share: bool,
    place: Places | None,
    limit: int | None,
    until_end: bool,
    isolation: str | None,
    show_control: bool,
    explain: bool,
    form: str | None,
) -> None:
    """Print the value of each record on a line, until Ctrl-C.

    \b
    --explain shows every record after a sign:
      C  committed     A  aborted     ?  in an open transaction
      ◆  a marker      ·  in no transaction
    and a line where read_committed readers have to stop (LSO < HW).
    """
    write = _writer(to, form)
    if group_protocol is not None and group_id is None:
        raise Failure("--group-protocol is for members of a group", "add -g GROUP, or leave it out", WRONG_USAGE)
    if share:
        group_id = _check_share(group_id, group_protocol, place, where, explain or show_control, isolation)
        from .share_group import print_shared

        name = partition_of(where)[0]
        reset = None if place is None else "latest" if place[None].kind == END else "earliest"
        printed = to.run(lambda: print_shared(to, name, group_id, reset, limit, until_end, write))
        if printed < (limit or 0):
            to.output.remark(f"{count_text(printed, 'record')}: there are no more")
        return
    isolation = isolation or ISOLATIONS[0]
    if explain or show_control:
        if group_id is not None:
            raise Failure("--explain and --show-control cannot be used with a group", "leave out -g", WRONG_USAGE)
        from .explained import Wanted, print_explained

        wanted = Wanted(where, place or FROM_START, limit, isolation if not explain else "", explain, write)
        to.run(lambda: print_explained(to, wanted))
        return
    if group_id is not None:
        _check_group(place, where)
    member: dict[str, Any] | None = None
    if group_id is not None:
        member = {"group_id": group_id, "group_protocol": group_protocol or PROTOCOLS[0], "enable_auto_commit": False}
    printed = to.run(lambda: _consuming(to, where, member, place, limit, until_end, isolation, write))
    if printed < (limit or 0):
        to.output.remark(f"{count_text(printed, 'record')}: there are no more")


def _writer(to: Target, form: str | None) -> Write:
    """Return the function that formats a record: as JSON, by --format, or its value alone. Raises Failure for a wrong
    format.
    """
    if to.output.json:
        return lambda record: as_json(as_facts(record)).encode() + b"\n"
    try:
        return form_of(r"%s\n" if form is None else form, shown=is_terminal())
    except BadFormat as error:
        raise Failure(f"-f: {error}", r"write -f '%t[%p]@%o %s\n'", WRONG_USAGE) from None


def _check_group(place: Places | None, where: str) -> None:
    """Raise Failure if --from or a partition in `where` cannot be combined with a group."""
    if place is not None and (set(place) != {None} or place[None].kind not in (START, END)):
        raise Failure(
            "a group starts at its committed offsets: --from must be start or end, for partitions without one",
            "use fencepost group seek to move a group",
            WRONG_USAGE,
        )
    if partition_of(where)[1] is not None:
        raise Failure(
            "with a group, a partition cannot be chosen: the group assigns partitions",
            "give the topic alone, or leave out -g",
            WRONG_USAGE,
        )


def _check_share(
    group_id: str | None,
    group_protocol: str | None,
    place: Places | None,
    where: str,
    explain: bool,
    isolation: str | None,
) -> str:
    """Return the name of the share group. Raises Failure for options that cannot be combined."""
    if group_id is None:
        raise Failure("--share is for share groups", "add -g GROUP, or leave it out", WRONG_USAGE)
    if group_protocol is not None or explain:
        raise Failure(
            "--share cannot be used with --group-protocol, --explain and --show-control", "leave them out", WRONG_USAGE
        )
    if isolation is not None:
        raise Failure(
            "--isolation cannot be used with --share: all members of a share group read alike",
            "leave it out, and set share.isolation.level of the group, as with Admin.alter_configs(group=…)",
            WRONG_USAGE,
        )
    if place is not None and (set(place) != {None} or place[None].kind not in (START, END)):
        raise Failure(
            "a share group starts where it stands: --from must be start or end, for a group that has not begun",
            "use fencepost share-group reset to move a group",
            WRONG_USAGE,
        )
    if partition_of(where)[1] is not None:
        raise Failure(
            "with a group, a partition cannot be chosen: the group assigns partitions",
            "give the topic alone",
            WRONG_USAGE,
        )
    return group_id


async def _consuming(
    to: Target,
    where: str,
    member: dict[str, Any] | None,
    place: Places | None,
    limit: int | None,
    until_end: bool,
    isolation: str,
    write: Write,
) -> int:
    """Print records. member: the settings of a group's member; None: without a group. Returns how many were printed."""
    from ...client.admin.offsets import LATEST
    from ...client.settings import ConsumerSettings

    name = partition_of(where)[0]
    async with to.admin(ConsumerSettings) as admin:
        partitions = await partitions_of(admin, [where])
        starts = await resolve(admin, partitions, place or FROM_START, now_ms()) if member is None else {}
        ends = await admin.ends(partitions, LATEST, isolation) if until_end else None  # type: ignore[arg-type]
    reset = "latest" if place is not None and place.get(None) == Place(END) else "earliest"
    more: dict[str, Any] = {"isolation_level": isolation, "auto_offset_reset": reset}
    async with to.consumer(**more, **member or {}) as consumer:
        if member is None:
            consumer.assign(list(starts))
            for partition, offset in starts.items():
                consumer.seek(partition, offset)
        else:
            consumer.subscribe([name])
            if until_end:  # before it has partitions, _all_read() returns True
                await consumer.assigned(timeout_ms=JOINING_MS)
        return await _printing(consumer, ends, limit, write, commits=member is not None)


async def _printing(
    consumer: "Consumer", ends: "dict[TopicPartition, int] | None", limit: int | None, write: Write, *, commits: bool
) -> int:
    """Print records until `limit` of them are printed or the ends are reached. Returns how many. commits: commit the
    group's offsets after printing. Raises BrokenPipeError once nobody reads the output.
    """
    printed = 0
    while limit is None or printed < limit:
        wanted = MAX_PER_POLL if limit is None else min(MAX_PER_POLL, limit - printed)
        found = await consumer.getmany(timeout_ms=POLL_MS, max_records=wanted)
        for records in found.values():
            _write_records(records, write)
            printed += len(records)
        if found:
            flush()
            if commits:
                await consumer.commit()
        elif ends is not None and await _all_read(consumer, ends):
            break
        elif nobody_reads():
            raise BrokenPipeError(errno.EPIPE, "nobody reads the output")
    return printed


def _write_records(records: "Sequence[Record]", write: Write) -> None:
    show_bytes(b"".join(map(write, records)))


async def _all_read(consumer: "Consumer", ends: "dict[TopicPartition, int]") -> bool:
    """Return whether all partitions that this member is assigned are read up to `ends`."""
    for partition in consumer.assignment():
        if await consumer.position(partition) < ends.get(partition, 0):
            return False
    return True
