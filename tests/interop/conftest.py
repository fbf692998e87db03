"""One broker process for all client libraries."""

import pytest
from broker_process import broker_process


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with broker_process(str(tmp_path_factory.mktemp("interop") / "data")) as running:
        yield running
