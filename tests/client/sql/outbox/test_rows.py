"""What a row of a user's table means as a record, and how its names get into SQL."""

import pytest
from fencepost.client.errors import InvalidConfigurationError, OutboxRowError
from fencepost.client.sql.outbox.relaying import Place, PlaceRefused, Row, Way, begin_at, in_order
from fencepost.client.sql.outbox.rows import Columns, columns_of, headers_of, quoted, quoted_table, row_of


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, None),
        ("", None),
        ("null", None),
        ("{}", []),
        ('{"a": "b", "c": null}', [("a", b"b"), ("c", None)]),
        ('[["a", "1"], ["a", "2"]]', [("a", b"1"), ("a", b"2")]),
        (b'{"a": "\xc3\xa9"}', [("a", b"\xc3\xa9")]),
        ({"a": "b"}, [("a", b"b")]),
    ],
)
def test_outbox_headers_are_read_from_a_json_object_or_from_pairs(given, expected):
    assert headers_of(given) == expected


@pytest.mark.parametrize(
    "given",
    [
        "{",
        "1",
        '"text"',
        '{"a": 1}',
        '{"a": {}}',
        '[["a"]]',
        "[1]",
        '[[1, "a"]]',
        '{"\\ud800": "a"}',
        b"\xff",
        "[" * 9999,
    ],
)
def test_outbox_headers_that_are_neither_a_json_object_nor_pairs_are_refused(given):
    with pytest.raises(ValueError, match=r"header|Unicode|utf-8"):
        headers_of(given)


def test_an_outbox_row_may_have_no_topic_key_or_value():
    assert row_of((7, None, None, None, None, None)) == Row(7, 0, None, None, None, None)


def test_outbox_values_of_text_numbers_and_json_become_bytes():
    assert row_of((7, 3, "t", "ké", 42, None)) == Row(7, 3, "t", "ké".encode(), b"42", None)
    assert row_of((7, 3, "t", memoryview(b"k"), {"a": ["é"]}, None)).value == '{"a":["é"]}'.encode()


@pytest.mark.parametrize("found", [(7, 0, 5, None, None, None), (7, 0, "t", None, None, "{")])
def test_an_outbox_row_that_cannot_be_a_record_raises_with_its_position(found):
    with pytest.raises(OutboxRowError, match="the row at position 7 cannot be sent") as refused:
        row_of(found)
    assert refused.value.position == 7


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("outbox", '"outbox"'),
        ("app.outbox", '"app"."outbox"'),
        ('"app.outbox"', '"app.outbox"'),
        ('x"; drop table y; --', '"x""; drop table y; --"'),
    ],
)
def test_names_of_outbox_tables_are_quoted_in_sql(name, expected):
    assert quoted_table(name) == expected


@pytest.mark.parametrize("name", ["", "a.", "\0"])
def test_text_that_cannot_be_the_name_of_an_outbox_table_is_refused(name):
    with pytest.raises(InvalidConfigurationError):
        quoted_table(name)


def test_outbox_columns_can_be_given_as_text_or_as_a_mapping():
    assert columns_of(None) == Columns()
    assert columns_of("position=id, value=pay load,key=") == columns_of(
        {"position": "id", "value": "pay load", "key": ""}
    )
    assert quoted(columns_of({"value": 'a"b'}).value) == '"a""b"'


@pytest.mark.parametrize("given", ["position", "color=x", "position=", {"value": ""}])
def test_outbox_columns_without_a_name_or_of_an_unknown_kind_are_refused(given):
    with pytest.raises(InvalidConfigurationError):
        columns_of(given)


def test_default_outbox_columns_that_a_table_lacks_are_left_out_and_named_ones_raise():
    found = columns_of("value=payload").found_in("t", ["position", "payload"])
    assert (found.topic, found.value, found.seq) == ("", "payload", "")
    with pytest.raises(InvalidConfigurationError, match="has no column 'payload' for value"):
        columns_of("value=payload").found_in("t", ["position"])
    with pytest.raises(InvalidConfigurationError, match="has no column 'position'"):
        Columns().found_in("t", ["value"])


def test_outbox_rows_are_sent_in_order_of_position_by_hold_and_of_seq_by_offsets():
    rows = [Row(position, seq, None, None, None, None) for position, seq in ((1, 3), (3, 1), (2, 2))]
    assert [row.position for row in in_order(Way.HOLD, rows)] == [1, 2, 3]
    assert [row.position for row in in_order(Way.OFFSETS, rows)] == [3, 2, 1]


HOME = "db outbox"


@pytest.mark.parametrize(
    ("kept", "last", "resume_at", "expected"),
    [(None, 0, None, None), (Place(7, HOME), 9, None, 7), (None, 9, 7, 7), (Place(9, "other"), 9, 0, 0)],
)
def test_a_relay_begins_after_its_committed_offset_or_after_resume_at(kept, last, resume_at, expected):
    """expected: the number of the last row that was sent; None if the table has never had one."""
    assert begin_at(kept, last, HOME, resume_at) == expected


@pytest.mark.parametrize(
    ("kept", "last", "resume_at", "why"),
    [
        (None, 9, None, "no place"),
        (Place(10, HOME), 9, None, "older than the broker"),
        (Place(7, "other outbox"), 9, None, "belongs to other outbox"),
        (Place(7, HOME), 9, 10, "no row has the number 10"),
    ],
)
def test_a_relays_committed_offset_that_contradicts_the_outbox_table_raises(kept, last, resume_at, why):
    with pytest.raises(PlaceRefused, match=why):
        begin_at(kept, last, HOME, resume_at)
