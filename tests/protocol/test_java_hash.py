"""Which partition a group's or a transaction's state is in: as Java counts, since clients and tools compute it too."""

import pytest
from fencepost.protocol.java_hash import java_hash, partition_for


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("console-consumer-12345", 158455506),
        ("polygenelubricants", -(2**31)),
        ("ä", 228),
        ("\U0001f600", 1772899),  # two code units
    ],
)
@pytest.mark.requirement("S-57")
def test_java_hash_returns_what_string_hashcode_returns_in_java(text: str, found: int) -> None:
    assert java_hash(text) == found


@pytest.mark.requirement("S-57")
def test_partition_for_a_name_is_its_absolute_java_hash_modulo_the_partition_count() -> None:
    """The lowest number, which has no absolute value in 32 bits, counts as zero."""
    assert partition_for("hello", 50) == 22
    assert partition_for("console-consumer-12345", 50) == 6
    assert partition_for("polygenelubricants", 50) == 0
    assert {partition_for(f"group-{number}", 7) for number in range(100)} == set(range(7))
