"""The settings of a journal in an object store: a part of the broker's table (settings.py), with their check."""

from dataclasses import dataclass

from .options import ConfigType, InvalidOption, option

INT = ConfigType.INT


@dataclass(frozen=True, kw_only=True)
class StoreOptions:
    """How often the broker asks an object store, and after what time the owner of the journal counts as gone."""

    store_puts_per_second: int = option(
        10,
        "With the journal in a store of objects: rounds of less than 4 MiB a second, on average. Each is a request and "
        "costs money.",
        type=INT,
        at_least=1,
    )
    store_lease_ms: int = option(
        6_000,
        "With the journal in a store of objects: an owner from which nothing came for so long is taken over from.",
        type=INT,
        at_least=100,
    )
    store_heartbeat_ms: int = option(
        2_000,
        "With the journal in a store of objects: how often an owner that has nothing to write shows that it is there.",
        type=INT,
        at_least=10,
    )

    def check_store(self) -> None:
        """Raise InvalidOption unless a lease is at least two heartbeats long."""
        if self.store_heartbeat_ms * 2 > self.store_lease_ms:
            name = "store.heartbeat.ms"
            raise InvalidOption(f"{name} must be at most half of store.lease.ms: else an owner is taken for gone", name)
