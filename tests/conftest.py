"""What every test has: tests/support with its folders on the path, a hypothesis profile, the table of requirements."""

import gc
import signal
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = map(str, (ROOT / "tests" / "support").glob("**/"))  # names of modules are unique among them all

from long_runs import share_of  # noqa: E402

# What a shell starts in the background ignores Ctrl-C, and Python then has no handler: tests of Ctrl-C waited for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No test ends by the clock: a busy machine is slow, not wrong.
settings.register_profile(
    "fencepost", max_examples=share_of(50), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("check", settings.get_profile("fencepost"), max_examples=10)  # for `make check`
settings.load_profile("fencepost")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--requirements", action="store_true", help="print which tests show which requirement, run none")
    parser.addoption("--first-case", action="store_true", help="make only the first case of each parametrized test")


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    from long_runs import with_first_value

    if metafunc.config.getoption("--first-case"):
        metafunc.parametrize = with_first_value(metafunc.parametrize)  # type: ignore[method-assign]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Whatever is made here stays: to look for garbage among it would take a fifth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish(session: pytest.Session) -> None:
    if session.config.getoption("--requirements"):
        from requirements_table import render

        shown = [(m.args, item.nodeid) for item in session.items for m in item.iter_markers("requirement")]
        pairs = [(identifier, nodeid) for identifiers, nodeid in shown for identifier in identifiers]
        sys.stdout.write(render(ROOT / "docs" / "requirements.md", pairs))
        session.items.clear()
    gc.freeze()  # thousands of tests that stay: no collection needs to look at them


@pytest.fixture(scope="session")
def postgres():
    """A PostgreSQL for all tests of this process. It does not sync; what it has committed survives its processes."""
    from postgres_server import MISSING, PostgresServer, find_programs

    programs = find_programs()
    if programs is None:
        pytest.skip(MISSING)
    server = PostgresServer(programs, "fsync=off")
    server.make()
    yield server
    server.remove()


@pytest.fixture
def postgres_url(postgres):
    """The URL of an empty database of this test."""
    with postgres.database() as url:
        yield url


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    from untested import note

    if not hasattr(config, "workerinput"):  # a worker of pytest-xdist tells the one who started it
        note(terminalreporter.stats.get("skipped", []))
