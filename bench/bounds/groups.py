"""Measures how long other clients wait for the broker while the members of a large group of the consumer protocol
(KIP-848) join and leave.
"""

from collections.abc import Iterator

from ..loads import members as load
from ..measured import Measured
from ..peers.names import OS
from .sizes import Say, Size, by_figure

FEWEST = 4
SHORTEST_S = 0.2


def groups(name: str, size: Size, say: Say) -> Iterator[Measured]:
    """Measure how long an idle client waits for answers while the members of a large group join and leave, on a new
    broker in each round. Yields one result: the longest wait in any phase.
    """
    count = max(FEWEST, size.count(load.MEMBERS))
    rounds = []
    for number in range(size.rounds):
        found = load.measure(count, max(SHORTEST_S, load.EVERY_S * size.share))
        phase, worst = max(found.items(), key=lambda item: item[1].own)
        say(f"{name} · round {number + 1} of {size.rounds} · {worst.own:.1f} ms: {phase}")
        rounds.append({"stall_ms": worst.own, "p99_ms": max(each.p99 for each in found.values())})
    yield Measured(name, "member", OS, by_figure(rounds))
