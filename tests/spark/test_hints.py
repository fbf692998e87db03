"""The hint below an error: it names options of Spark, so that following it literally works."""

import pytest
from fencepost.client.errors import (
    AbortableTransactionError,
    ClientError,
    InvalidConfigurationError,
    RecordTooLargeError,
    error_of,
)
from fencepost.protocol.errors import ErrorCode
from fencepost.spark.hints import add_hint
from fencepost.spark.sink.options import sink_options


def shown(error):
    """Raise the error within add_hint(), and return the note that this added to it; without one, ""."""
    with pytest.raises(type(error)) as caught, add_hint():
        raise error
    return "".join(getattr(caught.value, "__notes__", ()))


def abortable(cause):
    """Return the error of a transaction that can only be aborted because of `cause`."""
    error = AbortableTransactionError("the transaction has failed", code=cause.code)
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (RecordTooLargeError("large", hint="raise max_request_size"), "→ raise kafka.max.request.size"),
        (RecordTooLargeError("large", hint="raise max_batch_size"), "→ raise kafka.batch.size"),
        (ClientError("x", hint="raise max_decompressed_bytes"), "→ raise kafka.max.decompressed.bytes"),
        (
            ClientError("x", hint="see max_poll_interval_ms, not max_people"),
            "kafka.max.poll.interval.ms, not max_people",
        ),
        (error_of(ErrorCode.MESSAGE_TOO_LARGE), "raise the topic's max.message.bytes"),
        (abortable(error_of(ErrorCode.MESSAGE_TOO_LARGE)), "raise the topic's max.message.bytes"),
    ],
)
def test_hints_of_client_errors_are_rewritten_with_the_names_of_spark_options(error, says):
    assert says in shown(error)


@pytest.mark.parametrize(
    "error",
    [
        abortable(AbortableTransactionError("topic")),
        abortable(abortable(AbortableTransactionError("topic"))),
        AbortableTransactionError("topic"),
        abortable(ClientError("no hint")),
    ],
)
def test_transaction_errors_whose_hint_is_to_abort_are_shown_without_a_hint(error):
    assert shown(error) == ""


def test_the_spark_option_that_the_hint_for_acks_1_suggests_is_accepted():
    with pytest.raises(InvalidConfigurationError) as caught, add_hint():
        sink_options({"kafka.bootstrap.servers": "b:9092", "kafka.acks": "1"}, streaming=True)
    assert "kafka.enable.idempotence=False" in caught.value.__notes__[0]
    assert not sink_options(
        {"kafka.bootstrap.servers": "b:9092", "kafka.acks": "1", "kafka.enable.idempotence": "False"}, streaming=True
    ).produce.enable_idempotence
