"""A large group of the newer protocol: what its assignment costs, and how long others wait meanwhile."""

import time
from collections.abc import Iterator

from ...broker.groups.consumer.assignors import Assigned, Subscriber, TopicShape, uniform_steps
from ..loads import members as load
from ..measured import Measured
from ..peers.names import OS
from .sizes import Say, Size, by_figure

FEWEST = 4
SHORTEST_S = 0.2
TOPIC_ID = bytes(15) + b"\1"


def groups(name: str, size: Size, say: Say) -> Iterator[Measured]:
    """Each round a new broker. The longest stall is that of all phases."""
    count = max(FEWEST, size.count(load.MEMBERS))
    rounds = []
    for number in range(size.rounds):
        found = load.measure(count, max(SHORTEST_S, load.EVERY_S * size.share))
        phase, worst = max(found.items(), key=lambda item: item[1].own)
        took_ms = assignment_ms(count)
        say(f"{name} · round {number + 1} of {size.rounds} · {worst.own:.1f} ms: {phase}")
        rounds.append({"stall_ms": worst.own, "took_ms": took_ms, "p99_ms": max(each.p99 for each in found.values())})
    yield Measured(name, "member", OS, by_figure(rounds))


def assignment_ms(count: int) -> float:
    """CPU of an assignment of so many members over as many partitions, and of the next, as half of them have gone."""
    ids = [f"member-{number}" for number in range(count)]
    topics = {TOPIC_ID: TopicShape(count)}
    began = time.thread_time()
    assigned = _assigned([Subscriber(each, frozenset(topics)) for each in ids], topics)
    left = [Subscriber(each, frozenset(topics), assigned[each]) for each in ids[::2]]
    _assigned(left, topics)
    return 1e3 * (time.thread_time() - began)


def _assigned(members: list[Subscriber], topics: dict[bytes, TopicShape]) -> Assigned:
    steps = uniform_steps(members, topics)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: Assigned = end.value
            return found
