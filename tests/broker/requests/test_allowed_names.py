"""The allowed ones of many names: all at once without an authorizer, name by name in steps with one."""

from types import SimpleNamespace
from typing import Any

from acl_client import rule
from fencepost.broker.requests.allowed_names import UNITS, allowed_names
from fencepost.broker.security.access import Access
from fencepost.broker.security.acls import Operation, ResourceType
from fencepost.broker.security.authorizer import Authorizer
from fencepost.broker.security.principals import Principal, Session

NAMES = [f"{letter}{number}" for number in range(500) for letter in "ba"]
CALL: Any = SimpleNamespace(session=Session(Principal("User", "alice"), "10.0.0.1"))


def looked_up(*, is_enforced: bool) -> tuple[list[int], list[str]]:
    """Ask which of NAMES alice may describe. Returns (the units of each step, the allowed names)."""
    authorizer = Authorizer()
    authorizer.add(rule("allow User:alice READ TOPIC ^ a"))
    broker: Any = SimpleNamespace(access=Access(authorizer, is_enforced=is_enforced))
    steps = allowed_names(broker, CALL, Operation.DESCRIBE, ResourceType.TOPIC, NAMES)
    units = []
    while True:
        try:
            units.append(next(steps))
        except StopIteration as end:
            return units, end.value


def test_with_an_authorizer_names_are_checked_one_per_step_and_allowed_ones_returned() -> None:
    assert looked_up(is_enforced=True) == ([UNITS] * len(NAMES), NAMES[1::2])


def test_without_an_authorizer_all_names_are_allowed_without_a_lookup() -> None:
    assert looked_up(is_enforced=False) == ([], NAMES)
