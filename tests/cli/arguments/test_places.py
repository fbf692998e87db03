"""Positions in a topic and durations: how they are written, and what they mean."""

import pytest
from click import BadParameter
from fencepost.cli.arguments.places import BEFORE_END, END, OFFSET, START, TIME, Place, places
from fencepost.cli.arguments.ranges import DURATION


@pytest.mark.parametrize(
    ("text", "place"),
    [("start", Place(START)), ("latest", Place(END)), ("42", Place(OFFSET, 42)), ("-10", Place(BEFORE_END, 10)),
     ("@-5m", Place(TIME, -300_000)), ("@1795000000000", Place(TIME, 1_795_000_000_000)),
     ("@2026-11-20T08:00:00+00:00", Place(TIME, 1_795_161_600_000)),
     ("@2026-11-20t08:00:00z", Place(TIME, 1_795_161_600_000))],
)  # fmt: skip
def test_a_position_without_a_partition_is_parsed_for_all_partitions(text: str, place: Place) -> None:
    assert places(text) == {None: place}


def test_single_partitions_can_have_their_own_offset_position() -> None:
    assert places("0:42,3:end,start") == {0: Place(OFFSET, 42), 3: Place(END), None: Place(START)}


@pytest.mark.parametrize("text", ["", "soon", "@", "@later", "@-", "@-5x", "0:", "a:5", "1:2:3", "1.5"])
def test_an_invalid_offset_position_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        places(text)


@pytest.mark.parametrize(
    ("text", "ms"),
    [("500ms", 500), ("30s", 30_000), ("5m", 300_000), ("1.5h", 5_400_000), ("7d", 604_800_000), ("2", 2_000)],
)
def test_a_duration_is_converted_to_milliseconds(text: str, ms: int) -> None:
    assert DURATION.convert(text, None, None) == ms


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", "is not a duration"),
        ("s", "is not a duration"),
        ("5 weeks", "is not a duration"),
        ("-5s", "is out of range"),
        ("1e99d", "is out of range"),
        ("nan", "is not a duration"),
    ],
)
def test_an_invalid_duration_is_refused(text: str, cause: str) -> None:
    with pytest.raises(BadParameter, match=cause):
        DURATION.convert(text, None, None)
