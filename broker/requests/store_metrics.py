"""Metrics of a journal in a store of objects (`serve --store`). Without one they have no samples."""

from collections.abc import Callable, Mapping

from ...protocol.messages.monitoring import COUNTER, GAUGE, HISTOGRAM
from ..metrics import Histogram, StoreOfObjects
from .metric_families import Exported, Samples, Seen
from .services import Services


def _of_owner(value: Callable[[Services, StoreOfObjects], float]) -> Callable[[Services, Seen], Samples]:
    """Return a function that reads a metric of the broker's object store; it returns no sample if the journal
    is local.
    """

    def read(broker: Services, seen: Seen) -> Samples:
        """Return the metric's sample; none if the journal is not in a store of objects."""
        store = broker.metrics.store_of_objects
        return [] if store is None else [((), value(broker, store))]

    return read


def _endings(broker: Services, seen: Seen) -> Samples:
    """Return how many calls to the store have ended, by (call, kind of object, how they ended)."""
    store = broker.metrics.store_of_objects
    return [] if store is None else list(store.endings().items())


def _durations(broker: Services) -> Mapping[tuple[str, ...], Histogram]:
    """Return how long calls to the store took, by (call, kind of object)."""
    store = broker.metrics.store_of_objects
    return {} if store is None else store.durations()


STORE_FAMILIES = (
    Exported(
        "fencepost_store_epoch",
        GAUGE,
        (),
        "With --store: the epoch of the journal that this broker owns.",
        _of_owner(lambda broker, store: broker.store.journal.incarnation),
    ),
    Exported(
        "fencepost_store_troubled",
        GAUGE,
        (),
        "With --store: 1 while the store does not do what it is asked, and nothing is acknowledged; the log says why.",
        _of_owner(lambda broker, store: int(store.is_troubled)),
    ),
    Exported(
        "fencepost_store_unanswered_seconds",
        GAUGE,
        (),
        "With --store: since when the store has not done what the broker cannot go on without; 0 if it answers.",
        _of_owner(lambda broker, store: store.silent_ms() / 1000),
    ),
    Exported(
        "fencepost_store_congested",
        GAUGE,
        (),
        "With --store: 1 while so much waits for the store that clients are not read from.",
        _of_owner(lambda broker, store: int(broker.store.journal.nearly_full)),
    ),
    Exported(
        "fencepost_store_calls_total",
        COUNTER,
        ("call", "object", "ended"),
        "With --store: calls to the store (a create or put is a PUT, a read a GET), and how they ended: done, exists, "
        "missing; unclear: an error or no answer; refused: 401, 403, no bucket.",
        _endings,
    ),
    Exported(
        "fencepost_store_call_duration_seconds",
        HISTOGRAM,
        ("call", "object"),
        "With --store: one call to the store, whatever its end. How long a whole round takes, with all its attempts, "
        "is fencepost_fsync_duration_seconds.",
        counted=_durations,
        scale=1e-9,
        lowest=18,
        highest=37,
    ),
)
