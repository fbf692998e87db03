"""A whole terminal that is drawn again and again, such as `txn watch`."""

import shutil
import sys

import click

_HIDE, _SHOW, _HOME, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[?25l", "\x1b[?25h", "\x1b[H", "\x1b[K", "\x1b[J"
_OTHER_SCREEN, _FIRST_SCREEN = "\x1b[?1049h\x1b[?7l", "\x1b[?7h\x1b[?1049l"  # without wrapping long lines


def begin() -> None:
    """Switch to the terminal's alternate screen. end() switches back."""
    sys.stdout.write(_OTHER_SCREEN + _HIDE)


def draw(lines: list[str]) -> None:
    """Draw these lines, made by styled(), as many as fit on the screen."""
    height = shutil.get_terminal_size().lines
    if click.get_current_context().color is False:
        lines = [click.unstyle(line) for line in lines]
    sys.stdout.write(_HOME + "".join(line + _CLEAR_LINE + "\n" for line in lines[: height - 1]) + _CLEAR_BELOW)
    sys.stdout.flush()


def end() -> None:
    """Switch back to the terminal's normal screen, with its contents from before begin()."""
    sys.stdout.write(_SHOW + _FIRST_SCREEN)
    sys.stdout.flush()
