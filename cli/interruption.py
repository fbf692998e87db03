"""SIGTERM as Ctrl-C: commands that clean up after themselves do so for either."""

import contextlib
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """Within the block SIGTERM raises KeyboardInterrupt, where Ctrl-C does."""
    before = signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        yield
    except SystemError as error:
        if "without setting an exception" not in str(error):
            raise
        raise KeyboardInterrupt from None  # confluent-kafka's poll(), interrupted in a callback, forgets with what
    finally:
        signal.signal(signal.SIGTERM, before)
