"""Recovery writes the journal's batches to segments: files and state are the same as after a flush."""

import pytest
from fencepost.effects.gathering import SLICE_BYTES
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.protocol.records import Marker
from hypothesis import given
from hypothesis import strategies as st
from log_driver import DIRECTORY, LogDriver, batch_of

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("values"), st.integers(1, 400), st.integers(0, 50)),
        st.tuples(st.just("open"), st.integers(0, 2), st.integers(0, 50)),
        st.tuples(st.just("end"), st.integers(0, 2), st.booleans()),
        st.tuples(st.just("wait"), st.integers(1, 40), st.none()),
        st.tuples(st.just("pause"), st.integers(0, 2), st.none()),
    ),
    max_size=40,
)


def files_of(driver):
    disk = driver.disk
    names = disk.list(DIRECTORY) if disk.exists(DIRECTORY) else []
    return {name: disk.open(f"{DIRECTORY}/{name}").read(1 << 24, 0) for name in names}


def run(driver, steps, pause):
    sequences = [0, 0, 0]
    for kind, number, more in steps:
        if kind == "values":
            driver.append(batch_of([b"v" * number], timestamp=more))
        elif kind == "open":
            fields = {"producer_id": number, "producer_epoch": 0, "base_sequence": sequences[number]}
            driver.append(batch_of([b"in a transaction"], timestamp=more, transactional=True, **fields))
            sequences[number] += 1
        elif kind == "end":
            driver.marker(number, 0, Marker.ABORT if more else Marker.COMMIT)
        elif kind == "wait":
            driver.advance(number)
        else:
            pause(number)


@pytest.mark.slow
@given(STEPS, st.integers(200, 2_000), st.integers(0, 400))
def test_batches_set_aside_in_recovery_become_the_same_segments_as_by_a_flush(
    steps, segment_bytes, index_interval_bytes
):
    """put_by() takes the recovered batches out of the tail; write_put_by() writes them into segments later."""
    settings = {"segment_bytes": segment_bytes, "index_interval_bytes": index_interval_bytes, "segment_ms": 50}
    flushed, recovered = LogDriver(**settings), LogDriver(**settings)
    for driver in (flushed, recovered):  # the segment to which both append
        driver.values(b"first")
        driver.flush()

    def pause(kind):
        if kind:
            recovered.log.put_by()
        if kind == 2:
            recovered.log.write_put_by(all_of_it=False)

    run(flushed, steps, lambda kind: None)
    flushed.flush()
    run(recovered, steps, pause)
    recovered.log.put_by()
    assert recovered.log.tail_bytes == 0
    recovered.log.write_put_by(all_of_it=True)
    assert recovered.log.segments == flushed.log.segments
    assert recovered.log.manifest() == flushed.log.manifest()
    assert files_of(recovered) == files_of(flushed)
    for name in ("high_watermark", "flushed_offset", "last_stable_offset"):
        assert getattr(recovered.log, name) == getattr(flushed.log, name)
    assert recovered.contents() == flushed.contents()
    assert recovered.committed() == flushed.committed()


def test_recovered_journal_batches_set_aside_are_written_by_write_put_by_in_slices():
    """put_by() takes the recovered batches out of the tail and writes nothing."""
    disk = SimulatedDisk()
    driver = LogDriver(disk)
    before = len(disk.operations)
    driver.values(b"x" * 3 * SLICE_BYTES)
    driver.log.put_by()
    assert len(disk.operations) == before
    driver.log.write_put_by(all_of_it=True)
    assert disk.size(f"{DIRECTORY}/{0:020d}.0.log") > 3 * SLICE_BYTES
    assert max(len(getattr(one, "data", b"")) for one in disk.operations) == SLICE_BYTES


def test_write_put_by_writes_nothing_if_recovery_set_no_batches_aside():
    driver = LogDriver()
    driver.log.write_put_by(all_of_it=True)
    assert not driver.disk.exists(DIRECTORY)


def test_write_put_by_raises_os_error_if_the_disk_is_full():
    disk = SimulatedDisk()
    driver = LogDriver(disk)
    driver.values(b"x")
    driver.log.put_by()
    disk.capacity_bytes = 0
    with pytest.raises(OSError):
        driver.log.write_put_by(all_of_it=True)
