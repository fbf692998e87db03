"""What each driver needs of ours is small: its connection as an Adapter."""

from pathlib import Path

import pytest
from fencepost.client import sql

MOST_LINES = 100
ADAPTERS = sorted(path for path in Path(sql.__file__).parent.glob("*.py") if "as an Adapter. " in path.read_text())


@pytest.mark.parametrize("path", ADAPTERS, ids=lambda path: path.stem)
def test_the_adapter_of_a_driver_has_at_most_100_lines(path):
    assert path.read_text().count("\n") <= MOST_LINES


def test_each_way_to_connect_has_an_adapter():
    assert len(ADAPTERS) == 7  # asyncpg, psycopg and SQLAlchemy with and without await, sqlite3, Django
