"""Bugs of the fence of a journal in a store of objects, in the product: the model's twelve, and some of the shell.

tests/storage/objects/test_fence_model.py finds the first twelve in every order of steps. Here each is caught in what
brokers do: by the test file that it names, else by machines that share a store.

A function's name is the bug that it plants; its docstring says what comes of it, or where it is known from.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from fencepost.broker.net.server import Server
from fencepost.broker.ownership.other_nodes import OtherNodes
from fencepost.broker.ownership.silence import Silence
from fencepost.broker.rounds import Rounds
from fencepost.broker.topics.topics import Topics
from fencepost.broker.transactions.awaited_offsets import AwaitedOffsets
from fencepost.effects.objects.deadlines import DEADLINES_S, Deadlines
from fencepost.storage.objects import fence, restoring
from fencepost.storage.objects.creating import RoundCreation
from fencepost.storage.objects.epochs import Epochs
from fencepost.storage.objects.errors import Overtaken
from fencepost.storage.objects.fence import Answer, Owner, Phase, Step, Taker
from fencepost.storage.objects.points import Collecting
from fencepost.storage.objects.source import JournalOfObjects
from fencepost.storage.objects.takeover import ScanOfObjects, Takeover
from simulation.planting import around, breaks, caught_in_store, killed_by, replaced

TAKEOVER = "tests/storage/objects/test_takeover.py"
OTHER_NODES = "tests/broker/ownership/test_other_nodes.py"
AWAITED = "tests/broker/transactions/test_awaited_offsets.py"
FENCE = "tests/storage/objects/test_fence.py"
ONE_OWNER = "store.md: what a consumer was shown is in the log of whoever takes over"
NAMED = "store.md: **Objects that are lost or damaged** are named, and nobody takes over"
RESTORED = "store.md: Restored data, wherever its backup came from"
SEALS = "store.md: **No lifecycle rules** that expire or move objects below the prefix"


@killed_by(FENCE)
@breaks(ONE_OWNER)
def fence_the_owner_deletes_rounds_of_the_newest_window(stack: ExitStack) -> None:
    replaced(stack, fence.first_kept, lambda released, start, kept: min(start, released - 1))


@killed_by(TAKEOVER)
@breaks(SEALS)
def fence_seals_are_collected_with_rounds(stack: ExitStack) -> None:
    def garbage(rounds: Mapping[int, bool], below: int) -> list[int]:
        return [number for number in rounds if number < below]

    replaced(stack, fence.garbage, garbage)


@killed_by(FENCE)
@breaks(ONE_OWNER)
def fence_a_seal_goes_to_the_first_name_above_the_lowest_round(stack: ExitStack) -> None:
    def place(rounds: Mapping[int, bool], window: int) -> int:
        first = min((number for number, is_round in rounds.items() if is_round), default=0)
        while first in rounds:
            first += 1
        return first

    replaced(stack, fence.seal_place, place)


@killed_by(FENCE)
@breaks(ONE_OWNER)
def fence_a_round_is_released_though_one_before_it_is_missing(stack: ExitStack) -> None:
    def wrapper(create: Any) -> Any:
        def created(self: Owner, number: int) -> Owner:
            after = create(self, number)
            return after._replace(released=max(after.released, number + 1))

        return created

    around(stack, Owner.create, wrapper)


@killed_by(FENCE)
@breaks(ONE_OWNER)
def fence_the_window_counts_rounds_that_are_on_their_way(stack: ExitStack) -> None:
    def may_begin(self: Owner) -> bool:
        return self.next_round - self.released - len(self.created) < self.window

    def may_overlap(self: Rounds) -> bool:
        return len([write for write in self._in_flight if not write.done]) < 4

    replaced(stack, Owner.may_begin, property(may_begin))
    replaced(stack, Rounds._may_overlap, may_overlap)


@killed_by(TAKEOVER)
@breaks(ONE_OWNER)
def fence_a_name_that_exists_is_taken_for_a_seal(stack: ExitStack) -> None:
    _after_exists(stack, Step.FENCED)


@killed_by(TAKEOVER)
@breaks(ONE_OWNER)
def fence_a_name_that_exists_is_taken_for_the_own_round(stack: ExitStack) -> None:
    _after_exists(stack, Step.CREATED)


def _after_exists(stack: ExitStack, step: Step) -> None:
    def wrapper(after_create: Any) -> Any:
        return lambda answer: step if answer is Answer.EXISTS else after_create(answer)

    around(stack, fence.after_create, wrapper)


@killed_by(TAKEOVER)
@breaks(ONE_OWNER)
def fence_a_seal_is_valid_as_soon_as_it_is_created(stack: ExitStack) -> None:
    def sealed(self: Taker) -> Taker:
        return self._replace(ends=(*self.ends, (self.ending, self.place)))._end(self.ending + 1)

    replaced(stack, Taker.sealed, sealed)


@killed_by(FENCE)
@breaks(ONE_OWNER)
def fence_pages_of_a_listing_may_come_in_no_order(stack: ExitStack) -> None:
    replaced(stack, fence.is_proof, lambda numbers, page=fence.ONE_PAGE: True)


@killed_by(TAKEOVER)
@breaks(NAMED)
def fence_what_is_missing_is_damage_at_once(stack: ExitStack) -> None:
    replaced(stack, Taker.missed, lambda self, overtaken: self._replace(phase=Phase.DAMAGED))


@killed_by(TAKEOVER)
@breaks(ONE_OWNER)
def fence_the_base_is_judged_before_later_epochs_are_ended(stack: ExitStack) -> None:
    replaced(stack, Taker.base, property(lambda self: self.ends[0] if self.ends and self.ends[0][1] else (0, 0)))


@killed_by(TAKEOVER)
@breaks(ONE_OWNER)
def fence_epochs_that_have_not_begun_are_not_ended(stack: ExitStack) -> None:
    def wrapper(end: Any) -> Any:
        return lambda self, epoch: end(self, self.epoch if self.ends else epoch)

    around(stack, Taker._end, wrapper)


# ---- what clients are told -----------------------------------------------------------------------------------


@killed_by(OTHER_NODES)
@breaks(RESTORED)
def fence_a_backup_from_before_the_store_keeps_leader_epoch_0(stack: ExitStack) -> None:
    def wrapper(fence_leader_epoch: Any) -> Any:
        return lambda self, now_ms: fence_leader_epoch(self, now_ms) if self.catalogue.leader_epoch else None

    around(stack, Topics.fence_leader_epoch, wrapper)


@killed_by(OTHER_NODES)
@breaks(RESTORED)
def fence_each_restore_of_a_backup_gets_the_same_leader_epoch(stack: ExitStack) -> None:
    around(stack, Topics.fence_leader_epoch, lambda fence: lambda self, now_ms: fence(self, 0))


@killed_by(OTHER_NODES)
@breaks("store.md: Whoever owned one of the last four epochs is named for 15 minutes from a take-over on")
def fence_metadata_does_not_list_the_former_owner(stack: ExitStack) -> None:
    replaced(stack, OtherNodes.recall, lambda self, epoch, pause, now_ms: None)


@killed_by(AWAITED)
@breaks("store.md: it sees that no offsets come for 2 s, and closes a connection of that producer")
def fence_a_producer_that_waits_for_a_lost_coordinator_is_not_woken(stack: ExitStack) -> None:
    replaced(stack, AwaitedOffsets.added, lambda self, transactional_id, connection: None)


@killed_by(AWAITED)
@breaks("store.md: it sees that no offsets come for 2 s, and closes a connection of that producer")
def fence_a_producer_that_waits_since_before_the_restart_is_not_woken(stack: ExitStack) -> None:
    replaced(stack, AwaitedOffsets.asked, lambda self, transactional_id, connection: None)


# ---- what carries it out -------------------------------------------------------------------------------------


@killed_by(TAKEOVER)
@breaks(SEALS)
def fence_an_empty_object_of_an_older_epoch_is_taken_for_a_round(stack: ExitStack) -> None:
    replaced(stack, Collecting._is_round, lambda self, epochs, place: True)


@killed_by(TAKEOVER)
@breaks(ONE_OWNER)
def fence_a_seal_is_taken_for_a_round(stack: ExitStack) -> None:
    replaced(stack, Epochs.is_round, lambda self, place: True)


@killed_by("tests/storage/objects/test_lost_objects.py")
@breaks(NAMED)
def fence_a_lost_part_of_a_checkpoint_is_taken_for_a_deleted_one(stack: ExitStack) -> None:
    replaced(stack, Takeover.why_gone, lambda self, taken, name: Overtaken(f"{name} is gone"))


@killed_by("tests/storage/objects/test_restoring.py")
@breaks("store.md: makes a plain data directory of it, beside the owner too")
def fence_what_is_restored_names_a_place_in_the_stores_journal(stack: ExitStack) -> None:
    def wrapper(scan: Any) -> Any:
        def scanned(self: Any, start: Any) -> Any:
            before = start.journal_start
            found = scan(self, start)
            start.journal_start = before
            return found

        return scanned

    around(stack, restoring._Source.scan, wrapper)


@killed_by(TAKEOVER)
@breaks("S-68")
def fence_a_takeover_sets_the_stores_age_back_to_the_checkpoints(stack: ExitStack) -> None:
    replaced(stack, ScanOfObjects.age_ms, property(lambda self: 0))


@killed_by("tests/storage/objects/test_looking.py")
@breaks("store.md: makes a plain data directory of it, beside the owner too")
def fence_a_round_that_was_created_since_a_listing_is_taken_for_lost(stack: ExitStack) -> None:
    replaced(stack, Epochs._is_there, lambda self, place: False)


@caught_in_store(3)
@breaks("store.md: with all that was acknowledged before it began")
def fence_a_restore_leaves_out_the_rounds_after_the_checkpoint(stack: ExitStack) -> None:
    def wrapper(scan: Any) -> Any:
        def scanned(self: Any, start: Any) -> Any:
            found = scan(self, start)
            found.runs = []
            return found

        return scanned

    around(stack, restoring._Source.scan, wrapper)


@caught_in_store(3)
@breaks("store.md: An object that is missing or damaged is named and never skipped: the restore is refused")
def fence_a_refused_restore_leaves_what_it_has_written(stack: ExitStack) -> None:
    replaced(stack, restoring.Restoring._remove_all, lambda self: None)


@killed_by(TAKEOVER)
@breaks(NAMED)
def fence_a_lost_round_at_the_end_is_not_looked_for(stack: ExitStack) -> None:
    replaced(stack, Epochs.check_end, lambda self, epoch, end: None)


@killed_by(TAKEOVER)
@breaks(ONE_OWNER)
def fence_a_seal_under_a_rounds_name_is_taken_for_the_round(stack: ExitStack) -> None:
    def wrapper(look: Any) -> Any:
        def looked(self: RoundCreation) -> Any:
            found, reason = look(self)
            return (fence.Found.OWN if found is fence.Found.SEAL else found), reason

        return looked

    around(stack, RoundCreation._look, wrapper)


@killed_by("tests/storage/objects/test_lost_objects.py")
@breaks(NAMED)
def fence_the_epoch_of_a_lost_claim_is_given_again(stack: ExitStack) -> None:
    def create_claim(self: Takeover) -> Any:
        claim = self._claim
        while True:
            newest = max(self._epochs.claimed(), default=0)
            claim = claim._replace(epoch=max(claim.epoch, newest + 1))
            if self._is_ours(claim):
                return claim

    replaced(stack, Takeover._create_claim, create_claim)


@killed_by("tests/storage/objects/test_watched_owner.py")
@breaks("store.md: one takes over, and the others wait for that one")
def fence_a_slower_broker_ends_the_epoch_of_a_faster_one(stack: ExitStack) -> None:
    replaced(stack, Takeover._check_watched, lambda self, begun: None)


@killed_by("tests/storage/objects/test_adopting.py")
@breaks("store.md: with an empty directory waits until that is done")
def fence_an_empty_directory_begins_where_another_is_put(stack: ExitStack) -> None:
    replaced(stack, JournalOfObjects._check_adoption, lambda self: None)


@killed_by("tests/broker/ownership/test_alive.py")
@breaks("store.md: **If the owner is cut off from the store, and not from clients**")
def fence_an_owner_that_is_cut_off_keeps_its_clients(stack: ExitStack) -> None:
    replaced(stack, Server.turn_away, lambda self: None)


@killed_by("tests/broker/ownership/test_silence.py")
@breaks("store.md: An owner that has just begun its epoch, and still loads groups and transactions")
def fence_an_owner_that_loads_is_taken_over_from_after_one_lease(stack: ExitStack) -> None:
    def wrapper(saw: Any) -> Any:
        def seen(self: Silence, *given: Any) -> None:
            saw(self, *given)
            self._leases = 1

        return seen

    around(stack, Silence.saw, wrapper)


@killed_by("tests/effects/objects/test_deadlines.py")
@breaks("store.md: **A connection to the store that is lost without a word**")
def fence_every_call_to_the_store_has_the_longest_deadline(stack: ExitStack) -> None:
    replaced(stack, Deadlines.level, lambda self, call, size_bytes: len(DEADLINES_S) - 1)
