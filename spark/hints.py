"""What to do about an error, where a user of Spark sees it.

The rule: an error of the client keeps its advice apart from its text, and Spark shows a traceback. So the advice goes
along as a note, which a traceback shows below the error.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from ..client.errors import AbortableTransactionError, ClientError
from ..protocol.errors import ErrorCode


@contextmanager
def hinted() -> Iterator[None]:
    """Of whatever is raised inside; also a decorator."""
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
        return "raise max.ledger.entries of the broker, which it takes while it runs"
    if isinstance(error, AbortableTransactionError):  # Spark aborts and tries again by itself: why, is what counts
        return error.__cause__.hint if isinstance(error.__cause__, ClientError) else ""
    return error.hint
