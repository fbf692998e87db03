"""How bugs are planted: a mutant replaces what it changes by its name, in a block.

Each names the promise that it breaks, which a test finds in the documentation: what breaks none is not in the bank.
Nothing is changed by a piece of its text, so code may be written otherwise without the bank. What is replaced is named
as code names it (`Topics.create`, not "create"), so that tools which rename one rename the other.
"""

import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from simulation.run import Result, simulate

Patches = Callable[[ExitStack], object]
MUTANTS: dict[str, Patches] = {}
PROMISES: dict[str, str] = {}
KILLED_BY: dict[str, str] = {}
WITH_QUEUES: dict[str, int] = {}
WITH_MIRROR: dict[str, int] = {}
IN_STORE: dict[str, int] = {}
QUEUE_SECONDS = 8.0  # of traffic; some 1,000 operations
MIRROR_SECONDS = 12.0
STORE_SECONDS = 10.0
Wrapped = Callable[..., Any]


def mutant(make: Patches) -> Patches:
    """Add a mutant to the bank. Its name says what is wrong."""
    MUTANTS[make.__name__] = make
    return make


def breaks(promise: str) -> Callable[[Patches], Patches]:
    """Note which promise a mutant breaks: a line of docs/requirements.md (S-23), or a page of docs/ and words of it."""

    def add(make: Patches) -> Patches:
        PROMISES[make.__name__] = promise
        return make

    return add


def killed_by(file: str) -> Callable[[Patches], Patches]:
    """Add a mutant to the bank that this test file catches."""

    def add(make: Patches) -> Patches:
        MUTANTS[make.__name__] = make
        KILLED_BY[make.__name__] = file
        return make

    return add


def caught_with_queues(seed: int) -> Callable[[Patches], Patches]:
    """Add a mutant to the bank that only the clients of a share group meet. seed: the first that catches it, within
    QUEUE_SECONDS.
    """

    def add(make: Patches) -> Patches:
        WITH_QUEUES[make.__name__] = seed
        return mutant(make)

    return add


def caught_with_mirror(seed: int) -> Callable[[Patches], Patches]:
    """Add a mutant of a mirror, between two brokers, to the bank. seed: the first that catches it, within
    MIRROR_SECONDS.
    """

    def add(make: Patches) -> Patches:
        WITH_MIRROR[make.__name__] = seed
        return mutant(make)

    return add


def caught_in_store(seed: int) -> Callable[[Patches], Patches]:
    """Add a mutant to the bank that only brokers on a store of objects meet. seed: the first that catches it, within
    STORE_SECONDS.
    """

    def add(make: Patches) -> Patches:
        IN_STORE[make.__name__] = seed
        return mutant(make)

    return add


@contextmanager
def infected(name: str) -> Iterator[None]:
    """Within the block, all brokers have this bug."""
    with ExitStack() as stack:
        MUTANTS[name](stack)
        yield


def hunt(name: str, seeds: int, seconds: float = 20.0) -> Result | None:
    """Simulate with this bug, with at most `seeds` seeds. Returns the first run that catches it, or None. For a bug of
    share groups, of mirrors or of brokers on a store of objects only these are simulated.
    """
    kind = {"only_queues": name in WITH_QUEUES, "mirror": name in WITH_MIRROR, "in_store": name in IN_STORE}
    first = (WITH_QUEUES | WITH_MIRROR | IN_STORE).get(name, 1)
    shorter = ((WITH_QUEUES, QUEUE_SECONDS), (WITH_MIRROR, MIRROR_SECONDS), (IN_STORE, STORE_SECONDS))
    seconds = next((enough for names, enough in shorter if name in names), seconds)
    with infected(name):
        for seed in range(first, first + seeds):
            result = simulate(seed, seconds, **kind)
            # Nor should what the bug left behind be served.
            does_not_start = result.broken.startswith(("BrokerHalted", "JournalDamaged"))
            if result.anomalies or result.failures or does_not_start:
                return result
            assert result.good, result  # that would be the simulation's own fault
    return None


def replaced(stack: ExitStack, original: Any, value: Any) -> None:
    """Replace a function, a method or a property where it is defined."""
    _replaced(stack, *_place_of(original), value)


def around(stack: ExitStack, original: Any, wrapper: Callable[[Wrapped], Wrapped]) -> None:
    _around(stack, *_place_of(original), wrapper)


def _place_of(original: Any) -> tuple[Any, str]:
    """Return the module or class that has it, and its name there."""
    function = original.fget if isinstance(original, property) else getattr(original, "__func__", original)
    *outer, name = function.__qualname__.split(".")
    return functools.reduce(getattr, outer, sys.modules[function.__module__]), name


# For what has no name of its own: constants, and what one module alone is to have another of.


def _replaced(stack: ExitStack, owner: Any, name: str, value: Any) -> None:
    _check_parameters(getattr(owner, name), value)
    stack.enter_context(mock.patch.object(owner, name, value))


def _check_parameters(original: Any, value: Any) -> None:
    """Raise TypeError if a function does not take the arguments of the one that it replaces."""
    if not (inspect.isfunction(original) and inspect.isfunction(value)):
        return
    parameters = inspect.signature(original).parameters.values()
    by_name = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
    by_place = [parameter for parameter in parameters if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
    inspect.signature(value).bind(*by_place, **dict.fromkeys(by_name))


def _around(stack: ExitStack, owner: Any, name: str, wrapper: Callable[[Wrapped], Wrapped]) -> None:
    _replaced(stack, owner, name, wrapper(getattr(owner, name)))
