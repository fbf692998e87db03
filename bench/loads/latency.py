"""Measures latency from end to end at a fixed rate: from the time at which a record was due to be sent until a consumer
has it.

The producer follows a fixed timetable, whatever the answers. If something delays the producer, a record is sent late,
and its latency still counts from its time in the timetable. Producer and consumer are processes of their own on one
machine, so they have the same clock, and neither waits for the other's interpreter.
"""

import contextlib
import ctypes
import struct
import time
from array import array
from dataclasses import dataclass
from typing import Any

from .. import librdkafka, topics
from ..peers.peers import Peer
from . import child
from .child import InChild, Outcome, Window, say
from .produce import log_ends
from .window import Sample

RATES = (2_000, 20_000)
RECORD_BYTES = 100
STAMP = struct.Struct(">q")  # monotonic ns at which the record was to be sent
LEAD_S = 0.05  # from the end of the preparation to the first record that is due
GRACE_S = 15  # for the last records, after the window
GRACE_NS = int(1e9 * GRACE_S)
LOOK_S = 0.05
CLOSING_S = 0.001  # between two looks at the clock when all records have arrived
EARLY_NS = 5_000_000  # window.begin() is called this long before the first record is due, to not delay it
SET_TIMER_SLACK = 29  # prctl(2)


@dataclass(frozen=True, slots=True)
class Pace:
    """The arguments of both child processes. per_second: the rate of records. offset: the partition's end offset
    before the load.
    """

    bootstrap: str
    topic: str
    per_second: int
    seconds: float
    offset: int
    record_bytes: int = RECORD_BYTES
    warm_seconds: float = 0.5

    @property
    def records(self) -> int:
        """Return how many records are sent within the window, at least 1."""
        return max(1, round(self.per_second * self.seconds))


@dataclass(frozen=True, slots=True)
class EndToEnd(InChild):
    """The scenario: records are sent to one partition at a fixed rate, without batching."""

    per_second: int
    record_bytes: int = RECORD_BYTES

    @property
    def name(self) -> str:
        return f"end to end {self.per_second:,}/s"

    @property
    def topic(self) -> str:
        return f"bench-latency-{self.per_second}"

    def prepare(self, peer: Peer) -> None:
        """Create the topic."""
        topics.create(peer.host, peer.port, self.topic, 1)

    def window(self, peer: Peer, seconds: float) -> Sample:
        """Send and receive for this many seconds, and return what was measured. Raises: LoadFailed."""
        offset = log_ends(peer, self.topic, 1)[0]
        pace = Pace(peer.bootstrap, self.topic, self.per_second, seconds, offset, self.record_bytes, self.warm_seconds)
        return child.window(receive, pace, peer)


def table() -> list[EndToEnd]:
    """Return the scenario of the short table: the lower rate only."""
    return [EndToEnd(RATES[0])]


def full() -> list[EndToEnd]:
    """Return the scenarios of all rates."""
    return [EndToEnd(per_second) for per_second in RATES]


def receive(settings: dict[str, Any], window: Window) -> Outcome:
    """Run in the child process: consume, while a child process of its own runs send()."""
    from confluent_kafka import Consumer, TopicPartition

    pace = Pace(**settings)
    consumer = Consumer({**librdkafka.CONSUMER, "bootstrap.servers": pace.bootstrap})
    consumer.assign([TopicPartition(pace.topic, 0, pace.offset)])
    patience_s = pace.seconds + pace.warm_seconds + child.PATIENCE_S
    with child.Child("fencepost.bench.loads.latency:send", settings, patience_s) as sender:
        opens = int(sender.expect("grid")["opens"])
        try:
            arrived, lags = _receive(consumer, pace, opens, window)
        except TimeoutError:
            sender.expect("begin")  # raises the reason, if the child sent one
            sender.expect("end")
            sender.report()
            raise
        sender.expect("begin")
        sender.expect("end")
        share = sender.report().client_share
    latencies = child.histogram(lag / 1000 for lag in lags)
    return Outcome(arrived, arrived * pace.record_bytes, latencies, share)


def _receive(consumer: Any, pace: Pace, opens: int, window: Window) -> tuple[int, "array[int]"]:
    """Read all records of the window, also those that arrive after its end. opens: when the window begins, in ns of
    the monotonic clock. Raises: TimeoutError if some do not arrive.

    Returns how many arrived within the window, and the latency of each record in ns.
    """
    lags: array[int] = array("q")
    unpack, size = STAMP.unpack_from, pace.records
    closes = opens + int(1e9 * pace.seconds)
    there = [0, 0]  # how many records had arrived when the window began, and when it ended
    marks = [(opens - EARLY_NS, window.begin), (closes, window.end)]
    while len(lags) < size or marks:
        message = consumer.poll(LOOK_S if len(lags) < size else CLOSING_S)
        now = time.monotonic_ns()
        if marks and now >= marks[0][0]:
            there = [there[1], len(lags)]
            marks.pop(0)[1]()
        if message is None or message.error():
            if now > closes + GRACE_NS:
                raise TimeoutError(f"{size - len(lags)} of {size} records did not arrive")
            continue
        (due,) = unpack(message.value())
        if due >= opens:
            lags.append(now - due)
    return there[1] - there[0], lags


def send(settings: dict[str, Any], window: Window) -> Outcome:
    """Run in the child of the child process: send each record at the time at which it is due."""
    from confluent_kafka import Producer

    pace = Pace(**settings)
    failures: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": pace.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 0,
            "log_level": 0,
            "on_delivery": lambda error, _message: failures.append(str(error)),
            "delivery.report.only.error": True,
        }
    )
    rest = b"." * (pace.record_bytes - STAMP.size)
    producer.produce(pace.topic, STAMP.pack(0) + rest)  # the library learns where the topic is
    if producer.flush(GRACE_S) or failures:
        raise RuntimeError(f"the first record was not acknowledged: {failures[:1]}")
    _exact_sleeps()
    warm, step = max(1, round(pace.per_second * pace.warm_seconds)), 1e9 / pace.per_second
    opens = time.monotonic_ns() + int(1e9 * (LEAD_S + pace.warm_seconds))
    say("grid", opens=opens)
    for number in range(-warm, pace.records):
        due = opens + int(number * step)
        while (ahead := due - time.monotonic_ns()) > 0:
            time.sleep(ahead / 1e9)
        if number == -1:  # before the last warm-up record, so that begin() does not delay the first record that counts
            window.begin()
        producer.produce(pace.topic, STAMP.pack(due) + rest)
        producer.poll(0)
    window.end()
    left = producer.flush(GRACE_S)
    if left or failures:
        raise RuntimeError(f"{max(left, len(failures))} records were not acknowledged: {failures[:1]}")
    return Outcome(pace.records, pace.records * pace.record_bytes, child.histogram([]))


def _exact_sleeps() -> None:
    """Set the least timer slack: by default Linux may end a sleep 50 µs late, which would count as latency."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(SET_TIMER_SLACK, 1, 0, 0, 0)
