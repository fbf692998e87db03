"""Rules about limits: whom they may strike, for how long, and what is held for those who vanished. Pure.

A rule's docstring says what must hold. The rule yields an Anomaly for each place where a history contradicts it.
"""

from collections.abc import Iterator

from simulation.facts import Anomaly, Facts
from simulation.history import OK, Forgotten, Healed, Held, Need

SLACK_MS = 5_000  # of a client that asks from time to time, beside what a transaction may hold others up


def needs_are_served(facts: Facts) -> Iterator[Anomaly]:
    """After the last fault has ended, an honest client is served as soon as clients that vanished have timed out."""
    healed_ms = next((op.done_ms for op, _ in facts.history.of(Healed)), None)
    if healed_ms is None:
        return
    for op, need in facts.history.of(Need, only_ok=False):
        waited_ms = op.done_ms - max(op.invoked_ms, healed_ms)
        if op.outcome != OK or waited_ms > facts.history.stall_ms + SLACK_MS:
            yield Anomaly("refused for good", f"{op.client} does not come {need.what}", (op,))


def nothing_is_held(facts: Facts) -> Iterator[Anomaly]:
    """In the end, clients that vanished have left neither transactions nor memberships."""
    for op, _ in facts.history.of(Held):
        if op.result:
            yield Anomaly("held for good", f"nobody is there for {op.result[:20]}", (op,))


def forgotten_for_a_reason(facts: Facts) -> Iterator[Anomaly]:
    """No producer or id in a transaction is forgotten; no other one for a limit that is not reached, or before one that
    was silent for longer.
    """
    for op, forgotten in facts.history.of(Forgotten):
        if forgotten.wrong:
            yield Anomaly("forgotten wrongly", forgotten.wrong, (op,))


LIMIT_RULES = [needs_are_served, nothing_is_held, forgotten_for_a_reason]
