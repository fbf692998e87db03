"""Ends a process that was told to stop while its object store cannot be reached.

The rule: stopping waits until written data is durable, which may take for ever if the store does not answer. Nothing
that waits was acknowledged, so ending at once loses nothing: the next owner finds what is in the store, as after kill
-9. A thread watches, because the end of workers may block the loop, and a worker may hang in a call.
"""

import os
import time
from collections.abc import Callable

from ...effects.threads import CannotStartThread, start_thread
from ..output.failures import STORE_AWAY
from ..output.writing import flush, show

PATIENCE_MS = 5_000  # docker stop kills after 10 s
LOOK_S = 0.2


def end_if_silent(
    where: str,
    silent_ms: Callable[[], int],
    *,
    exit_now: Callable[[int], None] = os._exit,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """From now on, end the process with one line and the exit code STORE_AWAY once the store has not answered for
    PATIENCE_MS.

    where: the store's URL. silent_ms: returns for how many ms it has not answered. Returns at once; if no thread can be
    started for it, nothing is watched.
    """

    def watch() -> None:
        """Wait until the store has not answered for too long since the stop began, then end the process."""
        waited_ms = 0
        while min(waited_ms, silent_ms()) < PATIENCE_MS:
            sleep(LOOK_S)
            waited_ms += int(1000 * LOOK_S)
        show(
            f"stopped    {where} does not answer: writes that wait for it were not acknowledged; the journal is not "
            "handed over, so whoever takes over waits for a lease",
            err=True,
        )
        flush()
        exit_now(STORE_AWAY)

    try:
        start_thread(watch, "until the store answers")
    except CannotStartThread:
        show("warning: no thread is left to watch the store: a second signal ends the process", err=True)
