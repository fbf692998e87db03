"""Settings that Kafka lets change while a broker runs, and that mean nothing to this one. Pure.

The rule: they are taken, checked and kept as Kafka does, so that automation that sets them goes on; nothing obeys them
(see kafka_names.py for the same names in a file). Only what promises nothing is in here: thread counts and buffers,
and logins where nobody logs in. Asked of 4.3.1.
"""

from .options import InvalidOption

# Each with its type, which Kafka checks.
_OF_THE_CLUSTER: dict[str, type] = {
    "background.threads": int,
    "log.cleaner.dedupe.buffer.size": int,
    "log.cleaner.io.buffer.load.factor": float,
    "log.cleaner.io.buffer.size": int,
    "log.cleaner.threads": int,
    "num.io.threads": int,
    "num.network.threads": int,
    "num.recovery.threads.per.data.dir": int,
    "num.replica.fetchers": int,
}
_OF_ONE_BROKER: dict[str, type] = {
    "sasl.kerberos.kinit.cmd": str,
    "sasl.kerberos.min.time.before.relogin": int,
    "sasl.kerberos.principal.to.local.rules": str,
    "sasl.kerberos.service.name": str,
    "sasl.kerberos.ticket.renew.jitter": float,
    "sasl.kerberos.ticket.renew.window.factor": float,
    "sasl.login.refresh.buffer.seconds": int,
    "sasl.login.refresh.min.period.seconds": int,
    "sasl.login.refresh.window.factor": float,
    "sasl.login.refresh.window.jitter": float,
}
IGNORED = _OF_THE_CLUSTER | _OF_ONE_BROKER


def check_ignored(name: str, text: str, broker: str) -> None:
    """broker: its id, or "" for all. Raises InvalidOption."""
    if name in _OF_ONE_BROKER and not broker:
        raise InvalidOption(
            f"Cannot update these configs at default cluster level, broker id must be specified: [{name}]"
        )
    kind = IGNORED[name]
    try:
        kind(text)
    except ValueError:
        number = "INT" if kind is int else "DOUBLE"
        raise InvalidOption(f"Invalid value {text} for configuration {name}: Not a number of type {number}") from None
