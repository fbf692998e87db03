from itertools import count

import pytest
from fencepost.broker.requests import fetch_sessions
from fencepost.broker.requests.fetch_sessions import (
    FINAL_EPOCH,
    HIGHEST_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchSessions,
    LastAnswer,
    Wanted,
    must_tell,
    next_epoch,
)
from fencepost.protocol.errors import ErrorCode
from hypothesis import given
from hypothesis import strategies as st

NO_ID = bytes(16)
EVICTION_MS = 120_000


def sessions(slots=2):
    ids = count(1)
    return FetchSessions(slots, EVICTION_MS, lambda: next(ids))


def wanted(*names, offset=0):
    return {(name, 0): Wanted(name, NO_ID, 0, offset, 1000) for name in names}


def begin(cache, session_id=NO_SESSION, epoch=INITIAL_EPOCH, parts=None, forget=(), ids=False, now_ms=0):
    return cache.begin(
        session_id, epoch, wanted() if parts is None else parts, forget, uses_topic_ids=ids, now_ms=now_ms
    )


def reported(*names, records=False, error=0, hw=0, start=0):
    return [((name, 0), LastAnswer(records, error, hw, start)) for name in names]


def opened(cache, *names, ids=False, now_ms=0):
    fetching = begin(cache, parts=wanted(*names), ids=ids, now_ms=now_ms)
    assert fetching.finish(reported(*names), now_ms) is None
    return fetching.session_id


def names(keys):
    return {name for name, _ in keys}


def test_a_full_fetch_opens_a_session_and_returns_every_partition():
    cache = sessions()
    fetching = begin(cache, parts=wanted("a", "b"))
    assert names(dict(fetching.partitions())) == {"a", "b"}
    assert fetching.finish(reported("a", "b"), 0) is None
    assert fetching.session_id == 1


def test_a_fetch_with_the_final_epoch_closes_its_session_and_is_answered_without_one():
    cache = sessions()
    session_id = opened(cache, "a")
    fetching = begin(cache, session_id, FINAL_EPOCH, wanted("b"))
    assert fetching.finish(reported("b"), 0) is None
    assert fetching.session_id == NO_SESSION
    assert len(cache.cache) == 0


def test_a_new_full_fetch_closes_the_session_it_names_and_opens_another():
    cache = sessions()
    first = opened(cache, "a")
    fetching = begin(cache, first, INITIAL_EPOCH, wanted("a"))
    fetching.finish(reported("a"), 0)
    assert fetching.session_id not in (first, NO_SESSION)
    assert cache.cache.get(first) is None


def test_an_unknown_fetch_session_is_refused():
    assert begin(sessions(), 77, 1).error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("epoch", [2, 7, HIGHEST_EPOCH])
def test_a_wrong_fetch_session_epoch_is_refused_and_the_session_is_unchanged(epoch):
    cache = sessions()
    session_id = opened(cache, "a")
    assert begin(cache, session_id, epoch).error is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert begin(cache, session_id, 1).error is None


@pytest.mark.parametrize("ids", [False, True])
def test_a_fetch_session_cannot_switch_between_topic_names_and_topic_ids(ids):
    cache = sessions()
    session_id = opened(cache, "a", ids=ids)
    assert begin(cache, session_id, 1, ids=not ids).error is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_an_incremental_fetch_reads_all_partitions_and_returns_only_changed_ones():
    cache = sessions()
    fetching = begin(cache, opened(cache, "a", "b"), 1)
    assert names(dict(fetching.partitions())) == {"a", "b"}
    assert fetching.finish(reported("a", "b"), 0) == set()


def test_a_fetch_adds_changes_and_removes_partitions_of_its_fetch_session():
    cache = sessions()
    session_id = opened(cache, "a", "b")
    fetching = begin(cache, session_id, 1, wanted("b", "c", offset=9), forget=[("a", 0), ("never", 0)])
    assert {key[0]: part.fetch_offset for key, part in fetching.partitions()} == {"b": 9, "c": 9}
    assert names(fetching.finish(reported("b", "c"), 0)) == {"c"}


def test_a_fetch_session_ends_when_its_last_partition_is_removed():
    cache = sessions()
    session_id = opened(cache, "a")
    fetching = begin(cache, session_id, 1, forget=[("a", 0)])
    assert fetching.partitions() == []
    assert fetching.finish([], 0) is None
    assert fetching.session_id == NO_SESSION
    assert len(cache.cache) == 0


@pytest.mark.parametrize(
    "change", [{"records": True}, {"hw": 1}, {"start": 1}, {"error": 3}], ids=["records", "hw", "start", "error"]
)
def test_a_fetch_session_returns_a_partition_whenever_its_state_changed(change):
    cache = sessions()
    session_id = opened(cache, "a", "b")
    fetching = begin(cache, session_id, 1)
    assert names(fetching.finish(reported("a", **change) + reported("b"), 0)) == {"a"}


def test_a_fetch_session_returns_a_partition_whose_error_has_ended():
    cache = sessions()
    session_id = opened(cache, "a")
    assert names(begin(cache, session_id, 1).finish(reported("a", error=6), 0)) == {"a"}
    assert names(begin(cache, session_id, 2).finish(reported("a"), 0)) == {"a"}
    assert begin(cache, session_id, 3).finish(reported("a"), 0) == set()


def test_a_partition_that_returned_records_is_moved_to_the_end_of_the_session():
    cache = sessions()
    session_id = opened(cache, "a", "b", "c")
    begin(cache, session_id, 1).finish(reported("a", records=True) + reported("b", "c"), 0)
    assert [key[0] for key, _ in begin(cache, session_id, 2).partitions()] == ["b", "c", "a"]


def test_a_fetch_overtaken_by_the_sessions_next_request_gets_an_epoch_error():
    cache = sessions()
    session_id = opened(cache, "a")
    slow = begin(cache, session_id, 1)
    begin(cache, session_id, 2)
    assert slow.finish(reported("a", records=True), 0) == set()
    assert slow.error is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert slow.session_id == session_id


def test_a_repeated_fetch_session_request_is_refused():
    cache = sessions()
    session_id = opened(cache, "a")
    assert begin(cache, session_id, 1).error is None
    assert begin(cache, session_id, 1).error is ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_the_fetch_session_epoch_after_the_maximum_is_1():
    assert next_epoch(INITIAL_EPOCH) == 1
    assert next_epoch(HIGHEST_EPOCH) == 1
    assert next_epoch(FINAL_EPOCH) == FINAL_EPOCH


def test_a_full_cache_refuses_a_new_session_but_answers_the_fetch():
    cache = sessions(slots=1)
    opened(cache, "a")
    assert opened(cache, "b", "c") == NO_SESSION


def test_a_fetch_session_unused_for_over_eviction_ms_is_evicted_for_any_new_one():
    cache = sessions(slots=1)
    stale = opened(cache, "a", "b", "c")
    assert opened(cache, "x", now_ms=EVICTION_MS) == NO_SESSION
    assert opened(cache, "x", now_ms=EVICTION_MS + 1) != NO_SESSION
    assert cache.cache.get(stale) is None
    assert cache.cache.evictions == 1


def test_a_fetch_session_in_use_is_evicted_only_for_a_larger_one():
    cache = sessions(slots=1)
    session_id = opened(cache, "a", "b")
    late = EVICTION_MS + 10
    begin(cache, session_id, 1, now_ms=late)
    assert opened(cache, "x", "y", now_ms=late) == NO_SESSION
    assert opened(cache, "x", "y", "z", now_ms=late) != NO_SESSION


def test_the_session_cache_counts_the_partitions_of_its_sessions():
    cache = sessions()
    session_id = opened(cache, "a", "b")
    assert cache.cache.partitions == 2
    begin(cache, session_id, 1, wanted("c"))
    assert cache.cache.partitions == 3
    cache.cache.remove(session_id)
    assert cache.cache.partitions == 0


def test_a_fetch_session_with_more_partitions_than_one_fetch_may_name_ends(monkeypatch):
    monkeypatch.setattr(fetch_sessions, "MAX_OF_A_SESSION", 3)
    cache = sessions()
    session_id = opened(cache, "a", "b")
    assert begin(cache, session_id, 1, wanted("b", "c")).error is None
    assert begin(cache, session_id, 2, wanted("d")).error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert begin(cache, session_id, 3).error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (len(cache.cache), cache.cache.partitions) == (0, 0)


def test_the_partitions_of_all_fetch_sessions_together_are_limited(monkeypatch):
    monkeypatch.setattr(fetch_sessions, "MAX_OF_ALL", 4)
    cache = sessions(10)
    grows, _ = opened(cache, "a", "b"), opened(cache, "c")
    assert opened(cache, "d", "e") == NO_SESSION
    assert begin(cache, grows, 1, wanted("f")).error is None
    assert begin(cache, grows, 2, wanted("g")).error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert cache.cache.partitions == 1
    stale_ms = EVICTION_MS + 1
    assert opened(cache, "h", "i", "j", "k", now_ms=stale_ms) != NO_SESSION
    assert (len(cache.cache), cache.cache.partitions) == (1, 4)


def test_no_two_fetch_sessions_have_the_same_id():
    draws = iter([5, 5, 0, 6])
    cache = FetchSessions(10, EVICTION_MS, lambda: next(draws))
    assert [opened(cache, "a"), opened(cache, "b")] == [5, 6]


def test_an_incremental_fetch_returns_an_unchanged_partition_state_only_once():
    part = Wanted("a", NO_ID, 0, 0, 1)
    state = LastAnswer(False, 0, 5, 2)
    assert must_tell(part, state)
    assert not must_tell(part, state)


ERRORS = st.sampled_from([0, 0, 0, 3])
STATES = st.dictionaries(st.sampled_from("abcd"), st.tuples(st.integers(0, 3), ERRORS), min_size=1)


@pytest.mark.slow
@given(st.lists(STATES, min_size=1, max_size=12))
def test_incremental_answers_give_the_client_all_that_the_broker_has(history):
    """The client drops and adds partitions as `history` says; it must know watermark and error of each, at any time."""
    cache = sessions()
    believed, session_id, epoch = {}, NO_SESSION, INITIAL_EPOCH
    for now in history:
        added = {name for name in now if name not in believed}
        gone = {name for name in believed if name not in now}
        fetching = begin(cache, session_id, epoch, wanted(*sorted(added)), forget=[(name, 0) for name in gone])
        assert fetching.error is None
        assert names(dict(fetching.partitions())) == set(now)
        states = [((name, 0), LastAnswer(False, error, -1 if error else hw, 0)) for name, (hw, error) in now.items()]
        named = fetching.finish(states, 0)
        for name in gone:
            del believed[name]
        for key, state in states:
            if named is None or key in named:
                believed[key[0]] = (state.high_watermark, state.error_code)
        assert believed == {name: (-1 if error else hw, error) for name, (hw, error) in now.items()}
        session_id, epoch = fetching.session_id, next_epoch(epoch)
