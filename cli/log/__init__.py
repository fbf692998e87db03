"""`fencepost log`: shows the contents of a data directory, with or without a running broker. Only reads."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import click

from ..output.failures import FAILED, Failure
from ..output.writing import as_json, show


@click.group()
def log() -> None:
    """Read a data directory without a broker. Nothing is written, so a broker may be running on it."""


_output = click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="json: one JSON object on each line.",
)


@log.command()
@click.argument("paths", metavar="FILE|DIR...", nargs=-1, required=True)
@click.option("-r", "--records", is_flag=True, help="Also show the records in each batch.")
@_output
def dump(paths: Sequence[str], records: bool, output: str) -> None:
    """Show the contents of files, logs or a whole data directory.

    Batches with producer ids, epochs and sequences, control records, units of the journal, checkpoints, the catalogue,
    indexes and producer snapshots.
    """
    from .dump import facts_of
    from .text import lines

    facts = chain.from_iterable(facts_of(path, records=records) for path in paths)
    _print(lines(facts) if output == "text" else _as_json(facts))


@log.command()
@click.argument("directory", metavar="DIR")
@_output
def verify(directory: str, output: str) -> None:
    """Check a data directory and list what is damaged and where. Exit code 1: it is damaged."""
    from .text import lines
    from .verify import verify_directory

    try:
        report = verify_directory(directory)
    except OSError as error:
        raise _unreadable(error) from None
    facts = [*report.findings, report.summary()]
    _print(lines(facts) if output == "text" else _as_json(facts))
    if report.damaged:
        sys.exit(FAILED)


def _as_json(facts: Iterable[dict[str, object]]) -> Iterator[str]:
    return map(as_json, facts)


def _print(rows: Iterator[str]) -> None:
    """Print the lines as they are made. Raises Failure if a file cannot be read."""
    try:
        for row in rows:
            show(row)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise _unreadable(error) from None


def _unreadable(error: OSError) -> Failure:
    return Failure(f"{error.filename or 'reading'}: {error.strerror}", "the path must be readable")
