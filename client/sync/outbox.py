"""The blocking relay of an outbox: `with sql.outbox("localhost:9092", db, to="orders") as relay: relay.run()`.

The rule: the relay runs in the loop's thread. After Ctrl-C the commit that is under way is ended or taken back, and the
caller waits for that.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..sql.outbox.relay import AT_ONCE, Trouble
from ..sql.outbox.relay import Outbox as AsyncOutbox
from ..sql.outbox.relay import outbox as async_outbox
from .blocking import Blocking, inner_of

if TYPE_CHECKING:
    from .taking_part import Database


class Outbox(Blocking[AsyncOutbox]):
    """Sends the rows of one table. Like fencepost.sql.Outbox."""

    def start(self) -> None:
        """Do nothing: `move` connects."""

    @property
    def sent(self) -> int:
        """Return how many rows this object has sent."""
        return self._inner.sent

    @property
    def way(self) -> str | None:
        """Return how rows are sent: "hold", "names" or "offsets"; None if the broker has not been asked yet."""
        return None if self._inner.way is None else self._inner.way.value

    def move(self) -> int:
        """Send the next rows, if there are some, and return how many were sent. Like fencepost.sql.Outbox.move."""
        return self._wait(self._inner.move)

    def run(
        self,
        *,
        until_empty: bool = False,
        moved: Callable[[int], None] | None = None,
        trouble: Trouble | None = None,
    ) -> None:
        """Send rows as they come, until interrupted. Like fencepost.sql.Outbox.run; `moved` and `trouble` are called in
        the clients' thread.
        """
        self._wait(lambda: self._inner.run(until_empty=until_empty, moved=moved, trouble=trouble))


def outbox(
    bootstrap_servers: Any,
    db: "Database",
    *,
    to: str,
    table: str = "outbox",
    by: str | None = None,
    name: str | None = None,
    columns: Mapping[str, str] | str | None = None,
    keep_ms: float | None = None,
    resume_at: int | None = None,
    at_once: int = AT_ONCE,
    create: bool = False,
    **keywords: Any,
) -> Outbox:
    """Return a relay from a table of an open database into topics. Like fencepost.sql.outbox; db: of
    `fencepost.sync.sql.connect`.
    """
    database = inner_of(db)
    return Outbox(
        lambda: async_outbox(
            bootstrap_servers,
            database,
            to=to,
            table=table,
            by=by,
            name=name,
            columns=columns,
            keep_ms=keep_ms,
            resume_at=resume_at,
            at_once=at_once,
            create=create,
            **keywords,
        )
    )
