"""The bank of bugs in groups whose broker assigns the partitions (KIP-848), on both sides."""

from contextlib import ExitStack
from typing import Any

from fencepost.client.group.consumer_membership import ConsumerMembership
from simulation.code_mutants import killed_by
from simulation.mutants import _around

# ---- the SDK -------------------------------------------------------------------------------------------------


@killed_by("tests/client/group/test_consumer_membership.py")
def sdk_what_is_withdrawn_before_a_poll_is_not_reported(stack: ExitStack) -> None:
    """The broker waits for it until the rebalance timeout."""

    def wrapper(acknowledge: Any) -> Any:
        def unaware(self: Any) -> None:
            self._offered = frozenset()
            acknowledge(self)

        return unaware

    _around(stack, ConsumerMembership, "_acknowledge", wrapper)


@killed_by("tests/client/group/test_consumer_group.py")
def sdk_a_fenced_member_is_not_left(stack: ExitStack) -> None:
    """Its partitions wait for the end of its session, and so does a static successor."""

    def wrapper(leave: Any) -> Any:
        return lambda self, state, *, is_known=False: leave(self, state)

    _around(stack, ConsumerMembership, "_leave", wrapper)
