"""The async fixtures if pytest-asyncio is not installed: each raises an error that names it, instead of not being
found.
"""

from typing import NoReturn

import pytest

HINT = "needs pytest-asyncio: pip install pytest-asyncio; sync tests use fp_bootstrap with fencepost.sync or any client"


@pytest.fixture
def fp_producer() -> NoReturn:
    """Fail the test, because pytest-asyncio is missing."""
    raise pytest.UsageError(f"fp_producer {HINT}")


@pytest.fixture
def fp_txn_producer() -> NoReturn:
    """Fail the test, because pytest-asyncio is missing."""
    raise pytest.UsageError(f"fp_txn_producer {HINT}")


@pytest.fixture
def fp_consumer() -> NoReturn:
    """Fail the test, because pytest-asyncio is missing."""
    raise pytest.UsageError(f"fp_consumer {HINT}")


@pytest.fixture
def fp_share_consumer() -> NoReturn:
    """Fail the test, because pytest-asyncio is missing."""
    raise pytest.UsageError(f"fp_share_consumer {HINT}")


@pytest.fixture
def fp_admin() -> NoReturn:
    """Fail the test, because pytest-asyncio is missing."""
    raise pytest.UsageError(f"fp_admin {HINT}")
