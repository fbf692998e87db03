"""The blocking clients, for notebooks and scripts: the same names, used with `with`.

The rule: they forward to the asyncio clients, which run in one thread of the process (loop_thread.py). A client that
was created before a fork raises ForkedError in the child. Ctrl-C aborts an open transaction.
"""

from . import sql
from .admin import Admin
from .consumer import Batches, Consumer
from .errors import CommitOutcomeUnknownError
from .pool import ProducerPool
from .producer import Delivery, Producer, Transaction
from .share import ShareConsumer

__all__ = [
    "Admin",
    "Batches",
    "CommitOutcomeUnknownError",
    "Consumer",
    "Delivery",
    "Producer",
    "ProducerPool",
    "ShareConsumer",
    "Transaction",
    "sql",
]
