"""Races of an old client with itself: a request held up on a connection that it gave up arrives in a later transaction.

Each race does two transactions and says what a reader must find after them. A broker that serves the late request as if
it were of the second transaction corrupts that: `Corruption` says how. Kafka does (KAFKA-17754).
"""

import itertools
import threading
import time
from collections.abc import Callable

from chaos_proxy import END_TXN, INIT_PRODUCER_ID, PRODUCE, TXN_OFFSET_COMMIT, ChaosProxy, Held
from fencepost.protocol.errors import KafkaError
from library_producers import LIBRARIES, Hung, LibraryProducer
from old_client import Looker, OldClient

PATIENT_S = 15


class Corruption(Exception):
    """Raised if readers see something else than the application was told by the broker."""


class Racer:
    """One client behind a proxy of its own, and a reader that connects directly."""

    def __init__(self, bootstrap: str, client: str, name: str, patience_ms: int | None = None) -> None:
        """patience_ms: the client's connection is not cut; instead it gives up by itself when a request takes
        so long.
        """
        self.cut = patience_ms is None
        self.patience_ms = patience_ms
        self.proxy = ChaosProxy(bootstrap)
        self.look = Looker(bootstrap)
        self.client = client
        self.name = name
        self.topic, self.group = f"{name}-t", f"{name}-g"
        self.source = f"{name}-s"
        self.expected: list[bytes] = []
        self.hangs = 0
        self.late: list[bytes | None] = []  # what the broker made of each late request: a reply, or None: it closed

    def __enter__(self) -> "Racer":
        self.look.topic(self.topic, 2)
        self.look.topic(self.source)
        self.proxy.__enter__()
        self.producer = self.made()
        self.producer.init()
        return self

    def __exit__(self, *error: object) -> None:
        self.proxy.clear()
        self.producer.close()
        self.proxy.__exit__(None, None, None)
        self.look.__exit__()

    def made(self) -> LibraryProducer:
        if self.client == "raw":
            return OldClient(self.proxy.bootstrap, f"{self.name}-id")
        return LIBRARIES[self.client](self.proxy.bootstrap, f"{self.name}-id", self.patience_ms)

    def again(self) -> None:
        """Replace a client that cannot be used any more by a new one with the same transactional id."""
        self.proxy.clear()
        self.producer.close()
        self.producer = self.made()
        self.producer.init()
        self.expected = self.look.committed(self.topic)

    def arrive(self, held: Held) -> None:
        self.late.append(held.arrive(PATIENT_S))

    def transaction(self, value: bytes) -> None:
        """Begin a transaction, and write a record in it."""
        self.producer.begin()
        self.producer.send(self.topic, value)

    def check(self) -> None:
        """Raise Corruption unless exactly the committed records can be read. Waits for the markers, which an Apache
        Kafka writes after its answer.
        """
        until = time.monotonic() + PATIENT_S
        while len(set(self.look.ends(self.topic))) > 1 and time.monotonic() < until:
            time.sleep(0.005)
        found = self.look.committed(self.topic)
        if found != self.expected:
            wanted = set(self.expected)
            bled, lost = [v for v in found if v not in wanted], [v for v in self.expected if v not in found]
            raise Corruption(f"read though aborted: {bled}, lost though committed: {lost}, or out of order")


def end(racer: Racer, number: int) -> None:
    """Race: EndTxn arrives late, in the next transaction. Commit and abort alternate, and the second transaction ends
    the other way.
    """
    first, second, held = b"first-%d" % number, b"second-%d" % number, None
    racer.transaction(first)
    held = racer.proxy.hold(END_TXN, cut=racer.cut)
    ends = [racer.producer.commit, racer.producer.abort]
    kept = first
    if number % 2:
        ends.reverse()
        kept = second
    ends[0]()
    racer.transaction(second)
    racer.arrive(held)
    try:
        ends[1]()
    except Exception as error:  # each library has its own
        raise Corruption(f"the second transaction could not be ended: {error!r}") from error
    racer.expected.append(kept)
    racer.check()


def offsets(racer: Racer, number: int) -> None:
    """Race: TxnOffsetCommit arrives late. The second transaction's offset must be committed."""
    producer, first, second = racer.producer, 10 * number + 1, 10 * number + 2
    producer.begin()
    held = racer.proxy.hold(TXN_OFFSET_COMMIT, cut=racer.cut)
    producer.send_offset(racer.group, racer.source, first)
    producer.commit()
    producer.begin()
    producer.send_offset(racer.group, racer.source, second)
    racer.arrive(held)
    producer.commit()
    if (found := racer.look.offset(racer.group, racer.source)) != second:
        raise Corruption(f"the offset committed last is {second}, the group continues at {found}")


def produce(racer: Racer, number: int) -> None:
    """Race: Produce arrives late, after the client has sent its record again. The record must be there once."""
    held = racer.proxy.hold(PRODUCE, cut=racer.cut)
    racer.transaction(b"first-%d" % number)
    racer.producer.commit()
    racer.transaction(b"second-%d" % number)
    racer.arrive(held)
    racer.producer.commit()
    racer.expected += [b"first-%d" % number, b"second-%d" % number]
    racer.check()


def abandoned_produce(racer: Racer, number: int, *, newer_connection: bool = True) -> None:
    """Race: Produce arrives late, of a client that gave its record up and uses its epoch and sequence number again, so
    that a broker without the fence (an Apache Kafka) confuses the two records.

    newer_connection: the client has sent records over a newer connection by then, by which the fence recognises the
    late one.
    """
    client, given_up, kept = racer.producer, b"given-up-%d" % number, b"kept-%d" % number
    assert isinstance(client, OldClient)
    client.begin()
    client.add(racer.topic, 0)
    held = racer.proxy.hold(PRODUCE, cut=racer.cut)
    client.give_up(racer.topic, given_up)
    client.abort()
    client.begin()
    client.add(racer.topic, 0, 1)
    if newer_connection:
        client.send(racer.topic, b"beside-%d" % number, 1)
    racer.arrive(held)
    client.send(racer.topic, kept)
    client.commit()
    racer.expected.append(kept)
    racer.check()


def init(racer: Racer, number: int) -> None:
    """Race: InitProducerId arrives late. It must not fence the client that sent it."""
    racer.producer.close()
    racer.producer = racer.made()
    held = racer.proxy.hold(INIT_PRODUCER_ID, cut=racer.cut)
    racer.producer.init()
    racer.transaction(b"one-%d" % number)
    racer.arrive(held)
    try:
        racer.producer.commit()
    except Exception as error:
        raise Corruption(f"a client fenced itself: {error!r}") from error
    racer.expected.append(b"one-%d" % number)
    racer.check()


def abandoned_produce_alone(racer: Racer, number: int) -> None:
    """Race: like abandoned_produce, but the late request arrives before the client has sent anything over a newer
    connection.
    """
    abandoned_produce(racer, number, newer_connection=False)


Race = Callable[[Racer, int], None]
RACES: dict[str, Race] = {"end": end, "offsets": offsets, "produce": produce, "init": init}


def run(bootstrap: str, client: str, race: Race, name: str, rounds: int, tasks: int) -> list[bytes | None]:
    """Run this many rounds of a race, by `tasks` clients at once. Raises what one of them raised.

    Returns the responses to the late requests: None if the broker closed the connection instead.
    """
    numbers = itertools.count()
    late: list[bytes | None] = []
    failures: list[BaseException] = []

    def work(task: int) -> None:
        try:
            with Racer(bootstrap, client, f"{name}-{task}") as racer:
                while not failures and (number := next(numbers)) < rounds:
                    complete(racer, race, number, 1 + rounds // 100)
                late.extend(racer.late)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(task,)) for task in range(tasks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for failure in failures:
        raise failure
    return late


def complete(racer: Racer, race: Race, number: int, patience: int) -> None:
    """Run one round. If a library hangs, which is its own fault, repeat it with a new client, at most `patience`
    times.
    """
    while True:
        try:
            return race(racer, number)
        except Hung:
            racer.hangs += 1
            if racer.hangs > patience:
                raise
            racer.again()


def corruptions(bootstrap: str, client: str, race: Race, name: str, rounds: int) -> int:
    """Return in how many of this many rounds the readers see a corruption. Each corrupt round is followed by a new
    client.
    """
    count = 0
    with Racer(bootstrap, client, name) as racer:
        for number in range(rounds):
            try:
                complete(racer, race, number, 1)
            except (Corruption, KafkaError):
                count += 1
                racer.again()
    return count
