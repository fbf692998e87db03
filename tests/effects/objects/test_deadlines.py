"""How long one call to an object store may take: a short deadline at first, a longer one for a call that timed out."""

from fencepost.effects.objects.deadlines import DEADLINES_S, MAX_NAMES, SMALL_BYTES, Deadlines


def deadline_s(deadlines: Deadlines, call: str, size_bytes: int = 0) -> float:
    """Return the deadline that the next such call gets."""
    return DEADLINES_S[deadlines.level(call, size_bytes)]


def test_a_small_call_has_the_shortest_deadline_and_a_large_one_the_longest():
    deadlines = Deadlines()
    assert deadline_s(deadlines, "create a", SMALL_BYTES) == DEADLINES_S[0]
    assert deadline_s(deadlines, "create a", SMALL_BYTES + 1) == DEADLINES_S[-1]


def test_each_timeout_of_a_call_raises_its_deadline_until_it_ends_in_time():
    deadlines = Deadlines()
    found = []
    for _ in range(len(DEADLINES_S) + 1):
        found.append(deadline_s(deadlines, "create a"))
        deadlines.ended("create a", timed_out=True)
    assert found == [*DEADLINES_S, DEADLINES_S[-1]]
    deadlines.ended("create a", timed_out=False)
    assert deadline_s(deadlines, "create a") == DEADLINES_S[0]


def test_a_timeout_of_one_call_changes_no_deadline_of_another():
    deadlines = Deadlines()
    deadlines.ended("create a", timed_out=True)
    deadlines.ended("read a", timed_out=False)
    assert deadline_s(deadlines, "create b") == deadline_s(deadlines, "read a") == DEADLINES_S[0]
    assert deadline_s(deadlines, "create a") == DEADLINES_S[1]


def test_the_timeouts_of_calls_that_nobody_repeats_are_forgotten_at_a_limit():
    deadlines = Deadlines()
    for number in range(MAX_NAMES + 1):
        deadlines.ended(f"create {number}", timed_out=True)
    assert deadline_s(deadlines, "create 0") == DEADLINES_S[0]
    assert deadline_s(deadlines, f"create {MAX_NAMES}") == DEADLINES_S[1]
