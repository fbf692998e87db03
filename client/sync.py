"""The blocking clients, for notebooks and scripts: under the same names, with `with`.

The rule: they forward to the asyncio clients, which run in one thread of the process (loop_thread.py). They are not to
be made before a fork: what was refuses to work after it (ForkedError). Ctrl-C aborts an open transaction.
"""

from .sync_admin import Admin
from .sync_consumer import Batches, Consumer
from .sync_errors import CommitOutcomeUnknownError
from .sync_pool import ProducerPool
from .sync_producer import Delivery, Producer, Transaction

__all__ = [
    "Admin",
    "Batches",
    "CommitOutcomeUnknownError",
    "Consumer",
    "Delivery",
    "Producer",
    "ProducerPool",
    "Transaction",
]
