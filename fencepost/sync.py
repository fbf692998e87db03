"""The clients for code that does not await: notebooks, scripts. The same names, and calls that wait."""

from .client.sync import Admin, Delivery, Producer, Transaction

__all__ = ["Admin", "Delivery", "Producer", "Transaction"]
