"""The clients for code that does not await: notebooks, scripts. The same names, and calls that wait."""

from .client.sync import (
    Admin,
    Batches,
    CommitOutcomeUnknownError,
    Consumer,
    Delivery,
    Producer,
    ProducerPool,
    ShareConsumer,
    Transaction,
    sql,
)

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
