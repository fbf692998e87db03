"""Databases that take part in commits. `statements.py` has the tables, `sqlite.py` is SQLite.

What is decided in which order is in `client/transactions/deciding.py`; docs/how-to/database.md is for users.
"""
