"""Tests of the plugin run pytest inside pytest."""

import pytest
from fencepost.broker.requests.dispatch import load_handlers

pytest_plugins = "pytester"

load_handlers()  # pytester forgets what is imported inside a test, and a handler that is registered twice is an error

# These plugins are left out because they take seconds: one runs the garbage collector five times after each run, and
# one imports much.
OPTIONS = ("-p", "no:cacheprovider", "-p", "no:unraisableexception", "-p", "no:schemathesis")


@pytest.fixture
def run(pytester):
    """A function that runs a test file in a pytest of its own, in this process unless `subprocess`, and returns the
    result.
    """

    def run(source, *options, mode="auto", subprocess=False):
        pytester.makeini(f"[pytest]\nasyncio_mode = {mode}\nasyncio_default_fixture_loop_scope = function\n")
        pytester.makepyfile(source)
        inside = pytester.runpytest_subprocess if subprocess else pytester.runpytest_inprocess
        return inside(*OPTIONS, *options)

    return run
