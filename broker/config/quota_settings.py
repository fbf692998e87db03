"""The settings of quotas and connection limits: a part of the broker's table (settings.py). Kafka's names and
defaults.
"""

from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address

from .options import ConfigType, Value, option

INT = ConfigType.INT
UNLIMITED = 2**31 - 1


@lru_cache(maxsize=8)
def connections_of_addresses(text: str) -> dict[str, int]:
    """Parse `max.connections.per.ip.overrides`. Returns the limit of each IP address. Raises ValueError."""
    pairs = (entry.strip().rpartition(":") for entry in text.split(",") if entry.strip())
    return {str(ip_address(address.strip("[] "))): _count(number) for address, _, number in pairs}


def _count(text: str) -> int:
    """Parse a number of connections. Raises ValueError."""
    if not text.strip().isdecimal() or int(text) > UNLIMITED:
        raise ValueError(f"{text!r} is no number of connections")
    return int(text)


def _overrides(value: Value) -> str | None:
    """Return the error for a value of `max.connections.per.ip.overrides`; None if it is valid."""
    assert isinstance(value, str)
    try:
        connections_of_addresses(value)
    except ValueError as error:
        return f"ADDRESS:NUMBER,ADDRESS:NUMBER is wanted: {error}"
    return None


@dataclass(frozen=True, kw_only=True)
class QuotaSettings:
    """The windows in which rates are measured, and the limits on connections that are not quotas."""

    quota_window_num: int = option(
        11,
        "Windows over which the rate of a client is measured, the one that has just begun included.",
        type=INT,
        at_least=1,
    )
    quota_window_size_seconds: int = option(1, "The length of one of them.", type=INT, at_least=1)
    controller_quota_window_num: int = option(
        11,
        "Windows whose partitions a client may make or delete at once where `controller_mutation_rate` limits it.",
        type=INT,
        at_least=1,
    )
    controller_quota_window_size_seconds: int = option(1, "The length of one of them.", type=INT, at_least=1)
    max_connection_creation_rate: int = option(
        UNLIMITED,
        "New connections a second, over all addresses; more of them wait until they are served. For one address there "
        "is the quota `connection_creation_rate` (docs/security.md).",
        type=INT,
        at_least=1,
        dynamic=True,
    )
    max_connections_per_ip_overrides: str = option(
        "",
        "Addresses for which another number counts than `max.connections.per.ip`: `10.0.0.1:200`, with `,` between "
        "several. Names of hosts are not looked up.",
        check=_overrides,
        dynamic=True,
    )
