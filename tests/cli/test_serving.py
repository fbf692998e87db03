"""What the process of `fencepost serve` is set to."""

import gc
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
    watched.collected("stop", {"generation": 0})
    assert gc.get_freeze_count() == 0
    watched.collected("stop", {"generation": 1})
    assert gc.get_freeze_count() > 0


def test_after_many_deleted_partitions_everything_is_looked_at_once_more(store):
    watched = freezing(store)
    watched.collected("stop", {"generation": 2})
    store.next_log_id += LOGS_GONE
    watched.collected("stop", {"generation": 2})
    assert gc.get_freeze_count() == 0
    watched.collected("stop", {"generation": 2})
    assert gc.get_freeze_count() > 0
