"""The clocks and the ids that a decision is given."""

import pytest
from transaction_states import Outside


@pytest.fixture
def outside() -> Outside:
    return Outside()
