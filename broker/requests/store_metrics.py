"""Metrics of a journal in a store of objects (`serve --store`). Without one they have no samples."""

from collections.abc import Callable

from ...protocol.messages.monitoring import GAUGE
from .metric_families import Exported, Samples, Seen
from .services import Services


def _of_owner(value: Callable[[Services, Callable[[], bool]], float]) -> Callable[[Services, Seen], Samples]:
    """Return a function that reads a metric of a broker whose journal is in a store of objects.

    value: gets the broker, and a function that returns whether the store does not answer.
    """

    def read(broker: Services, seen: Seen) -> Samples:
        """Return the metric's sample; none if the journal is not in a store of objects."""
        is_troubled = broker.metrics.store_is_troubled
        return [] if is_troubled is None else [((), value(broker, is_troubled))]

    return read


STORE_FAMILIES = (
    Exported(
        "fencepost_store_epoch",
        GAUGE,
        (),
        "With --store: the epoch of the journal that this broker owns.",
        _of_owner(lambda broker, is_troubled: broker.store.journal.incarnation),
    ),
    Exported(
        "fencepost_store_troubled",
        GAUGE,
        (),
        "With --store: 1 while the store does not do what it is asked, and nothing is acknowledged; the log says why.",
        _of_owner(lambda broker, is_troubled: int(is_troubled())),
    ),
    Exported(
        "fencepost_store_congested",
        GAUGE,
        (),
        "With --store: 1 while so much waits for the store that clients are not read from.",
        _of_owner(lambda broker, is_troubled: int(broker.store.journal.nearly_full)),
    ),
)
