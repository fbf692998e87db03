"""A system that gives this process only so many more threads."""

import contextlib
import threading


@contextlib.contextmanager
def threads_left(count):
    """During the block, let this process start only `count` more threads. Yields the list of names of those that were
    refused.
    """
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
