"""What the process of `fencepost serve` is set to."""

import gc
import weakref
from types import SimpleNamespace

import pytest
from fencepost.cli.serving import LOGS_GONE, Freezing


@pytest.fixture
def store():
    yield SimpleNamespace(next_log_id=1, logs={})
    gc.unfreeze()


def freezing(store):
    return Freezing(SimpleNamespace(store=store))


def test_what_a_collection_leaves_is_not_looked_at_again(store):
    gc.unfreeze()
    watched = freezing(store)
    watched.collected("start", {"generation": 2})
    assert gc.get_freeze_count() == 0
    watched.collected("stop", {"generation": 1})
    assert gc.get_freeze_count() > 0


class Circle:
    def __init__(self):
        self.itself = self


def test_after_many_deleted_partitions_everything_is_looked_at_once_more(store):
    watched = freezing(store)
    circle = Circle()
    gone = weakref.ref(circle)
    thresholds = gc.get_threshold()
    gc.callbacks.append(watched.collected)
    try:
        gc.set_threshold(100, 0, 0)
        gc.collect()
        del circle
        kept = [[] for _ in range(1_000)]
        assert gone() is not None
        store.next_log_id += LOGS_GONE
        for _ in range(100):
            kept += [[] for _ in range(1_000)]
        assert gone() is None
        assert gc.get_freeze_count() > 0
    finally:
        gc.callbacks.remove(watched.collected)
        gc.set_threshold(*thresholds)
