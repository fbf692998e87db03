"""For timers and sweeps that go over many groups or transactions: a bug met in one leaves out that one alone."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from ..storage.store import BrokerHalted
from .metrics import Metrics

log = logging.getLogger("fencepost.broker")


@contextmanager
def contain_bugs(metrics: Metrics, what: str, besides: type[Exception] = BrokerHalted) -> Iterator[None]:
    """Log and count an unexpected exception of the block, and continue after the block.

    what: the group or transaction, for the log. Raises what concerns more than that: BrokerHalted, OSError, `besides`.
    """
    try:
        yield
    except (BrokerHalted, OSError, besides):
        raise
    except Exception as error:
        metrics.failed(error)
        log.error("%s failed because of a bug; nothing else is affected", what, exc_info=error)
