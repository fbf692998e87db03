"""Whether a file's bytes are in memory, as the kernel says."""

import os

import pytest
from fencepost.effects.disk import SystemDisk, page_cache
from this_machine import bytes_in_memory, has_cachestat

needs_cachestat = pytest.mark.skipif(not has_cachestat(), reason="needs cachestat(2): Linux 6.5")
SIZE = 5 * 4096 + 100


@pytest.fixture
def file(tmp_path):
    file = SystemDisk().open(str(tmp_path / "file"), create=True)
    file.write([b"x" * SIZE], 0)
    yield file
    file.close()


@needs_cachestat
def test_in_memory_is_true_for_bytes_just_written_and_false_beyond_the_files_end(file):
    assert file.in_memory(SIZE, 0)
    assert file.in_memory(1, SIZE - 1)
    assert file.in_memory(2, 4095)
    assert not file.in_memory(1, 7 * 4096)
    assert not file.in_memory(8 * 4096, 0)
    assert not file.in_memory(0, 0)


@needs_cachestat
def test_bytes_dropped_from_the_page_cache_are_reported_uncached_until_read(file):
    file.sync()
    fd = os.open(file.path, os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        if bytes_in_memory(file.path):
            pytest.skip("this file system keeps its pages (tmpfs)")
        assert not page_cache.holds(fd, SIZE, 0)
        os.pread(fd, SIZE, 0)
        assert page_cache.holds(fd, SIZE, 0)
    finally:
        os.close(fd)
    assert not page_cache.holds(fd, SIZE, 0), "no descriptor"


def test_in_memory_is_false_on_a_system_without_cachestat(file, monkeypatch):
    monkeypatch.setattr(page_cache, "_cachestat", lambda: None)
    assert not file.in_memory(SIZE, 0)


def test_the_page_cache_query_exists_only_on_linux(monkeypatch):
    monkeypatch.setattr("sys.platform", "darwin")
    assert page_cache._cachestat.__wrapped__() is None
