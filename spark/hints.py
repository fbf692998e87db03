"""What to do about an error, where a user of Spark sees it.

The rule: an error of the client keeps its advice apart from its text, and Spark shows a traceback. So the advice goes
along as a note, which a traceback shows below the error.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from ..client.errors import ClientError


@contextmanager
def hinted() -> Iterator[None]:
    """Of whatever is raised inside; also a decorator."""
    try:
        yield
    except ClientError as error:
        note = f"→ {error.hint}"
        if error.hint and note not in getattr(error, "__notes__", ()):
            error.add_note(note)
        raise
