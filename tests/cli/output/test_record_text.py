"""Records as text, and lines of text as records."""

import json

import pytest
from fencepost.cli.output.record_text import BadFormat, BadLine, Line, as_facts, form_of, parse
from fencepost.client.values import Record
from hypothesis import given
from hypothesis import strategies as st

RECORD = Record("orders", 3, 42, 1_795_000_000_000, 0, b"alice", b"1 x", (("src", b"web"), ("n", None)))


def test_a_format_selects_the_fields_of_a_record() -> None:
    assert form_of(r"%t[%p]@%o %T %k=%s %K %S %h %%\t\\\n")(RECORD) == (
        b"orders[3]@42 1795000000000 alice=1 x 5 3 src=web,n= %\t\\\n"
    )


def test_a_null_key_or_value_prints_no_bytes_and_size_minus_1() -> None:
    assert form_of("%k|%s|%K|%S")(Record("t", 0, 0, 0, 0, None, None)) == b"||-1|-1"


@pytest.mark.parametrize("text", ["%x", "%", "a\\", "\\q"])
def test_an_invalid_output_format_is_refused_and_valid_fields_are_listed(text: str) -> None:
    with pytest.raises(BadFormat, match="%o offset"):
        form_of(text)


maybe_bytes = st.none() | st.binary(max_size=20)


@given(maybe_bytes, maybe_bytes, st.lists(st.tuples(st.text(max_size=5), maybe_bytes), max_size=3))
def test_the_json_lines_of_consume_are_valid_input_for_produce(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    record = Record("t", 1, 2, 3, 0, key, value, tuple(headers))
    line = json.dumps(as_facts(record)).encode()
    assert parse(line) == Line(value, key, tuple(headers), 1, 3)


def test_produce_accepts_any_json_value_and_headers_as_an_object() -> None:
    line = b'{"value": {"a": 1}, "key": 7, "headers": {"x": "y", "n": null}}'
    assert parse(line) == Line(b'{"a": 1}', b"7", (("x", b"y"), ("n", None)))


@pytest.mark.parametrize(
    ("line", "why"),
    [(b"{", "not JSON"), (b"[1]", "not an object"), (b"{}", 'no "value"'), (b'{"value_base64": "!"}', "base64"),
     (b'{"value": "", "partition": "1"}', "partition"), (b'{"value": "", "headers": [1]}', "headers"),
     (b"\xff", "not JSON")],
)  # fmt: skip
def test_parsing_a_json_line_that_is_not_a_record_raises_bad_line_with_the_reason(line: bytes, why: str) -> None:
    with pytest.raises(BadLine, match=why):
        parse(line)
