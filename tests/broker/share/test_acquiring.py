"""Which records a member acquires of the batches that were read: whole batches or an exact number, as far as the window
allows; and records that failed often.

A letter of states(): A available, L acquired, K acknowledged, X archived, P pending.
"""

import pytest
from fencepost.broker.share.bad_records import max_together, suspected_from
from fencepost.broker.share.values import AckRange, AckType, AcquiredRange, Found, Wanted
from share_driver import ShareDriver

THREE = [(0, 9), (10, 19), (20, 29)]


def test_acquiring_share_records_returns_whole_batches_even_beyond_the_wanted_count() -> None:
    driver = ShareDriver()
    assert driver.acquire("me", *THREE, wanted=Wanted(1, 500)) == [AcquiredRange(0, 9, 1)]
    assert driver.acquire("me", *THREE[1:], wanted=Wanted(11, 500)) == [AcquiredRange(10, 29, 1)]


@pytest.mark.parametrize(
    ("size", "ranges"),
    [(1, [(0, 9), (10, 19), (20, 29)]), (10, [(0, 9), (10, 19), (20, 29)]), (11, [(0, 19), (20, 29)]), (30, [(0, 29)])],
)
def test_an_acquired_range_ends_with_the_batch_that_reaches_the_wanted_batch_size(
    size: int, ranges: list[tuple[int, int]]
) -> None:
    acquired = ShareDriver().acquire("me", *THREE, wanted=Wanted(500, size))
    assert acquired == [AcquiredRange(*each, 1) for each in ranges]


@pytest.mark.parametrize("most", [1, 9, 10, 11, 29])
def test_record_limit_mode_acquires_exactly_the_wanted_number_of_records(most: int) -> None:
    driver = ShareDriver()
    assert driver.acquire("me", *THREE, wanted=Wanted(most, 1, exact=True)) == [AcquiredRange(0, most - 1, 1)]
    assert driver.machine.next_offset == most
    assert driver.acquire("other", *THREE, wanted=Wanted(500, 500, exact=True)) == [AcquiredRange(most, 29, 1)]


def test_acquiring_may_exceed_the_window_by_the_last_whole_batch() -> None:
    driver = ShareDriver(locks=15)
    assert driver.acquire("me", *THREE) == [AcquiredRange(0, 19, 1)]
    assert driver.machine.room(15) < 0
    assert driver.acquire("me", THREE[2]) == []


def test_in_record_limit_mode_the_window_is_filled_exactly() -> None:
    driver = ShareDriver(locks=15)
    assert driver.acquire("me", *THREE, wanted=Wanted(500, 1, exact=True)) == [AcquiredRange(0, 14, 1)]


@pytest.mark.parametrize("exact", [False, True])
def test_offsets_without_data_count_as_part_of_the_window(exact: bool) -> None:
    driver = ShareDriver(locks=15)
    found = [(0, 9), Found(10, 14, is_data=False), (15, 19)]
    assert driver.acquire("me", *found, wanted=Wanted(500, 500, exact=exact)) == [AcquiredRange(0, 9, 1)]
    assert driver.machine.room(15) == 0


def test_more_offsets_without_data_than_the_window_holds_are_archived_and_skipped() -> None:
    driver = ShareDriver(locks=15)
    found = [Found(0, 29, is_data=False), (30, 34)]
    assert driver.acquire("me", *found) == []
    assert driver.machine.next_offset == 30
    assert driver.acquire("me", *found[1:]) == [AcquiredRange(30, 34, 1)]


def test_a_full_window_archives_no_offsets_without_data_above_it() -> None:
    driver = ShareDriver(locks=10)
    driver.acquire("me", (0, 9))
    assert driver.acquire("other", Found(10, 14, is_data=False), (17, 19)) == []
    assert (driver.machine.end, driver.machine.next_offset) == (9, 10)


def test_kafka_19808_a_full_window_acquires_only_released_records() -> None:
    driver = ShareDriver(locks=15)
    driver.acquire("me", *THREE, wanted=Wanted(15, 500, exact=True))
    driver.acknowledge("me", AckRange(12, 14, [AckType.RELEASE]))
    assert driver.acquire("other", (10, 19), (20, 29)) == [AcquiredRange(12, 14, 2)]


def test_one_unacknowledged_record_keeps_the_window_full_until_it_is_acknowledged() -> None:
    driver = ShareDriver(locks=30)
    driver.acquire("me", *THREE)
    driver.acknowledge("me", AckRange(1, 29, [AckType.ACCEPT]))
    assert driver.machine.room(30) == 0
    driver.acknowledge("me", AckRange(0, 0, [AckType.ACCEPT]))
    assert driver.machine.room(30) == 30


def test_offsets_without_data_are_archived_up_to_the_next_record() -> None:
    driver = ShareDriver()
    found = [(0, 4), Found(5, 5, is_data=False), (6, 9), Found(10, 10, is_data=False)]
    assert driver.acquire("me", *found, wanted=Wanted(5, 500)) == [AcquiredRange(0, 4, 1)]
    assert (driver.states(), driver.machine.next_offset) == ("LLLLLX", 6)
    driver.acknowledge("me", AckRange(0, 4, [AckType.ACCEPT]))
    assert driver.machine.start == 6
    assert driver.acquire("me", *found[2:]) == [AcquiredRange(6, 9, 1)]
    assert driver.states() == "LLLLX"


def test_the_share_window_advances_over_offsets_without_data() -> None:
    driver = ShareDriver()
    assert driver.acquire("me", Found(0, 4, is_data=False), Found(5, 9, is_data=False)) == []
    assert (driver.machine.start, driver.machine.end, len(driver.machine.runs)) == (10, 9, 0)


def test_offsets_removed_by_compaction_are_archived_in_the_share_partition() -> None:
    driver = ShareDriver()
    driver.acquire("me", (0, 4), (5, 9))
    driver.release("me")
    assert driver.acquire("me", (7, 9), offset=0) == [AcquiredRange(7, 9, 2)]
    assert (driver.machine.start, driver.states()) == (7, "LLL")


def test_a_partly_finished_batch_is_acquired_without_its_finished_records() -> None:
    driver = ShareDriver()
    driver.acquire("me", (0, 9))
    accept, release = AckType.ACCEPT, AckType.RELEASE
    driver.acknowledge("me", AckRange(0, 9, [accept] * 3 + [release] * 2 + [accept] * 2 + [release] * 3))
    assert driver.acquire("other", (0, 9)) == [AcquiredRange(3, 4, 2), AcquiredRange(7, 9, 2)]


def test_after_a_restart_share_records_without_stored_state_are_acquired_again() -> None:
    driver = ShareDriver()
    driver.acquire("me", *THREE)
    driver.acknowledge("me", AckRange(10, 19, [AckType.ACCEPT]), AckRange(25, 25, [AckType.RELEASE]))
    driver.restart()
    assert driver.acquire("me", *THREE) == [
        AcquiredRange(0, 9, 1),
        AcquiredRange(20, 24, 1),
        AcquiredRange(25, 25, 2),
        AcquiredRange(26, 29, 1),
    ]


# ---- bad records -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("limit", "suspected"), [(2, 2), (3, 2), (4, 2), (5, 3), (6, 3), (7, 4), (10, 5), (25, 13)])
def test_records_at_half_of_their_delivery_limit_are_acquired_in_smaller_numbers(limit: int, suspected: int) -> None:
    assert suspected_from(limit) == suspected
    assert max_together(suspected - 1, limit, 100) is None
    assert max_together(suspected, limit, 100) is not None


def test_kafka_17541_near_the_delivery_limit_the_acquired_number_is_halved_down_to_1() -> None:
    assert [max_together(deliveries, 10, 500) for deliveries in range(10)] == [None] * 5 + [250, 125, 62, 31, 1]
    assert max_together(5, 10, 1) == 1


def test_only_the_failing_record_is_archived_at_the_delivery_limit() -> None:
    driver = ShareDriver(limit=5)
    accepted: list[int] = []
    for _ in range(200):
        for first, last, _deliveries in driver.acquire("me", (0, 99)):
            if first <= 37 <= last:  # the bad record, which makes its member fail at all that it has with it
                driver.acknowledge("me", AckRange(first, last, [AckType.RELEASE]))
            else:
                driver.acknowledge("me", AckRange(first, last, [AckType.ACCEPT]))
                accepted += range(first, last + 1)
    assert sorted(accepted) == [each for each in range(100) if each != 37]
    assert driver.machine.start == 100


def test_records_near_the_delivery_limit_are_acquired_without_other_records() -> None:
    """Here half of a run at most is acquired together, so that only a bad record reaches the limit (KAFKA-17541)."""
    driver = ShareDriver(limit=4)
    driver.acquire("me", (0, 9))
    driver.release("me")
    driver.acquire("me", (0, 9))
    driver.acknowledge("me", AckRange(0, 3, [AckType.RELEASE]), AckRange(4, 9, [AckType.ACCEPT]))
    assert driver.acquire("me", (0, 9), (10, 19)) == [AcquiredRange(0, 1, 3)]
    assert driver.acquire("me", (0, 9), (10, 19)) == [AcquiredRange(2, 2, 3)]
    assert driver.acquire("me", (0, 9), (10, 19)) == [AcquiredRange(3, 3, 3)]
    assert driver.acquire("me", (0, 9), (10, 19)) == [AcquiredRange(10, 19, 1)]
