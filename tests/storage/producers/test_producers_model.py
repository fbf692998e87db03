"""Producer state compared with a reference that keeps everything appended and derives each answer from all of it.

Producers keep five batches in flight over a network that loses, repeats and reorders; they wrap, change epochs, run
transactions; the broker restarts from snapshots, takes snapshots in slices, replays its log and forgets the silent.
"""

import pytest
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.records import Marker
from fencepost.storage.producers.producers import ProducerStates
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from long_runs import share_of
from one_partition import TRANSACTIONAL, OnePartition, contents

WRAP = 2**31
EXPIRATION_MS = 1000


class Reference:
    """The rules for answers, applied to the full list of what was appended."""

    def __init__(self) -> None:
        self.appended: dict[int, list[tuple[int, int, int, int]]] = {}  # producer → (epoch, sequence, count, offset)
        self.epoch: dict[int, int] = {}
        self.begins_at: dict[int, int | None] = {}  # the first sequence of the epoch, None: any
        self.open: dict[int, int] = {}
        self.heard_ms: dict[int, int] = {}
        self.forgotten: set[int] = set()

    def answer(self, who: int, epoch: int, sequence: int, count: int, transactional: bool) -> int | ErrorCode | None:
        """Return the answer to a batch: the offset of the batch that it repeats, an error, or None to append it."""
        if who not in self.epoch:
            return None
        if epoch < self.epoch[who]:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        of_epoch = [each for each in self.appended[who] if each[0] == epoch]
        for _, first, many, offset in of_epoch[-5:]:
            if (first, many) == (sequence, count):
                return offset
        if of_epoch:
            _, first, many, _ = of_epoch[-1]
            expected = (first + many) % WRAP
        elif epoch > self.epoch[who]:
            expected = 0
        else:
            expected = self.begins_at[who]
        if expected is None:
            expected = sequence
        if sequence != expected:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if who in self.open and not transactional:
            return ErrorCode.INVALID_TXN_STATE
        return None

    def append(self, who: int, epoch: int, sequence: int, count: int, transactional: bool, offset: int, ms: int):
        self.appended.setdefault(who, []).append((epoch, sequence, count, offset))
        self.begins_at[who] = 0
        self.epoch[who] = epoch
        self.hear(who, ms)
        if transactional:
            self.open.setdefault(who, offset)

    def end(self, who: int, epoch: int, ms: int) -> None:
        """Apply a marker. That of a producer that is not known changes nothing."""
        if who not in self.epoch:
            return
        if epoch > self.epoch[who]:
            self.begins_at[who] = 0
        self.epoch[who] = epoch
        self.hear(who, ms)
        self.open.pop(who, None)

    def expire(self, ms: int) -> None:
        for who, heard_ms in list(self.heard_ms.items()):
            if ms - heard_ms >= EXPIRATION_MS and who not in self.open:
                self.forget(who)

    def evict(self, count: int) -> int:
        """Forget up to `count` producers, the longest silent first; among those heard of in one millisecond, the first
        heard. Returns how many were forgotten.
        """
        idle = [who for who in self.heard_ms if who not in self.open]
        for who in idle[:count]:
            self.forget(who)
        return min(count, len(idle))

    def hear(self, who: int, ms: int) -> None:
        self.heard_ms.pop(who, None)
        self.heard_ms[who] = ms

    def forget(self, who: int) -> None:
        del self.heard_ms[who], self.epoch[who], self.appended[who], self.begins_at[who]
        self.forgotten.add(who)


class Client:
    """One producer: what it has in flight, and the sequence it gives next."""

    def __init__(self) -> None:
        self.epoch = 0
        self.next_sequence = 0
        self.sent: list[tuple[int, int, int, bool]] = []  # (epoch, sequence, count, transactional), newest last

    def new_batch(self, count: int, transactional: bool) -> tuple[int, int, int, bool]:
        made = self.epoch, self.next_sequence, count, transactional
        self.next_sequence = (self.next_sequence + count) % WRAP
        self.sent = [*self.sent[-8:], made]
        return made


producers = st.integers(0, 3)


class ProducersMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self):
        self.partition = OnePartition()
        self.reference = Reference()
        self.clients = [Client() for _ in range(4)]
        self.slices: dict | None = None

    def deliver(self, who: int, epoch: int, sequence: int, count: int, transactional: bool):
        expected = self.reference.answer(who, epoch, sequence, count, transactional)
        end = self.partition.end_offset
        given = self.partition.send(who, epoch, sequence, count, attributes=TRANSACTIONAL * transactional)
        if expected is None:
            assert given == end
            self.reference.append(who, epoch, sequence, count, transactional, end, self.partition.age_ms)
        else:
            assert given == expected
            assert self.partition.end_offset == end

    @rule(who=producers, count=st.integers(1, 4), lost=st.booleans())
    def sends_the_next(self, who, count, lost):
        made = self.clients[who].new_batch(count, transactional=who % 2 == 1)
        if not lost:
            self.deliver(who, *made)

    @precondition(lambda self: any(client.sent for client in self.clients))
    @rule(who=producers, back=st.integers(0, 8))
    def sends_again(self, who, back):
        sent = self.clients[who].sent
        if back < len(sent):
            self.deliver(who, *sent[-1 - back])

    @rule(
        who=producers,
        sequence=st.sampled_from([0, 1, 2, 5, WRAP - 1]),
        count=st.integers(1, 4),
        ahead=st.integers(-1, 1),
    )
    def sends_anything(self, who, sequence, count, ahead):
        epoch = max(0, self.clients[who].epoch + ahead)
        self.deliver(who, epoch, sequence, count, who % 2 == 1)

    @rule(who=producers)
    def gets_a_new_epoch(self, who):
        self.clients[who].epoch += 1
        self.clients[who].next_sequence = 0

    @rule(who=producers, before=st.integers(0, 5))
    def comes_near_the_wrap(self, who, before):
        """Let a producer that the broker does not know continue with one of the last sequences before the wrap to 0."""
        if who not in self.reference.epoch:
            self.clients[who].next_sequence = WRAP - 1 - before

    @rule(who=producers, kind=st.sampled_from(Marker), bump=st.booleans())
    def is_ended_by_a_marker(self, who, kind, bump):
        epoch = max(self.clients[who].epoch, self.reference.epoch.get(who, 0))
        if bump:
            epoch += 1
            self.clients[who].epoch, self.clients[who].next_sequence = epoch, 0
        first_offset = self.reference.open.get(who)
        end = self.partition.end_offset
        self.reference.end(who, epoch, self.partition.age_ms)
        aborted = self.partition.end(who, epoch, kind)
        if kind is Marker.ABORT and first_offset is not None:
            others = min(self.reference.open.values(), default=end + 1)
            assert aborted == (who, first_offset, end, others)
        else:
            assert aborted is None

    @rule(ms=st.integers(0, 700))
    def time_passes(self, ms):
        self.partition.age_ms += ms

    @rule(at_most=st.integers(1, 3))
    def the_silent_are_forgotten(self, at_most):
        while self.partition.states.expire(self.partition.age_ms, EXPIRATION_MS, at_most):
            pass
        self.reference.expire(self.partition.age_ms)

    @rule(count=st.integers(1, 3))
    def the_longest_silent_make_room(self, count):
        assert self.partition.states.evict(count) == self.reference.evict(count)

    @rule()
    def the_broker_restarts(self):
        self.partition.restart()
        self.slices = None

    @rule()
    def a_snapshot_is_begun(self):
        self.partition.states.begin_snapshot()
        self.slices = contents(self.partition.states.snapshot())

    @precondition(lambda self: self.slices is not None)
    @rule()
    def a_slice_is_taken(self):
        pieces = self.partition.states.advance_snapshot(1)
        if pieces is not None:
            assert contents(b"".join(pieces)) == self.slices
            self.slices = None

    @invariant()
    def open_transactions_and_the_known_are_the_references(self):
        if not hasattr(self, "reference"):
            return
        states, reference = self.partition.states, self.reference
        assert states.first_open_offset() == min(reference.open.values(), default=None)
        assert {each.producer_id: each.producer_epoch for each in states.describe()} == reference.epoch
        assert len(states) == len(reference.epoch)

    def teardown(self):
        """Check that replaying the whole log gives the same state. Producers that the partition forgot meanwhile may be
        in the replayed state, with other values; the open transactions are the same.
        """
        if not hasattr(self, "partition"):
            return
        replayed = ProducerStates()
        for batch in self.partition.log:
            replayed.apply(batch, 0)
        now, again = contents(self.partition.states.snapshot()), contents(replayed.snapshot())
        for who in set(now) - self.reference.forgotten:
            assert {**now[who], "age_ms": 0} == {**again[who], "age_ms": 0}
        assert set(now) <= set(again)
        assert {who: again[who]["first_open"] for who in now} == {who: now[who]["first_open"] for who in now}
        assert {who for who, each in again.items() if each["first_open"] >= 0} == set(self.reference.open)


@pytest.mark.slow
class TestProducers(ProducersMachine.TestCase):
    settings = settings(max_examples=share_of(80), stateful_step_count=50)


@pytest.mark.long
class TestProducersForLong(ProducersMachine.TestCase):
    settings = settings(max_examples=5000, stateful_step_count=100)


def test_five_batches_in_flight_are_stored_once_in_order_for_any_order_of_arrival():
    """Each batch is sent again until it is accepted."""
    from itertools import permutations

    for order in permutations(range(5)):
        partition = OnePartition()
        waiting, offsets = list(order), {}
        while waiting:
            for number in list(waiting):
                answer = partition.send(1, 0, number * 2, 2, refuse_unknown_with=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
                if not isinstance(answer, ErrorCode):
                    offsets[number] = answer
                    waiting.remove(number)
        assert offsets == {number: number * 2 for number in range(5)}
        assert [partition.send(1, 0, number * 2, 2) for number in range(5)] == [0, 2, 4, 6, 8]
