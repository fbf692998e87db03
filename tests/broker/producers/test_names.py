"""Named producers as values: against a dict of sequences, and what is replayed is what was."""

import pytest
from fencepost.broker.producers.names import (
    NOTHING,
    DamagedNameRecord,
    Names,
    NewerNameRecord,
    Numbered,
    Straddles,
    epoch_row,
    highest_row,
    name_row,
    topic_row,
)
from fencepost.protocol.errors import ErrorCode, KafkaError
from hypothesis import given
from hypothesis import strategies as st

TOPICS = (b"a" * 16, b"b" * 16)
COUNT = 2

NAMES = st.sampled_from(["x", "y"])
PLACES = st.tuples(st.sampled_from(TOPICS), st.integers(0, COUNT - 1))
# The last number says how much older than the present epoch the writer's is; few writers are fenced.
WRITES = st.tuples(
    st.just("write"), NAMES, PLACES, st.integers(0, 6), st.integers(1, 4), st.sampled_from([0] * 9 + [1])
)
CHANGES = st.one_of(
    st.tuples(st.just("open"), NAMES),
    st.tuples(st.just("remove"), NAMES),
    st.tuples(st.just("delete"), st.sampled_from(TOPICS)),
)
EVENTS = st.integers(0, 9).flatmap(lambda number: CHANGES if number == 9 else WRITES)


class Model:
    """Named producers beside a reference: the epoch that may write under each name, and the sequences written under
    each name and partition.
    """

    def __init__(self) -> None:
        self.names = Names()
        self.rows = []
        self.epochs: dict[str, int] = {}
        self.written: dict[tuple, list[int]] = {}

    def log(self, rows) -> None:
        for row in rows:
            self.names.apply(row)
            self.rows.append(row)

    def open(self, name: str) -> None:
        epoch = self.names.newest_epoch + 1
        assert epoch not in self.epochs.values()
        self.epochs[name] = epoch
        self.log([epoch_row(epoch), name_row(name, epoch, "me")])
        self.log([topic_row(name, topic, COUNT) for topic in TOPICS])

    def remove(self, name: str) -> None:
        if name in self.names.by_name:
            self.log(self.names.rows_without(name))
        self.epochs.pop(name, None)
        self.written = {key: kept for key, kept in self.written.items() if key[0] != name}

    def delete(self, topic: bytes) -> None:
        for name in self.epochs:
            self.log(self.names.rows_without(name, topic))
            self.log([topic_row(name, topic, COUNT)])
        self.written = {key: kept for key, kept in self.written.items() if key[1][0] != topic}

    def write(self, name: str, place: tuple[bytes, int], first: int, records: int, older: int) -> None:
        batch = Numbered(name, self.epochs.get(name, 1) - older, place, COUNT, first, first + records - 1, records)
        kept = self.written.setdefault((name, place), [])
        highest = max(kept, default=NOTHING)
        if older or name not in self.epochs:
            with pytest.raises(KafkaError) as refused:
                self.names.judge(batch)
            assert refused.value.code is ErrorCode.PRODUCER_FENCED
        elif first <= highest < batch.last:
            with pytest.raises(Straddles) as straddles:
                self.names.judge(batch)
            assert (straddles.value.code, straddles.value.highest) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, highest)
        elif batch.last <= highest:
            assert self.names.judge(batch) == highest
        else:
            assert self.names.judge(batch) is None
            kept += range(first, batch.last + 1)
            self.log([highest_row(name, place, batch.last)])
            assert kept == sorted(set(kept))


def shown(names: Names):
    return (
        {name: (found.epoch, found.owner, found.counts, found.highest) for name, found in names.by_name.items()},
        names.newest_epoch,
        names.entries,
    )


def applied(rows) -> Names:
    names = Names()
    for row in rows:
        names.apply(row)
    return names


@given(st.lists(EVENTS, min_size=20, max_size=40))
def test_named_producers_never_write_a_sequence_twice_and_replay_to_the_same_state(events):
    model = Model()
    for event, *arguments in [("open", "x"), ("open", "y"), *events]:
        getattr(model, event)(*arguments)
    assert shown(applied(model.rows)) == shown(model.names)
    assert shown(applied(model.names.rows())) == shown(model.names)
    newest = {row[0]: row[1] for row in model.rows}  # compacted
    assert shown(applied(newest.items())) == shown(model.names)
    counts = sum(len(found.counts) + len(found.highest) for found in model.names.by_name.values())
    assert model.names.entries == counts


def test_malformed_named_producer_records_raise_damaged_name_record():
    """Records of a later version or an unknown kind raise NewerNameRecord. None of them changes anything."""
    names = applied([name_row("x", 1, "me"), topic_row("x", TOPICS[0], 2)])
    before = shown(names)
    for key, value in (
        (b"", None),
        (b"\x00", None),
        (b"\x00\x01\xff", None),
        (b"\x00\x02short", b"\x00\x00"),
        (name_row("x", 1, "")[0], b"\x00\x00\x00"),
        (topic_row("x", TOPICS[0], 1)[0], b"\x00\x00" + bytes(9)),
        (highest_row("x", (TOPICS[0], 0), 1)[0], b"\x00\x00" + bytes(7)),
    ):
        with pytest.raises(DamagedNameRecord):
            names.apply((key, value))
    for key, value in ((b"\x00\x04", None), (name_row("x", 1, "")[0], b"\x00\x01" + bytes(8))):
        with pytest.raises(NewerNameRecord):
            names.apply((key, value))
    assert shown(names) == before
