"""A pytest plugin: `MUTANT=name pytest -p simulation.infecting FILES` runs tests against code with this bug."""

import os
from contextlib import ExitStack
from typing import Any

from simulation import bank


def pytest_configure(config: Any) -> None:
    stack = ExitStack()
    bank.MUTANTS[os.environ["MUTANT"]](stack)
    config.add_cleanup(stack.close)
