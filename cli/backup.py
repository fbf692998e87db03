"""`fencepost backup`: copies a data directory, while a broker serves from it too."""

import time
from pathlib import Path

import click

from ..effects.counts import count_text
from .output.failures import FAILED, Failure
from .output.writing import show, show_json

PAUSE_S = 0.05


@click.command()
@click.argument("directory", metavar="DIR")
@click.argument("backup_folder", metavar="BACKUP")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="json: one JSON object.",
)
def backup(directory: str, backup_folder: str, output: str) -> None:
    """Copy the data directory DIR to the folder BACKUP, which must not exist or be empty.

    A broker may serve from DIR meanwhile: the backup is the state of one moment, with all that was
    acknowledged before the command began. `fencepost restore` makes a data directory of it.
    """
    from importlib.metadata import version

    from ..effects.disk import SystemDisk
    from ..storage.backup.take import take_backup
    from .output.copying import copying, failure_of, size_text
    from .output.interruption import Interruption

    disk = SystemDisk()
    directory, target = directory.rstrip("/") or directory, backup_folder.rstrip("/") or backup_folder
    if Path(target).resolve().is_relative_to(Path(directory).resolve()):
        raise Failure(f"{target} is inside of {directory}", "name a folder elsewhere, best on another disk")
    with Interruption() as interruption, copying(interruption, "copied") as report:
        try:
            contents = take_backup(
                disk,
                directory,
                disk,
                target,
                made_by=version("fencepost"),
                taken_ms=time.time_ns() // 1_000_000,
                report=report,
                pause=lambda: time.sleep(PAUSE_S),
            )
        except Exception as error:
            raise failure_of(error, f"fencepost log verify {directory} shows more") from None
    if output == "json":
        show_json(
            {
                "backup": target,
                "bytes": contents.size_bytes,
                "files": len(contents.files),
                "last_unit": contents.last_unit,
                "running": contents.running,
                "warnings": contents.warnings,
            }
        )
    else:
        how = "beside a running broker" if contents.running else "no broker ran"
        files = f"{count_text(len(contents.files), 'file')}, {size_text(contents.size_bytes)}"
        show(f"{target}: {files}, through unit {contents.last_unit:,}; {how}")
    for warning in contents.warnings:
        show(f"warning: {warning}", err=True)
    if contents.warnings:
        raise Failure(
            f"{directory} was damaged before: the backup has what could be read",
            f"fencepost log verify {directory} shows more; an older backup may have what is missing",
            FAILED,
        )
