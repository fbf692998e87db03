"""`fencepost backup`: copies a data directory, beside a running broker too, to a folder or to a store of objects."""

import time
from collections.abc import Sequence
from pathlib import Path

import click

from ...effects.counts import count_text
from ...effects.objects.urls import is_url
from ..arguments.ranges import DURATION
from ..output.failures import FAILED, WRONG_USAGE, Failure
from ..output.writing import show, show_json

PAUSE_S = 0.05
DEFAULT_DIRECTORY = ".fencepost"
LEAST_EVERY_MS = 100
USAGE = "fencepost backup DIR BACKUP, or fencepost backup --follow DIR URL"


@click.command()
@click.argument("places", metavar="[DIR] BACKUP|URL", nargs=-1)
@click.option("--data-dir", metavar="DIR", help=f"The data directory. [default, with a URL: ./{DEFAULT_DIRECTORY}]")
@click.option("--follow", is_flag=True, help="Go on until a signal; to a URL only.")
@click.option(
    "--every", "every_ms", type=DURATION, default="1s", show_default=True, help="With --follow: how often to look."
)
@click.option("--keep", "keep_ms", type=DURATION, default="24h", show_default=True, help="URL: restorable for so long.")
@click.option("--take-over", is_flag=True, help="URL: end another follower, though it is at work.")
@click.option("--metrics-file", metavar="FILE", help="With --follow: write metrics there, for Prometheus.")
@click.option("--beside-broker", is_flag=True, hidden=True)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="json: one JSON object; with --follow one for each look.",
)
def backup(
    places: Sequence[str],
    data_dir: str | None,
    follow: bool,
    every_ms: int,
    keep_ms: int,
    take_over: bool,
    metrics_file: str | None,
    beside_broker: bool,
    output: str,
) -> None:
    """Copy the data directory DIR to the folder BACKUP, which is new or empty, or to the store URL.

    A broker may serve from DIR meanwhile: the backup is the state of one moment, with all that was
    acknowledged before the command began. `fencepost restore` makes a data directory of it.

    URL is file:///path, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix. A store gets only what was
    added since the last time. With --follow the command goes on and ships what the broker writes, about once a
    second, so that a lost disk costs that much.
    """
    from .places import two_places

    directory, target = two_places(places, data_dir, DEFAULT_DIRECTORY, USAGE)
    if is_url(target):
        from importlib.metadata import version

        from .following import How, ship
        from .places import objects_of

        if every_ms < LEAST_EVERY_MS:
            raise Failure(f"--every {every_ms}ms is too often", f"{LEAST_EVERY_MS}ms or more", WRONG_USAGE)
        how = How(
            follow, every_ms, keep_ms, take_over, metrics_file, beside_broker, output == "json", version("fencepost")
        )
        ship(directory, objects_of(target), how)
        return
    if follow or take_over or metrics_file:
        raise Failure(f"{target} is a folder: it cannot be followed into", "name a URL: file:///path", WRONG_USAGE)
    _copy(directory, target, output)


def _copy(directory: str, target: str, output: str) -> None:
    """Copy a data directory to a folder. Raises Failure, also for a backup that lacks something damaged."""
    from importlib.metadata import version

    from ...effects.disk import SystemDisk
    from ...storage.backup.take import take_backup
    from ..output.copying import copying, failure_of, size_text
    from ..output.interruption import Interruption

    disk = SystemDisk()
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
