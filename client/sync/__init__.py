"""The blocking clients, for notebooks and scripts: under the same names, with `with`.

The rule: they forward to the asyncio clients, which run in one thread of the process (loop_thread.py). They are not to
be made before a fork: what was refuses to work after it (ForkedError). Ctrl-C aborts an open transaction.
"""

from .admin import Admin
from .consumer import Batches, Consumer
from .errors import CommitOutcomeUnknownError
from .pool import ProducerPool
from .producer import Delivery, Producer, Transaction

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
