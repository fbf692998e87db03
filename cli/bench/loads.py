"""Turns errors of a load into failures: a cause and a hint, no traceback."""

from typing import Any

import click

from ..output.failures import CONFLICT, DENIED, FAILED, NOT_FOUND, TIMED_OUT, WRONG_USAGE, Failure
from ..output.interruption import INTERRUPTED, Interruption

_NO_BROKER = "is a Kafka broker running there? -b HOST:PORT names it; fencepost serve starts one"
_BY_BROKER = "the broker refused the load: see its log and check its limits (message.max.bytes for large records)"
_NO_TOPIC = "without --topic, bench small, produce, txn and modes create their own topic"
_DENIED = "--user NAME logs in, --tls… options use TLS; the user needs Create, Write, Read and Delete on the topic"
_BY_NAME = {  # errors of librdkafka
    **dict.fromkeys(("_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE"), (TIMED_OUT, _NO_BROKER)),
    **dict.fromkeys(("_TIMED_OUT", "_MSG_TIMED_OUT", "REQUEST_TIMED_OUT"), (TIMED_OUT, _NO_BROKER)),
    **dict.fromkeys(("_UNKNOWN_TOPIC", "UNKNOWN_TOPIC_OR_PART"), (NOT_FOUND, _NO_TOPIC)),
    **dict.fromkeys(("_FENCED", "INVALID_PRODUCER_EPOCH"), (CONFLICT, "another client uses the same transactional id")),
    **dict.fromkeys(("_AUTHENTICATION", "_SSL", "SASL_AUTHENTICATION_FAILED"), (DENIED, _DENIED)),
    **dict.fromkeys(("TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED"), (DENIED, _DENIED)),
    "_INVALID_ARG": (WRONG_USAGE, "-X must be a property of librdkafka: NAME=VALUE"),
}


class LoadGroup(click.Group):
    """A group of commands that load a broker. The object of their context is the Interruption."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a load so that a signal ends it and its topic is deleted. Raises Failure after a signal, and for an error
        of the load that is not a bug.
        """
        with Interruption() as interruption:
            ctx.obj = interruption
            try:
                return super().invoke(ctx)
            except (click.ClickException, click.exceptions.Exit, click.Abort):
                raise
            except KeyboardInterrupt:
                raise Failure("interrupted", "nothing was measured; its own topic is deleted", INTERRUPTED) from None
            except Exception as error:
                failure = failure_of(error)
                if failure is None:
                    raise
                raise failure from None


def failure_of(error: Exception) -> Failure | None:
    """Return the failure to show for an error of a load; None if the error is a bug."""
    from ...bench.small import RequestFailed
    from ...bench.topics import NotAnAddress, NoTopic
    from ...client.errors import KafkaError
    from ..output.refusals import refusal

    if isinstance(error, NotAnAddress):
        return Failure(str(error), "-b must be HOST:PORT, such as 127.0.0.1:9092", WRONG_USAGE)
    if isinstance(error, NoTopic):
        return Failure(str(error), _NO_TOPIC, NOT_FOUND)
    if isinstance(error, TimeoutError):
        return Failure(f"no answer in time: {error}", _NO_BROKER, TIMED_OUT)
    if isinstance(error, OSError):
        return Failure(f"no connection to the broker: {error.strerror or error}", _NO_BROKER, TIMED_OUT)
    if isinstance(error, KafkaError):
        return refusal(error)
    cause = error.__cause__ if isinstance(error, RuntimeError) else error  # a thread's, caused by the producer's error
    if type(cause).__name__ == "KafkaException":  # of confluent_kafka, which may not be installed
        return _of_librdkafka(cause, error)
    return Failure(str(error), _BY_BROKER) if isinstance(error, RequestFailed | RuntimeError) else None


def _of_librdkafka(cause: Any, error: Exception) -> Failure:
    """Return the failure to show for an error of librdkafka. cause: the KafkaException. error: the same, or an error
    that it caused, whose text is then shown.
    """
    inner = cause.args[0] if cause.args else cause
    name, text = (str(found()) if callable(found := getattr(inner, each, None)) else "" for each in ("name", "str"))
    code, hint = _BY_NAME.get(name, (FAILED, _BY_BROKER))
    return Failure(text or str(inner) if cause is error else str(error), hint, code)
