"""What keeps a bug to the one thing in which it was met, where many things are gone over by a timer or a sweep."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from ..storage.store import BrokerHalted
from .metrics import Metrics

log = logging.getLogger("fencepost.broker")


@contextmanager
def contained(metrics: Metrics, what: str, besides: type[Exception] = BrokerHalted) -> Iterator[None]:
    """Log and count a bug that is met in here, and go on behind it: the others are served all the same.

    what: the thing, by its name. A halt, and an error of the disk, which concern everything, are raised, and `besides`.
    """
    try:
        yield
    except (BrokerHalted, OSError, besides):
        raise
    except Exception as error:
        metrics.failed(error)
        log.error("%s: a bug, which is kept to it", what, exc_info=error)
