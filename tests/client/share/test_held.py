"""The records that a consumer of a share group has, against a model: a dict of offsets and what became of each."""

from itertools import pairwise
from typing import Any

import pytest
from fencepost.client.errors import IllegalStateError, RecordNotHeldError
from fencepost.client.share.held import NEVER_MS, Acks, Delivery, Held, Session, in_ranges
from fencepost.client.share.membership import Place
from fencepost.client.values import AcknowledgeType, TopicPartition
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from long_runs import share_of

ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType
PLACE, TP = Place(b"t" * 16, 0), TopicPartition("orders", 0)
SESSION = Session(0, 0)
LOCK_MS, HOLD_MS = 30_000, 300_000


def add(held: Held, first: int, last: int, now_ms: float = 0, session: Session = SESSION, **more: Any) -> Delivery:
    records = more.pop("records", range(first, last + 1))
    return held.add(TP, PLACE, session, [(first, last, 1)], records, now_ms, LOCK_MS)


def given_out(held: Held, first: int, last: int, now_ms: float = 0) -> Delivery:
    delivery = add(held, first, last, now_ms)
    for offset in range(first, last + 1):
        assert held.give(delivery, offset, now_ms) is not None
    return delivery


def listed(acks: Acks) -> list[tuple[int, int, list[int]]]:
    return [(one.first_offset, one.last_offset, list(one.acknowledge_types)) for one in acks.get(PLACE, [])]


def test_acknowledgements_are_sent_as_ranges_of_one_type_and_each_once() -> None:
    held = Held(HOLD_MS)
    number = given_out(held, 0, 5).number
    for offset, kind in [(4, ACCEPT), (0, ACCEPT), (1, ACCEPT), (2, REJECT), (5, RELEASE)]:
        held.acknowledge(number, offset, kind, 1)
    assert listed(held.drain(SESSION)) == [(0, 1, [1]), (2, 2, [3]), (4, 4, [1]), (5, 5, [2])]
    assert held.drain(SESSION) == {}
    with pytest.raises(RecordNotHeldError, match="offset 0 was acknowledged already"):
        held.acknowledge(number, 0, RELEASE, 1)


def test_a_later_acknowledgement_replaces_one_that_was_not_sent_yet() -> None:
    held = Held(HOLD_MS)
    number = given_out(held, 0, 1).number
    held.acknowledge(number, 0, ACCEPT, 1)
    held.acknowledge(number, 0, REJECT, 1)
    held.acknowledge(number, 1, ACCEPT, 1)
    held.acknowledge(number, 1, RENEW, 1)
    assert listed(held.drain(SESSION)) == [(0, 0, [3])]


def test_offsets_without_a_record_are_reported_as_gaps_at_once() -> None:
    held = Held(HOLD_MS)
    add(held, 0, 5, records={1, 2, 5})
    assert listed(held.drain(SESSION)) == [(0, 0, [0]), (3, 4, [0])]


def test_a_record_whose_lock_has_ended_can_neither_be_returned_nor_acknowledged() -> None:
    held = Held(HOLD_MS)
    delivery = add(held, 0, 1)
    held.give(delivery, 0, 0)
    assert held.give(delivery, 1, LOCK_MS) is None
    with pytest.raises(RecordNotHeldError, match="lock of the record at offset 0 has ended"):
        held.acknowledge(delivery.number, 0, ACCEPT, LOCK_MS)
    with pytest.raises(RecordNotHeldError):
        held.take(delivery.number, 0, LOCK_MS)


def test_acknowledging_an_older_delivery_of_a_redelivered_record_raises() -> None:
    held = Held(HOLD_MS)
    old = given_out(held, 0, 1)
    held.acknowledge(old.number, 1, ACCEPT, 1)
    new = given_out(held, 0, 1, now_ms=10)
    with pytest.raises(RecordNotHeldError):
        held.acknowledge(old.number, 0, ACCEPT, 11)
    assert held.drain(SESSION) == {}
    held.acknowledge(new.number, 0, ACCEPT, 11)
    assert listed(held.drain(SESSION)) == [(0, 0, [1])]


@pytest.mark.parametrize("kind", [ACCEPT, REJECT, RELEASE])
def test_losing_an_unsent_acknowledgement_is_a_failure_unless_it_was_a_release(kind: AcknowledgeType) -> None:
    held = Held(HOLD_MS)
    held.acknowledge(given_out(held, 0, 0).number, 0, kind, 1)
    assert held.end_session(SESSION) == (kind is not RELEASE)
    for come_again in (False, True):
        held = Held(HOLD_MS)
        held.acknowledge(given_out(held, 0, 0).number, 0, kind, LOCK_MS - 1)
        if come_again:
            add(held, 0, 0, LOCK_MS)
        else:
            held.renewals(LOCK_MS)
        assert held.drain(SESSION) == {}
        assert isinstance(held.failure, RecordNotHeldError) is (kind is not RELEASE)


def test_implicitly_accepting_a_record_whose_session_ended_sets_record_not_held() -> None:
    held = Held(HOLD_MS)
    said, late = given_out(held, 0, 0), given_out(held, 1, 1)
    held.acknowledge(said.number, 0, ACCEPT, 1)
    held.drain(SESSION)
    held.accept_returned()
    assert held.failure is None
    assert listed(held.drain(SESSION)) == [(1, 1, [1])]
    given_out(held, 2, 2)
    held.end_session(SESSION)
    held.accept_returned()
    assert isinstance(held.failure, RecordNotHeldError)
    assert late.entries == {}


def test_the_end_of_a_share_session_releases_only_records_acquired_in_it() -> None:
    held = Held(HOLD_MS)
    old, new = given_out(held, 0, 1), add(held, 5, 6, session=Session(0, 1))
    held.acknowledge(old.number, 0, ACCEPT, 1)
    assert held.end_session(SESSION) == 1
    with pytest.raises(RecordNotHeldError):
        held.acknowledge(old.number, 1, ACCEPT, 1)
    assert held.give(new, 5, 1) is not None


def test_records_taken_by_a_transaction_can_be_acknowledged_only_by_it() -> None:
    held = Held(HOLD_MS)
    delivery = given_out(held, 0, 2)
    held.take(delivery.number, 0, 1)
    held.accept_returned()
    assert listed(held.drain(SESSION)) == [(1, 2, [1])]
    for forbidden in (
        lambda: held.acknowledge(delivery.number, 0, ACCEPT, 1),
        lambda: held.take(delivery.number, 0, 1),
    ):
        with pytest.raises(IllegalStateError):
            forbidden()
    held.hand_over([(delivery, 0)], 1)
    with pytest.raises(RecordNotHeldError):
        held.acknowledge(delivery.number, 0, ACCEPT, 1)
    assert (held.drain(SESSION), held.renewals(20_000)) == ({}, {})
    held.remove_sent([(delivery, 0)])
    assert (held.unsent_sessions, held.next_ms()) == ([], NEVER_MS)


def doubted(count: int) -> Held:
    """Return `count` records whose acknowledgements a transaction has sent; whether they arrived is unknown."""
    held = Held(HOLD_MS)
    delivery = given_out(held, 0, count - 1)
    sent = [(held.take(delivery.number, at, 1), at) for at in range(count)]
    held.hand_over(sent, 1)
    held.doubt(sent)
    return held


def test_an_abort_releases_records_whose_acknowledgement_was_sent_except_lost_ones() -> None:
    """A refused release names a partition only, so the client releases halves of the range until the lost record is
    alone.
    """
    held, lost, released = doubted(11), 4, set()
    requests = 0
    while held.has_unsent(SESSION):
        requests += 1
        (one,) = held.drain_doubtful(SESSION, 2)[PLACE]
        assert one.acknowledge_types == [RELEASE]
        asked = set(range(one.first_offset, one.last_offset + 1))
        released |= set() if lost in asked else asked
        held.answered(SESSION, [PLACE] if lost in asked else [])
    assert released == set(range(11)) - {lost}
    assert requests <= 9, "in halves"
    assert held.next_ms() == NEVER_MS


def test_after_an_abort_only_records_whose_lock_has_not_ended_are_released() -> None:
    assert doubted(2).drain_doubtful(SESSION, LOCK_MS) == {}, "the time of the locks is over"
    held = doubted(2)
    held.end_session(SESSION)
    assert (held.drain_doubtful(SESSION, 2), held.unsent_sessions) == ({}, []), "the session's end releases all"
    held = doubted(3)
    again = given_out(held, 1, 1, 2)  # record 1 was released and delivered again
    assert listed(held.drain_doubtful(SESSION, 2)) == [(0, 0, [2]), (2, 2, [2])]
    held.answered(SESSION, ())
    held.acknowledge(again.number, 1, ACCEPT, 3)
    assert listed(held.drain(SESSION)) == [(1, 1, [1])]


def test_put_back_releases_only_records_that_were_not_handed_over_to_the_broker() -> None:
    """A transaction takes records in order to acknowledge them. What was handed over was already sent in it, so the
    transaction's end decides it.
    """
    held = Held(HOLD_MS)
    delivery = given_out(held, 0, 2)
    for offset in (0, 1):
        held.take(delivery.number, offset, 1)
    held.hand_over([(delivery, 0)], 1)
    held.put_back([(delivery, 0), (delivery, 1)])
    assert listed(held.drain(SESSION)) == [(1, 1, [2])]


def test_a_transaction_sends_no_acknowledgement_if_one_records_lock_has_ended() -> None:
    held = Held(HOLD_MS)
    delivery, other = given_out(held, 0, 0), given_out(held, 5, 5, now_ms=20_000)
    held.take(delivery.number, 0, 20_000)
    held.take(other.number, 5, 20_000)
    with pytest.raises(RecordNotHeldError):
        held.hand_over([(other, 5), (delivery, 0)], LOCK_MS)
    held.put_back([(other, 5)])
    assert listed(held.drain(SESSION)) == [(5, 5, [2])]


def test_a_share_consumer_renews_locks_after_two_thirds_of_their_time() -> None:
    held = Held(HOLD_MS)
    delivery = add(held, 0, 3)
    for offset in range(3):
        held.give(delivery, offset, 0)
    held.acknowledge(delivery.number, 0, ACCEPT, 0)
    held.take(delivery.number, 1, 0)
    assert held.next_ms() == 20_000
    assert not held.renewals(19_999)
    renewal = held.renewals(20_000)[SESSION]
    assert listed(renewal.acks) == [(1, 3, [4])]  # taken, returned, not returned yet; the acknowledged one is sent
    assert not held.renewals(20_000)
    held.renewed(renewal, (), 20_100, LOCK_MS)
    assert held.next_ms() == 40_100
    held.acknowledge(delivery.number, 2, ACCEPT, 50_099)
    with pytest.raises(RecordNotHeldError):
        held.acknowledge(delivery.number, 2, ACCEPT, 50_100)


def test_a_returned_records_lock_is_renewed_only_until_max_poll_interval() -> None:
    held = Held(hold_ms=25_000)
    delivery = add(held, 0, 1)
    held.give(delivery, 0, 0)
    held.renewed(held.renewals(20_000)[SESSION], (), 20_000, LOCK_MS)
    # Record 0 was returned more than hold_ms ago; record 1 was not returned yet.
    assert listed(held.renewals(40_000)[SESSION].acks) == [(1, 1, [4])]
    held.acknowledge(delivery.number, 0, RENEW, 41_000)
    assert held.next_ms() == 41_000
    assert listed(held.renewals(41_000)[SESSION].acks) == [(0, 1, [4])]


def test_a_record_whose_lock_renewal_was_refused_is_kept_until_its_lock_ends() -> None:
    held = Held(HOLD_MS)
    delivery = given_out(held, 0, 0)
    held.renewed(held.renewals(20_000)[SESSION], {PLACE}, 20_000, LOCK_MS)
    assert (held.renewals(29_999), held.next_ms()) == ({}, LOCK_MS)
    held.find(delivery.number, 0, 29_999)
    held.renewals(30_000)
    assert held.next_ms() == NEVER_MS


def test_end_session_counts_no_lost_record_for_an_expired_gap_acknowledgement() -> None:
    held = Held(HOLD_MS)
    add(held, 0, 0, records=())
    held.renewals(LOCK_MS)
    assert held.end_session(SESSION) == 0


def test_release_unread_releases_fetched_records_that_were_not_returned() -> None:
    held = Held(HOLD_MS)
    delivery = add(held, 0, 3)
    held.give(delivery, 1, 0)
    held.release_unread()
    assert listed(held.drain(SESSION)) == [(0, 0, [2]), (2, 3, [2])]


@given(st.dictionaries(st.integers(0, 30), st.integers(0, 4)))
def test_in_ranges_joins_neighbouring_offsets_of_equal_acknowledgement_type(kinds: dict[int, int]) -> None:
    ranges = in_ranges(sorted(kinds.items()))
    said = {at: one.acknowledge_types[0] for one in ranges for at in range(one.first_offset, one.last_offset + 1)}
    assert said == kinds
    assert all(
        a.last_offset + 1 < b.first_offset or a.acknowledge_types != b.acknowledge_types for a, b in pairwise(ranges)
    )


class AgainstADict(RuleBasedStateMachine):
    """Random calls beside a dict: offset → (delivery, deadline, what became of it)."""

    def __init__(self) -> None:
        super().__init__()
        self.held = Held(HOLD_MS)
        self.now_ms = 0.0
        self.session = SESSION
        self.model: dict[int, list[Any]] = {}
        self.old: list[tuple[Delivery, int]] = []

    @rule(first=st.integers(0, 12), count=st.integers(1, 5), missing=st.sets(st.integers(0, 16), max_size=2))
    def acquire(self, first: int, count: int, missing: set[int]) -> None:
        offsets = range(first, first + count)
        before = [(entry[0], at) for at, entry in self.model.items() if at in offsets]
        delivery = add(self.held, first, offsets[-1], self.now_ms, self.session, records=set(offsets) - missing)
        self.old += before
        for offset in offsets:
            self.model[offset] = [delivery, self.now_ms + LOCK_MS, 0 if offset in missing else "fetched"]

    @rule(offset=st.integers(0, 16))
    def give(self, offset: int) -> None:
        entry = self.model.get(offset)
        if entry is not None:
            found = self.held.give(entry[0], offset, self.now_ms)
            assert (found is not None) == (entry[2] == "fetched" and self.now_ms < entry[1])
            if found is not None:
                entry[2] = "returned"

    @rule(offset=st.integers(0, 16), kind=st.sampled_from([ACCEPT, RELEASE, REJECT]))
    def acknowledge(self, offset: int, kind: AcknowledgeType) -> None:
        entry = self.model.get(offset)
        if entry is None or entry[2] == "fetched":
            return  # the application has no such record
        try:
            self.held.acknowledge(entry[0].number, offset, kind, self.now_ms)
        except IllegalStateError:
            assert entry[2] == "taken" or self.now_ms >= entry[1]
        else:
            assert entry[2] != "taken"
            assert self.now_ms < entry[1]
            entry[2] = int(kind)

    @rule(offset=st.integers(0, 16))
    def take(self, offset: int) -> None:
        entry = self.model.get(offset)
        if entry is not None and entry[2] == "returned" and self.now_ms < entry[1]:
            self.held.take(entry[0].number, offset, self.now_ms)
            entry[2] = "taken"

    @rule(committed=st.booleans())
    def end_transaction(self, committed: bool) -> None:
        taken = [(entry[0], at) for at, entry in self.model.items() if entry[2] == "taken"]
        late = any(self.now_ms >= self.model[at][1] for _, at in taken)
        if committed and not late:
            self.held.hand_over(taken, self.now_ms)
            self.held.remove_sent(taken)
            for _, at in taken:
                del self.model[at]
        else:
            self.held.put_back(taken)
            for _, at in taken:
                self.model[at][2] = int(RELEASE)

    @rule()
    def send(self) -> None:
        sent = {}
        for one in self.held.drain(self.session).get(PLACE, []):
            sent.update(dict.fromkeys(range(one.first_offset, one.last_offset + 1), one.acknowledge_types[0]))
        said = {at: entry[2] for at, entry in self.model.items() if isinstance(entry[2], int)}
        late = {at for at in said if self.now_ms >= self.model[at][1]}  # which may have been dropped
        assert sent == {at: kind for at, kind in said.items() if at not in late or at in sent}
        for at in said:
            del self.model[at]

    @rule(ms=st.sampled_from([1, 5_000, 20_000, 31_000]), answered=st.booleans())
    def wait(self, ms: int, answered: bool) -> None:
        self.now_ms += ms
        renewals = self.held.renewals(self.now_ms)
        for renewal in renewals.values():
            named = {at for one in renewal.acks[PLACE] for at in range(one.first_offset, one.last_offset + 1)}
            for at in named:
                assert self.model[at][2] in ("fetched", "returned", "taken")
                assert self.now_ms < self.model[at][1]
                if answered:
                    self.model[at][1] = self.now_ms + LOCK_MS
            if answered:
                self.held.renewed(renewal, (), self.now_ms, LOCK_MS)

    @precondition(lambda self: self.model)
    @rule()
    def end_session(self) -> None:
        lost = self.held.end_session(self.session)
        assert lost == sum(entry[2] in (ACCEPT, REJECT) for entry in self.model.values()) or self.some_late()
        self.old += [(entry[0], at) for at, entry in self.model.items()]
        self.model.clear()
        self.session = self.session._replace(stamp=self.session.stamp + 1)

    def some_late(self) -> bool:
        return any(self.now_ms >= entry[1] for entry in self.model.values())

    @invariant()
    def nothing_of_an_old_delivery_is_held(self) -> None:
        for delivery, offset in self.old:
            with pytest.raises(RecordNotHeldError):
                self.held.find(delivery.number, offset, self.now_ms)


AgainstADict.TestCase.settings = settings(max_examples=share_of(60), stateful_step_count=25, deadline=None)
test_any_order_of_calls_does_what_a_dict_of_offsets_does = pytest.mark.slow(AgainstADict.TestCase)
