"""The arguments of the marker `@pytest.mark.fencepost(...)`."""

import re
from typing import Any

import pytest

LINE = (
    "fencepost(partitions=1, transaction_timeout='60s', clients=[...], user=None): partitions of the test's topics, "
    "the timeout of fp_txn_producer, the client libraries that fp_client runs with, if they are installed, "
    "and as which user the fixtures' clients log in"
)
CLIENTS = {"aiokafka": "aiokafka", "confluent": "confluent_kafka", "kafka-python": "kafka", "fencepost": "fencepost"}
_UNITS = {"ms": 1, "s": 1_000, "m": 60_000}
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m)\s*")


class Wishes:
    """The arguments of a test's marker, or defaults. Not a dataclass, which would cost 1 ms at each start of pytest."""

    __slots__ = ("clients", "partitions", "transaction_timeout", "user")

    def __init__(
        self,
        partitions: int = 1,
        transaction_timeout: str = "60s",
        clients: tuple[str, ...] = (),
        user: str | None = None,
    ) -> None:
        self.partitions = partitions
        self.transaction_timeout = transaction_timeout
        self.clients = clients
        self.user = user

    @property
    def transaction_timeout_ms(self) -> int:
        """Return the transaction timeout in milliseconds. Raises pytest.UsageError if its text is not like '5s' or
        '500ms'.
        """
        found = _DURATION.fullmatch(str(self.transaction_timeout))
        if found is None:
            raise pytest.UsageError(
                f"transaction_timeout must look like '5s' or '500ms', not {self.transaction_timeout!r}"
            )
        return round(float(found[1]) * _UNITS[found[2]])


def wishes_of(node: Any) -> Wishes:
    """Return the arguments of this test's markers, with defaults; those of the nearest marker take precedence. Raises
    pytest.UsageError for a wrong argument.
    """
    arguments: dict[str, Any] = {}
    for marker in node.iter_markers("fencepost"):
        if marker.args:
            raise pytest.UsageError("@pytest.mark.fencepost takes keyword arguments only")
        arguments = {**marker.kwargs, **arguments}
    unknown = arguments.keys() - set(Wishes.__slots__)
    if unknown:
        raise pytest.UsageError(
            f"@pytest.mark.fencepost has no argument {min(unknown)}: expected {', '.join(Wishes.__slots__)}"
        )
    if "clients" in arguments:
        arguments["clients"] = tuple(arguments["clients"])
        strange = set(arguments["clients"]) - CLIENTS.keys()
        if strange:
            raise pytest.UsageError(f"clients must be of {', '.join(CLIENTS)}, not {min(strange)}")
    return Wishes(**arguments)
