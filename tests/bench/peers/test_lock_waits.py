"""How long the event loop waits for the interpreter's lock, computed from made-up output of perf."""

import pytest
from fencepost.bench.peers.lock_waits import Event, Kind, measure, read_events, show

LOOP, WORKER = 100, 101
LINES = """\
          python   100    10.000000: PERF_RECORD_SWITCH IN
          python   100    10.000010:  syscalls:sys_exit_epoll_wait: 0x3
          python   100    10.000100: syscalls:sys_enter_futex: uaddr: 0x55, op: 0x00000189, val: 0x00000000
          python   100    10.000110: PERF_RECORD_SWITCH OUT
   fencepost io 0  101    10.000120: PERF_RECORD_SWITCH IN
   fencepost io 0  101    10.000320: PERF_RECORD_SWITCH OUT preempt
   fencepost io 0  101    10.005000: PERF_RECORD_SWITCH IN
   fencepost io 0  101    10.006000: syscalls:sys_enter_futex: uaddr: 0x55, op: 0x00000081, val: 0x00000001
          python   100    10.006100: PERF_RECORD_SWITCH IN
          python   100    10.006110:  syscalls:sys_exit_futex: 0x0
   fencepost io 0  101    10.006200: PERF_RECORD_SWITCH OUT
          python   100    10.007000: syscalls:sys_enter_epoll_wait: epfd: 0x5
          python   100    10.007010: PERF_RECORD_SWITCH OUT
a line that is none
"""


def test_a_lock_wait_lasts_only_as_long_as_the_holder_of_the_lock_ran() -> None:
    found = measure(read_events(LINES.splitlines()), LOOP)
    assert found.locked == [pytest.approx(200 + 1110)]  # the wait lasted 6,010 µs; the worker ran for these


def test_a_loop_turn_lasts_as_long_as_the_loop_ran_or_waited_for_a_running_holder() -> None:
    found = measure(read_events(LINES.splitlines()), LOOP)
    assert found.own == [pytest.approx(100 + 900)]
    assert found.turns == [pytest.approx(1000 + 1310)]
    assert not found.lost


def test_a_futex_call_that_wakes_other_threads_does_not_count_as_a_lock_wait() -> None:
    kinds = [event.kind for event in read_events(LINES.splitlines()) if event.thread == WORKER]
    assert Kind.WAITS not in kinds


def test_waits_and_turns_cut_off_by_the_start_or_end_of_the_trace_do_not_count() -> None:
    events = [
        Event(0, LOOP, Kind.GOES_ON),
        Event(1, LOOP, Kind.POLLS),
        Event(2, LOOP, Kind.STOPS),
        Event(3, LOOP, Kind.RUNS),
        Event(4, LOOP, Kind.WAKES),
        Event(5, LOOP, Kind.WAITS),
    ]
    found = measure(events, LOOP)
    assert (found.locked, found.own, found.turns) == ([], [], [])
    assert measure([], LOOP).seconds == 0


def test_trace_events_are_sorted_by_time_and_lost_events_are_reported() -> None:
    lines = LINES.splitlines()
    lines.append("          python   100    10.006500: PERF_RECORD_LOST lost 12")
    found = measure(read_events(reversed(lines)), LOOP)
    assert found.lost
    assert found.locked == [pytest.approx(1310)]
    assert "gaps" in show(found, None)[-1]


def test_lock_waits_are_shown_as_counts_per_100000_requests() -> None:
    found = measure(read_events(LINES.splitlines()), LOOP)
    shown = show(found, 20_000)
    assert shown[1] == "lock held, ms: ≥0.25 5.0  ≥0.5 5.0  ≥1 5.0  ≥2 0.0  ≥3 0.0  ≥4 0.0  longest 1.31"
    assert shown[3].startswith("turn, all, ms: ≥0.25 5.0  ≥0.5 5.0  ≥1 5.0  ≥2 5.0  ≥3 0.0")
    assert len(show(measure([], LOOP), None)) == 4
