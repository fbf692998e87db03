"""A broker that holds transactions for databases."""

import pytest

from fencepost import Broker


@pytest.fixture
async def broker(tmp_path):
    async with Broker(data_dir=tmp_path / "broker", transaction_two_phase_commit_enable=True) as broker:
        yield broker.bootstrap_servers
