"""Moves the rows of an outbox in PostgreSQL into a topic, 500 in a commit, and prints how many a second as JSON.

Run as `python -m fencepost.bench.bounds.outbox_load URL BOOTSTRAP ROWS`.
"""

import sys
import time

from ...client.sql.connecting import connect
from ...client.sql.outbox.relay import outbox
from ...client.sql.outbox.statements import outbox_schema
from .processes import Figures, print_figures

WARM_ROWS = 1_000
INSERT = (
    "insert into outbox (key, value) "
    "select decode(lpad((n % 100)::text, 4, '0'), 'escape'), decode(repeat('x', 100), 'escape') "
    "from generate_series(1, cast($1 as bigint)) n"
)


async def move(url: str, bootstrap: str, rows: int) -> Figures:
    """Insert this many rows into the outbox, and send them by a relay. Returns the rows sent per second, as "rate"."""
    async with connect(url, create=True) as db:
        for statement in outbox_schema("postgresql", "outbox"):
            await db.execute(statement)
        async with outbox(bootstrap, db, to="outbox", by="hold") as relay:
            await db.execute(INSERT, WARM_ROWS)
            await relay.run(until_empty=True)
            await db.execute(INSERT, rows)
            began = time.perf_counter()
            while await relay.move():
                pass
            return {"rate": rows / (time.perf_counter() - began)}


if __name__ == "__main__":
    _, address, servers, number = sys.argv
    print_figures(move(address, servers, int(number)))
