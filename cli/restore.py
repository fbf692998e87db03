"""`fencepost restore`: makes a data directory of a backup, or checks one."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from ..effects.counts import count_text
from ..effects.objects.urls import is_url
from .output.failures import FAILED, WRONG_USAGE, Failure
from .output.writing import show, show_json

if TYPE_CHECKING:
    from .store.looking import Asked


@click.command()
@click.argument("backup_folder", metavar="BACKUP|URL")
@click.argument("directory", metavar="[DIR]", required=False)
@click.option("--data-dir", metavar="DIR", help="The same as DIR.")
@click.option("--at", metavar="TIME", help="URL: as it was then: 2026-11-27T18:00Z; without Z, by this machine's zone.")
@click.option("--check", is_flag=True, help="Only compare the backup with its checksums; DIR is not needed.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="json: one JSON object.",
)
def restore(
    backup_folder: str, directory: str | None, data_dir: str | None, at: str | None, check: bool, output: str
) -> None:
    """Make the data directory DIR, which is new or empty, from what `fencepost backup` has put in BACKUP.

    Every byte is compared with its checksum. The first start on DIR fences all producers that have a transactional id,
    aborts open transactions, and makes all members of groups join again: what they did after the backup is not there.
    """
    if directory is not None and data_dir is not None:
        raise Failure("DIR and --data-dir are both given", "name the directory once", WRONG_USAGE)
    directory = directory if directory is not None else data_dir
    if check == (directory is not None):
        raise Failure("name a DIR, or use --check without one", "fencepost restore BACKUP DIR", WRONG_USAGE)
    at_ms = None if at is None else _moment(at)
    if is_url(backup_folder):
        if directory is None:
            if at is not None:
                raise Failure("--check reads all moments", "leave out --at", WRONG_USAGE)
            from .store import verify

            click.get_current_context().invoke(verify, url=backup_folder, output=output)
            return
        _fetch(backup_folder, directory.rstrip("/") or directory, at_ms, output)
        return
    if at is not None:
        raise Failure(f"{backup_folder} is a folder, which has one moment", "leave out --at", WRONG_USAGE)
    _copy(backup_folder.rstrip("/") or backup_folder, directory, output)


def _copy(backup: str, directory: str | None, output: str) -> None:
    """Restore a backup in a folder, or check it if there is no directory. Raises Failure for damage."""
    from ..effects.disk import SystemDisk
    from ..storage.backup.restore import check_backup, restore_backup
    from .output.copying import copying, failure_of, size_text
    from .output.interruption import Interruption

    problems: list[str] = []
    with Interruption() as interruption, copying(interruption, "restored" if directory else "checked") as report:
        try:
            if directory is None:
                contents, problems = check_backup(SystemDisk(), backup, report)
            else:
                contents = restore_backup(SystemDisk(), backup, directory.rstrip("/") or directory, report)
        except Exception as error:
            raise failure_of(error, "use another backup") from None
    files = count_text(len(contents.files), "file")
    facts = {"bytes": contents.size_bytes, "files": len(contents.files), "last_unit": contents.last_unit}
    if output == "json":
        show_json({"backup": backup, "directory": directory, **facts, "damaged": problems})
    else:
        text = f"{files}, {size_text(contents.size_bytes)}, through unit {contents.last_unit:,}"
        verdict = f"{directory}: {text}" if directory else f"{backup}: {'DAMAGED' if problems else 'sound'}: {text}"
        for problem in problems:
            show(f"damaged: {problem}")
        show(verdict)
    if problems:
        raise Failure(f"{len(problems)} of {files} damaged", "use another backup", FAILED)


def _fetch(url: str, directory: str, at_ms: int | None, output: str) -> None:
    """Make a data directory out of a backup or a journal in an object store. at_ms: since 1970; None: the newest
    state. Raises Failure.
    """
    from .store.looking import looking_into

    with looking_into(url, directory) as asked:
        if not asked.is_journal:
            _fetch_backup(asked, url, directory, at_ms, output)
            return
        if at_ms is not None:
            raise Failure(
                f"{asked.objects.where} has a journal, and of that its newest state only",
                "leave out --at; a backup with --follow keeps earlier moments (docs/store.md)",
                WRONG_USAGE,
            )
        _fetch_journal(asked, url, directory, output)


def _fetch_journal(asked: "Asked", url: str, directory: str, output: str) -> None:
    """Make a data directory out of the journal in an object store."""
    from ..effects.clock import SystemClock
    from ..effects.disk import SystemDisk
    from ..effects.rng import SystemRng
    from ..storage.objects.restoring import Restoring
    from .output.copying import copying

    with copying(asked.interruption, "restored") as report:
        restored = Restoring(
            asked.objects,
            SystemDisk(),
            SystemClock(),
            SystemRng(),
            directory,
            asked.pause,
            lambda line: show(line, err=True),
            asked.patience.noting(report),
        ).run()
    looked = restored.looked
    assert looked.last is not None
    last_unit = looked.last.last_unit
    if output == "json":
        facts = {"last_unit": last_unit, "epoch": looked.epoch, "round": looked.last.round, "rounds": looked.rounds}
        show_json({"journal": url, "directory": directory, **facts})
    else:
        behind = count_text(looked.rounds, "round")
        source = f"a point and {behind} behind it" if restored.point else behind
        show(f"{directory}: {source}, through unit {last_unit:,}, as of round {looked.last.round:,}")


def _fetch_backup(asked: "Asked", url: str, directory: str, at_ms: int | None, output: str) -> None:
    """Make a data directory out of a backup in an object store, in the state of this time (ms since 1970; None: the
    newest).
    """
    from ..effects.disk import SystemDisk
    from ..storage.shipping.fetching import Fetching, time_text
    from .output.copying import copying, size_text

    say: Callable[[str], None] = lambda line: show(line, err=True)  # noqa: E731
    with copying(asked.interruption, "restored") as report:
        patience = asked.patience
        found = Fetching(asked.objects, SystemDisk(), directory, patience, say, patience.noting(report)).run(at_ms)
    for warning in found.point.warnings:
        show(f"warning: {warning}", err=True)
    files = len(found.point.files)
    if output == "json":
        facts = {"bytes": found.size_bytes, "files": files, "last_unit": found.last_unit, "moment_ms": found.moment_ms}
        show_json({"backup": url, "directory": directory, **facts})
    else:
        text = f"{count_text(files, 'file')}, {size_text(found.size_bytes)}, through unit {found.last_unit:,}"
        show(f"{directory}: {text}, as of {time_text(found.moment_ms)}")


def _moment(text: str) -> int:
    """Return a time in ISO 8601 as ms since 1970. Raises Failure."""
    try:
        moment = datetime.fromisoformat(text.strip().upper().replace(" ", "T"))
    except ValueError:
        raise Failure(f"--at {text} is no time", "write 2026-11-27T18:00Z", WRONG_USAGE) from None
    if moment.tzinfo is None:
        moment = moment.astimezone()
    return int(moment.astimezone(UTC).timestamp() * 1000)
