"""Adds the hint of a client's error to what users of Spark see. Pure.

The rule: an error of the client has its hint in an attribute, and Spark shows only a traceback. So the hint is added as
a note, which a traceback shows below the error. It names settings as options of Spark, so that it can be followed.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from ..client.config_names import names_of
from ..client.errors import AbortableTransactionError, ClientError, UnknownTopicError
from ..client.settings import ConsumerSettings, ProducerSettings, keywords_of
from ..protocol.errors import ErrorCode
from .options import KAFKA

_KEYWORDS = keywords_of(ConsumerSettings) | keywords_of(ProducerSettings)
_WORD = re.compile(r"\b[a-z]+(?:_[a-z]+)+\b")


@contextmanager
def add_hint() -> Iterator[None]:
    """Return a context manager and decorator that adds the hint of a ClientError raised inside to its notes, which a
    traceback shows.
    """
    try:
        yield
    except ClientError as error:
        hint = _WORD.sub(_option, _hint(error))
        note = f"→ {hint}"
        if hint and note not in getattr(error, "__notes__", ()):
            error.add_note(note)
        raise


def _hint(error: ClientError) -> str:
    """Return the hint for an error, in terms of Spark's options where the client's own hint does not fit; empty if
    there is none.
    """
    while isinstance(error, AbortableTransactionError) and isinstance(error.__cause__, ClientError):
        error = error.__cause__
    # The hint of an AbortableTransactionError is to abort and retry, which Spark does.
    own = "" if isinstance(error, AbortableTransactionError) else error.hint
    if error.code == ErrorCode.MESSAGE_TOO_LARGE and not own:  # the broker's answer
        return "raise the topic's max.message.bytes, or lower kafka.batch.size if each record is smaller"
    if error.code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        return (
            "a sink needs the right Write to the transactional ids fencepost.once.SINK.* (of its tasks), SINK and"
            " SINK#writes, where SINK is its sinkId, or else the query's id; a df.write without a sinkId to"
            " fencepost.once.fencepost.write.* and fencepost.write.*"
        )
    if isinstance(error, UnknownTopicError) and ": there is no partition " in error.detail:
        return "the column 'partition' names it: drop it, and the partitioner chooses"
    if error.code == ErrorCode.POLICY_VIOLATION and "max.ledger.entries" in error.detail:
        return "raise max.ledger.entries of the broker, which can be changed while it runs"
    if error.code == ErrorCode.POLICY_VIOLATION and "PrepareTxn" in error.detail:
        return "raise max.prepared.transactions of the broker, which can be changed while it runs, or use fewer tasks"
    if error.code == ErrorCode.INVALID_REQUEST and "in one decision" in error.detail:
        return (
            "each task marks every partition that it wrote to: use fewer tasks, by coalesce() or"
            " spark.sql.shuffle.partitions, or smaller batches"
        )
    return own


def _option(found: re.Match[str]) -> str:
    """Return a setting of the client as Spark's options name it (kafka.batch.size); any other word unchanged."""
    word = found[0]
    return word if word not in _KEYWORDS else KAFKA + next(iter(names_of(word)), word.replace("_", "."))
