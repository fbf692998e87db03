"""`fencepost restore`: makes a data directory of a backup, or checks one."""

import click

from ..effects.counts import count_text
from .output.failures import FAILED, WRONG_USAGE, Failure
from .output.writing import show, show_json


@click.command()
@click.argument("backup_folder", metavar="BACKUP")
@click.argument("directory", metavar="[DIR]", required=False)
@click.option("--check", is_flag=True, help="Only compare the backup with its checksums; DIR is not needed.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="json: one JSON object.",
)
def restore(backup_folder: str, directory: str | None, check: bool, output: str) -> None:
    """Make the data directory DIR, which must not exist or be empty, of what `fencepost backup` has put in BACKUP.

    Every byte is compared with its checksum. The first start on DIR fences all producers that have a transactional id,
    aborts open transactions, and makes all members of groups join again: what they did after the backup is not there.
    """
    from ..effects.disk import SystemDisk
    from ..storage.backup.restore import check_backup, restore_backup
    from .output.copying import copying, failure_of, size_text
    from .output.interruption import Interruption

    if check == (directory is not None):
        raise Failure("name a DIR, or use --check without one", "fencepost restore BACKUP DIR", WRONG_USAGE)
    backup = backup_folder.rstrip("/") or backup_folder
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
