"""What each event does to a share record in each state, and random lives of a share partition beside a naive one.

A letter of states(): A available, L acquired, K acknowledged, X archived, P pending.
"""

from unittest import mock

import pytest
from fencepost.broker.share import portions
from fencepost.broker.share.values import AckRange, AckType, AcquiredRange, Found, State, StateBatch, Wanted
from fencepost.protocol.errors import ErrorCode, KafkaError
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from naive_share_partition import NaiveSharePartition, Record, Refused
from share_driver import ShareDriver, durable_view

GAP, ACCEPT, RELEASE, REJECT, RENEW = AckType
T, U = (0, 7), (0, 8)


def ack(first: int, last: int, *types: int) -> AckRange:
    return AckRange(first, last, types)


def driver_in(state: str, deliveries: int = 1, limit: int = 5) -> ShareDriver:
    """Return a window whose record 1 is in this state. Records 0 and 2 stay acquired by "other", so it cannot move."""
    driver = ShareDriver(limit=limit)
    driver.acquire("me", (1, 1), offset=1)
    for _ in range(deliveries - 1):
        driver.acknowledge("me", ack(1, 1, RELEASE))
        driver.acquire("me", (1, 1), offset=1)
    driver.acquire("other", (0, 0), offset=0)
    driver.acquire("other", (2, 2), offset=2)
    if state in "AKX":
        driver.acknowledge("me", ack(1, 1, {"A": RELEASE, "K": ACCEPT, "X": REJECT}[state]))
    elif state == "P":
        driver.acknowledge_in(T, "me", ack(1, 1, ACCEPT))
    assert driver.states() == f"L{state}L"
    return driver


def error_of(call: object) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        call()  # type: ignore[operator]
    return refused.value.code


# ---- the table -------------------------------------------------------------------------------------------------

AFTER = {ACCEPT: "K", REJECT: "X", GAP: "X", RELEASE: "A", RENEW: "L"}  # the state after an acknowledgement


@pytest.mark.parametrize("kind", AFTER)
@pytest.mark.parametrize("state", "ALPKX")
def test_only_acquired_share_records_can_be_acknowledged(state: str, kind: AckType) -> None:
    driver = driver_in(state)
    if state == "L":
        driver.acknowledge("me", ack(1, 1, kind))
        assert driver.states() == f"L{AFTER[kind]}L"
    else:
        assert error_of(lambda: driver.acknowledge("me", ack(1, 1, kind))) is ErrorCode.INVALID_RECORD_STATE
        assert driver.states() == f"L{state}L"


@pytest.mark.parametrize("kind", AFTER)
def test_only_the_member_that_acquired_a_record_can_acknowledge_it(kind: AckType) -> None:
    driver = driver_in("L")
    assert error_of(lambda: driver.acknowledge("somebody", ack(1, 1, kind))) is ErrorCode.INVALID_RECORD_STATE
    assert driver.states() == "LLL"


@pytest.mark.parametrize(("deliveries", "after"), [(1, "A"), (2, "X")])
@pytest.mark.parametrize("how", ["release", "session ends", "lock expires", "abort"])
def test_released_records_are_delivered_again_until_the_delivery_limit(how: str, deliveries: int, after: str) -> None:
    driver = driver_in("L", deliveries, limit=2)
    if how == "release":
        driver.acknowledge("me", ack(1, 1, RELEASE))
    elif how == "session ends":
        driver.release("me")
    elif how == "lock expires":
        driver.acknowledge("other", ack(0, 0, RENEW), ack(2, 2, RENEW))
        driver.expire(30)
    else:
        driver.acknowledge_in(T, "me", ack(1, 1, ACCEPT))
        driver.settle(T, commit=False)
    assert driver.states() == f"L{after}L"


@pytest.mark.parametrize("state", "APKX")
@pytest.mark.parametrize("how", ["session ends", "lock expires"])
def test_the_end_of_a_share_session_or_lock_changes_only_acquired_records(how: str, state: str) -> None:
    driver = driver_in(state)
    driver.acknowledge("other", ack(0, 0, RENEW), ack(2, 2, RENEW))
    driver.release("me") if how == "session ends" else driver.expire(59)
    assert driver.states() == f"L{state}L"


@pytest.mark.parametrize("kind", [ACCEPT, REJECT])
@pytest.mark.parametrize("state", "ALPKX")
def test_only_acquired_records_can_become_pending(state: str, kind: AckType) -> None:
    driver = driver_in(state)
    if state == "L":
        assert error_of(lambda: driver.acknowledge_in(T, "other", ack(1, 1, kind))) is ErrorCode.INVALID_RECORD_STATE
        driver.acknowledge_in(T, "me", ack(1, 1, kind))
        assert driver.states() == "LPL"
        driver.settle(T, commit=True)
        assert driver.states() == ("LKL" if kind is ACCEPT else "LXL")
    else:
        assert error_of(lambda: driver.acknowledge_in(U, "me", ack(1, 1, kind))) is ErrorCode.INVALID_RECORD_STATE
        assert driver.states() == f"L{state}L"


@pytest.mark.parametrize("kind", [GAP, RELEASE, RENEW])
def test_a_transaction_can_only_accept_or_reject_share_records(kind: AckType) -> None:
    driver = driver_in("L")
    assert error_of(lambda: driver.acknowledge_in(T, "me", ack(1, 1, kind))) is ErrorCode.INVALID_REQUEST


def test_a_transaction_cannot_acknowledge_a_record_twice() -> None:
    driver = driver_in("P")
    assert error_of(lambda: driver.acknowledge_in(T, "me", ack(1, 1, ACCEPT))) is ErrorCode.INVALID_RECORD_STATE


@pytest.mark.parametrize("state", "ALPKX")
@pytest.mark.parametrize("commit", [True, False])
def test_the_end_of_a_transaction_decides_only_its_own_pending_records(state: str, commit: bool) -> None:
    driver = driver_in(state)
    driver.settle(U, commit=commit)
    assert (driver.states(), driver.machine.next_offset) == (f"L{state}L", 1 if state == "A" else 3)
    driver.settle(T, commit=commit)
    after = "KA"[not commit] if state == "P" else state
    assert (driver.states(), driver.machine.next_offset) == (f"L{after}L", 1 if after == "A" else 3)


@pytest.mark.parametrize("state", "ALPKX")
def test_records_below_the_log_start_are_dropped_from_the_share_state(state: str) -> None:
    driver = driver_in(state)
    driver.log_begins(2)
    assert (driver.machine.start, driver.states()) == (2, "L")
    driver.settle(T, commit=True)
    assert driver.machine.transactions == []
    driver.acknowledge("me", ack(1, 1, ACCEPT))  # KAFKA-19859: a success, and ignored
    assert (driver.machine.start, driver.states()) == (2, "L")


@pytest.mark.parametrize(("state", "after"), [("A", "A"), ("L", "A"), ("P", "P"), ("K", "K"), ("X", "X")])
def test_a_restart_drops_share_locks_and_the_deliveries_they_counted(state: str, after: str) -> None:
    driver = driver_in(state, 2)
    driver.restart()
    run = driver.machine.runs.at(1)
    assert run is not None
    assert driver.states() == f"A{after}"
    assert run[2].deliveries == (1 if state == "L" else 2)


@pytest.mark.parametrize(("state", "after"), [("A", "X"), ("L", "L"), ("P", "P"), ("K", "K"), ("X", "X")])
def test_only_available_share_records_are_archived_if_their_offsets_have_no_data(state: str, after: str) -> None:
    driver = driver_in(state)
    assert driver.acquire("me", Found(0, 2, is_data=False), offset=0) == []
    assert driver.states() == f"L{after}L"


# ---- the window ------------------------------------------------------------------------------------------------


def test_the_share_window_starts_at_the_first_unfinished_record() -> None:
    driver = ShareDriver()
    driver.acquire("me", (0, 9))
    driver.acknowledge("me", ack(3, 5, ACCEPT), ack(8, 8, REJECT))
    assert (driver.machine.start, driver.states()) == (0, "LLLKKKLLXL")
    driver.acknowledge("me", ack(0, 2, ACCEPT))
    assert (driver.machine.start, driver.states()) == (6, "LLXL")
    driver.acknowledge("me", ack(6, 7, GAP), ack(9, 9, ACCEPT))
    assert (driver.machine.start, driver.machine.end, driver.machine.next_offset) == (10, 9, 10)


def test_several_acknowledgement_types_for_a_range_apply_one_to_each_offset() -> None:
    driver = ShareDriver()
    driver.acquire("me", (0, 4))
    driver.acknowledge("me", ack(1, 4, ACCEPT, RELEASE, RELEASE, GAP))
    assert driver.states() == "LKAAX"


@pytest.mark.parametrize(
    "acks",
    [
        [ack(2, 1, ACCEPT)],
        [ack(2, 3, ACCEPT), ack(0, 1, ACCEPT)],
        [ack(0, 3)],
        [ack(0, 3, ACCEPT, ACCEPT)],
        [ack(0, 0, 5)],
        [ack(0, 0, -1)],
        [ack(4, 5, ACCEPT)],
        [ack(5, 5, ACCEPT)],
    ],
)
def test_malformed_acknowledgements_are_refused_and_change_nothing(acks: list[AckRange]) -> None:
    driver = ShareDriver()
    driver.acquire("me", (0, 4))
    assert error_of(lambda: driver.acknowledge("me", *acks)) is ErrorCode.INVALID_REQUEST
    assert driver.states() == "LLLLL"


def test_one_invalid_range_refuses_all_acknowledgements_of_a_partition() -> None:
    driver = ShareDriver()
    driver.acquire("me", (0, 4))
    driver.acknowledge("me", ack(2, 2, ACCEPT))
    code = error_of(lambda: driver.acknowledge("me", ack(0, 1, ACCEPT), ack(2, 4, ACCEPT)))
    assert (code, driver.states()) == (ErrorCode.INVALID_RECORD_STATE, "LLKLL")
    code = error_of(lambda: driver.acknowledge("me", ack(0, 1, ACCEPT), ack(1, 1, ACCEPT)))
    assert (code, driver.states()) == (ErrorCode.INVALID_RECORD_STATE, "LLKLL")


def test_lock_renewal_is_refused_where_the_group_disables_it() -> None:
    driver = driver_in("L")
    code = error_of(lambda: driver.acknowledge("me", ack(1, 1, RENEW), may_renew=False))
    assert code is ErrorCode.INVALID_RECORD_STATE


def test_kafka_19476_a_renewed_lock_lasts_longer_and_an_acknowledgement_ends_a_lock() -> None:
    driver = ShareDriver()
    driver.acquire("me", (0, 4), until=30)
    driver.acknowledge("me", ack(1, 1, RENEW), until=60)
    driver.acknowledge("me", ack(2, 2, ACCEPT))
    driver.expire(29)
    assert driver.states() == "LLKLL"
    driver.expire(30)
    assert driver.states() == "ALKAA"
    assert driver.machine.alarm_ms == 60
    driver.expire(60)
    assert driver.states() == "AAKAA"
    assert driver.machine.alarm_ms is None


def test_kafka_19953_a_session_end_releases_only_its_own_records() -> None:
    driver = ShareDriver()
    driver.acquire("me", (0, 1))
    driver.acquire("other", (2, 3))
    driver.acquire("me", (4, 5))
    driver.release("me")
    assert driver.states() == "AALLAA"


def test_kafka_19972_the_delivery_count_does_not_fall_when_records_are_released() -> None:
    driver = ShareDriver()
    for deliveries in (1, 2, 3):
        assert driver.acquire("me", (0, 0)) == [AcquiredRange(0, 0, deliveries)]
        driver.release("me")


def test_altering_the_share_start_offset_drops_locks_and_delivery_counts() -> None:
    driver = ShareDriver()
    driver.acquire("me", (0, 9))
    driver.acknowledge("me", ack(0, 4, ACCEPT), ack(7, 7, RELEASE))
    driver.snapshot(start=2)
    assert (driver.machine.start, driver.machine.end, driver.machine.next_offset) == (2, 1, 2)
    assert driver.acquire("other", (0, 9)) == [AcquiredRange(2, 9, 1)]
    assert error_of(lambda: driver.acknowledge("me", ack(8, 9, ACCEPT))) is ErrorCode.INVALID_RECORD_STATE


def test_applying_a_share_snapshot_keeps_locks_and_pending_records() -> None:
    driver = ShareDriver()
    driver.acquire("me", (0, 9))
    driver.acknowledge("me", ack(3, 3, ACCEPT), ack(5, 5, RELEASE))
    driver.acknowledge_in(T, "me", ack(0, 1, ACCEPT), ack(8, 8, REJECT))
    driver.snapshot()
    assert driver.states() == "PPLKLALLPL"
    driver.restart()  # it ends the locks; record 9, which was only locked, is not in the window any more
    assert driver.states() == "PPAKAAAAP"
    driver.settle(T, commit=True)
    assert (driver.machine.start, driver.states()) == (2, "AKAAAAX")


def test_a_transaction_marker_decides_no_share_record_that_became_pending_after_it() -> None:
    """A replay may apply a marker although a snapshot has already restored acknowledgements that came after it."""
    driver = ShareDriver()
    driver.acquire("me", (0, 1))
    driver.machine.apply_pending(T, 200, [StateBatch(0, 0, State.ACKNOWLEDGED, 1, "me")])
    driver.machine.settle(T, 100, commit=True)
    assert (driver.states(), driver.machine.transactions) == ("PL", [T])
    driver.machine.settle(T, 201, commit=True)
    assert (driver.states(), driver.machine.transactions) == ("L", [])


def test_a_transactions_end_decides_a_range_that_the_log_start_has_cut() -> None:
    driver = ShareDriver()
    driver.acquire("me", (0, 3))
    driver.acknowledge_in(T, "me", ack(0, 3, ACCEPT))
    driver.log_begins(2)
    driver.settle(T, commit=False)
    assert (driver.states(), driver.machine.transactions) == ("AA", [])


def test_an_abort_archives_a_record_once_although_its_acknowledgement_was_replayed() -> None:
    driver = driver_in("L", 2, limit=2)
    for position in (7, 7, 9):  # the second time as a replay does it
        driver.machine.apply_pending(T, position, [StateBatch(1, 1, State.ACKNOWLEDGED, 2, "me")])
    archived = driver.machine.decide_abort(T, 2)
    assert archived is not None
    assert [batch[:2] for batch in archived.batches] == [(1, 1)]


# ---- lives -----------------------------------------------------------------------------------------------------

OFFSETS = 20
LETTERS = {0: "A", 1: "L", 2: "K", 4: "X", 10: "P"}

offsets = st.integers(0, OFFSETS - 1)
members = st.sampled_from(["me", "other"])
transactions = st.sampled_from([T, U])


class ShareLife(RuleBasedStateMachine):
    """A share partition and a naive one, which must agree on each offset after each step, also after a replay."""

    def __init__(self) -> None:
        super().__init__()
        self.few_ranges = mock.patch.object(portions, "RUNS", 2)
        self.few_ranges.start()
        self.driver = ShareDriver(limit=3, locks=12)
        self.naive = NaiveSharePartition(0)
        self.now_ms = 0
        self.pruned_to = 0
        self.deliveries: dict[int, int] = {}

    def teardown(self) -> None:
        self.few_ranges.stop()

    @rule(member=members, sizes=st.lists(st.integers(1, 4), min_size=1, max_size=6), data=st.data())
    def somebody_fetches(self, member: str, sizes: list[int], data: st.DataObject) -> None:
        machine = self.driver.machine
        wanted = Wanted(data.draw(st.integers(1, 8)), data.draw(st.integers(1, 4)), data.draw(st.booleans()))
        offset = machine.next_offset
        if offset > machine.end and machine.room(self.driver.locks) <= 0:
            return
        at = max(0, offset - data.draw(st.integers(0, 2)))
        found = []
        for size in sizes:
            kind = data.draw(st.sampled_from(("data", "data", "data", "control", "hole")))
            if kind != "hole":
                found.append(Found(at, at + size - 1, kind == "data"))
            at += size
        before = len(self.driver.log)
        until = self.now_ms + data.draw(st.integers(1, 4))
        acquired = self.driver.acquire(member, *found, wanted=wanted, offset=offset, until=until)
        for _, update in self.driver.log[before:]:
            for batch in update.batches:
                self.naive.archive(batch.first, batch.last)
        for first, last, deliveries in acquired:
            self.naive.acquire(first, last, member, until)
            assert all(self.naive.records[each].deliveries == deliveries for each in range(first, last + 1))
        count = sum(last - first + 1 for first, last, _ in acquired)
        assert not wanted.exact or count <= wanted.max_records
        if found and found[0].is_data and found[0].first <= offset <= found[0].last:
            assert count, "available records that were read are delivered"

    @rule(member=members, data=st.data())
    def somebody_acknowledges(self, member: str, data: st.DataObject) -> None:
        self._acknowledge(member, data, tuple(AckType), None)

    @rule(member=members, transaction=transactions, data=st.data())
    def somebody_acknowledges_in_a_transaction(
        self, member: str, transaction: tuple[int, int], data: st.DataObject
    ) -> None:
        self._acknowledge(member, data, (ACCEPT, REJECT), transaction)

    def _acknowledge(
        self, member: str, data: st.DataObject, kinds: tuple[AckType, ...], transaction: tuple[int, int] | None
    ) -> None:
        machine, types, acks = self.driver.machine, {}, []
        if data.draw(st.booleans()):  # ranges that the member has acquired
            theirs = [run[:2] for run in machine.runs if run[2].member == member and run[2].state == 1]
        else:
            theirs = [tuple(sorted((data.draw(offsets), data.draw(offsets))))]
        for first, last in theirs:
            if last > machine.end:
                continue
            given = [data.draw(st.sampled_from(kinds)) for _ in range(first, last + 1)]
            given = given if data.draw(st.booleans()) else given[:1]
            acks.append(AckRange(first, last, given))
            types |= {each: given[(each - first) % len(given)] for each in range(first, last + 1)}
        until = self.now_ms + 3
        try:
            self.naive.acknowledge(member, types, self.driver.limit, until, transaction)
        except Refused:
            refused = True
        else:
            refused = False

        def really() -> None:
            if transaction is None:
                self.driver.acknowledge(member, *acks, until=until)
            else:
                self.driver.acknowledge_in(transaction, member, *acks)

        if refused:
            assert error_of(really) is ErrorCode.INVALID_RECORD_STATE
        else:
            really()

    @rule(transaction=transactions, commit=st.booleans())
    def a_transaction_ends(self, transaction: tuple[int, int], commit: bool) -> None:
        self.driver.settle(transaction, commit=commit)
        self.naive.settle(transaction, self.driver.limit, commit=commit)

    @rule(member=members)
    def a_session_ends(self, member: str) -> None:
        self.driver.release(member)
        self.naive.release(member, self.driver.limit)

    @rule(ms=st.integers(0, 3))
    def time_goes_on(self, ms: int) -> None:
        self.now_ms += ms
        self.driver.expire(self.now_ms)
        self.naive.expire(self.now_ms, self.driver.limit)

    @rule(offset=offsets)
    def the_log_begins_later(self, offset: int) -> None:
        if offset <= self.driver.machine.start + 4:
            self.driver.log_begins(offset)
            self.naive.log_begins(offset)

    @rule()
    def the_broker_restarts(self) -> None:
        self.driver.restart()
        self.naive.restart()
        self.deliveries = {each: record.deliveries for each, record in self.naive.records.items()}

    @rule()
    def a_snapshot_is_logged(self) -> None:
        self._note_prune_position()
        self.driver.snapshot()

    @rule(offset=offsets)
    def somebody_sets_the_offset(self, offset: int) -> None:
        if not self.driver.machine.transactions:
            self._note_prune_position()
            self.driver.snapshot(start=offset)
            self.naive.begin_anew(offset)
            self.deliveries = {}

    @invariant()
    def each_offset_is_as_the_rules_say(self) -> None:
        machine, naive = self.driver.machine, self.naive
        assert (machine.start, machine.runs.complete) == (naive.start, naive.complete)
        assert machine.end >= naive.end
        for first, last, one in machine.runs.pieces(machine.start, machine.end):
            state, deliveries = ("A", 0) if one is None else (LETTERS[one.state], one.deliveries)
            for offset in range(first, last + 1):
                record = naive.records.get(offset, Record())
                assert (state, deliveries) == (record.state, record.deliveries), offset
                if one is not None:
                    assert (one.member if state == "L" else "") == (record.member if state == "L" else "")
                    assert one.deadline_ms == record.deadline_ms
                    assert one.transaction == record.transaction
        open_ones = [
            each for each in range(machine.start, machine.end + 2) if naive.records.get(each, Record()).state == "A"
        ]
        assert machine.next_offset == open_ones[0]

    @invariant()
    def counts_never_fall(self) -> None:
        for offset, record in self.naive.records.items():
            assert record.deliveries >= self.deliveries.get(offset, 0)
        self.deliveries = {each: record.deliveries for each, record in self.naive.records.items()}

    @invariant()
    def a_replay_restores_the_durable_state(self) -> None:
        live = durable_view(self.driver.machine)
        assert durable_view(self.driver.replay()) == live
        assert durable_view(self.driver.replay(self.pruned_to)) == live

    def _note_prune_position(self) -> None:
        """Note where the log may begin after the next snapshot: there, or at the earliest update still pending."""
        earliest = self.driver.machine.earliest_pending
        self.pruned_to = len(self.driver.log) if earliest is None else earliest

    @invariant()
    def an_alarm_is_set_for_each_lock(self) -> None:
        deadlines = [run[2].deadline_ms for run in self.driver.machine.runs if run[2].state == 1]
        if deadlines:
            alarm_ms = self.driver.machine.alarm_ms
            assert alarm_ms is not None
            assert alarm_ms <= min(deadlines)


TestShareLife = pytest.mark.slow(ShareLife.TestCase)
TestShareLife.settings = settings(max_examples=40, stateful_step_count=30)


@pytest.mark.long
def test_many_random_sequences_of_share_operations_keep_the_invariants() -> None:
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(ShareLife, settings=settings(max_examples=2_000, stateful_step_count=50))
