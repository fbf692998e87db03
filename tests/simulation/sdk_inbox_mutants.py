"""The bank of bugs in the SDK's blocks of a database, and in its inbox: rows and the place in the topic in one
transaction of a database.

A function's name is the bug that it plants; its docstring says what comes of it, or where it is known from.
"""

from contextlib import ExitStack
from typing import Any
from unittest import mock

from fencepost.client.sql import inbox, place_statements, statements
from fencepost.client.sql.inbox import Inbox
from fencepost.client.sql.keeping import Places
from fencepost.client.sql.places import Key
from simulation.planting import breaks, killed_by, replaced

ONCE = "how-to/database.md: each record's effect is there once"


@killed_by("tests/client/sql/test_postgresql_given.py")
@breaks("how-to/database.md: a mark on the transaction is missing then")
def sdk_a_block_takes_another_transaction_for_its_own(stack: ExitStack) -> None:
    for_good = statements.MARK_POSTGRESQL.replace("set local", "set session")
    stack.enter_context(mock.patch.object(statements, "MARK_POSTGRESQL", for_good))


@killed_by("tests/client/sql/test_inbox.py")
@breaks("how-to/database.md: if claim and place are still as they were found")
def sdk_an_inbox_moves_a_place_whatever_it_is(stack: ExitStack) -> None:
    anyhow = place_statements.MOVE.replace(" and claim = $4 and next_offset = $5", " and ($4 > -1 or $5 > -1)")
    stack.enter_context(mock.patch.object(place_statements, "MOVE", anyhow))


@killed_by("tests/client/sql/test_inbox.py")
@breaks("how-to/database.md: whose effects are not in the database yet")
def sdk_an_inbox_gives_out_a_batch_whose_begin_is_known(stack: ExitStack) -> None:
    def all_of_it(place: int, first: int, end: int) -> int | None:
        return first if first <= place < end else None

    stack.enter_context(mock.patch.object(inbox, "first_new", all_of_it))


@killed_by("tests/client/sql/test_inbox.py")
@breaks("how-to/database.md: as it says, asked over a new connection")
def sdk_an_inbox_takes_a_commit_without_an_answer_for_refused(stack: ExitStack) -> None:
    async def guessed(self: Any) -> str:
        return "aborted"

    replaced(stack, Inbox._ask, guessed)


@killed_by("tests/client/sql/test_inbox.py")
@breaks("how-to/database.md: An inbox inside a producer's transaction with the same database belongs to it")
def sdk_half_of_the_work_of_an_inbox_is_committed_by_its_transaction(stack: ExitStack) -> None:
    async def only_if_all_went_well(self: Any, block: Any, error: BaseException | None) -> None:
        if error is None:
            await self._move_all()

    replaced(stack, Inbox._end_inside, only_if_all_went_well)


@killed_by("tests/client/sql/test_inbox.py")
@breaks("how-to/database.md: by its id, before Kafka 2.8 by its name")
def sdk_a_place_is_of_a_topics_name(stack: ExitStack) -> None:
    def by_name(self: Any, state: Any) -> Key:
        return Key(state.tp.topic, state.tp.partition)

    replaced(stack, Places._key_of, by_name)


@killed_by("tests/client/sql/test_inbox.py")
@breaks("how-to/database.md: a new row, which begins where `auto_offset_reset` says")
def sdk_the_place_of_a_new_topic_is_the_offset_of_the_old_one(stack: ExitStack) -> None:
    nobody = place_statements.FIND_OTHERS + " and 1 = 0"
    stack.enter_context(mock.patch.object(place_statements, "FIND_OTHERS", nobody))


@killed_by("tests/client/sql/test_inbox.py")
@breaks(ONCE)
def sdk_an_inbox_goes_on_above_its_place(stack: ExitStack) -> None:
    def anyhow(place: int, first: int, end: int) -> int | None:
        return max(place, first) if place < end else None

    stack.enter_context(mock.patch.object(inbox, "first_new", anyhow))
