"""Transactions of a producer: one table of states, its requests, and the `async with` around them."""
