"""The assertions, given logs that our broker would never write."""

import pytest
from fencepost.client.values import CREATE_TIME, Record
from fencepost.testing.assertions import Asserting
from fencepost.testing.observing import Attempt


class Log(Asserting):
    """A topic whose partition 0 has these rows: (attempt, sequence, value), all of them committed."""

    def __init__(self, *rows):
        self.rows = rows

    def _read_attempts(self, topic, isolation):
        return [
            (Record(topic, 0, offset, 0, CREATE_TIME, None, value, ()), Attempt(0, 7, attempt), sequence)
            for offset, (attempt, sequence, value) in enumerate(self.rows)
        ]


def test_assert_atomic_accepts_equal_values_with_different_sequence_numbers():
    Log((0, 0, b"1"), (0, 1, b"1")).assert_atomic(["t"], txn=lambda record: 1)


@pytest.mark.parametrize("again", [(0, 0, b"1"), (1, 0, b"1"), (1, 1, b"1")])
def test_assert_atomic_fails_for_a_record_stored_twice_or_committed_twice(again):
    with pytest.raises(AssertionError, match="visible more than once"):
        Log((0, 0, b"1"), again).assert_atomic(["t"], txn=lambda record: 1)
