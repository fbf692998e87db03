"""Transactions of a producer: a table of states, and the requests. `producer/transaction.py` has the `async with`."""
