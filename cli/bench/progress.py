"""The progress bar of a load."""

import contextlib
from collections.abc import Callable, Iterator

from ..output.interruption import Interruption


@contextlib.contextmanager
def progress_bar(what: str, total: int | None, interruption: Interruption) -> Iterator[Callable[[int], None]]:
    """Yield a progress bar on the terminal's error stream, if there is one. Its update raises after an interruption."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:,.0f}"), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=total)

        def show_progress(done: int) -> None:
            interruption.check()
            bar.update(task, completed=done)

        show_progress(0)
        yield show_progress
