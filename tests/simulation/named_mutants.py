"""The bank of bugs in named producers, in the broker and in the SDK: what is written twice, left out, or by whom.

A function's name is the bug that it plants; its docstring says what comes of it, or where it is known from.
"""

from contextlib import ExitStack
from typing import Any

from fencepost.broker.producers.names import Names, Straddles, highest_row
from fencepost.broker.producers.names_log import NamedProducers
from fencepost.client.producer.numbering import Numbering, Progress
from fencepost.client.producer.sender import Sender
from simulation.planting import around, breaks, killed_by, mutant, replaced

IN_ITS_UNIT = "guarantees.md: the broker keeps the highest sequence of each name and partition in the unit of its batch"
NEVER_TWICE = "guarantees.md: sends again is never written twice, however long ago the first time was"


@mutant
@breaks(IN_ITS_UNIT)
def the_highest_sequence_is_known_in_memory_alone(stack: ExitStack) -> None:
    def append(self: Any, numbered: Any, partition: Any, batch: Any) -> Any:
        base_offset = partition.log.end_offset
        self._store.append_together([(partition.log, batch)])
        self.names.apply(highest_row(numbered.name, numbered.place, numbered.last))
        return base_offset

    replaced(stack, NamedProducers.append, append)


@mutant
@breaks(IN_ITS_UNIT)
def the_log_of_names_is_not_read_at_start(stack: ExitStack) -> None:
    replaced(stack, NamedProducers.load, lambda self: None)


@mutant
@breaks(NEVER_TWICE)
def a_named_batch_that_is_sent_again_is_appended_again(stack: ExitStack) -> None:
    def wrapper(judge: Any) -> Any:
        def judged(self: Any, batch: Any) -> Any:
            return judge(self, batch) and None

        return judged

    around(stack, Names.judge, wrapper)


@mutant
@breaks("sdk.md: Only the producer that took the name last may write")
def any_epoch_of_a_name_writes(stack: ExitStack) -> None:
    replaced(stack, Names.check_epoch, lambda self, name, epoch: self.by_name[name])


@mutant
@breaks("sdk.md: Only the producer that took the name last may write")
def who_takes_a_name_again_gets_its_epoch(stack: ExitStack) -> None:
    def wrapper(take: Any) -> Any:
        def opened(self: Any, name: str, owner: str) -> Any:
            found = self.names.by_name.get(name)
            return take(self, name, owner) if found is None else found.epoch

        return opened

    around(stack, NamedProducers.open, wrapper)


@killed_by("tests/broker/handlers/test_named_producers.py")
@breaks("guarantees.md: lost write: acknowledged, never read")
def a_batch_of_which_a_part_is_new_is_taken_for_a_duplicate(stack: ExitStack) -> None:
    """Pulsar had this bug (#6273)."""

    def wrapper(judge: Any) -> Any:
        def judged(self: Any, batch: Any) -> Any:
            try:
                return judge(self, batch)
            except Straddles as error:
                return error.highest

        return judged

    around(stack, Names.judge, wrapper)


# ---- the SDK -------------------------------------------------------------------------------------------------


@mutant
@breaks("sdk.md: A record that fails ends the producer, as nothing may be written behind it")
def sdk_a_named_producer_goes_on_behind_what_failed(stack: ExitStack) -> None:
    replaced(stack, Numbering.failed, lambda self, topic_partition, error: None)


@killed_by("tests/client/producer/test_named_producer.py")
@breaks("sdk.md: A record that fails ends the producer, as nothing may be written behind it")
def sdk_the_parts_behind_a_refused_part_of_a_split_batch_are_written(stack: ExitStack) -> None:
    def wrapper(abandon: Any) -> Any:
        def of_transactions(self: Any, entry: Any, error: Any) -> None:
            if self._transactional:
                abandon(self, entry, error)

        return of_transactions

    around(stack, Sender._abandon, wrapper)


@mutant
@breaks("sdk.md: a repetition is done when the first is")
def sdk_a_repetition_is_done_at_once(stack: ExitStack) -> None:
    def wrapper(written_before: Any) -> Any:
        def at_once(self: Any, timestamp_ms: int) -> Any:
            newest, self.newest = self.newest, None
            repeated = written_before(self, timestamp_ms)
            self.newest = newest
            return repeated

        return at_once

    around(stack, Progress.written_before, wrapper)


@mutant
@breaks(NEVER_TWICE)
def sdk_a_named_producer_does_not_read_how_far_it_is(stack: ExitStack) -> None:
    def wrapper(open_topic: Any) -> Any:
        async def opened(self: Any, topic: str, count: int) -> None:
            await open_topic(self, topic, count)
            self._opened.clear()

        return opened

    around(stack, Numbering.open_topic, wrapper)


@killed_by("tests/client/producer/test_named_producer.py")
@breaks("sdk.md: So does a topic that was deleted and created again")
def sdk_what_was_sent_to_a_deleted_topic_counts_as_sent_to_the_next(stack: ExitStack) -> None:
    replaced(stack, Numbering._check_same, lambda self, topic, topic_id: None)
