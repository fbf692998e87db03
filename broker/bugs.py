"""For timers and sweeps over many groups or transactions: a bug in one of them does not affect the others."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from ..storage.store import BrokerHalted
from .metrics import Metrics

log = logging.getLogger("fencepost.broker")


@contextmanager
def contain_bugs(metrics: Metrics, what: str, besides: type[Exception] = BrokerHalted) -> Iterator[None]:
    """Log and count an unexpected exception in the block as a bug, and continue after the block.

    what: the group or transaction, for the log. BrokerHalted, OSError and `besides` are not caught, because they
    concern more than this one group or transaction.
    """
    try:
        yield
    except (BrokerHalted, OSError, besides):
        raise
    except Exception as error:
        metrics.failed(error)
        log.error("%s failed because of a bug; nothing else is affected", what, exc_info=error)
