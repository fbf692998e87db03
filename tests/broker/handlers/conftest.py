"""A fresh broker for each test that asks for one."""

from collections.abc import Iterator

import pytest
from simulated_broker import SimulatedBroker


@pytest.fixture
def broker() -> Iterator[SimulatedBroker]:
    with SimulatedBroker() as broker:
        yield broker
