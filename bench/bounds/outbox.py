"""Measures the outbox: how many rows a second a relay moves from PostgreSQL, each committed together with its
record.
"""

from collections.abc import Iterator

from ..measured import Measured
from ..peers import peers
from ..peers.names import FSYNC
from ..peers.postgres import postgres
from . import outbox_load
from .processes import figures_of
from .sizes import Say, Size, by_figure

ROWS = 100_000
TWO_PHASE = "transaction.two.phase.commit.enable=true"
FEWEST = 1_000  # rows of a quick run


def rows(name: str, size: Size, say: Say) -> Iterator[Measured]:
    """Measure how many rows a second the relay sends; broker and database both sync. Yields one result."""
    count = max(FEWEST, size.count(ROWS))
    with postgres() as url, peers.fencepost("fsync", None, "-X", TWO_PHASE) as broker:
        found = [figures_of(outbox_load, url, broker.bootstrap, str(count)) for _ in range(size.rounds)]
    yield Measured(name, "row", FSYNC, by_figure(found))
