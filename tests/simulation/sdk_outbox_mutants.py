"""The bank of bugs in the SDK's outbox: each committed row becomes one record, whatever the table is.

A function's name is the bug that it plants; its docstring says what comes of it, or where it is known from.
"""

from contextlib import ExitStack
from typing import Any
from unittest import mock

from fencepost.client.sql.outbox import table
from fencepost.client.sql.outbox.table import OutboxTable
from simulation.planting import breaks, killed_by, replaced

TESTS = "tests/client/sql/outbox/test_relays.py"
EACH = "how-to/database.md: each committed row becomes one record, none is lost"


@killed_by(TESTS)
@breaks(EACH)
def sdk_an_outbox_gives_one_number_to_two_rows(stack: ExitStack) -> None:
    stack.enter_context(mock.patch.object(table, "check_distinct", return_value=None))


@killed_by(TESTS)
@breaks(EACH)
def sdk_an_outbox_overlooks_rows_that_it_cannot_take(stack: ExitStack) -> None:
    async def none_is_left(self: Any, before: Any) -> None:
        """Say that no row is left."""

    replaced(stack, OutboxTable.check_left, none_is_left)
