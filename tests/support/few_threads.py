"""A system that gives this process only so many more threads."""

import contextlib
import threading


@contextlib.contextmanager
def threads_left(count):
    """From the next one on; yields the names of those that were refused."""
    started, refused, really = [], [], threading.Thread.start

    def start(thread):
        if len(started) == count:
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")  # as CPython says it
        started.append(thread.name)
        really(thread)

    threading.Thread.start = start
    try:
        yield refused
    finally:
        threading.Thread.start = really
