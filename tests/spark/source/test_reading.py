"""Ranges of logs of every kind, read in any pieces: each has the records that a reader of the whole log gets there."""

import itertools
import random
from types import SimpleNamespace

import pytest
from fencepost.client.errors import (
    BrokerUnreachableError,
    CorruptRecordError,
    RecordTooLargeError,
    RequestTimedOutError,
)
from fencepost.client.net.environment import SYSTEM
from fencepost.client.net.retry import Backoff
from fencepost.client.records.columns import EVERYTHING
from fencepost.client.values import TopicPartition
from fencepost.protocol.messages.fetch import FetchResponse
from fencepost.protocol.primitives import ZERO_UUID
from fencepost.protocol.records import Marker, Record, build, control_marker
from fencepost.spark.options import source_options
from fencepost.spark.source import reading
from fencepost.spark.source.offsets import Range
from hypothesis import given
from hypothesis import strategies as st

GIVEN = {"kafka.bootstrap.servers": "nowhere:1", "subscribe": "t"}
Part = FetchResponse.Topic.Partition


class Log:
    """A log with batches of some producers, and the offsets of the records that a reader must get from it."""

    def __init__(self):
        self.batches = []  # (base offset, next offset, bytes)
        self.seen = {1: [], 0: []}  # by isolation level
        self.aborted = []  # (producer id, first offset, offset of its marker)
        self.end = 0
        self._open = {}

    def write(self, count, gap, producer_id=-1, codec=0):
        """Append a batch. gap: how many offsets cleaning took before its first record."""
        base = self.end
        made = [Record(base + gap + n, 1000 + n, None, b"%d" % (base + gap + n)) for n in range(count)]
        how = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0} if producer_id >= 0 else {}
        buffer = build(made, base_offset=base, codec=codec, transactional=producer_id >= 0, **how)
        self._add(base, made[-1].offset + 1, buffer)
        offsets = [record.offset for record in made]
        self.seen[0] += offsets
        if producer_id < 0:
            self.seen[1] += offsets
        else:
            self._open.setdefault(producer_id, []).extend(offsets)

    def decide(self, producer_id, commit):
        """Append a marker, which may stand where the transaction wrote nothing."""
        marker = bytearray(control_marker(Marker.COMMIT if commit else Marker.ABORT, producer_id, 0, 0, 1000))
        marker[:8] = self.end.to_bytes(8, "big")
        offsets = self._open.pop(producer_id, [])
        if commit:
            self.seen[1] += offsets
        elif offsets:
            first = next(base for base, end, _ in self.batches if base <= offsets[0] < end)
            self.aborted.append((producer_id, first, self.end))
        self._add(self.end, self.end + 1, bytes(marker))

    def decide_all(self):
        for producer_id in sorted(self._open):
            self.decide(producer_id, producer_id % 2 == 0)

    def _add(self, base, end, buffer):
        self.batches.append((base, end, buffer))
        self.end = end

    def fetch(self, position, most, isolation):
        """Return some batches, from the one that holds the position on; the last may be cut off, as by old brokers."""
        found = [each for each in self.batches if each[1] > position][:most]
        last = found[-1][1] if found else position
        Aborted = Part.AbortedTransaction
        listed = [Aborted(producer_id=p, first_offset=f) for p, f, m in self.aborted if f < last and m >= position]
        records = b"".join(buffer for _, _, buffer in found)
        part = Part(partition_index=0, records=[memoryview(records)], high_watermark=self.end)
        part.last_stable_offset = self.end
        part.aborted_transactions = listed if isolation else None
        return part


class Cluster:
    """The attributes of a Cluster that reading uses, besides fetching."""

    def __init__(self):
        self.environment = SYSTEM
        self.backoff = Backoff(1, 2)
        self.metadata = SimpleNamespace(topic_id=lambda topic: ZERO_UUID, error=lambda topic: None)

    async def refresh(self, topics):
        return self.metadata


def read(log, start, end, isolation="read_committed", most=3, seed=0, **options):
    options = source_options(GIVEN | {"isolationLevel": isolation} | options, streaming=False)
    dice = random.Random(seed)

    async def fetch_once(cluster, options, tp, position, *, max_bytes=None, replica=-1, rack_id=""):
        assert tp == TopicPartition("t", 0)
        assert max_bytes is None or 0 < max_bytes < 1 << 31  # as the request can say it
        return log.fetch(position, dice.randint(1, most), options.isolation)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "fetch_once", fetch_once)
        patch.setattr(reading, "cluster_for", lambda options: Cluster())
        patch.setattr(reading, "ROWS", dice.randint(1, 20))
        found = list(reading.chunks(options, Range("t", 0, start, end), EVERYTHING))
    assert all(len(chunk) for chunk in found)
    for chunk in found:
        assert [int(value) for value in chunk.values] == list(chunk.offsets)
    return [offset for chunk in found for offset in chunk.offsets]


steps = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "write", "commit", "abort"]),
        st.integers(-1, 3),
        st.integers(1, 8),
        st.sampled_from([0, 0, 0, 1, 5]),
        st.sampled_from([0, 0, 3]),
    ),
    min_size=1,
    max_size=25,
)


@given(
    steps, st.lists(st.integers(0, 100), max_size=4), st.sampled_from(["read_committed", "read_uncommitted"]), st.data()
)
def test_splits_of_a_random_log_return_each_visible_record_once_at_every_reading(steps, cuts, isolation, data):
    log = Log()
    for what, producer_id, count, gap, codec in steps:
        if what == "write":
            log.write(count, gap, producer_id, codec)
        elif producer_id >= 0:
            log.decide(producer_id, what == "commit")
    log.decide_all()
    edges = sorted({0, log.end, *(cut for cut in cuts if cut < log.end)})
    seen = sorted(log.seen[1 if isolation == "read_committed" else 0])
    for _ in range(2):
        found = []
        for start, end in itertools.pairwise(edges):
            some = read(log, start, end, isolation, data.draw(st.integers(1, 4)), data.draw(st.integers(0, 99)))
            assert some == [offset for offset in seen if start <= offset < end]
            found += some
        assert found == seen


def test_a_damaged_batch_raises_an_error_with_its_offset():
    log = Log()
    log.write(3, 0)
    log.write(3, 0)
    base, end, buffer = log.batches[1]
    log.batches[1] = (base, end, buffer[:-1] + bytes((buffer[-1] ^ 1,)))
    with pytest.raises(CorruptRecordError, match="t-0: at offset 3"):
        read(log, 0, 6, most=9)


def test_a_damaged_batch_of_an_aborted_transaction_raises_an_error():
    log = Log()
    log.write(3, 0, producer_id=7)
    log.decide(7, commit=False)
    base, end, buffer = log.batches[1]
    log.batches[1] = (base, end, buffer[:69] + b"\x01" + buffer[70:])  # the kind of the marker: a commit
    log.write(3, 0, producer_id=7)
    log.decide(7, commit=True)
    with pytest.raises(CorruptRecordError, match="t-0: at offset 3"):
        read(log, 0, log.end, most=9)


def test_a_batch_with_an_impossible_length_is_reported_with_its_offset():
    log = Log()
    log.write(3, 0)
    log.write(3, 0)
    base, end, buffer = log.batches[1]
    log.batches[1] = (base, end, buffer[:8] + b"\xff" + buffer[9:])
    with pytest.raises(CorruptRecordError, match="t-0: at offset 3"):
        read(log, 0, 6, most=9, **{"kafkaConsumer.pollTimeoutMs": "50"})


def test_a_batch_with_an_enormous_length_times_out_with_its_offset():
    log = Log()
    log.write(3, 0)
    base, end, buffer = log.batches[0]
    log.batches[0] = (base, end, buffer[:8] + b"\x7f\xff\xff\xff" + buffer[12:])
    with pytest.raises(RequestTimedOutError, match="from offset 0 on"):
        read(log, 0, 3, **{"kafkaConsumer.pollTimeoutMs": "50"})


def test_reading_beyond_the_end_times_out_with_an_error_that_names_the_end():
    log = Log()
    log.write(3, 0)
    with pytest.raises(RequestTimedOutError, match=r"from offset 3 on within 50 ms.*its end 3"):
        read(log, 0, 5, **{"kafkaConsumer.pollTimeoutMs": "50"})


def test_a_batch_that_decompresses_to_more_than_is_allowed_names_the_setting():
    log = Log()
    log._add(0, 1, build([Record(0, 1, None, bytes(5_000))], base_offset=0, codec=4))
    with pytest.raises(RecordTooLargeError, match="t-0: at offset 0: ") as caught:
        read(log, 0, 1, **{"kafka.max.decompressed.bytes": "4000"})
    assert "raise kafka.max.decompressed.bytes" in caught.value.hint
    assert "seek" not in caught.value.hint


@pytest.mark.parametrize("fails_at", [None, 0, 2])
def test_reads_go_to_the_follower_the_leader_names_and_after_an_error_to_the_leader(fails_at):
    log, asked = Log(), []
    for _ in range(4):
        log.write(1, 0)

    async def fetch_once(cluster, options, tp, position, *, max_bytes=None, replica=-1, rack_id=""):
        asked.append((replica, rack_id, position))
        if replica == 2 and position == fails_at:
            raise BrokerUnreachableError("cut")
        if rack_id:
            return Part(partition_index=0, records=[], preferred_read_replica=2)
        return log.fetch(position, 1, options.isolation)

    options = source_options(GIVEN | {"kafka.client.rack": "r1"}, streaming=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "fetch_once", fetch_once)
        patch.setattr(reading, "cluster_for", lambda options: Cluster())
        found = list(reading.chunks(options, Range("t", 0, 0, 4), EVERYTHING))
    assert [offset for chunk in found for offset in chunk.offsets] == [0, 1, 2, 3]
    followed = [(2, "", offset) for offset in range(4 if fails_at is None else fails_at + 1)]
    led = [] if fails_at is None else [(-1, "", offset) for offset in range(fails_at, 4)]
    assert asked == [(-1, "r1", 0), *followed, *led]
