"""Transactions of a producer: one table of states, and its requests. The `async with` is producer/transaction.py."""
