"""What is done with the driver's connection (asyncpg, psycopg, sqlite3) below one of SQLAlchemy or Django."""

from typing import Any

BEGINNING = "show transaction_isolation"
"""A statement with which drivers of PostgreSQL begin a transaction, and which leaves its settings to the user."""


def has_open_transaction(driver: Any) -> bool:
    """Return whether a transaction is open on this connection of asyncpg, psycopg or sqlite3. Sends nothing to the
    server.
    """
    if hasattr(driver, "pgconn"):
        return int(driver.pgconn.transaction_status) != 0
    if hasattr(driver, "is_in_transaction"):
        return bool(driver.is_in_transaction())
    return bool(driver.in_transaction)


def cut(driver: Any) -> None:
    """End this connection of asyncpg or psycopg without waiting for the server. With sqlite3, only end the statement
    that runs.
    """
    if hasattr(driver, "pgconn"):
        driver.pgconn.finish()
    elif hasattr(driver, "terminate"):
        driver.terminate()
    else:
        driver.interrupt()
