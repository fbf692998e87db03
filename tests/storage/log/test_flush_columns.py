"""A flush takes hundreds of batches at a time, by columns, and makes what one batch after another would make."""

from dataclasses import dataclass, field

import pytest
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.storage.log import flush
from fencepost.storage.log.flush import FlushJob, TailBatch, oldest
from fencepost.storage.log.index import OFFSET_ENTRY, TIME_ENTRY
from fencepost.storage.log.open_files import OpenFiles
from fencepost.storage.log.segment import HIGHEST_RELATIVE_OFFSET, SegmentState
from fencepost.storage.log.settings import LogSettings
from hypothesis import given
from hypothesis import strategies as st


@dataclass
class Segment:
    """The model: Kafka's LogSegment.append and shouldRoll, for one batch at a time."""

    base_offset: int
    size: int = 0
    end_offset: int = 0
    first_age: int = 0
    last_age: int = 0
    since: int = 0
    newest: tuple[int, int] = (-1, -1)
    last_time: int = -1
    offsets: list[tuple[int, int]] = field(default_factory=list)
    times: list[tuple[int, int]] = field(default_factory=list)
    content: bytes = b""

    def rolls_before(self, batch: TailBatch, settings: LogSettings) -> bool:
        last, _, size, _, _, age, _ = batch
        return bool(self.size) and (
            self.size + size > settings.segment_bytes
            or age > self.first_age + settings.segment_ms
            or last > self.base_offset + HIGHEST_RELATIVE_OFFSET
            or len(self.offsets) >= settings.segment_index_bytes // OFFSET_ENTRY.size
        )

    def append(self, batch: TailBatch, settings: LogSettings) -> None:
        last, _, size, timestamp, _, age, parts = batch
        self.first_age = self.first_age if self.size else age
        if timestamp > self.newest[0]:
            self.newest = timestamp, last
        if self.since > settings.index_interval_bytes:
            self.offsets.append((last - self.base_offset, self.size))
            self.note_time()
            self.since = 0
        self.since += size
        self.size += size
        self.end_offset, self.last_age = last + 1, age
        self.content += b"".join(parts)

    def note_time(self) -> None:
        if self.newest[0] > self.last_time:
            self.times.append((self.newest[0], self.newest[1] - self.base_offset))
            self.last_time = self.newest[0]


def one_by_one(batches: list[TailBatch], settings: LogSettings) -> list[Segment]:
    segments = [Segment(0)]
    for batch in batches:
        if segments[-1].rolls_before(batch, settings):
            segments[-1].note_time()
            segments.append(Segment(batch[1]))
        segments[-1].append(batch, settings)
    return segments


FAR = HIGHEST_RELATIVE_OFFSET // 2
BATCHES = st.lists(
    st.tuples(
        st.sampled_from((1, 1, 1, 2, 5, FAR)),  # offsets
        st.integers(1, 40),  # bytes
        st.integers(-1, 60),  # timestamp
        st.sampled_from((0, 0, 0, 1, 7)),  # ms since the batch before
    ),
    min_size=1,
    max_size=40,
)
SETTINGS = st.builds(
    LogSettings,
    segment_bytes=st.sampled_from((30, 100, 10_000)),
    segment_ms=st.sampled_from((0, 5, 1000)),
    index_interval_bytes=st.sampled_from((0, 20, 50, 4096)),
    segment_index_bytes=st.sampled_from((8, 16, 40, 4000)),
)


def tail_of(rows: list[tuple[int, int, int, int]]) -> list[TailBatch]:
    tail: list[TailBatch] = []
    offset = age = 0
    for number, (offsets, size, timestamp, later) in enumerate(rows):
        age += later
        content = bytes([number]) * size
        parts = (content[:1], content[1:])
        tail.append((offset + offsets - 1, offset, size, timestamp, number, age, parts))
        offset += offsets
    return tail


@pytest.mark.slow
@given(BATCHES, SETTINGS, st.integers(1, 40), st.integers(1, 41), st.sampled_from((25, 200, 4 << 20)))
def test_a_flush_writes_the_same_segments_and_indexes_as_a_batch_by_batch_model(
    rows, settings, first, together, gathered
) -> None:
    """The tail is written in two flushes. first: the number of batches in the first one. together, gathered: how many
    batches a flush handles at a time, and how many bytes it writes at a time.
    """
    tail, disk = tail_of(rows), SimulatedDisk()
    files = OpenFiles(disk, 16)
    states: list[SegmentState] = []
    offsets: dict[int, bytes] = {}
    times: dict[int, bytes] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flush, "TAKEN_TOGETHER", together)
        patch.setattr(flush, "GATHERED_BYTES", gathered)
        for batches in filter(None, (tail[:first], tail[first:])):
            active = states[-1] if states else None
            job = FlushJob(files, "/log", settings, active, batches, 0, [], make_directory=True, paced=False)
            job.run()
            for written in job.written:
                base = written.after.base_offset
                states[-1:] = [written.after] if not written.created else [*states[-1:], written.after]
                offsets[base] = offsets.get(base, b"") + written.offset_entries
                times[base] = times.get(base, b"") + written.time_entries
    expected = one_by_one(tail, settings)
    assert [state.base_offset for state in states] == [each.base_offset for each in expected]
    for state, each in zip(states, expected, strict=True):
        assert (state.size_bytes, state.end_offset) == (each.size, each.end_offset)
        assert (state.first_age_ms, state.last_age_ms) == (each.first_age, each.last_age)
        assert (state.max_timestamp, state.max_timestamp_offset) == each.newest
        assert state.unindexed_bytes == each.since
        assert offsets[state.base_offset] == b"".join(OFFSET_ENTRY.pack(*entry) for entry in each.offsets)
        assert times[state.base_offset] == b"".join(TIME_ENTRY.pack(*entry) for entry in each.times)
        with files.use(f"/log/{state.stem}.log") as file:
            assert file.read(each.size + 1, 0) == each.content


@pytest.mark.slow
@given(BATCHES, st.integers(0, 60), st.integers(1, 600), st.integers(1, 45))
def test_a_flush_takes_the_oldest_batches_that_fit_its_max_bytes_and_at_least_one(
    rows, below, max_bytes, max_batches
) -> None:
    tail = tail_of(rows)
    taken, size = oldest(tail, below, max_bytes, max_batches)
    ended = [batch for batch in tail if batch[0] < below][:max_batches]
    sums = [sum(batch[2] for batch in ended[:count]) for count in range(len(ended) + 1)]
    fitting = sum(total <= max_bytes for total in sums[1:])
    assert taken == ended[: max(1, fitting)]
    assert size == sums[len(taken)]


def test_a_flush_lets_the_event_loop_run_after_a_fixed_number_of_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """The flush holds the interpreter lock (GIL) while it handles these batches; it gives it up between them."""
    monkeypatch.setattr(flush, "TAKEN_TOGETHER", 10)
    given: list[int] = []
    monkeypatch.setattr(flush, "give_way", lambda: given.append(1))
    for count, times in ((1, 0), (10, 0), (11, 1), (35, 3)):
        given.clear()
        tail = tail_of([(1, 1, 0, 0)] * count)
        files = OpenFiles(SimulatedDisk(), 16)
        FlushJob(files, "/log", LogSettings(), None, tail, 0, [], make_directory=True, paced=False).run()
        assert len(given) == times
