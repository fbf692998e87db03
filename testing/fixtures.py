"""The fixtures that need no event loop: brokers, topics, faults, time.

The rule: heavy imports happen when a fixture is first used. Topic names are never used twice, so tests share a broker
without seeing each other's records.
"""

import os
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from .marker import wishes_of

if TYPE_CHECKING:
    from .clock import BrokerTime
    from .faults import Faults
    from .served import ExternalBroker, ObservedBroker

    AnyBroker = ObservedBroker | ExternalBroker

BROKERS: "pytest.StashKey[list[Any]]" = pytest.StashKey()
LONGEST_TEST_NAME = 60


@pytest.fixture(scope="session")
def fp_broker_options() -> dict[str, Any]:
    """The arguments with which fp_broker is started: users, super_users, acls, settings. Override this fixture in a
    conftest.py.
    """
    return {}


@pytest.fixture(scope="session")
def fp_broker(request: pytest.FixtureRequest, fp_broker_options: dict[str, Any]) -> "Iterator[AnyBroker]":
    """A broker in a thread of this process for the whole session, or the external one that
    --fencepost-external names.
    """
    from .served import ExternalBroker, ObservedBroker

    brokers = request.config.stash[BROKERS]
    external = request.config.getoption("--fencepost-external")
    if external:
        elsewhere = ExternalBroker(external)
        brokers.append(elsewhere)
        yield elsewhere
        return
    with ObservedBroker(**fp_broker_options) as broker:
        brokers.append(broker)
        yield broker
        brokers.remove(broker)


@pytest.fixture
def fp_broker_factory(request: pytest.FixtureRequest) -> "Iterator[Callable[..., ObservedBroker]]":
    """A function that starts a broker for this test only: fp_broker_factory(num_partitions=3). The broker runs until
    the test ends.
    """
    from .served import ObservedBroker

    if request.config.getoption("--fencepost-external"):
        pytest.skip("fp_broker_factory makes embedded brokers, which --fencepost-external excludes")
    from ..broker.embedded.broker import BrokerHaltedError

    brokers = request.config.stash[BROKERS]
    made: list[ObservedBroker] = []

    def make(data_dir: str | os.PathLike[str] | None = None, **settings: Any) -> "ObservedBroker":
        """Start a broker and return it. data_dir: None for one in memory. settings: of the broker."""
        broker = ObservedBroker(data_dir, **settings)
        broker.start()
        made.append(broker)
        brokers.append(broker)
        return broker

    yield make
    for broker in made:
        brokers.remove(broker)
        try:
            broker.stop()
        except BrokerHaltedError:  # the test halted it on purpose
            pass


@pytest.fixture
def fp_bootstrap(fp_broker: "AnyBroker") -> str:
    """The broker's address, HOST:PORT, for a client's bootstrap servers."""
    return fp_broker.bootstrap_servers


@pytest.fixture
def fp_client_config(fp_broker: "AnyBroker") -> "Callable[..., dict[str, str]]":
    """A function: fp_client_config("alice") returns the properties, by Kafka's names, with which a client logs in as
    alice.
    """
    found: Callable[..., dict[str, str]] = fp_broker.client_config
    return found


@pytest.fixture
def fp_topics(request: pytest.FixtureRequest, fp_broker: "AnyBroker") -> Iterator[Callable[..., list[str]]]:
    """A function that creates topics: fp_topics(3, partitions=2, cleanup_policy="compact") creates three and returns
    their names.
    """
    made: list[str] = []
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", request.node.name)[:LONGEST_TEST_NAME].strip("-")
    default = wishes_of(request.node).partitions

    def make(count: int = 1, *, partitions: int | None = None, **configs: object) -> list[str]:
        """Create `count` topics and return their names. partitions: None for the marker's. configs: Kafka's, with `_`
        for `.`.
        """
        names = [f"{stem}-{os.urandom(4).hex()}" for _ in range(count)]
        for name in names:
            fp_broker.create_topic(name, default if partitions is None else partitions, **configs)
        made.extend(names)
        return names

    yield make
    if request.config.getoption("--fencepost-external"):
        for name in made:
            fp_broker.delete_topic(name)


@pytest.fixture
def fp_topic(fp_topics: Callable[..., list[str]]) -> str:
    """The name of a new topic for this test."""
    return fp_topics()[0]


@pytest.fixture
def fp_faults(fp_broker: "AnyBroker") -> "Iterator[Faults]":
    """Yield the object that injects faults into the broker during this test. The test fails if a
    fault does not fire.
    """
    faults: Faults = fp_broker.faults.seed(0)
    yield faults
    faults.clear()


@pytest.fixture
def fp_clock(fp_broker: "AnyBroker") -> "BrokerTime":
    """Return the object that moves the broker's time: fp_clock.advance(61) moves it forward by 61 seconds."""
    fp_broker.clock  # noqa: B018 (skips the test where it is not ours)
    from .clock import BrokerTime

    return BrokerTime(fp_broker)  # type: ignore[arg-type]
