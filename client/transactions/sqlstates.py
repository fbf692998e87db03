"""SQLSTATEs of errors that come from the driver of a database. Pure.

Source: PostgreSQL's documentation, appendix A.
"""

from ..errors import KafkaError

SERIALIZATION_FAILURE, DEADLOCK = "40001", "40P01"


def sqlstate_of(error: BaseException) -> str | None:
    """Return the SQLSTATE of a driver's error; None without one. SQLAlchemy and Django wrap their driver's error."""
    for each in (error, getattr(error, "orig", None), error.__cause__):
        state = getattr(each, "sqlstate", None)
        if isinstance(state, str):
            return state
    return None


def may_succeed_again(error: BaseException) -> bool:
    """Return whether the error is a serialization failure or a deadlock of the database, after which the same work may
    succeed. Returns False for an error of the SDK, whatever its cause.
    """
    return not isinstance(error, KafkaError) and sqlstate_of(error) in (SERIALIZATION_FAILURE, DEADLOCK)
