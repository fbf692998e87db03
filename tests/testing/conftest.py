"""Tests of the plugin run pytest inside pytest."""

import pytest
from fencepost.broker.requests.dispatch import load_handlers

pytest_plugins = "pytester"

load_handlers()  # pytester forgets what is imported inside a test, and a handler that is registered twice is an error

# Of the plugins that are left out one collects five times after each run, and one imports much: that takes seconds.
OPTIONS = ("-p", "no:cacheprovider", "-p", "no:unraisableexception", "-p", "no:schemathesis")


@pytest.fixture
def run(pytester):
    """Run some tests inside this process. Returns the result."""

    def run(source, *options, mode="auto", subprocess=False):
        pytester.makeini(f"[pytest]\nasyncio_mode = {mode}\nasyncio_default_fixture_loop_scope = function\n")
        pytester.makepyfile(source)
        inside = pytester.runpytest_subprocess if subprocess else pytester.runpytest_inprocess
        return inside(*OPTIONS, *options)

    return run
