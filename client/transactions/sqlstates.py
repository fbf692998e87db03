"""SQLSTATEs of errors that come from the driver of a database. Pure.

Source: PostgreSQL's documentation, appendix A.
"""

from ..errors import KafkaError

SERIALIZATION_FAILURE, DEADLOCK = "40001", "40P01"


def sqlstate_of(error: BaseException) -> str | None:
    """Return the SQLSTATE of a driver's error; None without one. SQLAlchemy and Django wrap that of their driver."""
    for each in (error, getattr(error, "orig", None), error.__cause__):
        state = getattr(each, "sqlstate", None)
        if isinstance(state, str):
            return state
    return None


def may_succeed_again(error: BaseException) -> bool:
    """Return whether the database has undone the transaction only because of others at the same time. An error of the
    SDK says no such thing, whatever its cause.
    """
    return not isinstance(error, KafkaError) and sqlstate_of(error) in (SERIALIZATION_FAILURE, DEADLOCK)
