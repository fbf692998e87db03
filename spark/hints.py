"""Shows the hint of a client's error to users of Spark.

The rule: an error of the client has its hint in an attribute, and Spark shows only a traceback. So the hint is added as
a note, which a traceback shows below the error.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from ..client.errors import AbortableTransactionError, ClientError
from ..protocol.errors import ErrorCode


@contextmanager
def hinted() -> Iterator[None]:
    """Context manager and decorator: adds the hint to an error raised inside."""
    try:
        yield
    except ClientError as error:
        hint = _hint(error)
        note = f"→ {hint}"
        if hint and note not in getattr(error, "__notes__", ()):
            error.add_note(note)
        raise


def _hint(error: ClientError) -> str:
    if error.code == ErrorCode.MESSAGE_TOO_LARGE:
        return "raise the topic's max.message.bytes, or lower kafka.batch.size"
    if error.code == ErrorCode.POLICY_VIOLATION and "max.ledger.entries" in error.detail:
        return "raise max.ledger.entries of the broker, which can be changed while it runs"
    if isinstance(error, AbortableTransactionError):  # its hint is to abort and retry, which Spark does by itself
        return error.__cause__.hint if isinstance(error.__cause__, ClientError) else ""
    return error.hint
