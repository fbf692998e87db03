"""The progress bar of a load."""

import contextlib
from collections.abc import Callable, Iterator

from ..output.interruption import Interruption


@contextlib.contextmanager
def progress_bar(what: str, total: int | None, interruption: Interruption) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on standard error during the block, if that is a terminal. Yields a function that is called
    with how much is done; it raises KeyboardInterrupt after a signal.
    """
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
