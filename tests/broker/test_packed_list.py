"""What is no msgpack list is refused by the caller's error, which shows none of it."""

import msgpack
import pytest
from fencepost.broker.packed_list import unpack_list


class Damaged(Exception):
    pass


def test_unpack_list_returns_the_list_that_was_packed_with_msgpack():
    assert unpack_list(msgpack.packb(["acl", 1, None, b"x"]), Damaged) == ["acl", 1, None, b"x"]


@pytest.mark.parametrize(
    "packed",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\xc1", id="no type"),
        pytest.param(b"\x92\x01", id="too short"),
        pytest.param(msgpack.packb([]), id="an empty list"),
        pytest.param(msgpack.packb("secret"), id="a text"),
        pytest.param(msgpack.packb([b"secret"]) + b"\x00", id="bytes after the list"),
        pytest.param(b"\x91\xa1\xff", id="a text that is not UTF-8"),
    ],
)
def test_bytes_that_are_no_msgpack_list_raise_an_error_without_their_content(packed):
    with pytest.raises(Damaged) as refused:
        unpack_list(packed, Damaged)
    assert str(refused.value) == "a record that does not parse"
