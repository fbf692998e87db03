"""One broker process for all client libraries, and one JVM.

KAFKA=HOST:PORT asks that broker instead: to see whether a test tells the truth about Kafka.
"""

import os
import re
import types

import pytest
from broker_process import broker_process
from fencepost.broker.embedded.broker import Broker
from java_clients import JavaClients
from old_client import Looker


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    if "KAFKA" in os.environ:
        yield types.SimpleNamespace(bootstrap=os.environ["KAFKA"])
        return
    with broker_process(str(tmp_path_factory.mktemp("interop") / "data")) as running:
        yield running


@pytest.fixture(scope="module")
def look(broker):
    with Looker(broker.bootstrap) as looker:
        yield looker


@pytest.fixture(scope="session")
def java(tmp_path_factory):
    with JavaClients(tmp_path_factory.mktemp("java")) as jvm:
        yield jvm


@pytest.fixture
def name(request):
    """A name that no other test has used on this broker, nor an earlier run."""
    return re.sub(r"[^a-z0-9]+", "-", request.node.name)[5:60] + os.urandom(3).hex()


NEEDS_KAFKA = pytest.mark.skipif("KAFKA" not in os.environ, reason="no Apache Kafka is given: KAFKA=HOST:PORT")


@pytest.fixture(params=["fencepost", pytest.param("Kafka", marks=NEEDS_KAFKA)])
def bootstrap(request):
    """The address of a new broker of ours, and then of the Kafka that is given."""
    if request.param == "Kafka":
        yield os.environ["KAFKA"]
        return
    with Broker() as broker:
        yield broker.bootstrap_servers
