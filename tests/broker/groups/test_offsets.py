"""Committed and pending offsets beside a model that looks at the whole log, and as compaction leaves it."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from fencepost.broker.groups.offsets import Offsets, is_expired
from fencepost.broker.groups.records import UNKNOWN_AGE, Committed, Place, offset_key, offset_value
from fencepost.protocol import batches
from fencepost.protocol.batches import Batch
from fencepost.protocol.records import Marker, Record, build, control_marker, records
from fencepost.storage.cleaning.compaction_rules import AbortedSpans, KeyMap, Rules
from fencepost.storage.producers.aborted import AbortedTransaction
from fencepost.storage.producers.producers import ProducerStates
from hypothesis import given, settings
from hypothesis import strategies as st
from long_runs import share_of

pytestmark = pytest.mark.slow

PLACES = [Place(group, topic, 0) for group in ("g", "h") for topic in ("t", "u")]
PRODUCERS = [1, 2, 3]
LOG = 4  # the partition of __consumer_offsets


@dataclass
class Log:
    """A partition of __consumer_offsets as a list of batches, with the producer states and aborted transactions that
    the storage would keep for it.
    """

    batches: list[Batch] = field(default_factory=list)
    aborted: list[AbortedTransaction] = field(default_factory=list)
    producers: ProducerStates = field(default_factory=ProducerStates)
    end: int = 0

    def append(self, made: bytes) -> Batch:
        batch = batches.read(memoryview(batches.stamp_header(batches.read(memoryview(made)), self.end) + made[16:]))
        aborted = self.producers.apply(batch, 0)
        if aborted is not None:
            self.aborted.append(aborted)
        self.batches.append(batch)
        self.end = batch.last_offset + 1
        return batch

    def commit(self, places: list[Place], offset: int, producer_id: int = -1) -> Batch:
        written = [
            Record(index, 0, offset_key(place), offset_value(Committed(offset, -1, "", 0, 0)))
            for index, place in enumerate(places)
        ]
        in_transaction = producer_id >= 0
        epoch = 0 if in_transaction else -1
        return self.append(build(written, producer_id=producer_id, producer_epoch=epoch, transactional=in_transaction))

    def delete(self, place: Place) -> Batch:
        return self.append(build([Record(0, 0, offset_key(place), None)]))

    def end_transaction(self, producer_id: int, kind: Marker) -> Batch:
        return self.append(control_marker(kind, producer_id, 0, 0, 0))

    def compacted(self, times: int) -> list[Batch]:
        """Return the batches after this many runs of compaction up to the first open transaction. Between two runs
        delete.retention.ms passes.
        """
        left = list(self.batches)
        stable = self.producers.first_open_offset()
        bound = self.end if stable is None else stable
        for run in range(times):
            spans = AbortedSpans(self.aborted)
            keys = KeyMap(spans, 1000)
            for batch in left:
                if batch.last_offset < bound:
                    keys.add(batch)
            rules = Rules(
                keys.offsets,
                spans,
                start_offset=0,
                end_offset=bound,
                last_batches=(),
                last_epochs={},
                now_ms=100 * run,
                delete_retention_ms=50,
            )
            kept = (rules.retain(batch) for batch in left)
            left = [batches.read(memoryview(each)) for each in kept if each is not None]
        return left


def replayed(found: list[Batch]) -> Offsets:
    state = Offsets()
    for batch in found:
        assert state.apply_batch(LOG, batch, records(batch)) == []
    return state


def pictured(state: Offsets) -> Any:
    return (
        {group: dict(found) for group, found in state.committed.items()},
        {owner: dict(found) for owner, found in state.pending.items()},
        {place for place in PLACES if state.is_pending(place)},
        {group for group in ("g", "h") if state.has_pending(group)},
    )


def told_by_the_whole_log(log: Log) -> Any:
    """Return the committed and the pending offsets that follow from all records and the ends of transactions."""
    ended: dict[tuple[int, int], bool] = {}
    opened: dict[int, list[int]] = {}
    for number, batch in enumerate(log.batches):
        if batch.is_control:
            committed = next(iter(records(batch))).key == b"\0\0\0\1"
            ended.update({(batch.producer_id, each): committed for each in opened.pop(batch.producer_id, [])})
        elif batch.is_transactional:
            opened.setdefault(batch.producer_id, []).append(number)
    latest: dict[Place, tuple[int, int | None]] = {}
    pending: dict[tuple[int, Place], tuple[int, int]] = {}
    for number, batch in enumerate(log.batches):
        if batch.is_control or ended.get((batch.producer_id, number)) is False:
            continue
        is_open = batch.is_transactional and (batch.producer_id, number) not in ended
        for record in records(batch):
            place = next(place for place in PLACES if offset_key(place) == record.key)
            offset = None if record.value is None else int.from_bytes(record.value[2:10], "big")
            if offset is None:
                pending = {key: found for key, found in pending.items() if key[1] != place}
            if is_open:
                assert offset is not None
                pending[batch.producer_id, place] = record.offset, offset
            else:
                latest[place] = record.offset, offset
    return {place: found for place, found in latest.items() if found[1] is not None}, pending


actions = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), st.lists(st.sampled_from(PLACES), min_size=1, max_size=3)),
        st.tuples(
            st.just("in transaction"),
            st.lists(st.sampled_from(PLACES), min_size=1, max_size=3),
            st.sampled_from(PRODUCERS),
        ),
        st.tuples(st.just("end"), st.sampled_from(PRODUCERS), st.sampled_from(Marker)),
        st.tuples(st.just("delete"), st.sampled_from(PLACES)),
    ),
    max_size=40,
)


def played(script: list[tuple[Any, ...]]) -> tuple[Log, Offsets]:
    """Return the log of these actions, and the offsets in memory to which each of its batches was applied."""
    log, state = Log(), Offsets()
    for number, (action, *rest) in enumerate(script):
        if action == "commit":
            batch = log.commit(rest[0], number)
        elif action == "in transaction":
            batch = log.commit(rest[0], number, rest[1])
        elif action == "delete":
            batch = log.delete(rest[0])
        else:
            batch = log.end_transaction(*rest)
        state.apply_batch(LOG, batch, records(batch))
    return log, state


@given(actions)
@settings(max_examples=share_of(300))
@pytest.mark.requirement("S-84", "S-85")
def test_the_latest_commit_wins_in_any_order_of_commits_transactions_and_deletes(script: Any) -> None:
    log, state = played(script)
    committed, pending = told_by_the_whole_log(log)
    found = {
        Place(group, *key): (each.position, each.offset)
        for group, of_group in state.committed.items()
        for key, each in of_group.items()
    }
    assert found == committed
    assert {
        (owner[1], place): (each.position, each.offset)
        for owner, of_owner in state.pending.items()
        for place, each in of_owner.items()
    } == pending
    assert all(owner[0] == LOG for owner in state.pending)
    assert {place for place in PLACES if state.is_pending(place)} == {place for _, place in pending}
    assert {group for group in ("g", "h") if state.has_pending(group)} == {place.group for _, place in pending}


@given(actions)
@settings(max_examples=share_of(200))
def test_replaying_the_offset_log_gives_the_offsets_that_were_in_memory(script: Any) -> None:
    log, state = played(script)
    assert pictured(replayed(log.batches)) == pictured(state)


@given(actions, st.integers(1, 3))
@settings(max_examples=share_of(300))
def test_a_compacted_offset_log_replays_to_the_same_state_with_open_transactions(script: Any, times: int) -> None:
    log, state = played(script)
    assert pictured(replayed(log.compacted(times))) == pictured(state)


@pytest.mark.requirement("S-84", "S-85")
def test_a_transactional_offset_applies_from_its_commit_and_never_after_an_abort() -> None:
    log, state = Log(), Offsets()
    state.apply_batch(LOG, batch := log.commit([PLACES[0]], 1), records(batch))
    for kind, expected in ((Marker.ABORT, 1), (Marker.COMMIT, 7)):
        state.apply_batch(LOG, batch := log.commit([PLACES[0]], 7, producer_id=5), records(batch))
        found = state.get(PLACES[0])
        assert found is not None
        assert found.offset == 1
        assert state.is_pending(PLACES[0])
        state.apply_batch(LOG, batch := log.end_transaction(5, kind), records(batch))
        found = state.get(PLACES[0])
        assert found is not None
        assert found.offset == expected
        assert not state.is_pending(PLACES[0])


def test_kafka_17507_a_marker_decides_only_its_own_producer_and_partition() -> None:
    """KAFKA-17507: a marker committed the pending offsets of another transaction."""
    state = Offsets()
    committed = Committed(5, -1, "", 0, 0, position=0)
    state.put(1, Place("g", "t", 0), committed, producer_id=7)
    state.put(2, Place("h", "t", 0), committed, producer_id=7)
    state.put(1, Place("i", "t", 0), committed, producer_id=8)
    state.end(1, 7, 1, commit=True)
    assert set(state.committed) == {"g"}
    assert not state.has_pending("g")
    assert state.has_pending("h")
    assert state.has_pending("i")


@pytest.mark.parametrize("last", [Marker.ABORT, None])
def test_replaying_over_a_later_state_commits_no_part_of_the_next_transaction(last: Marker | None) -> None:
    """A snapshot that is taken in slices may contain offsets written after a marker that is then replayed."""
    log = Log()
    log.commit([PLACES[0]], 3, producer_id=5)
    log.end_transaction(5, Marker.COMMIT)
    log.commit([PLACES[1]], 9, producer_id=5)
    snapshot = replayed(log.batches)
    if last is not None:
        log.end_transaction(5, last)
    state = Offsets()
    for owner, of_owner in snapshot.pending.items():
        for place, committed in of_owner.items():
            state.put(owner[0], place, committed, owner[1])
    for batch in log.batches:
        state.apply_batch(LOG, batch, records(batch))
    assert pictured(state) == pictured(replayed(log.batches))


@pytest.mark.parametrize("kind", Marker)
def test_a_transaction_commit_does_not_undo_a_later_plain_offset_commit(kind: Marker) -> None:
    log, state = Log(), Offsets()
    for batch in (log.commit([PLACES[0]], 3, producer_id=5), log.commit([PLACES[0]], 9), log.end_transaction(5, kind)):
        state.apply_batch(LOG, batch, records(batch))
    found = state.get(PLACES[0])
    assert found is not None
    assert found.offset == 9


def test_offsets_are_retained_from_the_last_use_of_their_group() -> None:
    committed = Committed(5, -1, "", 10**15, age_ms=1_000)
    assert not is_expired(committed, None, 1_499, 500)
    assert is_expired(committed, None, 1_500, 500)
    assert not is_expired(committed, 1_300, 1_799, 500)
    assert is_expired(committed, 1_300, 1_800, 500)


def test_an_offsets_own_retention_counts_from_its_commit() -> None:
    committed = Committed(5, -1, "", 0, age_ms=1_000, retention_ms=100)
    assert not is_expired(committed, 5_000, 1_099, 10**9)
    assert is_expired(committed, None, 1_100, 10**9)


def test_an_offset_of_unknown_age_expires_once_its_group_was_idle_for_the_retention() -> None:
    committed = Committed(5, -1, "", 0, UNKNOWN_AGE)
    assert not is_expired(committed, None, 10**15, 500)
    assert not is_expired(committed._replace(retention_ms=1), None, 10**15, 500)
    assert is_expired(committed, 100, 600, 500)
