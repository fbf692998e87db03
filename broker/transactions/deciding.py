"""Carries out one decision of the ledger as one unit: the ledger's entry, the end of every transaction it names, and
all their markers.

The rules: all of it is written or nothing. States, records and markers are prepared in steps, so that a decision about
thousands of transactions does not block other requests. These are served in between, so at the end each transaction
that has changed meanwhile is planned again; then the unit is committed and applied in one step. For each transaction
only the last state is logged, because the unit is atomic and nobody could see the states before it.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import is_
from typing import TYPE_CHECKING, NamedTuple

from ...effects.counts import count_text
from ...protocol.batches import Batch
from ...protocol.errors import ErrorCode, KafkaError
from ..topics.participants import Append
from . import records
from .ledger import Entry, Item, Proposal, Verdict, judge, wrong_with
from .states import machine
from .states.transaction import Decision, PartitionKey, Status, Transaction
from .unit import TransactionUnit, marker_of

if TYPE_CHECKING:
    from .ledger_log import Ledger

log = logging.getLogger("fencepost.broker")

MAX_MARKERS = 40_000  # a unit has room for 50,000 parts
ABORTED_AT_ONCE = 50
NAMED = 10  # partitions, in a line of the log
_ENDED = frozenset({Status.COMPLETE_COMMIT, Status.COMPLETE_ABORT})


class Outcome(NamedTuple):
    """The result of a proposal.

    refused: the transactions that cannot end as proposed, each with its error; if there are any, nothing was written.
    """

    verdict: Verdict
    entry: Entry | None
    refused: tuple[tuple[str, ErrorCode], ...] = ()
    aborted: int = 0
    ended: tuple[Item, ...] = ()  # those that were listed and go on, each with its next pair
    deleted: tuple[PartitionKey, ...] = ()  # of held transactions, the rest of which was committed


class Planned(NamedTuple):
    """The end of one transaction, ready to be written.

    txn: the state on which the plan is based; once the id has another state, the plan is out of date.
    """

    txn: Transaction
    decision: Decision
    home: int  # partition of the coordinator's log
    record: tuple[bytes, bytes | None]
    marker: Batch
    marks: list[Append] | None  # its markers; None where a participant has to know of one


class Written(NamedTuple):
    """The encoded batch for one partition of __transaction_state, and the markers of its transactions."""

    plans: list[Planned]
    append: Append
    marks: list[Append]
    not_made: list[Planned]  # whose markers are not among `marks`


class Deciding:
    """Carries out one proposal: call steps() in any number of slices, then finish()."""

    def __init__(self, ledger: "Ledger", proposal: Proposal) -> None:
        self._ledger = ledger
        self._coordinator = ledger.coordinator
        self._proposal = proposal
        self._listed = {item.transactional_id: item for item in proposal.items}
        self._plans: dict[str, Planned] = {}
        self._left = proposal.items  # where it was decided before: those not looked at yet
        self._aborted = 0
        self._written: dict[int, Written] = {}  # by partition of the coordinator's log
        self._up_to_date = False  # whether that is what the plans are now
        self._log_ids: set[int] = set()  # of all logs that were ever to get a marker

    def steps(self) -> Iterator[Callable[[], None]]:
        """Yield the steps that prepare finish(), as functions for the caller to call one by one, with pauses in
        between.

        They plan and encode what finish() writes, and change nothing. Only if this decision was made before, they abort
        the named transactions that still wait for it.
        """
        verdict = self._verdict()
        if verdict is Verdict.ALREADY_DECIDED:
            while self._left:
                yield self._abort_some
        if verdict is not Verdict.DECIDE:
            return
        for name in self._to_end():
            yield partial(self._plan, name)
        for home, plans in self._by_home().items():
            yield partial(self._write, home, plans)
        self._up_to_date = True

    def finish(self) -> Outcome:
        """Write the decision in one unit and apply it. Returns the outcome, also if the ledger refuses the proposal.

        Transactions that have changed since steps() are planned again. Raises KafkaError if the unit cannot be written;
        then nothing was changed.
        """
        entry = self._ledger.entries.get(self._proposal.key)
        verdict = self._verdict()
        if verdict is Verdict.CONFLICT:
            return Outcome(verdict, entry)
        if verdict is Verdict.ALREADY_DECIDED:
            while self._left:
                self._abort_some()
            return Outcome(verdict, entry, aborted=self._aborted, ended=self._find_next_pairs())
        self._plan_anew()
        if refused := self._find_refused():
            return Outcome(verdict, entry, refused)
        return self._commit()

    def _abort_some(self) -> None:
        """Abort the next ABORTED_AT_ONCE of the named transactions that still wait for this decision.

        Called if the decision was made before. These transactions were prepared after it, so they can no longer commit.
        """
        some, self._left = self._left[:ABORTED_AT_ONCE], self._left[ABORTED_AT_ONCE:]
        self._aborted += self._ledger.abort_what_waits(self._proposal, some)

    def _verdict(self) -> Verdict:
        """Return whether the proposal is new, repeats the ledger's present entry for its key, or conflicts with it."""
        return judge(self._ledger.entries.get(self._proposal.key), self._proposal)

    def _to_end(self) -> list[str]:
        """Return the ids whose transactions to end: those the proposal names, then all others that wait under its key
        for its number or a lower one.
        """
        waiting = self._coordinator.prepared.up_to(self._proposal.key, self._proposal.number)
        return [*self._listed, *(name for name in waiting if name not in self._listed)]

    def _plan(self, name: str) -> None:
        """Plan the end of one transaction. One that cannot end as proposed gets no plan; finish() then refuses the
        proposal if it names the transaction. Nor does a held one that the proposal does not name.
        """
        txn = self._coordinator.transactions.get(name)
        item = self._listed.get(name)
        self._plans.pop(name, None)
        self._up_to_date = False
        if txn is None or txn.prepared is None:
            return
        if item is None and txn.prepared.hold:
            return
        if item is not None and wrong_with(item, txn, self._proposal, self._ledger.logs.__contains__):
            return
        given = self._coordinator.inputs(name)
        decision = machine.settle_prepared(txn, self._proposal.commit and item is not None, given)
        assert decision.marker is not None, "nothing is Prepared without a partition"
        home, key = self._coordinator.home(name)
        value = None if decision.gone else records.value(decision.states[-1])
        marker = marker_of(decision.marker, given.now_ms)
        self._log_ids.update(txn.partitions.values())
        self._plans[name] = Planned(txn, decision, home, (key, value), marker, self._marks(txn, marker))

    def _marks(self, txn: Transaction, marker: Batch) -> list[Append] | None:
        """Return the markers that end the transaction, one for each of its partitions.

        Returns None if a partition is offline, deleted or owned by a participant (such as the log of a group's
        offsets); _mark() then makes the markers when the unit is written.
        """
        logs, partitions = self._ledger.logs, txn.partitions
        if any(topic in self._coordinator.participants for topic, _ in partitions) or not logs.keys() >= set(
            partitions.values()
        ):
            return None
        return [(logs[log_id], marker) for log_id in partitions.values()]

    def _by_home(self) -> dict[int, list[Planned]]:
        """Group the planned transactions by the partition of __transaction_state that has their states."""
        homes: dict[int, list[Planned]] = {}
        for plan in self._plans.values():
            homes.setdefault(plan.home, []).append(plan)
        return homes

    def _write(self, home: int, plans: list[Planned]) -> None:
        """Encode the states and markers of these transactions, for one partition of __transaction_state. Nothing is
        committed yet.
        """
        contents, now_ms = [plan.record for plan in plans], self._ledger.now_ms()
        append = self._coordinator.topic.append_of(home, contents, now_ms=now_ms)
        marks = [mark for plan in plans for mark in plan.marks or ()]
        self._written[home] = Written(plans, append, marks, [plan for plan in plans if plan.marks is None])

    def _plan_anew(self) -> None:
        """Plan again the transactions whose state has changed since they were planned; plan those not planned yet."""
        plans, now = self._plans, self._coordinator.transactions.get
        for name in [name for name, plan in plans.items() if plan.txn is not now(name)]:
            del plans[name]
            self._up_to_date = False
        for name in self._to_end():
            if name not in plans:
                self._plan(name)

    def _find_refused(self) -> tuple[tuple[str, ErrorCode], ...]:
        """Return (id, error) for each named transaction that cannot end as proposed, and for each held one (which
        others may not abort) that the proposal does not name.

        If there is one, finish() writes nothing.
        """
        transactions, is_there, plans = self._coordinator.transactions, self._ledger.logs.__contains__, self._plans
        gone = {log_id for log_id in self._log_ids if not is_there(log_id)}
        # If a commit would leave out a deleted partition, planned transactions are checked again, too: only held ones
        # may be committed without it.
        whole = not self._proposal.commit or gone.isdisjoint(self._marked_logs() if gone else ())
        held = self._coordinator.prepared.held_up_to(self._proposal.key, self._proposal.number)
        return (
            *(
                (name, error)
                for name, item in self._listed.items()
                if (not whole or name not in plans)
                and (error := wrong_with(item, transactions.get(name), self._proposal, is_there))
            ),
            *((name, ErrorCode.CONCURRENT_TRANSACTIONS) for name in held if name not in self._listed),
        )

    def _marked_logs(self) -> set[int]:
        """Return the ids of all logs that get a marker."""
        return {log_id for plan in self._plans.values() for log_id in plan.txn.partitions.values()}

    def _commit(self) -> Outcome:
        """Log and apply the decision, with the ends of its transactions, in one unit (one journal entry). Returns what
        was ended, and the partitions left out because their topics are deleted.
        """
        proposal, ledger = self._proposal, self._ledger
        written, deleted = self._write_anew(), self._find_deleted()
        now_ms = ledger.now_ms()
        entry = Entry(proposal.number, proposal.owner, proposal.digest, proposal.commit, now_ms)
        unit = self._coordinator.new_unit()
        unit.add(ledger.append_of(proposal.key, entry))
        for each in written:
            unit.add(each.append)
        self._mark(unit, written, now_ms)
        unit.commit()
        ledger.apply(proposal.key, entry)
        self._coordinator.count_ended(plan.decision for plan in self._plans.values())
        for name, plan in self._plans.items():
            self._coordinator.apply(name, None if plan.decision.gone else plan.decision.states[-1])
        if deleted:
            log.warning(
                "decision %d under %.200r is committed without %s (%s), deleted before",
                proposal.number,
                proposal.key,
                ", ".join(f"{topic}-{index}" for topic, index in deleted[:NAMED]),
                count_text(len(deleted), "partition", "partitions"),
            )
        aborted = len(self._plans) - len(self._listed)  # those that the proposal does not name
        return Outcome(Verdict.DECIDE, entry, aborted=aborted, ended=self._find_next_pairs(), deleted=deleted)

    def _find_deleted(self) -> tuple[PartitionKey, ...]:
        """Return those partitions of the transactions to be committed whose topics have been deleted."""
        return tuple(
            key
            for plan in self._plans.values()
            if plan.decision.marker is not None and plan.decision.marker.commit
            for key, log_id in plan.txn.partitions.items()
            if log_id not in self._ledger.logs
        )

    def _find_next_pairs(self) -> tuple[Item, ...]:
        """Return each named id whose transaction has ended and that has done nothing since, with the producer id and
        epoch that its producer uses next.

        An id that was initialised again is left out, because it belongs to another producer now.
        """
        found = []
        for name, item in self._listed.items():
            txn = self._coordinator.transactions.get(name)
            if txn is not None and txn.status in _ENDED and txn.is_last(item.producer_id, item.producer_epoch):
                found.append(Item(name, txn.producer_id, txn.producer_epoch))
        return tuple(found)

    def _write_anew(self) -> list[Written]:
        """Return all that is to be written, by partition of __transaction_state.

        What steps() encoded is used where its plans are unchanged. Raises KafkaError INVALID_REQUEST if there are more
        than MAX_MARKERS markers.
        """
        if not self._up_to_date:
            homes = self._by_home()
            for home, plans in homes.items():
                made = self._written.get(home)
                if made is None or len(made.plans) != len(plans) or not all(map(is_, made.plans, plans)):
                    self._write(home, plans)
            self._written = {home: self._written[home] for home in homes}
        written = list(self._written.values())
        markers = sum(len(each.marks) + sum(len(plan.txn.partitions) for plan in each.not_made) for each in written)
        if markers > MAX_MARKERS:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"{markers} partitions to mark in one decision, {MAX_MARKERS} are allowed"
            )
        return written

    def _mark(self, unit: TransactionUnit, written: Sequence[Written], now_ms: int) -> None:
        """Add all markers to the unit: those that steps() made, and those that it left to this method (see _marks()).

        If any partition is offline or deleted now, all markers are added by unit.mark(), which treats such partitions
        as they need. Their state can no longer change before the commit.
        """
        logs = self._ledger.logs
        odd = {log_id for log_id in self._log_ids if log_id not in logs or logs[log_id].offline is not None}
        for each in written:
            if not odd:
                unit.add_marks(each.marks)
            for plan in each.plans if odd else each.not_made:
                assert plan.decision.marker is not None
                unit.mark(plan.decision.marker, now_ms, made=plan.marker)
