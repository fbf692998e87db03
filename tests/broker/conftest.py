"""A broker on a real socket, one for all tests of a module."""

from collections.abc import Iterator

import pytest
from served_broker import ServedBroker


@pytest.fixture(scope="module")
def served() -> Iterator[ServedBroker]:
    with ServedBroker() as served:
        yield served
        served.close_clients()
