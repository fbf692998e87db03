"""Limits the size of settings: of one value, of one topic or broker, and of all together.

The rule: only what a request asks for is refused, not what exists. The catalogue of an earlier version may contain more
than the limits allow, and every change that does not enlarge it is accepted. The limit for one value is Kafka's,
because older clients of Kafka cannot receive a longer one. The others are ours, so that requests cannot make a
catalogue that takes long to open. The broker's own topics do not count towards the limit for all: they are few, and it
must be possible to create them however much clients have stored.
"""

from collections.abc import Iterable, Mapping

from ...protocol.errors import ErrorCode, KafkaError

LARGEST_VALUE_BYTES = 32_767
LARGEST_RESOURCE_BYTES = 256 << 10  # of one topic or broker: names and values
TOTAL = "configs.max.bytes"


def size_bytes(configs: Mapping[str, str]) -> int:
    """Return the size in bytes of the names and values of one topic's or broker's settings."""
    return sum(len(name.encode()) + len(text.encode()) for name, text in configs.items())


class ConfigSizes:
    """The total size of the settings of all brokers and of all topics except internal ones."""

    def __init__(self) -> None:
        self.total_bytes = 0

    def count(self, everything: Iterable[Mapping[str, str]]) -> None:
        """Add the settings that exist at the start."""
        self.total_bytes += sum(map(size_bytes, everything))

    def change(self, before: Mapping[str, str], after: Mapping[str, str]) -> None:
        """Note that the configs of a topic or broker have changed from `before` to `after`."""
        self.total_bytes += size_bytes(after) - size_bytes(before)

    def check(self, before: Mapping[str, str], after: Mapping[str, str], most_bytes: int | None) -> None:
        """Check whether the limits on sizes allow a change of one resource's settings. Raises INVALID_CONFIG,
        POLICY_VIOLATION.

        most_bytes: the limit for all resources together; None: this resource does not count towards it.
        """
        for name, text in after.items():
            if len(text) * 4 > LARGEST_VALUE_BYTES and text != before.get(name):
                _check_value(text)
        grown = size_bytes(after) - size_bytes(before)
        if grown <= 0:
            return
        if size_bytes(after) > LARGEST_RESOURCE_BYTES:
            text = f"The settings of one resource may take no more than {LARGEST_RESOURCE_BYTES} bytes together."
            raise KafkaError(ErrorCode.INVALID_CONFIG, text)
        if most_bytes is not None and self.total_bytes + grown > most_bytes:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION, f"the settings of topics and brokers take all that is allowed: {TOTAL}"
            )


def _check_value(text: str) -> None:
    """Raise INVALID_CONFIG if the value is larger than LARGEST_VALUE_BYTES."""
    if len(text.encode()) > LARGEST_VALUE_BYTES:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            "The configuration value cannot be added because it exceeds the maximum value size of "
            f"{LARGEST_VALUE_BYTES} bytes.",
        )
