"""A broker that holds transactions for databases, and a database with orders."""

import pytest
from orders import TABLE

from fencepost import Broker, sql


@pytest.fixture
async def broker(tmp_path):
    async with Broker(data_dir=tmp_path / "broker", transaction_two_phase_commit_enable=True) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
async def db(postgres_url):
    """Give an open, new database of PostgreSQL. Modules that need others define a `db` of their own."""
    async with sql.connect(postgres_url, create=True) as db:
        await db.execute(TABLE)
        yield db
