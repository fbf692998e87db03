"""The only way to the terminal: everything that commands print goes through this module.

The rule: names, values and messages come from others, and a terminal obeys control characters in the text that it gets.
So each character that is not printable is shown as �: control characters, line ends, and characters that change the
direction of text. One call prints one line, so no name can begin another line. In JSON these characters are escaped,
which programs read as the same text.
"""

import json
import logging
import select
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import click

SHOWN_INSTEAD = "\ufffd"


class Cell(NamedTuple):
    """A text and how it is displayed. colour: a name of click.style."""

    text: str
    colour: str | None = None
    bold: bool = False
    dim: bool = False


def visible(text: str) -> str:
    """Return the text with � for each character that is not printable."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else SHOWN_INSTEAD for each in text)


def styled(part: str | Cell) -> str:
    """Return the text as it is sent to the terminal: unprintable characters replaced, then coloured."""
    if isinstance(part, str):
        return visible(part)
    text = visible(part.text)
    if not (part.colour or part.bold or part.dim):
        return text
    return click.style(text, fg=part.colour, bold=part.bold or None, dim=part.dim or None)


def show(*parts: str | Cell, err: bool = False) -> None:
    """Print one line."""
    click.echo("".join(map(styled, parts)), err=err)


def show_styled(lines: list[str]) -> None:
    """Print lines that `styled` made, with one write, which is much faster than one for each."""
    click.echo("\n".join(lines))


def show_json(facts: Mapping[str, Any]) -> None:
    """Print one object on a line, for programs."""
    click.echo(as_json(facts))


def show_own_text(text: str) -> None:
    """Print several lines as they are. Only for text that this program wrote itself, with nothing from others in it."""
    click.echo(text, nl=False)


def show_bytes(content: bytes) -> None:
    """Write bytes unchanged, for a pipe or a file; `flush` sends them."""
    sys.stdout.buffer.write(content)


def as_json(facts: Mapping[str, Any]) -> str:
    """Return one object as JSON in one line; unprintable characters are escaped, so that a terminal does not obey
    them.
    """
    text = json.dumps(facts, ensure_ascii=False, default=str)
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in text)


def is_terminal() -> bool:
    """Return whether standard output is a terminal."""
    return sys.stdout.isatty()


def flush() -> None:
    sys.stdout.flush()


def ask(prompt: str, *, confirm: bool) -> str:
    """Ask at the terminal for a secret, which is not shown while it is typed. Returns the secret."""
    typed: str = click.prompt(visible(prompt), hide_input=True, confirmation_prompt=confirm, err=True)
    return typed


class LineFormatter(logging.Formatter):
    """Log lines of `serve` and `console`: a message is one line, and a traceback's lines are visible, too."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = visible(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:
        return "\n".join(map(visible, super().formatException(ei).split("\n")))


def log_to_standard_error() -> None:
    """Log to standard error from level INFO on, one line for each message."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter())
    logging.basicConfig(handlers=[handler], level=logging.INFO)


def nobody_reads() -> bool:
    """Return whether the reader of the pipe at standard output has closed it. Without this check only the next write
    would fail.
    """
    if not hasattr(select, "poll"):
        return False
    try:
        poller = select.poll()
        poller.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):  # standard output has no descriptor
        return False
    return any(event & select.POLLERR for _, event in poller.poll(0))


def confirm(question: str) -> bool:
    """Ask a question at the terminal. Returns whether the answer is yes; if nothing is typed, it is no."""
    return click.confirm(visible(question), default=False, err=True)
