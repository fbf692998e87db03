"""A broker a module, and a topic a test for sinks that PySpark's own runners drive.

The sink is imported by fixtures only: pytest loads this file before a bug of the bank is put in (tests/simulation), and
a module that has taken names by then would not have it.
"""

import pytest


@pytest.fixture(scope="module")
def broker():
    from served_broker import ServedBroker

    with ServedBroker() as served:
        yield served


@pytest.fixture
def sink(broker, request):
    import spark_runners
    from spark_sink import Sink

    yield Sink(broker, "".join(c if c.isalnum() else "-" for c in request.node.name)[:200])
    spark_runners.close_abandoned()
