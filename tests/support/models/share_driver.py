"""Drives one share partition as the broker does: decide, log, apply. It keeps the log, and replays it at any time."""

from collections.abc import Callable, Sequence
from typing import Any

from fencepost.broker.share import records
from fencepost.broker.share.acquiring import Limits
from fencepost.broker.share.ended import decide_releases, find_acquired, find_expired
from fencepost.broker.share.machine import SharePartition
from fencepost.broker.share.portions import Portions
from fencepost.broker.share.runs import Run, Transaction
from fencepost.broker.share.values import (
    AckRange,
    AcquiredRange,
    Found,
    Snapshot,
    StateBatch,
    Update,
    Wanted,
)

RUNS = 3  # of one step, when locks end
WANTED = Wanted(max_records=500, batch_size=500)


class ShareDriver:
    """A share partition and its log. machine: the current state. log: everything that was logged, oldest first."""

    def __init__(self, start: int = 0, *, limit: int = 5, locks: int = 2_000) -> None:
        self.limit = limit
        self.locks = locks
        self.log: list[tuple[str, Any]] = [("snapshot", Snapshot(0, 0, start, 0, ()))]
        self.machine = self.replay()

    def replay(self, begin: int = 0) -> SharePartition:
        """Return the share partition that a restart builds from the bytes of the log's records, read from position
        `begin` on. Updates before the first snapshot are passed over.
        """
        machine: SharePartition | None = None
        for position, (kind, what) in enumerate(self.log[begin:], begin):
            if kind == "snapshot":
                machine = machine or SharePartition(what.start, what.state_epoch)
                machine.apply_snapshot(records.read_snapshot(records.snapshot_value(what)))
            elif kind == "pending":
                machine = machine or SharePartition(0)
                machine.apply_pending(what[0], position, what[1])
            elif machine is not None and kind == "update":
                machine.apply(records.read_update(records.update_value(what, 0)))
            elif machine is not None:
                machine.settle(what[0], position, commit=what[1])
        assert machine is not None
        return machine

    def restart(self) -> None:
        self.machine = self.replay()

    def _log(self, update: Update | None) -> None:
        if update is not None:
            self.log.append(("update", update))
            self.machine.apply(update)
            self._check_position(update.start, update.complete)

    def _check_position(self, start: int, complete: int) -> None:
        assert self.machine.start == start, "a window begins where its update says"
        assert self.machine.runs.complete == complete, "so many are done with as its update says"

    # ---- what happens ----------------------------------------------------------------------------------------

    def acquire(
        self,
        member: str,
        *found: tuple[int, int] | Found,
        wanted: Wanted = WANTED,
        offset: int | None = None,
        until: int = 30,
    ) -> list[AcquiredRange]:
        batches = [each if isinstance(each, Found) else Found(*each) for each in found]
        limits = Limits(self.limit, self.machine.room(self.locks))
        offset = self.machine.next_offset if offset is None else offset
        acquired, archived = self.machine.decide_acquisition(offset, batches, wanted, limits)
        self._log(self.machine.decide_archive(archived))
        self.machine.acquire(acquired, member, until)
        return acquired

    def acknowledge(
        self,
        member: str,
        *acks: AckRange,
        until: int = 60,
        may_renew: bool = True,
        meanwhile: Callable[[], object] | None = None,
    ) -> None:
        """Acknowledge records as a member. meanwhile: called between two steps of the decision."""
        machine, renewed_until = self.machine, until if may_renew else None
        portions = Portions(
            machine, acks, lambda ranges, above: machine.decide_acks(member, ranges, above, self.limit, renewed_until)
        )
        self._decide(portions, meanwhile)
        if portions.batches:
            start, complete = portions.position()
            self.log.append(("update", Update(start, complete, portions.batches)))
            portions.apply()
            self._check_position(start, complete)
        else:
            portions.apply()

    def acknowledge_in(
        self,
        transaction: Transaction,
        member: str,
        *acks: AckRange,
        meanwhile: Callable[[], object] | None = None,
    ) -> Sequence[StateBatch]:
        portions = portions_in(self.machine, transaction, member, acks)
        self._decide(portions, meanwhile)
        portions.apply_pending(transaction, len(self.log))
        self.log.append(("pending", (transaction, portions.batches)))
        return portions.batches

    def _decide(self, portions: Portions, meanwhile: Callable[[], object] | None) -> None:
        if meanwhile is not None:
            for _ in portions.decide_ahead():
                meanwhile()
            for _ in portions.decide_again():
                meanwhile()
        portions.finish()

    def settle(self, transaction: Transaction, *, commit: bool) -> None:
        archived = None if commit else self.machine.decide_abort(transaction, self.limit)
        self.machine.settle(transaction, len(self.log), commit=commit)
        self.log.append(("marker", (transaction, commit)))
        self._log(archived)

    def release(self, member: str) -> None:
        offset: int | None = self.machine.start
        while offset is not None:
            held = find_acquired(self.machine, member, offset, RUNS)
            self._end_locks(held.runs)
            offset = held.go_on

    def expire(self, now_ms: int) -> None:
        while alarms := self.machine.due_alarms(now_ms, RUNS)[0]:
            self._end_locks(find_expired(self.machine, alarms))

    def _end_locks(self, runs: Sequence[Run]) -> None:
        ending = decide_releases(self.machine, runs, self.limit)
        ending.finish()
        if ending.batches:
            start, complete = ending.position()
            self.log.append(("update", Update(start, complete, ending.batches)))
            ending.apply()
            self._check_position(start, complete)

    def log_begins(self, offset: int) -> None:
        self._log(self.machine.decide_start(offset))

    def snapshot(self, start: int | None = None) -> None:
        """Log a snapshot. start: the offset that an operator sets; None: a snapshot without a change."""
        machine, number = self.machine, len(self.log)
        if start is None:
            made = Snapshot(number, machine.state_epoch, machine.start, machine.runs.complete, machine.durable())
        else:
            made = Snapshot(number, machine.state_epoch + 1, start, 0, ())
        self.log.append(("snapshot", made))
        self.machine.apply_snapshot(made)

    # ---- questions -------------------------------------------------------------------------------------------

    def states(self) -> str:
        """Return one letter for each record of the window: A available, L acquired, K acknowledged, X archived, P
        pending.
        """
        letters = {0: "A", 1: "L", 2: "K", 4: "X", 10: "P"}
        pieces = self.machine.runs.pieces(self.machine.start, self.machine.end)
        return "".join(("A" if one is None else letters[one.state]) * (last - first + 1) for first, last, one in pieces)


def portions_in(machine: SharePartition, transaction: Transaction, member: str, acks: Sequence[AckRange]) -> Portions:
    """Return the steps in which a member's acknowledgements are taken into a transaction."""
    return Portions(machine, acks, lambda ranges, above: machine.decide_pending(member, ranges, above, transaction))


def durable_view(machine: SharePartition) -> object:
    """Return everything of the state that a restart must restore."""
    pending = sorted(
        (each, *run[:2], run[2].deliveries, run[2].becomes)
        for each in machine.transactions
        for run in machine.pending_of(each)
    )
    return machine.start, machine.state_epoch, machine.runs.complete, machine.durable(), pending
