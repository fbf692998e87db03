"""A broker a module, and a topic a test for sinks that PySpark's own runners drive."""

import pytest
import spark_runners
from served_broker import ServedBroker
from spark_sink import Sink


@pytest.fixture(scope="module")
def broker():
    with ServedBroker() as served:
        yield served


@pytest.fixture
def sink(broker, request):
    yield Sink(broker, "".join(c if c.isalnum() else "-" for c in request.node.name)[:200])
    spark_runners.close_abandoned()
