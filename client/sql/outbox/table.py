"""An outbox table in a database: what a relay does there. Each call is one transaction, but for `take`.

The rule: seq is given under the lock of the relay's row in fencepost_relays, so it grows in the order in which rows
appear. Which way and which name numbered the rows stands there too: another one would send them again.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from ...errors import IllegalStateError, InvalidConfigurationError
from ..interfaces import Database
from .relaying import Row, Way, in_order
from .rows import Columns, bad_row, check_distinct, quoted_table, row_of
from .statements import EXISTING, INTRODUCE, RAISE, RENAME, lock_relay, outbox_schema, statements


class OutboxTable:
    """One outbox table. keep: rows that were sent are marked, and not deleted."""

    def __init__(self, db: Database, name: str, columns: Columns, keep: bool) -> None:
        self.name = name
        self._db = db
        self._wanted = columns
        self._keep = keep
        self._columns = columns
        self._version = 0
        self._sql = statements(db.dialect, name, columns, keep)

    @property
    def home(self) -> str:
        """Return a text that says which table of which database this is."""
        return f"{self._db.database_id} {self.name}"

    async def create(self) -> None:
        """Create the table, and fencepost_relays, where they are missing. Raises the driver's error."""
        for statement in outbox_schema(self._db.dialect, self.name):
            await self._db.execute(statement)

    async def open(self, way: Way) -> None:
        """Find out which columns the table has. Raises InvalidConfigurationError if there is no such table, or it lacks
        a column that this way needs.
        """
        known = self._wanted
        found = await self._columns_of(self.name)
        if not found:
            raise InvalidConfigurationError(
                f"there is no table {self.name}",
                hint=f"fencepost sql schema --dialect {self._db.dialect} --outbox {self.name} prints what makes it",
            )
        self._columns = columns = known.found_in(self.name, [name for name, _, _ in found])
        json_columns = [name for name, _, is_json in found if is_json]
        self._sql = statements(self._db.dialect, self.name, columns, self._keep, json_columns)
        if columns.seq in [name for name, is_filled, _ in found if is_filled]:
            raise InvalidConfigurationError(
                f"table {self.name} fills the column {columns.seq!r} itself, in which the relay numbers rows",
                hint="with --by hold: --columns seq= leaves it out; else seq=ANOTHER, a column without a default",
            )
        if way is not Way.HOLD and not columns.seq:
            raise InvalidConfigurationError(
                f"table {self.name} has no column for the numbers of rows, which {way.value!r} needs",
                hint=f"alter table {quoted_table(self.name)} add column seq bigint",
            )
        if self._keep and not columns.sent_at:
            raise InvalidConfigurationError(
                f"table {self.name} has no column that says when a row was sent, which keeping rows needs",
                hint=f"alter table {quoted_table(self.name)} add column sent_at timestamp",
            )

    async def _columns_of(self, table: str) -> list[tuple[str, bool, bool]]:
        """Return a table's columns, as EXISTING describes them; an empty list if there is no such table."""
        name = quoted_table(table) if self._db.dialect == "postgresql" else table.strip('"')
        found = await self._db.fetch(EXISTING[self._db.dialect], name)
        return [(column, bool(is_filled), bool(is_json)) for column, is_filled, is_json in found]

    async def check_unnumbered(self) -> None:
        """Raise IllegalStateError if another way has numbered rows of the table, which may be sent already."""
        if not self._columns.seq:
            return
        count = (await self._db.fetch(self._sql.any_numbered))[0][0]
        if count:
            raise _begun(self.name, count, await self._who())

    async def _who(self) -> str:
        """Return, for messages, which relay has numbered rows of this table."""
        if not await self._columns_of("fencepost_relays"):
            return "another relay"
        found = await self._db.fetch(lock_relay("sqlite"), self.name)
        return f"relay {found[0][1]!r} by {found[0][0]!r}" if found else "another relay"

    async def introduce(self, way: Way, relay: str) -> int:
        """Enter the relay into the table's row in fencepost_relays, and return the highest seq that was given.

        relay: the name of the relay. Raises IllegalStateError if another relay, or another way, has numbered rows that
        are still there; InvalidConfigurationError without the table fencepost_relays.
        """
        if not await self._columns_of("fencepost_relays"):
            raise InvalidConfigurationError(
                "there is no table fencepost_relays, in which numbers of rows are given",
                hint=f"fencepost sql schema --dialect {self._db.dialect} --outbox {self.name} prints what makes it",
            )
        async with self._transaction():
            await self._db.execute(INTRODUCE, self.name, way.value, relay)
            [(had_way, had_name, last)] = await self._db.fetch(lock_relay(self._db.dialect), self.name)
            if (had_way, had_name) != (way.value, relay):
                count = (await self._db.fetch(self._sql.any_numbered))[0][0]
                if count:
                    raise _begun(self.name, count, f"relay {had_name!r} by {had_way!r}")
                await self._db.execute(RENAME, self.name, way.value, relay)
        return int(last)

    @asynccontextmanager
    async def _transaction(self) -> AsyncGenerator[None, None]:
        """Run the block in a transaction of the database: commit at its end, roll back after an exception."""
        try:
            await self._db.begin()
            yield
            await self._db.commit()
        except BaseException:
            await self._db.rollback()
            raise

    # ---- rows ------------------------------------------------------------------------------------------------

    async def has_rows(self, way: Way) -> bool:
        """Return whether there is a row to send."""
        await self.has_changed()
        peek = self._sql.peek_unnumbered if way is Way.HOLD else self._sql.peek
        return bool(await self._db.fetch(peek))

    async def has_changed(self) -> bool:
        """Return whether another connection has committed something since the last call of this or of `has_rows`.
        Returns False where the database cannot tell.
        """
        if self._db.dialect != "sqlite":
            return False
        before, [(self._version,)] = self._version, await self._db.fetch("pragma data_version")
        return before != self._version

    async def check_left(self, before: Sequence[Any] | None) -> Sequence[Any] | None:
        """Return the position of the first row that was not taken or numbered, in a tuple; None if there is none.

        before: what this returned before the relay tried again. Raises OutboxRowError for a row without a position,
        InvalidConfigurationError if it is the same row: it was there, and could be neither deleted nor changed.
        """
        found = await self._db.fetch(self._sql.first_left)
        if not found:
            return None
        if found[0][0] is None:
            raise bad_row(None, f"it has nothing in the column {self._columns.position!r}")
        if found[0] == before:
            raise InvalidConfigurationError(
                f"the row of {self.name} at position {found[0][0]} can be neither deleted nor changed",
                hint="look for a trigger, a rule or a row-level security policy of the table",
            )
        return found[0]

    async def take(self, count: int) -> list[Row]:
        """Delete the first rows in the open transaction, or mark them as sent; return them in the order in which they
        are sent.

        Waits for another relay that does so now. Raises OutboxRowError.
        """
        found = await self._db.fetch(self._sql.take, count)
        check_distinct(self.name, self._columns.position, [position for position, *_ in found])
        return in_order(Way.HOLD, map(row_of, found))

    async def number(self, count: int) -> int:
        """Give numbers (seq) to the next rows that have none, at most `count`. Returns how many rows got one. Waits for
        another relay that does so now.
        """
        async with self._transaction():
            [(_, _, last)] = await self._db.fetch(lock_relay(self._db.dialect), self.name)
            given = await self._db.fetch(self._sql.number, last, count)
            if given:
                check_distinct(self.name, self._columns.position, [seq for (seq,) in given])
                await self._db.execute(RAISE, self.name, max(seq for (seq,) in given))
        return len(given)

    async def read(self, above: int, count: int) -> list[Row]:
        """Return the next rows above this number (seq), at most `count`. Raises OutboxRowError for the first of them
        that cannot be a record.
        """
        found = await self._db.fetch(self._sql.read, above, count)
        check_distinct(self.name, self._columns.seq, [seq for _, seq, *_ in found])
        return in_order(Way.OFFSETS, map(row_of, found))

    async def forget(self, up_to: int) -> None:
        """Delete the rows that were sent, or mark them as sent. up_to: their highest number (seq)."""
        await self._db.execute(self._sql.forget, up_to)

    async def prune(self, older_s: float) -> int:
        """Delete rows that were sent more than this many seconds ago. Returns how many."""
        return await self._db.execute(self._sql.prune, older_s)


def _begun(table: str, count: int, who: str) -> IllegalStateError:
    """Return the error for rows that another relay has numbered, and may have sent."""
    return IllegalStateError(
        f"{count} rows of {table} were numbered by {who}, and some of them may have been sent",
        hint="let that one end first, with the same --name and --by, until the table is empty",
    )
