"""The pytest plugin: a real broker for tests, for any client library, sync or async.

The rule: it imports only pytest before a fixture is used, uses no fixture by itself, and changes no event loop setting.
Each worker of pytest-xdist has its own broker, so workers share nothing.
"""

from collections.abc import Generator
from typing import Any

import pytest

from . import marker
from .fixtures import (
    BROKERS,
    fp_bootstrap,
    fp_broker,
    fp_broker_factory,
    fp_broker_options,
    fp_client_config,
    fp_clock,
    fp_faults,
    fp_topic,
    fp_topics,
)

__all__ = [
    "fp_bootstrap",
    "fp_broker",
    "fp_broker_factory",
    "fp_broker_options",
    "fp_client_config",
    "fp_clock",
    "fp_faults",
    "fp_topic",
    "fp_topics",
]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option --fencepost-external."""
    parser.getgroup("fencepost").addoption(
        "--fencepost-external",
        metavar="HOST:PORT",
        default=None,
        help="run against a Kafka that runs there; tests that need the embedded broker are skipped",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and the client fixtures: those that work, or those that only name the missing
    pytest-asyncio.
    """
    config.addinivalue_line("markers", marker.LINE)
    config.stash[BROKERS] = []
    if config.pluginmanager.hasplugin("asyncio"):
        from . import async_fixtures as fixtures
    else:
        from . import no_async_fixtures as fixtures  # type: ignore[no-redef]
    config.pluginmanager.register(fixtures, "fencepost-clients")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize fp_client with each of the marker's clients that is installed."""
    if "fp_client" in metafunc.fixturenames:
        from importlib.util import find_spec

        wanted = marker.wishes_of(metafunc.definition).clients or tuple(marker.CLIENTS)
        names = [name for name in wanted if find_spec(marker.CLIENTS[name]) is not None]
        metafunc.parametrize("fp_client", names)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Fail a test if a requested fault did not fire, or if the broker met a bug."""
    result = yield
    for broker in _brokers_of(item):
        broker.verify()
    return result


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Reset the brokers that the test used, for the next test."""
    for broker in _brokers_of(item):
        broker.reset()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: Any) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the broker's state to the report of a failed test."""
    report = yield
    if report.failed and report.when != "teardown":
        for broker in _brokers_of(item):
            from .failure import describe

            report.sections.append(("fencepost at failure", describe(broker)))
    return report


def _brokers_of(item: pytest.Item) -> list[Any]:
    """Return the running brokers if this test uses a fixture of the plugin; else an empty list."""
    uses = any(name.startswith("fp_") for name in getattr(item, "fixturenames", ()))
    brokers: list[Any] = item.config.stash[BROKERS]
    return list(brokers) if uses else []
