"""A fresh broker in a world of its own for each test that asks for one, or one on a real socket for all of a module."""

from collections.abc import Iterator

import pytest
from served_broker import ServedBroker
from simulated_broker import SimulatedBroker


@pytest.fixture
def broker() -> Iterator[SimulatedBroker]:
    with SimulatedBroker() as broker:
        yield broker


@pytest.fixture(scope="module")
def served() -> Iterator[ServedBroker]:
    with ServedBroker() as served:
        yield served
        served.close_clients()
