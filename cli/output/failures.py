"""Errors of commands: one line with the cause, one with a hint, no traceback. And the exit codes."""

from typing import IO, Any

import click

from .writing import visible

FAILED, WRONG_USAGE, NOT_FOUND, TIMED_OUT, CONFLICT, DENIED = 1, 2, 3, 4, 5, 6
HALTED, TAKEN_OVER, STORE_AWAY, REFUSED_BY_SYSTEM = 70, 71, 72, 75


class Failure(click.ClickException):
    """Ends the command. `cause`: what is wrong. `hint`: what to do about it."""

    def __init__(self, cause: str, hint: str, exit_code: int = FAILED) -> None:
        super().__init__(cause)
        self.hint = hint
        self.code = exit_code

    @property
    def exit_code(self) -> int:  # type: ignore[override]  # click has a class attribute
        return self.code

    def show(self, file: IO[Any] | None = None) -> None:
        for word, text in (("error", self.message), ("hint", self.hint)):
            click.echo(f"{word}: {visible(' '.join(text.split()))}", file=file, err=file is None)
