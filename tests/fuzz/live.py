"""Sends random requests to a running broker, and checks what must hold afterwards.

The rule: requests by chance, sent ahead on connections that come and go, end their own connection at worst. Then there
is no traceback, nothing of them is left, and an honest client does its work.
"""

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from acl_client import creating, guarded
from fencepost.broker.config.settings import BrokerSettings
from fencepost.protocol.apis import APIS
from fencepost.protocol.batches import walk
from fencepost.protocol.records import records
from fuzz.chance import Chance
from offset_requests import commit
from offset_requests import fetch as fetch_offsets
from produce_requests import answers, bytes_of, create, fetch, fetched, produce
from produce_requests import batch as produced
from served_broker import ServedBroker
from simulated_broker import SimulatedBroker
from simulated_client import SimulatedClient
from txn_client import Txn
from wire_client import WireClient

SENT_AHEAD = 25
HONEST = "honest"
RULES = (
    "allow User:ANONYMOUS READ TOPIC = *",
    "allow User:ANONYMOUS WRITE TOPIC = *",
    "allow User:ANONYMOUS READ GROUP = *",
    "allow User:ANONYMOUS WRITE TRANSACTIONAL_ID = *",
)


def target(*, is_guarded: bool) -> SimulatedBroker:
    """Return a broker with topics, a group and an open transaction. is_guarded: clients may only read and write."""
    small: dict[str, Any] = {"journal_max_bytes": 8 << 20, "storage_min_free_bytes": 0, "log_dir": "/d"}
    broker = SimulatedBroker(guarded(**small) if is_guarded else BrokerSettings(**small))
    for name, configs in ((HONEST, {}), ("t", {}), ("u", {}), ("compacted", {"cleanup_policy": "compact"})):
        broker.ask(create(name, 3, **configs))
    assert answers(broker.ask(produce("t", produced(5), produced(2)))) == [(0, 0), (0, 0)]
    assert commit(broker, "g", "t", {0: 1}) == [0]
    if is_guarded:
        broker.ask(creating(*RULES))
        broker = broker.again(guarded(**small, super_users="User:nobody"))
    return broker


def attack(broker: SimulatedBroker, seed: int, count: int) -> Counter[str]:
    """Send `count` requests, SENT_AHEAD on each connection. Returns how many were sent and how many answers came."""
    came: Counter[str] = Counter()
    topic_ids = [topic.id for name, topic in broker.broker.topics.by_name.items() if name != HONEST]
    txn = Txn(broker, "x")
    txn.init()  # may be refused, after another attack
    chance = Chance(seed, topic_ids, [txn.producer_id])
    for _ in range(count // SENT_AHEAD):
        client = SimulatedClient(broker)
        client.send_raw(b"".join(chance.frames(SENT_AHEAD)))
        broker.wait(0.2)
        came["requests"] += SENT_AHEAD
        came["answers"] += sum(1 for _ in _answers(bytes(client.line.received)))
        came["closed"] += client.line.closed
        client.close()
    txn.client.close()
    return came


def attack_logins(broker: SimulatedBroker, seed: int, count: int) -> int:
    """Like attack(), on a broker that requires a login. Returns how many logged in: some guess the password."""
    chance = Chance(seed, apis=[*APIS.values(), *(APIS[key] for key in (17, 18, 36) for _ in range(len(APIS)))])
    before = broker.broker.metrics.logins
    for _ in range(count // SENT_AHEAD):
        client = SimulatedClient(broker)
        client.send_raw(b"".join(chance.frames(SENT_AHEAD)))
        broker.wait(2)  # a login that fails is answered after a while
        client.close()
    return broker.broker.metrics.logins - before


def _answers(received: bytes) -> Iterator[bytes]:
    at = 0
    while len(received) - at >= 4:
        end = at + 4 + int.from_bytes(received[at : at + 4], "big")
        yield received[at:end]
        at = end


def check_nothing_is_left(broker: SimulatedBroker) -> None:
    """Check that there is no traceback, no connection is left and no request memory is held."""
    broker.ask(fetch(HONEST), 12)
    broker.wait(1)
    inner = broker.broker
    assert not inner.metrics.failures, inner.metrics.failures
    assert len(inner.server.connections) == 1  # that of `ask`
    assert len(inner.turns) == 0
    assert inner.server._memory._used == 0


def work_honestly(broker: SimulatedBroker, seed: int) -> None:
    """Write, read, commit an offset and a transaction, as a normal client does."""
    write_and_read(broker, seed)
    txn = Txn(broker, "honest")
    assert txn.init() == 0
    txn.write(HONEST, b"in a transaction", 1)
    assert txn.commit() == 0
    txn.client.close()


def write_and_read(broker: Any, seed: int) -> None:
    """broker: any object with ask(request, version)."""
    ((code, offset),) = answers(broker.ask(produce(HONEST, produced(1, value=b"%d" % seed))))
    assert code == 0, code
    part = fetched(broker.ask(fetch(HONEST, offset), 12))
    assert part.error_code == 0
    assert [record.value for found in walk(memoryview(bytes_of(part))) for record in records(found)] == [b"%d" % seed]
    assert commit(broker, "honest", HONEST, {0: offset}) == [0]
    assert fetch_offsets(broker, "honest", {HONEST: [0]}) == {(HONEST, 0): offset}


class Asking:
    """A connection over a socket, with the name that the helpers of tests use."""

    def __init__(self, client: WireClient) -> None:
        self._client = client

    def ask(self, request: Any, version: int | None = None) -> Any:
        return self._client.call(request, version)


def attack_over_sockets(broker: ServedBroker, seed: int, count: int) -> None:
    """As attack, over real connections; each is closed when no more answers come."""
    topics = broker.inside(lambda inner: [topic.id for name, topic in inner.topics.by_name.items() if name != HONEST])
    chance = Chance(seed, topics, [])
    for _ in range(count // SENT_AHEAD):
        # The broker closes the connection, or does not answer yet.
        with suppress(OSError), WireClient("127.0.0.1", broker.port, timeout_s=0.05) as client:
            client.send_raw(b"".join(chance.frames(SENT_AHEAD)))
            while client.socket.recv(1 << 16):
                pass


@contextmanager
def no_errors_logged() -> Iterator[None]:
    """No record of the broker's log is an error, or holds a traceback."""
    found: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.levelno >= logging.ERROR or record.exc_info:
                found.append(self.format(record))

    handler = Handler()
    logging.getLogger("fencepost").addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger("fencepost").removeHandler(handler)
    assert not found, "\n".join(found)
