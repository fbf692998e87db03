"""Turns errors of a load into failures: a cause and a hint, no traceback."""

from typing import Any

import click

from ..failures import FAILED, WRONG_USAGE, Failure
from ..interruption import INTERRUPTED, Interruption

_NO_BROKER = "is a Kafka broker running there? -b HOST:PORT names it; fencepost serve starts one"
_BY_BROKER = "the broker refused the load: see its log and check its limits (message.max.bytes for large records)"


class LoadGroup(click.Group):
    """Commands that load a broker. Their context's object is the Interruption."""

    def invoke(self, ctx: click.Context) -> Any:
        with Interruption() as interruption:
            ctx.obj = interruption
            try:
                return super().invoke(ctx)
            except (click.ClickException, click.exceptions.Exit, click.Abort):
                raise
            except KeyboardInterrupt:
                raise Failure("interrupted", "nothing was measured; its own topic is deleted", INTERRUPTED) from None
            except Exception as error:
                failure = _failure(error)
                if failure is None:
                    raise
                raise failure from None


def _failure(error: Exception) -> Failure | None:
    """The failure to show; None for a bug."""
    from ...bench.small import RequestFailed
    from ...bench.topics import NotAnAddress, NoTopic

    if isinstance(error, NotAnAddress):
        return Failure(str(error), "-b must be HOST:PORT, such as 127.0.0.1:9092", WRONG_USAGE)
    if isinstance(error, NoTopic):
        return Failure(str(error), "without --topic, bench small and bench produce create their own")
    if isinstance(error, TimeoutError):
        return Failure(f"no answer in time: {error}", _NO_BROKER)
    if isinstance(error, OSError):
        return Failure(f"no connection to the broker: {error.strerror or error}", _NO_BROKER)
    if isinstance(error, RequestFailed | RuntimeError):
        return Failure(str(error), _BY_BROKER)
    if type(error).__name__ == "KafkaException":  # confluent_kafka's: not imported for that
        return Failure(_text(error), _BY_BROKER, FAILED)
    return None


def _text(error: Exception) -> str:
    inner = error.args[0] if error.args else error
    text = getattr(inner, "str", None)
    return str(text()) if callable(text) else str(inner)
