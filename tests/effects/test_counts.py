"""Counts in messages."""

from fencepost.effects.counts import count_text


def test_a_count_of_1_is_written_with_a_singular_noun_and_others_with_a_plural() -> None:
    assert (count_text(1, "record"), count_text(1_000, "record"), count_text(2, "entry", "entries")) == (
        "1 record",
        "1,000 records",
        "2 entries",
    )
