"""The clocks and the ids that a decision is given."""

import pytest
from transaction_states import Environment


@pytest.fixture
def environment() -> Environment:
    return Environment()
