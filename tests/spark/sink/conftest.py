"""One broker for each module, and one topic for each test, for sinks that PySpark's own runners call.

Only fixtures import the sink: pytest loads this file before tests/simulation puts in a planted bug, and a module that
was imported before would not have the bug.
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
