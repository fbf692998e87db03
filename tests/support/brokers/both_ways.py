"""Runs one script of requests on a broker with all fast paths and on brokers without one of them, to compare the
outcomes.

What a broker sends, stores, counts and remembers is collected, so that a test can compare all of it.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import pytest
from broker_lives import small
from fencepost.broker.metrics import Histogram
from fencepost.broker.net.connection import Connection
from fencepost.broker.requests.fast_transactions import FastTransactions
from fencepost.broker.transactions.states.transaction import Status
from fencepost.protocol.framing import Framer
from produce_requests import create
from simulated_broker import SimulatedBroker
from simulated_client import SimulatedClient
from store_dump import dump
from txn_client import Txn

CLIENTS = ("a", "", "a-client-with-a-longer-name")
TOPICS: dict[str, dict[str, Any]] = {
    "t": {},
    "u": {"max_message_bytes": 300},
    "keys": {"cleanup_policy": "compact"},
    "stamped": {"message_timestamp_type": "LogAppendTime"},
}
TRANSACTIONAL = ("x", "y")
TURN_S = 0.05
# The objects of each broker; which way a request went, and how long it took: their sums are compared instead.
NOT_ALIKE = {"failures", "connections", "general_requests", "fast_requests", "request_ns"}

Step: TypeAlias = Callable[["Script"], None]
Way: TypeAlias = Callable[[pytest.MonkeyPatch, SimulatedBroker], None]


def no_fast_paths(patch: pytest.MonkeyPatch, broker: SimulatedBroker) -> None:
    """Send every request to its handler: the broker answers none by its fast path."""
    dispatcher = broker.broker.server.serve.__self__  # type: ignore[attr-defined]
    patch.setattr(dispatcher, "fast_paths", {})


def no_fast_transactions(patch: pytest.MonkeyPatch, broker: SimulatedBroker) -> None:
    patch.setattr(FastTransactions, "_carry_out", lambda *_: False)


def no_small_frames(patch: pytest.MonkeyPatch, broker: SimulatedBroker) -> None:
    """Parse every received chunk in full, without the shortcut for small frames."""
    patch.setattr(Framer, "is_one_small_frame", lambda *_: False)


def in_turn(patch: pytest.MonkeyPatch, broker: SimulatedBroker) -> None:
    """Send replies one by one, without the shortcut that sends several at once."""
    patch.setattr(Connection, "flush", Connection._flush_in_turn)


WAYS = {way.__name__: way for way in (no_fast_paths, no_fast_transactions, no_small_frames, in_turn)}


class Script:
    """A broker, some connections to it, and a transactional producer for each id."""

    def __init__(self, broker: SimulatedBroker) -> None:
        self.broker = broker
        for name, configs in TOPICS.items():
            broker.ask(create(name, 3, **configs))
        self.clients = [SimulatedClient(broker, name) for name in CLIENTS]
        self.txns = [Txn(broker, name) for name in TRANSACTIONAL]
        for txn in self.txns:
            assert txn.init() == 0
        self.sequences: Counter[tuple[int, int]] = Counter()  # next, by producer id and partition
        self.stages = [0] * len(self.txns)
        self.inner = broker.broker

    def send(self, client: int, request: Any, version: int) -> None:
        """Send a request on the client's connection; on a new one, if the broker has closed it."""
        if self.clients[client].line.closed:
            self.clients[client] = SimulatedClient(self.broker, CLIENTS[client])
        self.clients[client].send_unanswered(request, version)

    def wait(self, seconds: float = TURN_S) -> None:
        """Let this many seconds pass, so that everything sent takes effect; producers then continue from the broker's
        state.
        """
        self.broker.wait(seconds)
        self.sequences.clear()
        topic = self.inner.topics.by_name.get("t")
        for partition in topic.partitions if topic is not None else []:
            for each in partition.log.producers.describe():
                self.sequences[each.producer_id, partition.index] = (each.last_sequence + 1) % 2**31
        for number, txn in enumerate(self.txns):
            found = self.inner.transactions.transactions[txn.name]
            txn.goes_on_as(found.producer_id, found.producer_epoch)
            self.stages[number] = max(1, self.stages[number]) if found.status is Status.ONGOING else 0

    def outcome(self) -> dict[str, Any]:
        """Return everything that a client could observe."""
        self.wait(1)
        inner, metrics = self.inner, self.inner.metrics
        assert not metrics.failures
        for log in inner.store.logs.values():
            log.offline = None  # a script may have taken it offline, and only an online log can be read
        return {
            "replies": [bytes(client.line.received) for client in self.clients],
            "closed": [client.line.closed for client in self.clients],
            "logs": dump(inner.store),
            "producers": [list(log.producers.describe()) for log in inner.store.logs.values()],
            "transactions": dict(inner.transactions.transactions),
            "disk": self.broker.disk.fingerprint(),
            "units": (inner.store.last_unit, inner.store.released_unit),
            "remembered": inner.producer_limit.count,
            "connections": [
                (one.client_id, one.newest_unit, len(one.slots), one._out_bytes, one._other_replies)
                for one in inner.server.connections
            ],
            "requests": metrics.requests,
            "timed": {place: sum(each.counts) for place, each in metrics.request_ns.items()},
            "metrics": {name: _plain(getattr(metrics, name)) for name in metrics.__slots__ if name not in NOT_ALIKE},
        }


def _plain(count: Any) -> Any:
    return (count.counts, count.total) if isinstance(count, Histogram) else count


def carried_out(
    steps: Sequence[Step], way: Callable[[pytest.MonkeyPatch, SimulatedBroker], None] | None
) -> dict[str, Any]:
    """Run the steps and return the outcome. way: the shortcut that is switched off."""
    with pytest.MonkeyPatch.context() as patch, SimulatedBroker(small()) as broker:
        if way is not None:
            way(patch, broker)
        script = Script(broker)
        for step in steps:
            step(script)
        return script.outcome()
