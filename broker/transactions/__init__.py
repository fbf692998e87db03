"""Transactions: who may write under a transactional id, what is open, and how it ends."""
